"""`thinker --plugin MODULE`: types and presets of one's own on the command line."""

import subprocess
import sys

import pytest

from thinker.cli import main

PLUGIN = '''
import dataclasses
from dataclasses import dataclass

import thinker
from thinker.agents import RawAgentSpec
from thinker.runs import presets, registry


@dataclass(frozen=True)
class MyAgentSpec(RawAgentSpec):
    temperature: float = 1.0  # how warm it is


def mine():
    """My own preset."""
    settings = thinker.preset("gymnasium-raw")
    return dataclasses.replace(
        settings,
        environment=thinker.GymnasiumSpec(id="CartPole-v1"),
        agent=MyAgentSpec(unroll_stages=4, batch_size=4),
        evaluation=thinker.EvaluationSettings(episodes=4, num_envs=2),
        num_envs=4,
        real_steps=160,
        threads=1,
    )


registry.AGENTS["mine"] = MyAgentSpec
presets.PRESETS["mine"] = mine
'''


@pytest.mark.slow
def test_a_plugins_preset_is_trained_and_evaluated_with_its_own_options(tmp_path):
    (tmp_path / "my_plugin.py").write_text(PLUGIN, encoding="utf-8")

    def thinker(*words):
        command = [sys.executable, "-m", "thinker", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)

    done = thinker("--plugin", "my_plugin", "train", "mine", "--agent.temperature", "2.5")
    assert done.returncode == 0, done.stderr
    assert '"temperature": 2.5' in (tmp_path / "runs" / "mine" / "config.json").read_text(encoding="utf-8")
    done = thinker("--plugin", "my_plugin", "eval", "mine", "--episodes", "4")
    assert done.returncode == 0, done.stderr
    assert "4 test episodes" in done.stdout
    done = thinker("eval", "mine")
    assert done.returncode == 1
    assert "'mine'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["--plugin"], ["--plugin", "no_such_module", "runs"]])
def test_a_missing_plugin_is_named(words, capsys):
    assert main(words) != 0
    assert "plugin" in capsys.readouterr().err


def test_bench_needs_time(capsys):
    assert main(["bench", "cartpole", "--seconds", "0"]) == 1
    assert "greater than 0" in capsys.readouterr().err
