"""All planners as actors: decisions, settings, and play that continues from a saved state."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fakes import FakeModel, KeyEnvs, KeyModel, random_episodes
from thinker.augmented import ThinkerEnv
from thinker.errors import UserError
from thinker.planners import MCTS, ExhaustiveSearch, GumbelMCTS, RandomSearch

PLANNERS = {
    MCTS: {"simulations": 6},
    GumbelMCTS: {"simulations": 6},
    ExhaustiveSearch: {"depth": 2},
    RandomSearch: {"simulations": 6},
}


def by_name(kind: type) -> str:
    return kind.__name__


def started(kind: type, seed: int = 0):
    env = ThinkerEnv(random_episodes(), FakeModel(2, 0.2), stage_length=1, seed=0)
    actor = kind(env, seed=seed, **PLANNERS[kind])
    actor.begin(*env.reset(seed=0))
    return actor, env


def play(actor, env: ThinkerEnv, steps: int) -> list[list[int]]:
    taken = []
    for _ in range(steps):
        decision = actor.act()
        actor.observe(decision, *env.step(decision.actions, decision.policy, decision.root_value))
        taken.append(decision.actions[:, 0].tolist())
    return taken


@pytest.mark.parametrize("kind", PLANNERS, ids=by_name)
def test_the_same_seed_gives_the_same_play_and_it_can_be_continued(kind):
    actor, env = started(kind, seed=7)
    first = play(actor, env, 10)
    state = actor.state_dict()
    rest = play(actor, env, 10)
    again, same_place = started(kind, seed=7)
    assert play(again, same_place, 10) == first
    continued = kind(same_place, seed=8, **PLANNERS[kind])
    continued.load_state_dict(state)
    assert play(continued, same_place, 10) == rest


@pytest.mark.parametrize("kind", PLANNERS, ids=by_name)
def test_decisions_are_those_of_the_search(kind):
    actor, _ = started(kind)
    assert actor.result is None
    decision = actor.act()
    result = actor.result
    assert decision.actions.tolist() == [[action, 0] for action in result.action]
    np.testing.assert_array_equal(decision.policy, result.policy)
    np.testing.assert_array_equal(decision.root_value, result.value)


@pytest.mark.parametrize("kind", [MCTS, GumbelMCTS], ids=by_name)
def test_tree_searches_find_every_key(kind):
    """One action of three is rewarded; the base policy does not know which."""
    env = ThinkerEnv(KeyEnvs(8), KeyModel(), stage_length=1, seed=0)
    actor = kind(env, simulations=16, greedy=True)
    actor.begin(*env.reset(seed=0))
    for _ in range(5):
        decision = actor.act()
        outcome = env.step(decision.actions, decision.policy, decision.root_value)
        assert outcome[1].tolist() == [1.0] * 8
        actor.observe(decision, *outcome)


@pytest.mark.parametrize("kind", PLANNERS, ids=by_name)
def test_planners_need_stages_of_one_step_and_settings_that_exist(kind):
    env = ThinkerEnv(random_episodes(), FakeModel(2), stage_length=3)
    with pytest.raises(UserError, match="planners take no imaginary steps, but stage_length is 3"):
        kind(env)
    env = ThinkerEnv(random_episodes(), FakeModel(2), stage_length=1)
    with pytest.raises(UserError, match="there is no setting 'simulation'; known are"):
        kind(env, simulation=5)
