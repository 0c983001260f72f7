"""Thinking longer or shorter than in training."""

import pytest
import torch

from tests.agents.support import as_if_learned, begun, build_network
from tests.fakes import NUM_ACTIONS, noise_env
from thinker.agents import convert_stage_length
from thinker.augmented import NO_NODE, ROOT, layout
from thinker.errors import UserError


def one_tree(known, step):
    tree = torch.arange(known.size, dtype=torch.float32)
    tree[known.slices["step"]] = torch.nn.functional.one_hot(torch.tensor(step - 1), known.stage_length).float()
    return tree


@pytest.mark.parametrize("seen_length", [1, 2, 5, 8, 20, 40])
def test_another_stage_length_keeps_how_many_steps_remain_and_how_much_a_visit_counts(seen_length):
    seen, known = layout(NUM_ACTIONS, seen_length), layout(NUM_ACTIONS, 8)
    for step in range(1, seen_length + 1):
        tree = one_tree(seen, step)
        converted = known.decode(convert_stage_length(tree, seen, known))
        remaining = seen_length - step
        assert converted["step"].sum() == 1
        assert converted["step"].argmax() + 1 == max(1, 8 - remaining)
        original = seen.decode(tree)
        for name in set(known.slices) - {"step"}:
            factor = seen_length / 8 if name.endswith("visits") else 1.0
            torch.testing.assert_close(converted[name], original[name] * factor, msg=name)


@pytest.mark.parametrize("stage_length", [2, 5, 8, 20])
def test_a_visit_counts_as_much_as_it_did_in_training(stage_length):
    network = build_network(noise_env(4, stage_length=8))
    env = noise_env(4, stage_length=stage_length, max_depth=2)
    actor = begun(env, network)
    for _ in range(4 * stage_length):
        decision = actor.act()
        actor.observe(decision, *env.step(decision.actions, decision.policy))
        tree, seen = env.search_tree(), network.layout.decode(actor.given.observation["tree"])
        for e in range(4):
            for action, child in enumerate(tree.children[e, ROOT]):
                visits = 0 if child == NO_NODE else tree.visits[e, child]
                assert seen["root_child_visits"][e, action].item() == pytest.approx(visits / 8)


def test_the_same_stage_length_changes_nothing():
    known = layout(NUM_ACTIONS, 8)
    tree = one_tree(known, 3)
    assert torch.equal(convert_stage_length(tree, known, known), tree)


def test_action_sequences_are_cut_or_padded():
    seen, known = layout(2, 6, extra=["action_sequence"]), layout(2, 3, extra=["action_sequence"])
    tree = torch.zeros(seen.size)
    tree[seen.slices["action_sequence"]] = torch.arange(1.0, 11.0)
    shorter = convert_stage_length(tree, seen, known)
    assert known.decode(shorter)["action_sequence"].tolist() == [1, 2, 3, 4]
    longer = convert_stage_length(shorter, known, seen)
    assert seen.decode(longer)["action_sequence"].tolist() == [1, 2, 3, 4, 0, 0, 0, 0, 0, 0]


def test_other_actions_are_an_error():
    with pytest.raises(UserError, match="Only the stage length may differ"):
        convert_stage_length(torch.zeros(layout(2, 4).size), layout(2, 4), layout(3, 4))


@pytest.mark.parametrize("stage_length", [1, 2, 5, 10, 20, 40])
def test_an_actor_acts_with_another_stage_length(stage_length):
    network = as_if_learned(build_network(noise_env(2, stage_length=8)))
    env = noise_env(2, stage_length=stage_length, max_depth=None)
    actor = begun(env, network)
    for _ in range(2 * stage_length):
        decision = actor.act()
        actor.observe(decision, *env.step(decision.actions, decision.policy))
        assert actor.given.observation["tree"].shape == (2, network.layout.size)
