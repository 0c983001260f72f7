"""The page is one small file that needs nothing else, and texts in a recording stay texts."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re

import pytest
from gymnasium.vector import SyncVectorEnv

from tests.viewer.support import Pictures, RandomPolicy, sokoban_recording
from thinker.augmented import ThinkerEnv
from thinker.envs.sokoban import SokobanVectorEnv
from thinker.viewer import Recording, record, write_page
from thinker.viewer.page import page_text
from thinker.world_model.simulator import EnvSimulator, simulator

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)><!-- \u2028\u2029 {{script}} ]]> ' \" &lt;"


def embedded(page: str) -> str:
    (data,) = re.findall(r'<script type="application/json" id="recording">(.*?)</script>', page, re.DOTALL)
    return data


def test_the_page_holds_the_whole_recording(tmp_path):
    recording = sokoban_recording(2, title="two episodes")
    write_page(recording, tmp_path / "plan.html")
    page = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert Recording.from_dict(json.loads(embedded(page))) == recording


def test_the_page_asks_for_nothing_from_outside():
    page = page_text(sokoban_recording(1))
    assert not re.findall(r"<(?:link|iframe|object|embed|base)\b", page)
    assert not re.findall(r"\b(?:src|href)\s*=\s*[\"']", page)
    addresses = set(re.findall(r"https?://[^\s\"'`)]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # a name, never asked for


def test_only_the_pages_own_script_may_run():
    page = page_text(sokoban_recording(1))
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_hostile_texts_stay_data():
    recording = sokoban_recording(1)
    hostile = dataclasses.replace(
        recording,
        title=HOSTILE,
        environment=HOSTILE,
        actions=[HOSTILE] * 5,
        notes={HOSTILE: HOSTILE},
    )
    page = page_text(hostile)
    assert page.count("<script") == 2
    assert page.count("</script>") == 2
    assert "<img" not in page
    assert "\u2028" not in embedded(page)
    assert Recording.from_dict(json.loads(embedded(page))) == hostile


def test_the_script_never_parses_markup():
    page = page_text(sokoban_recording(1))
    for danger in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert danger not in page


def test_an_episode_of_100_steps_with_20_augmented_steps_each_is_under_5_megabytes():
    envs = SokobanVectorEnv(1, size=10, boxes=4, max_steps=100)
    env = ThinkerEnv(envs, simulator(envs), stage_length=20, max_depth=5, keep_states=True)
    recording = record(env, RandomPolicy(env, 0, reset=0.1), seed=0)
    assert len(recording.episodes[0].stages) == 100
    assert len(page_text(recording).encode()) < 2_000_000


@pytest.mark.parametrize("kind", ["rgb", "noise"])
def test_pages_with_pictures_are_under_5_megabytes(kind):
    if kind == "rgb":
        envs = SokobanVectorEnv(1, size=10, boxes=4, max_steps=100, observation="rgb")
        env = ThinkerEnv(envs, simulator(envs), stage_length=20, max_depth=5, keep_states=True)
        steps = 100
    else:  # the worst there is: nothing can be compressed; a tenth of the episode must be under a tenth
        envs = SyncVectorEnv([lambda: Pictures((3, 80, 80), length=10)])
        env = ThinkerEnv(envs, EnvSimulator(envs), stage_length=20, max_depth=5, keep_states=True)
        steps = 10
    recording = record(env, RandomPolicy(env, 0, reset=0.1), seed=2)
    assert len(recording.episodes[0].stages) == steps
    assert len(recording.frames) > 20
    assert len(page_text(recording).encode()) < 5_000_000 * steps / 100 + 60_000
