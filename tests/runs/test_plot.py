"""Learning curves: groups, means and messages; the pictures themselves are for people to look at."""

import json

import numpy as np
import pytest
from matplotlib.image import imread

from thinker.errors import UserError
from thinker.runs.plot import _groups_by_seed, on_common_grid, plot_runs


def make_run(folder, seed=0, preset="quick", metrics=("episode/solved",), steps=10):
    folder.mkdir(parents=True)
    config = {"preset": preset, "settings": {"seed": seed, "agent": {"seed": 5}}}
    (folder / "config.json").write_text(json.dumps(config))
    with open(folder / "metrics.jsonl", "w") as file:
        for step in range(steps):
            line = dict.fromkeys(metrics, step / 10 + seed)
            file.write(json.dumps({"step": step * 100, "minutes": step / 2, **line}) + "\n")
    return folder


def test_runs_that_differ_only_in_their_seed_are_one_group(tmp_path):
    folders = [
        make_run(tmp_path / "quick", 0),
        make_run(tmp_path / "raw-seed1", 1, "raw"),
        make_run(tmp_path / "quick-1", 1),
        make_run(tmp_path / "quick-seed2", 2),
        make_run(tmp_path / "raw-seed2", 2, "raw"),
        make_run(tmp_path / "other-7", 0, "other"),
    ]
    groups = _groups_by_seed(folders)
    assert {label: [folder.name for folder in members] for label, members in groups.items()} == {
        "quick": ["quick", "quick-1", "quick-seed2"],
        "raw": ["raw-seed1", "raw-seed2"],
        "other-7": ["other-7"],
    }


def test_a_mean_is_taken_where_all_curves_reach():
    x, y = on_common_grid(
        [
            (np.array([0.0, 10.0, 20.0]), np.array([0.0, 1.0, 2.0])),
            (np.array([5.0, 15.0, 25.0]), np.array([10.0, 20.0, 30.0])),
        ]
    )
    assert x.tolist() == [5, 10, 15, 20]
    assert y.tolist() == [[0.5, 1, 1.5, 2], [10, 15, 20, 25]]


@pytest.mark.parametrize("x", ["steps", "minutes"])
def test_a_picture_is_written_with_metrics_that_only_some_have(tmp_path, x):
    folders = [
        make_run(tmp_path / "quick-1", 1, metrics=("episode/solved", "loss/model")),
        make_run(tmp_path / "quick-2", 2, metrics=("episode/solved", "loss/model"), steps=1),
        make_run(tmp_path / "raw", 0, "raw", steps=1),
    ]
    out = plot_runs(folders, tmp_path / "new" / "curves.png", x=x, metrics=["episode/solved", "loss/model"])
    image = imread(out)
    assert image.shape[1] > 1000
    assert image.std() > 0.05, "the picture must not be empty"


def test_groups_can_be_given(tmp_path):
    groups = {"a": [make_run(tmp_path / "x", 0)], "b": [make_run(tmp_path / "y", 0), make_run(tmp_path / "z", 0)]}
    assert plot_runs(groups, tmp_path / "curves.png", metrics=["episode/solved"]).stat().st_size > 10_000


def test_wrong_requests_are_clear_errors(tmp_path):
    run = make_run(tmp_path / "quick")
    out = tmp_path / "curves.png"
    with pytest.raises(UserError, match="no run has recorded the metric 'episode/solve'; there are episode/solved"):
        plot_runs([run], out, metrics=["episode/solve"])
    with pytest.raises(UserError, match="there are episode/solved, minutes"):
        plot_runs([run], out, metrics=["zzz"])
    with pytest.raises(UserError, match="expected one of"):
        plot_runs([run], out, x="seconds")
    with pytest.raises(UserError, match="nothing to plot"):
        plot_runs([], out)
    with pytest.raises(UserError, match="no run in"):
        plot_runs([tmp_path / "absent"], out)
    (tmp_path / "new").mkdir()
    with pytest.raises(UserError, match="no metrics yet"):
        plot_runs([tmp_path / "new"], out)
    with pytest.raises(UserError, match="no episode has ended yet in these runs; there are only loss/model, minutes"):
        plot_runs([make_run(tmp_path / "young", metrics=("loss/model",))], out)
    assert not out.exists()


def test_by_default_solved_episodes_are_drawn_only_where_the_environment_tells(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("thinker.runs.plot._draw_panel", lambda axis, metric, *_: drawn.append(metric))
    plot_runs([make_run(tmp_path / "a", metrics=("episode/return", "loss/model"))], tmp_path / "curves.png")
    assert drawn == ["episode/return"]
    plot_runs([make_run(tmp_path / "b", metrics=("episode/return", "episode/solved"))], tmp_path / "curves.png")
    assert drawn[1:] == ["episode/solved", "episode/return"]
