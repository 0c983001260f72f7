"""Videos of recordings."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from PIL import Image

from tests.viewer.support import FickleModel, Pictures, RandomPolicy, sokoban_recording
from thinker.augmented import ThinkerEnv
from thinker.errors import UserError
from thinker.viewer import record, write_video
from thinker.viewer.encoding import decoded


@pytest.mark.parametrize("observation", ["tiles", "rgb"])
def test_a_gif_shows_every_stage(tmp_path, observation):
    recording = sokoban_recording(1, max_steps=6, observation=observation)
    write_video(recording, tmp_path / "plan.gif")
    with Image.open(tmp_path / "plan.gif") as gif:
        assert getattr(gif, "n_frames", 1) == len(recording.episodes[0].stages) + 1
        assert len(np.unique(np.asarray(gif.convert("RGB")).reshape(-1, 3), axis=0)) > 10


def test_vectors_are_drawn_with_the_environments_pictures(tmp_path):
    envs = SyncVectorEnv([lambda: Pictures((4,), render_mode="rgb_array")])
    env = ThinkerEnv(envs, FickleModel(envs), stage_length=4, keep_states=True)
    recording = record(env, RandomPolicy(env, 0), seed=0)
    write_video(recording, tmp_path / "plan.gif")
    with Image.open(tmp_path / "plan.gif") as gif:
        shown = np.asarray(gif.convert("RGB"))
    assert recording.renderings is not None
    picture = decoded(recording.renderings.pictures[recording.episodes[0].stages[0].picture or 0])
    assert np.abs(shown[100, 100].astype(int) - np.asarray(picture)[0, 0]).max() < 12  # up to the GIF's palette


def test_an_mp4_needs_the_extra_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"thinker\[video\]"):
        write_video(sokoban_recording(1, max_steps=2), tmp_path / "plan.mp4")


def test_an_mp4_is_written_where_the_extra_is_installed(tmp_path):
    pytest.importorskip("imageio_ffmpeg", reason="the extra [video] is not installed")
    write_video(sokoban_recording(1, max_steps=2), tmp_path / "plan.mp4")
    assert (tmp_path / "plan.mp4").stat().st_size > 2_000


def test_other_kinds_of_video_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"\.mp4 or \.gif"):
        write_video(sokoban_recording(1, max_steps=2), tmp_path / "plan.avi")
