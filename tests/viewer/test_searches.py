"""What is recorded of a planner's search: its rollouts and its tree, compared with the search itself."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from tests.planners.tables import TableModel
from thinker.planners import ExhaustiveSpec, GumbelMCTSSpec, MCTSSpec, RandomSearchSpec, search
from thinker.viewer.frames import FrameStore
from thinker.viewer.searches import MOST_NODES, MOST_STEPS, read_search

DISCOUNT = 0.9
SMALL = [
    MCTSSpec(simulations=25),
    GumbelMCTSSpec(simulations=25, max_depth=3),
    ExhaustiveSpec(depth=2),
    RandomSearchSpec(simulations=25, max_depth=3),
]


def recorded(spec, row: int = 0, num_actions: int = 3):
    model = TableModel(0, batch=3, num_actions=num_actions, end_rate=0.1)
    result = search(model, model.observation(), spec, discount=DISCOUNT, keep_states=True)
    frames = FrameStore(spaces.Box(0, 100, (2,), np.int64))
    frame = frames.add(model.observation()[row])
    return result.tree, read_search(spec, result, row, discount=DISCOUNT, frame=frame, frames=frames)


def paths_of(parent, action) -> list[tuple[int, ...]]:
    """The actions to every node."""
    paths: list[tuple[int, ...]] = [()]
    for node in range(1, len(parent)):
        paths.append((*paths[parent[node]], int(action[node])))
    return paths


@pytest.mark.parametrize("spec", SMALL, ids=lambda spec: type(spec).__name__)
@pytest.mark.parametrize("row", [0, 2])
def test_small_searches_are_recorded_as_a_whole_with_returns_from_the_root(spec, row):
    tree, shown = recorded(spec, row)
    exists = np.flatnonzero(tree.visits[row])
    number = {place: new for new, place in enumerate(exists)}
    parent = [-1, *(number[tree.parent[row, place]] for place in exists[1:])]
    assert shown.tree.parent == parent
    assert shown.tree.action == tree.action[row, exists].tolist()
    assert shown.tree.visits == tree.visits[row, exists].tolist()
    assert shown.tree.terminated == tree.ended[row, exists].tolist()
    for new, place in enumerate(exists):
        g, here = DISCOUNT * tree.value[row, place], place
        while here:  # γ r_1 + γ² r_2 + ... + γ^n r_n + γ^(n+1) v, from the last to the first
            g, here = DISCOUNT * (tree.reward[row, here] + g), tree.parent[row, here]
        assert shown.tree.rollout_return[new] == pytest.approx(g, rel=1e-3, abs=1e-4)
        if new:
            np.testing.assert_array_equal(shown.states[new], tree.state[row, place])


@pytest.mark.parametrize("spec", SMALL, ids=lambda spec: type(spec).__name__)
def test_rollouts_start_at_the_root_and_lead_to_their_nodes(spec):
    _, shown = recorded(spec)
    paths = paths_of(shown.tree.parent, shown.tree.action)
    walked: tuple[int, ...] = ()
    count = 0
    for step in shown.steps:
        walked = (*walked, step.action)
        assert paths[step.node] == walked
        assert step.depth == len(walked)
        if step.reset != "none":
            walked, count = (), count + 1
    assert shown.rollouts == count + bool(walked)
    assert all(step.reset == "forced" for step in shown.steps if step.depth == getattr(spec, "max_depth", None))


@pytest.mark.parametrize("spec", [MCTSSpec(simulations=900), ExhaustiveSpec(depth=5)], ids=lambda s: type(s).__name__)
def test_large_searches_are_recorded_in_part_with_the_best_node(spec):
    tree, shown = recorded(spec, num_actions=4)
    assert (tree.visits[0] > 0).sum() > MOST_NODES
    assert 0 < len(shown.steps) <= MOST_STEPS
    assert len(shown.tree.parent) <= MOST_NODES + 10
    assert max(shown.tree.rollout_return) == pytest.approx(shown.tree.max_return[0])
    assert {step.action for step in shown.steps if step.depth == 1} == set(range(4))
