"""The statements of `thinker improve`: computed from numbers, with intervals."""

from __future__ import annotations

import numpy as np
import pytest

from thinker.experiments.improvement_report import operators, statements, together, verdict


@pytest.mark.parametrize(
    ("relation", "low", "high", "expected"),
    [
        ("above", 0.1, 0.5, "holds"),
        ("above", -0.5, -0.1, "does not hold"),
        ("above", -0.1, 0.1, "undecided"),
        ("above", 0.0, 0.0, "does not hold"),
        ("below", -0.5, -0.1, "holds"),
        ("below", 0.1, 0.5, "does not hold"),
        ("below", -0.1, 0.1, "undecided"),
        ("near", -0.9, 0.9, "holds"),
        ("near", 0.1, 0.9, "holds"),
        ("near", 1.1, 1.9, "does not hold"),
        ("near", -1.9, -1.1, "does not hold"),
        ("near", 0.9, 1.1, "undecided"),
        ("near", -2.0, 2.0, "undecided"),
    ],
)
def test_a_verdict_follows_from_the_interval_of_the_difference(relation, low, high, expected):
    assert verdict(relation, low, high, margin=1.0) == expected


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["holds", "holds"], "holds"),
        (["holds", "undecided", "does not hold", "not measured"], "does not hold"),
        (["holds", "undecided", "not measured"], "undecided"),
        (["holds", "not measured"], "not measured"),
        ([], "not measured"),
    ],
)
def test_several_claims_hold_together_only_if_all_hold(verdicts, expected):
    assert together(verdicts) == expected


def evaluation(kind, budget, returns, seed=None):
    return {
        "kind": kind, "budget": budget, "seed": seed, "simulations": budget, "solved": 0.5, "core_seconds": 1.0,
        "returns": list(returns),
    }  # fmt: skip


def played(means: dict[tuple[str, int], float], spread: float = 1.0, episodes: int = 400) -> dict:
    """Evaluations with these mean returns; all operators find the same episodes hard."""
    hard = np.random.default_rng(1).normal(0, 3, episodes)
    random = np.random.default_rng(2)
    found = {}
    for (kind, budget), mean in means.items():
        noise = random.normal(0, spread, episodes)
        found[f"{kind}-{budget}"] = evaluation(kind, budget, mean + hard + noise - noise.mean() - hard.mean())
    return found


AS_IN_THE_PAPER = {
    ("random", 0): -1.0, ("base-policy", 0): 0.1,
    ("exhaustive", 3): 2.0, ("exhaustive", 4): 3.0, ("exhaustive", 5): 3.5, ("mcts", 60): 2.05,
    ("agent", 5): 1.5, ("agent", 10): 2.0, ("agent", 20): 2.7, ("agent", 40): 4.0,
}  # fmt: skip


def stated(means, **options) -> dict[str, str]:
    return {claim.text: claim.verdict for claim in statements(operators(played(means, **options)))}


def test_numbers_like_those_of_the_paper_confirm_all_of_its_claims():
    found = stated(AS_IN_THE_PAPER)
    assert set(found.values()) == {"holds"}
    assert list(found)[:5] == [
        "The paper's order",
        "agent, K = 10 is near 3-step exhaustive search",
        "agent, K = 10 is near MCTS, 60 simulations",
        "agent, K = 40 is above 5-step exhaustive search",
        "agent, K = 20 is below 4-step exhaustive search",
    ]


def test_a_reversed_order_does_not_hold_and_the_evidence_names_it():
    claims = statements(operators(played({**AS_IN_THE_PAPER, ("agent", 40): 3.0})))
    assert claims[0].verdict == claims[3].verdict == "does not hold"
    assert claims[0].evidence.startswith("2 of 3; does not hold: agent, K = 40 is above 5-step exhaustive search: ")
    assert "difference -0.50" in claims[3].evidence
    assert claims[1].verdict == "holds"


def test_differences_smaller_than_the_noise_are_undecided():
    found = stated({**AS_IN_THE_PAPER, ("agent", 40): 3.55}, spread=3.0)
    assert found["agent, K = 40 is above 5-step exhaustive search"] == found["The paper's order"] == "undecided"


def test_what_was_not_played_is_not_measured():
    found = stated({key: mean for key, mean in AS_IN_THE_PAPER.items() if key != ("mcts", 60)})
    assert found["agent, K = 10 is near MCTS, 60 simulations"] == found["The paper's order"] == "not measured"
    assert found["agent, K = 40 is above 5-step exhaustive search"] == "holds"


def test_differences_are_paired_so_that_hard_episodes_do_not_blur_them():
    found = operators(played(AS_IN_THE_PAPER, spread=0.1))
    low, high = found["agent-40"].interval
    assert high - low > 0.5
    difference = found["agent-40"].resampled - found["exhaustive-5"].resampled
    assert np.ptp(difference) < 0.1


def test_intervals_of_means_are_those_of_theory():
    returns = np.random.default_rng(0).normal(2, 1, 1000)
    found = operators({"base-policy": evaluation("base-policy", 0, returns)})["base-policy"]
    half = 1.96 * returns.std() / np.sqrt(1000)
    np.testing.assert_allclose(found.interval, (returns.mean() - half, returns.mean() + half), atol=0.01)


def test_agents_of_several_seeds_are_one_operator_whose_interval_contains_their_differences():
    noise = np.random.default_rng(0).normal(0, 0.1, 200)
    one_seed = operators({"a": evaluation("agent", 5, noise, 0)})["agent-5"]
    found = operators({f"agent-5-seed-{s}": evaluation("agent", 5, s + noise, s) for s in range(3)})["agent-5"]
    assert found.returns.shape == (3, 200)
    assert found.mean == pytest.approx(1 + noise.mean())
    assert found.interval[1] - found.interval[0] > 10 * (one_seed.interval[1] - one_seed.interval[0])
