"""Sentences and verdicts follow the numbers, whatever these are."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.experiments.support import random_stages
from thinker.experiments.behaviour import findings
from thinker.experiments.behaviour.figures import png
from thinker.runs.evaluate import Evaluation

AS, UNLIKE, UNCLEAR = "as in the paper", "unlike the paper", "no clear difference"


@pytest.mark.parametrize(("sign", "verdict"), [(-1, AS), (1, UNLIKE)])
def test_resets_after_worse_rollouts_are_as_in_the_paper(sign, verdict):
    stages = random_stages(stages=400)
    stages = dataclasses.replace(stages, td_error=stages.td_error + sign * stages.reset)
    found = findings.reset_td_error(stages)
    assert found.verdict == verdict
    worst, best = found.numbers["reset_share"]["share"][[0, -1]]
    assert (worst > best) == (sign < 0)
    assert f"difference {found.numbers['difference']:+.2f} ± {found.numbers['standard_error']:.2f}" in found.here


def test_noise_shows_no_clear_difference():
    stages = random_stages(seed=1, stages=200)
    for found in (findings.reset_td_error(stages), findings.max_td_error_tail(stages)):
        assert found.verdict == UNCLEAR


def test_an_agent_that_never_resets_is_described_and_not_compared():
    stages = random_stages(reset=np.zeros((40, 6), bool))
    found = findings.reset_td_error(stages)
    assert found.here.startswith("Nothing to compare: the agent resets on 0 of the")
    assert found.verdict == UNCLEAR
    depths = findings.reset_depth(stages)
    assert depths.verdict == AS
    assert "100 % of its rollouts go on to the limit of 4" in depths.here


def test_an_agent_that_resets_at_every_new_node_is_unlike_the_papers():
    found = findings.reset_depth(random_stages(reset=np.ones((40, 6), bool)))
    assert found.verdict == UNLIKE
    assert found.numbers["share"] == [1.0, 1.0, 1.0]


def test_expansion_lengths_are_given_for_every_limit():
    stages = random_stages(
        new=np.ones((40, 6), bool), reset=np.zeros((40, 6), bool), depth=np.tile([1, 2, 3] * 2, (40, 1))
    )
    limits = {limit: dataclasses.replace(stages, max_depth=limit) for limit in (2, 3)}
    found = findings.expansion_length(limits, own=3)
    assert found.numbers["mean"] == {"2": 1.5, "3": 3.0}
    assert found.numbers["share"]["3"].tolist() == [0, 0, 0, 1]
    assert "takes 3.00 ± 0.00 steps" in found.here
    assert "1.50 at L = 2" in found.here
    assert found.verdict == AS


@pytest.mark.parametrize(("shift", "verdict"), [(-3.0, AS), (3.0, UNLIKE)])
def test_the_search_with_the_higher_td_errors_wins(shift, verdict):
    stages = random_stages()
    ucb = stages.max_td_error + shift
    stages = dataclasses.replace(stages, rivals={**stages.rivals, "UCB": ucb})
    found, tail = findings.max_td_error(stages), findings.max_td_error_tail(stages)
    assert found.verdict == verdict
    assert found.numbers["agent_minus_ucb"] == pytest.approx(-shift)
    assert f"{stages.max_td_error.mean():.3f} by the agent" in found.here
    assert tail.numbers["tail_share"]["UCB"] == pytest.approx(1 / 40)
    if shift < 0:
        assert tail.verdict == AS


def test_real_actions_that_follow_the_maximum_return_are_as_in_the_paper():
    stages = random_stages(stages=200, max_return=np.random.default_rng(0).normal(size=(200, 3)))
    stages = dataclasses.replace(stages, action=stages.max_return.argmax(1))
    found = findings.real_actions(stages)
    assert found.verdict == AS
    assert "the highest maximum return in 100 %" in found.here
    by_visits = dataclasses.replace(stages, action=stages.visits.argmax(1))
    assert findings.real_actions(by_visits).verdict == UNLIKE


def test_a_single_imaginary_step_leaves_nothing_to_choose_and_can_be_drawn():
    stages = random_stages(steps=1, max_depth=1, depth=np.ones((40, 1), np.int64))
    resets, depths = findings.reset_td_error(stages), findings.reset_depth(stages)
    lengths = findings.expansion_length({1: stages}, own=1)
    assert resets.here.startswith("Nothing to compare: the agent resets on 0 of the 0 steps")
    assert depths.here.startswith("There is nothing to choose at new nodes: the depth limit is 1")
    assert lengths.numbers["length"] == [0, 1]
    assert all(png(found).startswith(b"\x89PNG") for found in (resets, depths, lengths))


def test_many_actions_are_drawn_as_a_few_ranks():
    found = findings.real_actions(random_stages(num_actions=18))
    assert len(found.numbers["share_by_rank"]["visits"]["agent"]) == 18
    assert png(found).startswith(b"\x89PNG")


def result(success: list[int] | None, returns: list[float] | None = None, stage_length: int = 8) -> Evaluation:
    count = len(success or returns or [])
    return Evaluation(
        stage_length,
        np.array(returns if returns is not None else np.zeros(count)),
        np.ones(count, int),
        None if success is None else np.array(success, bool),
    )


def test_the_budget_at_which_mcts_equals_the_agent_is_told():
    agent, base = result([1] * 75 + [0] * 25), result([0] * 100)
    mcts = {5: result([0] * 100), 10: result([1] * 50 + [0] * 50), 20: result([1] * 100)}
    found = findings.mcts_curve(agent, base, mcts)
    assert found.numbers["mcts_equals_agent_at"] == pytest.approx(10 * 2**0.5)
    assert "MCTS reaches the agent's solve rate of 0.750 with about 14 simulations" in found.here
    assert found.numbers["compared_at"] == 10
    assert found.verdict == AS
    assert (
        "does not reach the agent's solve rate of 0.750 with up to 5"
        in findings.mcts_curve(agent, base, {5: base}).here
    )
    early = findings.mcts_curve(agent, base, {5: agent, 10: agent})
    assert "with 5 simulations or fewer" in early.here
    assert early.verdict == UNCLEAR


def test_without_a_success_returns_are_compared():
    agent, base = result(None, [3.0, 5.0, 4.0]), result(None, [0.0, 1.0, 0.5])
    found = findings.mcts_curve(agent, base, {5: base})
    assert found.title == "Return of MCTS against its budget"
    low, high = found.numbers["agent"]["interval"]
    assert found.numbers["agent"]["mean"] == 4.0
    assert low == pytest.approx(4 - 1.96 / 3**0.5)
    assert high == pytest.approx(4 + 1.96 / 3**0.5)
