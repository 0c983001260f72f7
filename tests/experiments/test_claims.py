"""Verdicts on claims follow from intervals."""

import pytest

from tests.experiments.made_up import made_up
from thinker.experiments.claims import (
    Quantity,
    above,
    all_of,
    core_seconds,
    early,
    greater,
    similar,
    solved,
    times,
    where_present,
)

HIGH, LOW, NEAR_HIGH, WIDE = (0.9, 0.91, 0.92), (0.1, 0.12, 0.14), (0.89, 0.91, 0.92), (0.2, 0.9, 0.95)
RESULTS = made_up({"high": HIGH, "low": LOW, "near": NEAR_HIGH, "wide": WIDE, "single": (0.5,)})


@pytest.mark.parametrize(
    ("judge", "expected"),
    [
        (greater(solved("high"), solved("low")), "holds"),
        (greater(solved("low"), solved("high")), "does not hold"),
        (greater(solved("high"), solved("wide")), "undecided"),
        (greater(solved("high"), solved("low"), by=0.9), "does not hold"),
        (similar(solved("high"), solved("near")), "holds"),
        (similar(solved("high"), solved("low")), "does not hold"),
        (similar(solved("high"), solved("wide")), "undecided"),
        (similar(solved("high"), solved("low"), margin=0.95), "holds"),
        (times(core_seconds("high"), core_seconds("low"), 0.3, 3.1), "holds"),
        (times(core_seconds("high"), core_seconds("low"), 4, 8), "does not hold"),
        (times(core_seconds("high"), core_seconds("low"), 0.9, 1.1), "undecided"),
        (all_of(greater(solved("high"), solved("low")), similar(solved("high"), solved("near"))), "holds"),
        (all_of(greater(solved("high"), solved("low")), greater(solved("high"), solved("wide"))), "undecided"),
        (all_of(greater(solved("low"), solved("high")), greater(solved("high"), solved("wide"))), "does not hold"),
        (all_of(greater(solved("high"), solved("low")), where_present("absent", above(solved("absent")))), "holds"),
        (all_of(where_present("wide", greater(solved("high"), solved("wide")))), "undecided"),
        (all_of(where_present("absent", above(solved("absent")))), "undecided"),
    ],
)
def test_a_verdict_follows_from_the_interval(judge, expected):
    assert judge(RESULTS).judgement == expected


def test_the_evidence_names_what_is_compared_and_the_interval():
    evidence = greater(solved("high"), solved("low"))(RESULTS).evidence
    assert evidence.startswith("HIGH minus LOW, agent on test episodes: 0.790 (0.7")


@pytest.mark.parametrize(("variant", "have"), [("single", "only one run of SINGLE"), ("absent", "no run of absent")])
def test_too_few_runs_decide_nothing(variant, have):
    verdict = greater(solved("high"), solved(variant))(RESULTS)
    assert verdict.judgement == "undecided"
    assert have in verdict.evidence


def test_early_learning_is_the_mean_of_the_curve_over_its_first_part():
    results = made_up({"fast": (0.9, 0.9), "slow": (0.9, 0.9)}, curves={"fast": (0.8, 0.8), "slow": (0.4, 0.4)})
    assert early("fast").of(results) == pytest.approx([0.2, 0.2], abs=0.01)  # rises from 0 to 0.4 in the first half
    assert greater(early("fast"), early("slow"))(results).judgement == "holds"


def test_quantities_of_the_same_runs_are_compared_run_by_run():
    results = made_up({"a": (0.2, 0.5, 0.9)})
    slightly_lower = Quantity("a", "a little less", lambda results, variant: solved(variant).of(results) - 0.01)
    assert greater(solved("a"), slightly_lower)(results).judgement == "holds"


def test_core_seconds_are_those_of_one_frame():
    assert core_seconds("high").of(RESULTS) == pytest.approx([0.12, 0.24, 0.36])


@pytest.mark.parametrize(
    ("rates", "expected"),
    [((0.2, 0.3, 0.4), "holds"), ((-0.2, -0.3, 0.0), "does not hold"), ((-0.5, 0.5, 0.1), "undecided")],
)
def test_a_quantity_is_above_a_limit_if_its_whole_interval_is(rates, expected):
    verdict = above(solved("a"))(made_up({"a": rates}))
    assert verdict.judgement == expected
    assert verdict.evidence.startswith("A, agent on test episodes: ")
    assert above(solved("a"))(made_up({"a": [0.5]})).judgement == "undecided"
