"""The Ray engine with one worker is the local engine, bit for bit; its runs can be resumed, evaluated and drawn."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from tests.runs.support import TINY_MODEL, advance, differences, engine, tiny
from thinker.cli import main
from thinker.errors import UserError
from thinker.experiments.results import load_results
from thinker.runs import checkpoint
from thinker.runs.engines.ray.spec import RaySpec
from thinker.runs.folder import RunFolder
from thinker.runs.load import load_run
from thinker.runs.metrics import read_metrics
from thinker.runs.settings import RunSettings


@pytest.mark.slow
def test_one_worker_computes_what_the_local_engine_does_and_resumes_exactly(cluster, tmp_path: Path):
    settings = tiny("sokoban-quick", device="cpu")
    spec = RaySpec(workers=1)
    distributed = spec.start(spec.build_run(settings))
    try:
        local = engine(settings)
        for _ in range(4):  # random play, then training
            episodes, metrics = distributed.advance()
            expected, _ = local.advance()
            assert episodes.returns.tolist() == expected.returns.tolist()
            assert metrics["ray/agent_staleness_max"] == metrics["ray/model_staleness_max"] == 0
        state = distributed.state_dict()
        wanted = local.state_dict()
        assert state["real_steps"] == wanted["real_steps"] > settings.exploration_steps
        assert differences(state["learner"], wanted["learner"]) == []
        assert differences(state["trainer"], wanted["trainer"]) == []

        checkpoint.save(tmp_path, state["real_steps"], state)
        advance(distributed, 2)
        advance(local, 2)
        ahead = distributed.state_dict()
        assert differences(ahead["learner"], local.state_dict()["learner"]) == []
        loaded = checkpoint.load_latest(tmp_path)
        assert loaded is not None
        distributed.load_state_dict(loaded[1])
        assert distributed.run.real_steps == state["real_steps"]
        advance(distributed, 2)
        assert differences(distributed.state_dict(), ahead) == []
        # The run of the driver acts with the weights of the other processes.
        distributed.update_run()
        assert differences(dict(distributed.run.networks()["agent"].state_dict()), _agent(ahead)) == []
        # A run of the local engine goes on with new episodes.
        distributed.load_state_dict(wanted)
        before = distributed.run.real_steps
        distributed.advance()
        assert distributed.run.real_steps > before
    finally:
        distributed.close()
    with pytest.raises(UserError, match="continue it with --engine ray"):
        local.load_state_dict(ahead)


def _agent(state: dict) -> dict:
    prefix = "network/"
    return {key.removeprefix(prefix): value for key, value in state["learner"].items() if key.startswith(prefix)}


@pytest.mark.slow
def test_runs_of_two_workers_are_trained_evaluated_watched_and_plotted(cluster, tmp_path: Path, capsys):
    root = ["--root", str(tmp_path)]
    words = ["cartpole", "--run", "two", *root, "--engine", "ray", "--workers", "2", "--real-steps", "400"]
    words += ["--num-envs", "8", "--log-every", "60", "--agent.unroll-stages", "4", "--agent.objective", "v-trace"]
    words += ["--evaluation.episodes", "4", "--evaluation.num-envs", "4", "--evaluation.every", "200", *TINY_MODEL]
    assert main(["train", *words]) == 0, capsys.readouterr()
    shown = capsys.readouterr().out
    assert "ray: 2 workers with 4 environments each, weights at most 1 updates old" in shown
    folder = RunFolder(tmp_path, "two")
    config = json.loads(folder.config_path.read_text())
    assert config["engine"]["name"] == "ray"
    assert config["engine"]["workers"] == 2
    lines = read_metrics(folder.path)
    trained = [line for line in lines if "ray/workers" in line]
    assert {line["ray/workers"] for line in trained} == {2}
    assert max(line["ray/agent_staleness_max"] for line in trained) == 1
    assert any("eval/return" in line for line in lines[:-1])
    # The unroll of a round, 8 environments times 4 stages, is stored at its end.
    assert trained[-1]["replay/collected_transitions"] == trained[-1]["step"] - 8 * 4
    run = load_run(folder)
    assert run.real_steps >= 400
    assert main(["eval", "two", *root, "--episodes", "4"]) == 0
    assert main(["plot", "two", *root, "--out", str(tmp_path / "curve.png")]) == 0
    assert main(["watch", "two", *root, "--episodes", "1", "--out", str(tmp_path / "plan.html")]) == 0


@pytest.mark.slow
def test_experiments_are_reproduced_by_ray(tmp_path: Path, capsys):
    pytest.importorskip("ray", reason="needs Ray: pip install 'thinker[ray]'")
    words = ["reproduce", "thinking-time", "--scale", "tiny", "--seeds", "1", "--jobs", "1", "--root", str(tmp_path)]
    assert main([*words, "--engine", "ray", "--workers", "2"]) == 0, capsys.readouterr()
    folder = tmp_path / "tiny" / "thinking-time"
    assert not load_results(folder / "result.json").missing
    lines = read_metrics(folder / "trained-0")
    assert {line["ray/workers"] for line in lines if "ray/workers" in line} == {2}


@pytest.mark.parametrize(
    ("changes", "spec", "message"),
    [
        ({}, {"workers": 3}, "use --workers 2 or --num-envs 9"),
        ({}, {"workers": 2, "max_staleness": 1}, "PPO learns only from unrolls of its current weights"),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_anything_starts(changes, spec, message):
    pytest.importorskip("ray", reason="needs Ray: pip install 'thinker[ray]'")
    settings: RunSettings = dataclasses.replace(tiny("sokoban-raw"), **changes)
    with pytest.raises(UserError, match=message):
        RaySpec(**spec).build_run(settings)


@pytest.mark.parametrize("name", ["workers", "worker_cpus", "learner_cpus"])
def test_numbers_of_processes_and_cpus_are_positive(name):
    with pytest.raises(UserError, match=f"{name} is 0"):
        RaySpec(**{name: 0})


def test_options_of_the_ray_engine_need_it(tmp_path: Path, capsys):
    assert main(["train", "cartpole", "--root", str(tmp_path), "--workers", "2"]) == 1
    assert "--workers is an option of the Ray engine; add --engine ray" in capsys.readouterr().err
