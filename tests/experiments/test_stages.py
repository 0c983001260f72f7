"""The numbers that are collected from play, against a slow walk through the model for every step."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.fakes import FakeModel, random_episodes
from tests.planners.reference import Reference
from thinker.augmented import ROOT, ThinkerEnv
from thinker.experiments.behaviour.rivals import RandomRival, UCBRival, td_errors
from thinker.experiments.behaviour.stages import play_stages
from thinker.interfaces import NO_ACTION, Decision
from thinker.planners import MCTSSpec, RandomSearchSpec
from thinker.planners.planner import random_generator

DISCOUNT = 0.9
NUM_ENVS = 3


def make_env(*, stage_length: int = 6, max_depth: int | None = 3, carry_tree: bool = True) -> ThinkerEnv:
    """Episodes and a model in which every number is a hash."""
    return ThinkerEnv(
        random_episodes(NUM_ENVS, end_rate=0.1),
        FakeModel(2, termination_rate=0.15),
        stage_length=stage_length,
        max_depth=max_depth,
        discount=DISCOUNT,
        carry_tree=carry_tree,
    )


class Watched:
    """Acts at random, and writes down what it did and where every stage began."""

    def __init__(self, env: ThinkerEnv) -> None:
        self.env, self.random = env, np.random.default_rng(3)
        self.decisions: list[np.ndarray] = []
        self.roots: list[list[int]] = []  # hidden states, by stage
        self.ended: list[np.ndarray] = []

    def begin(self, observation, info) -> None:
        self._stage_begins()

    def act(self) -> Decision:
        self.decisions.append(self.random.integers(0, [2, 2], (NUM_ENVS, 2)))
        return Decision(torch.from_numpy(self.decisions[-1]))

    def observe(self, decision, observation, reward, terminated, truncated, info) -> None:
        if info["step_kind"][0] == 0:
            self.ended.append(terminated | truncated)
            self._stage_begins()

    def _stage_begins(self) -> None:
        last = self.env.search_tree().action[:, ROOT]
        model = self.env.model
        self.roots.append([model.root_hidden(row, int(a)) for row, a in zip(self.env.real_observation, last)])


def nodes_on(model: FakeModel, root: int, path: tuple[int, ...]) -> list[dict]:
    """What the model says of the root and of every node on ``path``, with absorbing ends."""
    found = [{**model.describe(root, True), "hidden": root}]
    for action in path:
        above = found[-1]
        if above["termination"] > 0.5:
            found.append({**above, "reward": 0.0, "value": 0.0})
            continue
        hidden = model.unroll_hidden(above["hidden"], action)
        found.append({**model.describe(hidden, False), "hidden": hidden})
        if found[-1]["termination"] > 0.5:
            found[-1]["value"] = 0.0
    return found


def rollout_return(nodes: list[dict]) -> float:
    """r_1 + γ r_2 + ... + γ^(n-1) r_n + γ^n v_n."""
    rewards = sum(DISCOUNT**i * node["reward"] for i, node in enumerate(nodes[1:]))
    return rewards + DISCOUNT ** (len(nodes) - 1) * nodes[-1]["value"]


@pytest.mark.parametrize("carry_tree", [True, False])
@pytest.mark.parametrize(("stage_length", "max_depth"), [(6, 3), (4, None), (2, 1)])
def test_every_number_of_a_stage_is_that_of_a_slow_walk(stage_length, max_depth, carry_tree):
    env = make_env(stage_length=stage_length, max_depth=max_depth, carry_tree=carry_tree)
    actor = Watched(env)
    episodes = 3 * NUM_ENVS
    played = list(play_stages(env, actor, episodes, {"root value": lambda env: env.root_output.value.numpy()}))
    limit = stage_length - 1 if max_depth is None else max_depth
    known: list[dict[tuple[int, ...], int]] = [{} for _ in range(NUM_ENVS)]  # path -> visits
    episode = np.zeros(NUM_ENVS, int)
    checked = 0
    for t, stages in enumerate(played):
        decisions = actor.decisions[t * stage_length : (t + 1) * stage_length]
        assert stages.environment.tolist() == np.flatnonzero(episode < 3).tolist()
        assert stages.max_depth == min(limit, stage_length - 1)
        for e in range(NUM_ENVS):
            root = actor.roots[t][e]
            row = np.flatnonzero(stages.environment == e)
            path: tuple[int, ...] = ()
            reached: set[tuple[int, ...]] = set()
            for k, decision in enumerate(decisions[:-1]):
                path = (*path, int(decision[e, 0]))
                new = path not in known[e]
                known[e][path] = known[e].get(path, 0) + 1
                nodes = nodes_on(env.model, root, path)
                ends_here = nodes[-1]["termination"] > 0.5 and nodes[-2]["termination"] <= 0.5
                if ends_here and path not in reached:  # what was carried below a predicted end is dropped
                    known[e] = {p: n for p, n in known[e].items() if p[: len(path)] != path or p == path}
                reached.add(path)
                if len(row):
                    error = rollout_return(nodes) - nodes[0]["value"]
                    assert stages.td_error[row[0], k] == pytest.approx(error, abs=1e-5)
                    assert stages.depth[row[0], k] == len(path)
                    assert stages.new[row[0], k] == new
                    assert stages.reset[row[0], k] == decision[e, 1]
                    checked += 1
                if decision[e, 1] or len(path) >= limit:
                    path = ()
            action = int(decisions[-1][e, 0])
            if len(row):
                assert stages.action[row[0]] == action
                assert stages.visits[row[0]].tolist() == [known[e].get((a,), 0) for a in range(2)]
                assert np.isnan(stages.mean_return[row[0]]).tolist() == [(a,) not in known[e] for a in range(2)]
                np.testing.assert_allclose(stages.policy[row[0]], env.model.describe(root, True)["policy"], atol=1e-6)
                assert stages.rivals["root value"][row[0]] == pytest.approx(
                    env.model.describe(root, True)["value"], abs=1e-6
                )
            if len(row) and not carry_tree:
                for a in range(2):
                    below = [p for p in known[e] if p[0] == a]
                    if below:
                        returns = [rollout_return(nodes_on(env.model, root, p)) for p in below]
                        assert stages.max_return[row[0], a] == pytest.approx(max(returns), abs=1e-5)
                        assert stages.mean_return[row[0], a] == pytest.approx(np.mean(returns), abs=1e-5)
            keeps = carry_tree and not actor.ended[t][e] and (action,) in known[e]
            known[e] = {p[1:]: n for p, n in known[e].items() if p[0] == action and len(p) > 1} if keeps else {}
            episode[e] += actor.ended[t][e]
    assert (episode >= 3).all()
    assert checked > 50


def test_td_errors_of_a_tree_by_hand():
    """Root 1.0, child r 0.5 v 2.0, grandchild r -1.0 v 3.0; the second row has one child only."""
    parent = np.array([[-1, 0, 1], [-1, 0, -1]])
    depth = np.array([[0, 1, 2], [0, 1, 0]])
    reward = np.array([[0.0, 0.5, -1.0], [0.0, 2.0, 0.0]])
    value = np.array([[1.0, 2.0, 3.0], [4.0, 0.0, 0.0]])
    errors = td_errors(parent, depth, reward, value, 0.5)
    np.testing.assert_allclose(errors[0], [0.0, 0.5 + 0.5 * 2 - 1, 0.5 - 0.5 + 0.25 * 3 - 1])
    assert errors[1, 1] == pytest.approx(2.0 - 4.0)


def test_random_search_takes_the_agents_number_of_steps_and_reports_its_best_rollout():
    env = make_env(stage_length=8)
    env.reset()
    spec = RandomSearchSpec(simulations=7, max_depth=3)
    found = spec.search(env.model, env.root_output, discount=DISCOUNT, random=random_generator(4))
    expected = found.value - env.root_output.value.numpy()
    np.testing.assert_allclose(RandomRival(4)(env), expected, atol=1e-5)


@pytest.mark.parametrize("max_depth", [2, None])
@pytest.mark.parametrize("stage_length", [2, 5, 12])
def test_ucb_counts_every_step_of_its_simulations_and_stops_in_time(stage_length, max_depth):
    env = make_env(stage_length=stage_length, max_depth=max_depth)
    env.reset()
    spec, found = MCTSSpec(), UCBRival(0)(env)
    for e in range(NUM_ENVS):
        search = Reference(env.model, env.real_observation[e], discount=DISCOUNT, max_depth=max_depth)
        best = -np.inf
        while True:
            search.simulate(lambda node, search=search: search.by_puct(node, node.policy, 1.25, spec.exploration_base))
            if sum(node.visits for node in search.nodes[1:]) > stage_length - 1:
                break
            best = max(best, *(slow_errors(search)))
        assert found[e] == pytest.approx(best, abs=1e-5)


def slow_errors(search: Reference) -> list[float]:
    def below(node, path: list) -> list[float]:
        errors = []
        for child in node.children.values():
            nodes = [*path, {"reward": child.reward, "value": child.value}]
            errors += [rollout_return(nodes) - search.root.value, *below(child, nodes)]
        return errors

    return [-np.inf, *below(search.root, [{"reward": 0.0, "value": search.root.value}])]


def test_the_first_root_of_an_episode_has_no_last_action():
    env = make_env()
    env.reset()
    assert (env.search_tree().action[:, ROOT] == NO_ACTION).all()
