"""Dreamer-v3 on our Sokoban: its curve in the format of our runs, to be drawn beside them.

    python3 -m venv venv-dreamer                             # an environment of its own: its requirements are not ours
    venv-dreamer/bin/pip install "sheeprl==0.8.4" "torch==2.13.0" -e .
    venv-dreamer/bin/python -m benchmarks.dreamer --run dreamer-0 --core-minutes 30
    thinker plot dreamer-0 quick-0 --metrics eval/solved
    python -m benchmarks.tables dreamer-0 --every 2000

Dreamer-v3 is that of sheeprl (`dreamer_v3_5`, the version of the Nature paper), in its smallest size of about a million
parameters. It plays the training levels of the preset with the same rewards and step limits, as pictures of 64x64
pixels, and is evaluated on the same validation levels as our runs, with sampled actions like ours. Every
``--evaluate-every`` frames it adds a line to ``runs/RUN/metrics.jsonl``: frames (``step``), ``eval/solved``,
``eval/return``, ``eval/length``, ``episode/solved`` of the training episodes since the last line, and the time of
training without evaluations, ``minutes`` and ``time/core_minutes``.

Its discount is 0.997 and ours 0.93 in ``sokoban-quick``; ``--discount`` sets another one.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from thinker.envs.sokoban.env import SokobanEnv
from thinker.envs.sokoban.spec import SokobanSpec
from thinker.envs.sokoban.vector_env import SokobanVectorEnv
from thinker.errors import UserError
from thinker.runs.presets import preset

SIDE = 64
"""Height and width of the pictures that Dreamer sees."""
METRICS = "metrics.jsonl"


def as_picture(pixels: np.ndarray) -> np.ndarray:
    """Pictures [..., 3, H, W] with a black frame around them, [..., 3, 64, 64]."""
    frame = [(SIDE - length) // 2 for length in pixels.shape[-2:]]
    if min(frame) < 0:
        raise UserError(f"pictures of {pixels.shape[-2:]} pixels are larger than {SIDE}x{SIDE}; choose smaller boards")
    widths = [(0, 0)] * (pixels.ndim - 2)
    widths += [(before, SIDE - length - before) for before, length in zip(frame, pixels.shape[-2:])]
    return np.pad(pixels, widths)


class SokobanPictures(gym.Wrapper[np.ndarray, np.int64, np.ndarray, np.int64]):
    """One board of a spec's training levels, as pictures; tells ``on_end`` of each episode whether it was solved."""

    def __init__(self, spec: SokobanSpec, on_end: Callable[[bool], object]) -> None:
        super().__init__(
            SokobanEnv(
                size=spec.size,
                boxes=spec.boxes,
                reverse_moves=spec.reverse_moves,
                observation="rgb",
                max_steps=spec.max_steps,
                render_mode="rgb_array",
            )
        )
        self.observation_space = gym.spaces.Box(0, 255, (3, SIDE, SIDE), np.uint8)
        self._on_end = on_end

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return as_picture(observation), info

    def step(self, action: np.int64) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            self._on_end(terminated)
        return as_picture(observation), reward, terminated, truncated, info


def play_in_order(
    envs: SokobanVectorEnv, episodes: int, act: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> dict[str, float]:
    """Let ``act`` play the levels of ``envs`` once each: the means over the episodes, under the names of our metrics.

    ``act`` gets pictures [E, 3, 64, 64] and the boards on which an episode has just begun, and returns E actions.
    """
    returns, lengths, solved = np.zeros(episodes), np.zeros(episodes), np.zeros(episodes)
    playing, left = np.arange(envs.num_envs), episodes  # the episode that each board is playing
    observation, _ = envs.reset()
    begun = np.arange(envs.num_envs)
    while left:
        observation, reward, terminated, truncated, _ = envs.step(act(as_picture(observation), begun))
        running = playing < episodes
        returns[playing[running]] += reward[running]
        lengths[playing[running]] += 1
        begun = np.flatnonzero(terminated | truncated)
        ended = begun[running[begun]]
        solved[playing[ended]] = terminated[ended]  # solving a level terminates, the step limit truncates
        left -= len(ended)
        playing[begun] += envs.num_envs
    return {"eval/solved": solved.mean(), "eval/return": returns.mean(), "eval/length": lengths.mean()}


class Finished(Exception):  # noqa: N818 - not an error
    """The time is over."""


@dataclasses.dataclass
class Curve:
    """Receives sheeprl's checkpoints: evaluates them, writes a line, and stops the training when its time is over."""

    folder: Path
    spec: SokobanSpec
    episodes: int
    core_minutes: float
    boards: int = 64  # played at the same time in evaluations
    config: Any = None  # of sheeprl, set before training
    ended: deque[bool] = dataclasses.field(default_factory=deque)  # solved or not, since the last line
    spent: tuple[float, float] = (0.0, 0.0)  # seconds in evaluations: by the clock, of the processor
    began: tuple[float, float] = dataclasses.field(default_factory=lambda: _now())

    def on_checkpoint_coupled(self, fabric: Any, ckpt_path: str, state: dict[str, Any], **_: Any) -> None:
        """Called by sheeprl instead of saving a checkpoint."""
        start = _now()
        clock, processor = (now - began - spent for now, began, spent in zip(start, self.began, self.spent))
        line = {
            "step": int(state["iter_num"]) * self.config.env.num_envs,
            "minutes": clock / 60,
            "time/core_minutes": processor / 60,
            **self.evaluate(fabric, state),
        }
        if self.ended:
            line["episode/solved"] = sum(self.ended) / len(self.ended)
            self.ended.clear()
        with (self.folder / METRICS).open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(
            f"{line['step']:>9,} frames  {line['time/core_minutes']:6.1f} core-minutes  "
            f"{line['eval/solved']:.3f} of the validation levels solved",
            flush=True,
        )
        clock, processor = (now - before for now, before in zip(_now(), start))
        self.spent = self.spent[0] + clock, self.spent[1] + processor
        if line["time/core_minutes"] >= self.core_minutes:
            raise Finished

    def evaluate(self, fabric: Any, state: dict[str, Any]) -> dict[str, float]:
        """Play the validation levels with a copy of the agent."""
        import torch
        from sheeprl.algos.dreamer_v3.utils import prepare_obs
        from sheeprl.algos.dreamer_v3_5.agent import build_agent
        from sheeprl.utils.utils import dotdict

        envs = self.spec.held_out("validation", min(self.boards, self.episodes), self.episodes)
        config = dotdict({**self.config.as_dict(), "env": {**self.config.env.as_dict(), "num_envs": envs.num_envs}})
        space = gym.spaces.Dict({"rgb": gym.spaces.Box(0, 255, (3, SIDE, SIDE), np.uint8)})
        assert isinstance(envs.single_action_space, gym.spaces.Discrete)
        actions = (int(envs.single_action_space.n),)
        random = torch.get_rng_state()
        *_, player = build_agent(fabric, actions, False, config, space, state["world_model"], state["actor"])
        player.init_states()

        def act(pictures: np.ndarray, begun: np.ndarray) -> np.ndarray:
            if len(begun):
                player.init_states(begun.tolist())
            observation = prepare_obs(fabric, {"rgb": pictures}, cnn_keys=["rgb"], num_envs=envs.num_envs)
            chosen: np.ndarray = player.get_actions(observation)[0].argmax(-1).view(-1).numpy()
            return chosen

        with torch.inference_mode():
            found = play_in_order(envs, self.episodes, act)
        torch.set_rng_state(random)  # evaluations do not change the training
        envs.close()
        return found


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


_curve: Curve | None = None


def the_curve() -> Curve:
    """The curve of this process, for sheeprl's configuration."""
    assert _curve is not None
    return _curve


def training_board(**_: Any) -> gym.Env[Any, Any]:
    """A training environment of this process, for sheeprl's configuration."""
    curve = the_curve()
    return SokobanPictures(curve.spec, curve.ended.append)


def overrides(options: argparse.Namespace, folder: Path) -> list[str]:
    """The settings in which this run differs from sheeprl's Dreamer-v3."""
    return [
        "exp=dreamer_v3_5",
        "algo=dreamer_v3_5_1M",
        "env=gym",
        f"seed={options.seed}",
        f"num_threads={options.threads}",
        f"env.id={options.preset}",
        f"env.num_envs={options.envs}",
        "env.sync_env=True",
        "env.capture_video=False",
        "env.wrapper={_target_: benchmarks.dreamer.training_board}",
        "fabric.accelerator=cpu",
        "fabric.callbacks=[{_target_: benchmarks.dreamer.the_curve}]",
        f"algo.total_steps={options.frames}",
        f"algo.replay_ratio={options.replay_ratio}",
        f"algo.gamma={options.discount}",
        "algo.run_test=False",
        f"buffer.size={min(options.frames, 100_000)}",
        "buffer.memmap=False",
        "buffer.checkpoint=False",
        f"checkpoint.every={options.evaluate_every}",
        "metric.log_level=0",
        f"log_root={folder / 'sheeprl'}",
        *options.settings,
    ]


def train(options: argparse.Namespace) -> Path:
    """Train until the frames or the core-minutes are over; returns the folder with the curve."""
    global _curve
    spec = preset(options.preset).environment
    if not isinstance(spec, SokobanSpec):
        raise UserError(f"preset {options.preset!r} does not play Sokoban")
    folder = options.root / options.run
    if (folder / METRICS).exists():
        raise UserError(f"there is already a run in {folder}; choose another name with --run")
    try:
        from hydra import compose, initialize_config_module
        from omegaconf import OmegaConf
        from sheeprl.cli import check_configs, run_algorithm
        from sheeprl.utils.utils import dotdict
    except ImportError as error:
        raise UserError(
            f"sheeprl is needed, in an environment of its own ({error}); see benchmarks/dreamer.py"
        ) from None
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # as in our own runs
    torch.set_num_threads(options.threads)
    with initialize_config_module("sheeprl.configs", version_base="1.3"):
        composed = compose("config", overrides=overrides(options, folder))
    # hydra's own settings, such as the time in the names of folders, exist only under its command line
    composed.run_name, composed.root_dir = "run", "dreamer"
    config = dotdict(OmegaConf.to_container(composed, resolve=True, throw_on_missing=True))
    check_configs(config)
    spec = dataclasses.replace(spec, observation="rgb")
    _curve = Curve(folder, spec, options.episodes, options.core_minutes, config=config)
    with contextlib.suppress(Finished):
        run_algorithm(config)
    return folder / METRICS


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", default="dreamer", help="name of the run (default dreamer)")
    parser.add_argument("--root", type=Path, default=Path("runs"), help="the folder of all runs (default runs)")
    parser.add_argument("--preset", default="sokoban-quick", help="whose levels to play (default sokoban-quick)")
    parser.add_argument("--frames", type=int, default=1_000_000, help="stop after so many frames (default 1,000,000)")
    parser.add_argument("--core-minutes", type=float, default=30.0, help="stop after so much training (default 30)")
    parser.add_argument("--evaluate-every", type=int, default=2_000, help="frames between evaluations (default 2,000)")
    parser.add_argument("--episodes", type=int, default=256, help="validation levels (default 256)")
    parser.add_argument("--envs", type=int, default=16, help="training environments (default 16)")
    parser.add_argument("--replay-ratio", type=float, default=0.03125, help="gradient steps per frame (default 1/32)")
    parser.add_argument("--discount", type=float, default=0.996996996996997, help="(default 1 - 1/333)")
    parser.add_argument("settings", nargs="*", help="other settings of sheeprl, such as algo.horizon=15")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    print(f"wrote {train(parser.parse_args(arguments))}")


if __name__ == "__main__":
    from benchmarks import dreamer  # sheeprl's configuration names functions of this module, not of __main__

    dreamer.main()
