"""`thinker improve` on boards a second large: its parts, its files, and going on after an interruption."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from tests.runs.support import tiny
from thinker.cli import main
from thinker.errors import UserError
from thinker.experiments import policy_improvement
from thinker.experiments.policy_improvement import Improvement, ImprovementSettings, Played
from thinker.experiments.tree_memory import agent_tree_kib, planner_tree_kib
from thinker.planners import MCTSSpec
from thinker.runs import presets
from thinker.runs.build import build_run
from thinker.world_model.spec import SimulatorSpec

OPTIONS = "--episodes 6 --seeds 0 --stage-lengths 3 5 --depths 1 2 --simulations 4 --real-steps 96 --base-steps 256"


@pytest.fixture(autouse=True)
def tiny_preset(monkeypatch):
    """A preset a second long, as the default of the command."""
    small = tiny("sokoban-simulator")
    small = dataclasses.replace(small, evaluation=dataclasses.replace(small.evaluation, num_envs=3, episodes=3))
    monkeypatch.setitem(presets.PRESETS, "sokoban-simulator", lambda: small)


def improve(out: Path, options: str = OPTIONS) -> int:
    return main(["improve", *options.split(), "--threads", "1", "--out", str(out)])


def content(out: Path) -> dict[str, bytes]:
    """All weights and numbers of a finished comparison, without times."""
    results = json.loads((out / "results.json").read_text())
    parts = {name: [one["returns"], one["lengths"]] for name, one in results["evaluations"].items()}
    return {"base": (out / "base-policy.safetensors").read_bytes(), "parts": json.dumps(parts).encode()}


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    return tmp_path_factory.mktemp("improvement") / "unbroken"


@pytest.fixture
def finished(unbroken, capsys):
    """The folder of a finished comparison."""
    if not (unbroken / "report.md").exists():
        assert improve(unbroken) == 0
        capsys.readouterr()
    return unbroken


def test_the_command_writes_numbers_a_figure_and_a_report_with_a_verdict(finished):
    results = json.loads((finished / "results.json").read_text())
    expected = ["random", "base-policy", "exhaustive-1", "exhaustive-2", "mcts-4", "agent-3-seed-0", "agent-5-seed-0"]
    assert list(results["evaluations"]) == expected
    assert [one["simulations"] for one in results["evaluations"].values()] == [0, 0, 5, 30, 4, 2, 4]
    assert all(len(one["returns"]) == 6 for one in results["evaluations"].values())
    assert results["settings"]["seeds"] == [0]
    assert set(results["versions"]) == {"thinker", "torch", "numpy", "python"}
    assert all(curve["real_steps"] for curve in results["curves"].values())
    assert results["statements"][0]["verdict"] == "not measured"  # K = 10 and K = 40 were not asked for
    report = (finished / "report.md").read_text()
    assert "The paper's order (appendix H of the paper): **not measured**" in report
    assert "| 2-step exhaustive search | 30 |" in report
    assert (finished / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert str(finished) not in (finished / "results.json").read_text()


def test_repeating_the_command_repeats_no_part(finished, monkeypatch, capsys):
    def never(*arguments, **options):
        raise AssertionError("this part was finished")

    before = content(finished)
    for name in ("evaluate_run", "build_run", "load_run", "save_values"):
        monkeypatch.setattr(policy_improvement, name, never)
    assert improve(finished) == 0
    assert "The paper's order: not measured" in capsys.readouterr().out
    assert content(finished) == before


def test_an_interrupted_command_goes_on_and_ends_like_an_unbroken_one(finished, tmp_path, monkeypatch):
    """Interrupted in evaluations and after trainings, before anything of them is kept."""
    calls: list[str] = []
    for name in ("evaluate_run", "train", "save_values"):
        original = getattr(policy_improvement, name)

        def broken(*arguments, name=name, original=original, **options):
            result = original(*arguments, **options)
            calls.append(name)
            if len(calls) in (1, 3, 5, 10, 12):
                raise KeyboardInterrupt
            return result

        monkeypatch.setattr(policy_improvement, name, broken)
    for _ in range(5):
        with pytest.raises(KeyboardInterrupt):
            improve(tmp_path / "broken")
    assert improve(tmp_path / "broken") == 0
    assert calls.count("evaluate_run") == 7 + 2  # two of the interruptions were in evaluations
    assert content(tmp_path / "broken") == content(finished)


def test_more_can_be_asked_for_later(finished, tmp_path):
    assert improve(tmp_path, OPTIONS.replace("--stage-lengths 3 5", "--stage-lengths 3")) == 0
    weights = (tmp_path / "base-policy.safetensors").stat().st_mtime_ns
    assert improve(tmp_path) == 0
    assert (tmp_path / "base-policy.safetensors").stat().st_mtime_ns == weights
    assert content(tmp_path) == content(finished)


def test_other_settings_in_the_same_folder_are_an_error(finished, capsys):
    assert improve(finished, OPTIONS.replace("--real-steps 96", "--real-steps 128")) == 1
    problem = capsys.readouterr().err
    assert "agents.real_steps was 96, and now is 128" in problem
    assert "--out" in problem


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"preset": "sokoban-quick"}, "is BoardModelSpec, but the base policy must be trained with the true dynamics"),
        ({"stage_lengths": (1,)}, "stage_lengths has 1; they must be at least 2"),
        ({"depths": (0,)}, "depths has 0"),
        ({"simulations": (0,)}, "simulations has 0"),
        ({"seeds": (1, 1)}, "only once"),
        ({"episodes": 0}, "episodes is 0; it must be at least 1"),
        ({"real_steps": 0}, "real_steps is 0"),
    ],
)
def test_wrong_settings_are_errors(options, problem, tmp_path):
    with pytest.raises(UserError, match=problem):
        ImprovementSettings(tmp_path, **options)


def test_agents_see_only_the_tree_without_a_limit_on_depth(tmp_path):
    settings = ImprovementSettings(tmp_path).agent_run(40, 3)
    assert settings.search.observe == ("tree",)
    assert settings.search.max_depth is None
    assert (settings.search.stage_length, settings.seed) == (40, 3)
    assert Path(settings.model.weights) == tmp_path.resolve() / "base-policy.safetensors"


def test_the_parts_have_names_and_labels_of_their_own(tmp_path):
    improvement = Improvement(ImprovementSettings(tmp_path))
    parts = [*improvement.without_training(), *improvement.agents()]
    assert len({part.name for part in parts}) == len({part.label for part in parts}) == len(parts) == 2 + 5 + 8 + 12
    assert Played("agent", 10, 2).label == "agent, K = 10, seed 2"


def test_trees_without_a_depth_limit_take_bounded_memory(tmp_path):
    """K = 40 and 1,000 simulations: below 300 KiB and below 1 MiB per environment, however long they are used."""
    settings = ImprovementSettings(tmp_path, threads=1).agent_run(40, 0, SimulatorSpec())
    run = build_run(settings)
    before = agent_tree_kib(run)
    assert before < 300
    for _ in range(2):
        run.worker.collect()
    assert agent_tree_kib(run) == before
    sizes = [planner_tree_kib(run, MCTSSpec(simulations=count)) for count in (500, 1000)]
    assert sizes[0] < sizes[1] < min(2.2 * sizes[0], 1024)
