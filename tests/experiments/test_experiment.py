"""Settings of the catalogue: every run can be built, and variants differ only in what the paper varies."""

import dataclasses
import json

import numpy as np
import pytest

from tests.experiments.made_up import finish, small_experiment
from thinker.errors import UserError
from thinker.experiments.catalogue import EXPERIMENTS, experiment_named
from thinker.experiments.claims import Quantity
from thinker.experiments.costs import LATER, Cost, estimated_core_minutes, key, load_costs
from thinker.experiments.experiment import changed, has_setting, locate
from thinker.experiments.results import Results
from thinker.runs.folder import config_differences
from thinker.runs.presets import preset, training_command
from thinker.runs.settings import settings_from_dict

SCALES = ("tiny", "laptop", "paper")
EVERY = [pytest.param(name, scale, id=f"{name}-{scale}") for name in EXPERIMENTS for scale in SCALES]


@pytest.mark.parametrize(("name", "scale"), EVERY)
def test_the_settings_of_all_runs_are_valid_and_can_be_saved(name, scale):
    jobs = EXPERIMENTS[name].jobs(scale, 2)
    assert len({job.name for job in jobs}) == len(jobs)
    for job in jobs:
        saved = json.loads(json.dumps(job.settings.to_dict()))
        assert settings_from_dict(saved) == job.settings
        assert training_command(job.variant.preset, job.settings).startswith(f"thinker train {job.variant.preset}")
        assert job.variant.measurements


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_claims_are_about_variants_of_the_experiment(name, monkeypatch):
    experiment = EXPERIMENTS[name]
    assert experiment.claims
    assert experiment.paper
    assert experiment.module.startswith("thinker.experiments.catalogue.")
    asked = []
    monkeypatch.setattr(Quantity, "of", lambda quantity, results: asked.append(quantity.variant) or np.zeros(0))
    labels = {variant.name: variant.label for variant in experiment.variants("laptop")}
    empty = Results(name, "laptop", "", "", 3, labels, (), (), ("a game",))
    for claim in experiment.claims:
        asked.clear()
        assert claim.judge(empty).judgement == "undecided"
        assert asked
        assert set(asked) <= labels.keys(), claim.sentence


def differences(name, scale, first, second):
    variants = {variant.name: variant.settings(0).to_dict() for variant in EXPERIMENTS[name].variants(scale)}
    return {key: new for key, (_, new) in config_differences(variants[first], variants[second]).items()}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    ("name", "first", "second", "expected"),
    [
        ("stage-length", "k1", "k2", {"search.stage_length": 2}),
        ("stage-length", "k1", "k1-dropout", {"agent.tree_dropout": 0.2}),
        ("stage-length", "k1", "k1-real-state", {"search.observe": ("tree", "real_state")}),
        ("models", "dual-feature", "dual-none", {"model.state_loss": "none"}),
        ("models", "single-l2", "single-none", {"model.state_loss": "none"}),
        ("hints-and-memory", "rnn", "rnn-no-hints", {"search.mask": ("hints",)}),
        ("hints-and-memory", "rnn", "mlp", {"agent.tree_encoder": "mlp"}),
        (
            "base-policy-and-imagination",
            "thinker",
            "no-base-policy",
            {"search.mask": ("base_policy_and_value",), "agent.planning_reward_scale": 0.0},
        ),
        ("base-policy-and-imagination", "thinker", "random-imagination", {"agent.imaginary_actions": "random"}),
        ("depth", "l5", "l10", {"search.max_depth": 10, "model.training.unroll_length": 10}),
        ("planning-reward-and-target", "thinker", "no-planning-reward", {"agent.planning_reward_scale": 0.0}),
        ("behaviour", "trained", "no-planning-reward", {"agent.planning_reward_scale": 0.0}),
        ("planning-reward-and-target", "thinker", "action-target", {"model.training.policy_target": "action"}),
    ],
)
def test_variants_differ_only_in_what_the_paper_varies(name, scale, first, second, expected):
    assert differences(name, scale, first, second) == expected


@pytest.mark.parametrize("scale", SCALES)
def test_single_and_dual_networks_differ_only_in_the_network(scale):
    allowed = {"model.type"}
    assert set(differences("models", scale, "dual-l2", "single-l2")) <= allowed


def test_at_paper_scale_the_raw_mdp_has_the_papers_learner():
    agent = next(one for one in EXPERIMENTS["stage-length"].variants("paper") if one.name == "raw").settings(0).agent
    assert (agent.learning_rate, agent.unroll_stages, agent.objective, agent.epochs) == (3e-4, 20, "v-trace", 1)
    assert agent.network_size == "paper"


@pytest.mark.parametrize("scale", SCALES)
def test_the_agents_with_planning_rewards_are_those_of_thinking_time(scale):
    (thinking,) = EXPERIMENTS["thinking-time"].jobs(scale, 1)
    assert EXPERIMENTS["behaviour"].jobs(scale, 1)[0].settings == thinking.settings


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_at_laptop_scale_an_experiment_has_three_seeds_and_takes_an_hour_on_two_cores_or_one_for_each_game(name):
    experiment = EXPERIMENTS[name]
    assert experiment.seeds["laptop"] >= 3
    costs = load_costs()
    known = [costs.get(key(experiment, job.variant)) for job in experiment.jobs("laptop")]
    if None in known:
        pytest.skip("not all of its costs have been measured: python -m benchmarks.experiment_costs")
    minutes = [cost.core_minutes(job.settings) for cost, job in zip(known, experiment.jobs("laptop"))]
    cores = [0.0, 0.0]
    for one in minutes:  # in the order in which they are started
        cores[cores.index(min(cores))] += one
    games = experiment.games
    assert max(cores) < 60 * (1 if games is None else len(games.at("laptop")))
    assert estimated_core_minutes(experiment, "laptop") == pytest.approx(sum(minutes))
    assert estimated_core_minutes(experiment, "laptop", 6) == pytest.approx(2 * sum(minutes))


def test_a_cost_is_frames_times_the_time_of_a_frame_and_the_measurements():
    cost = Cost(milliseconds_per_frame=3.0, measuring_seconds=30.0)
    settings = dataclasses.replace(preset("sokoban-quick"), real_steps=100_000)
    assert cost.core_minutes(settings) == pytest.approx(LATER * 5 + 0.5)


def test_an_unknown_experiment_is_guessed():
    with pytest.raises(UserError, match="did you mean 'thinking-time'"):
        experiment_named("thinking-tme")


def test_settings_are_changed_by_dotted_names_and_typos_are_errors():
    settings = preset("sokoban-quick")
    new = changed(settings, {"seed": 3, "model.training.batch_size": 7, "model.replay_capacity": 9, "search.mask": ()})
    assert (new.seed, new.model.training.batch_size, new.model.replay_capacity) == (3, 7, 9)
    assert dataclasses.replace(new, seed=settings.seed, model=settings.model) == settings
    with pytest.raises(UserError, match=r"RunSettings has no setting 'model\.training\.batch'"):
        changed(settings, {"model.training.batch": 7})
    assert has_setting(settings, "model.training")
    assert not has_setting(settings, "seed.more")


def test_seeds_come_one_after_another_and_there_is_at_least_one():
    experiment = small_experiment("a", "b")
    assert [job.name for job in experiment.jobs("tiny")] == ["a-0", "b-0", "a-1", "b-1"]
    with pytest.raises(UserError, match="--seeds 0: it must be at least 1"):
        experiment.jobs("tiny", 0)


def test_a_finished_run_of_another_experiment_with_the_same_settings_is_used(tmp_path):
    experiment = small_experiment("a", "b")
    a, b = experiment.jobs("tiny", 1)
    elsewhere = tmp_path / "tiny" / "other" / "x-0"
    finish(elsewhere, a.settings.to_dict())
    assert locate(experiment, "tiny", tmp_path, a) == elsewhere
    assert locate(experiment, "tiny", tmp_path, b) == tmp_path / "tiny" / "small" / "b-0"
    (elsewhere / "summary.json").unlink()  # not finished
    assert locate(experiment, "tiny", tmp_path, a) == tmp_path / "tiny" / "small" / "a-0"
