"""Weights & Biases, offline: what metrics.jsonl has is logged there too."""

import json

import pytest

from thinker.errors import UserError
from thinker.runs.metrics import MetricsWriter
from thinker.runs.wandb_logger import WandbLogger


@pytest.mark.slow
def test_metrics_reach_an_offline_run_that_can_be_resumed(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="needs the extra [wandb]")
    monkeypatch.setenv("WANDB_MODE", "offline")
    logged = []
    for resume_step in (None, 10):
        logger = WandbLogger("test", tmp_path, {"seed": 3})
        monkeypatch.setattr(
            logger._run, "log", lambda values, log=logger._run.log: (logged.append(values), log(values))
        )
        assert logger._run.config["seed"] == 3
        with MetricsWriter(tmp_path, resume_step, [logger]) as writer:
            writer.write(10 if resume_step is None else 20, {"loss/policy": 0.5})
        assert wandb.run is None  # finished
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in logged] == [line["step"] for line in lines] == [10, 20]
    assert all(one["loss/policy"] == 0.5 for one in logged)
    folders = [folder.name for folder in (tmp_path / "wandb").glob("offline-run-*")]  # offline-run-TIME-ID
    assert folders
    assert len({name.split("-")[3] for name in folders}) == 1  # one id: W&B takes them for one run


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with pytest.raises(UserError, match=r"thinker\[wandb\]"):
        WandbLogger("test", tmp_path, {})


@pytest.mark.slow
def test_a_run_that_starts_over_is_another_run_for_wandb(tmp_path, monkeypatch):
    pytest.importorskip("wandb", reason="needs the extra [wandb]")
    monkeypatch.setenv("WANDB_MODE", "offline")
    identities = []
    for folder in (tmp_path / "old", tmp_path / "new", tmp_path / "new"):
        folder.mkdir(exist_ok=True)
        logger = WandbLogger("test", folder, {})
        identities.append(logger._run.id)
        logger.close()
    assert identities[0] != identities[1] == identities[2]
