"""The measurements of `behaviour` and `policy-improvement` are those of `thinker analyse` and `thinker improve`."""

import dataclasses
import json

import pytest

from tests.runs.support import tiny
from thinker.experiments.behaviour import Analysis, Finding
from thinker.experiments.catalogue import EXPERIMENTS, behaviour, policy_improvement
from thinker.experiments.claims import above
from thinker.experiments.results import Results
from thinker.runs import presets
from thinker.runs.build import build_run
from thinker.world_model.frozen import save_values


def test_the_analysis_of_a_run_is_stored_with_its_page(tmp_path, monkeypatch):
    asked = {}

    def analysed(run, **options):
        asked.update(options)
        leads = {"reset-td-error": 0.5, "mcts": -0.1}
        return Analysis({"run": options["name"]}, tuple(Finding(n, n, "", "", x, 0.01, {}) for n, x in leads.items()))

    monkeypatch.setattr(behaviour, "analyse", analysed)
    monkeypatch.setattr("thinker.experiments.behaviour.report.png", lambda finding: b"PNG")
    measurement = behaviour.BehaviourAnalysis(30, 7, (2, 4))
    folder = tmp_path / "trained-0"
    folder.mkdir()
    measurement.store(folder, build_run(tiny("sokoban-quick")))
    stored = measurement.stored(folder)
    assert (asked["name"], asked["stages"], asked["episodes"], asked["budgets"]) == ("trained-0", 30, 7, (2, 4))
    assert asked["split"] == "test"
    assert (stored["reset-td-error"], stored["mcts"]) == (0.5, -0.1)
    assert stored["verdicts"] == {"reset-td-error": "as in the paper", "mcts": "unlike the paper"}
    assert (folder / "measurements" / measurement.name / "report.html").exists()


def test_every_finding_of_the_analysis_has_a_claim_and_a_picture():
    run = build_run(tiny("sokoban-quick"))
    found = behaviour.analyse(
        run, name="", stages=8, episodes=2, budgets=(2,), split="test", seed=0, start_task=behaviour._told
    )
    assert [finding.name for finding in found.findings] == list(behaviour.LEADS) == list(behaviour.TITLES)
    assert len(EXPERIMENTS["behaviour"].claims) == len(behaviour.LEADS)


def test_improvement_starts_from_the_base_policy_of_the_run(tmp_path, monkeypatch):
    small = tiny("sokoban-simulator")
    small = dataclasses.replace(small, evaluation=dataclasses.replace(small.evaluation, num_envs=3, episodes=3))
    monkeypatch.setitem(presets.PRESETS, "sokoban-simulator", lambda: small)
    run = build_run(dataclasses.replace(small, seed=3, threads=1))
    measurement = policy_improvement.PolicyImprovement("laptop", 4, 96, (3,), (1,), (4,))
    measurement.store(tmp_path, run)
    files = measurement.path(tmp_path).with_suffix("")
    save_values(run.trainer.network, tmp_path / "expected.safetensors")
    assert (files / "base-policy.safetensors").read_bytes() == (tmp_path / "expected.safetensors").read_bytes()
    trained = [path.name for path in (files / "runs").iterdir() if path.is_dir()]
    assert trained == ["agent-3-seed-3"]  # no other base policy is trained
    assert "Policy improvement with a fixed base policy" in (files / "report.md").read_text(encoding="utf-8")
    numbers = measurement.stored(tmp_path)
    evaluations = json.loads((files / "results.json").read_text())["evaluations"]
    for name in ("base-policy", "exhaustive-1", "mcts-4"):
        assert numbers["returns"][name] == pytest.approx(evaluations[name]["mean_return"])
    parts = [numbers[name] for name in numbers["returns"]]
    assert numbers["base-policy"] == 0
    assert max(map(abs, parts)) == pytest.approx(1)


def test_improvements_are_parts_of_the_largest_one():
    results = Results("policy-improvement", "laptop", "", "", 2, {"base-policy": "per base policy"}, (), ())
    assert above(policy_improvement.improvement("agent", 5))(results).evidence == (
        "no run of per base policy, improvement by agent, K = 5"
    )
