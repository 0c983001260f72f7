"""Result files: gathered from the folders of runs, saved and loaded; and the page that is made from them."""

import dataclasses
import json

import pytest

from tests.experiments.made_up import finish, made_up, small_experiment
from thinker.errors import UserError
from thinker.experiments import statistics
from thinker.experiments.claims import Claim, greater, solved
from thinker.experiments.report import write_report
from thinker.experiments.results import RESULT, gather, learning_curve, load_results


def test_results_are_gathered_from_the_runs_that_are_finished(tmp_path):
    experiment = small_experiment("a", "b")
    folder = experiment.folder(tmp_path, "tiny")
    jobs = experiment.jobs("tiny")
    finish(folder / "a-0", jobs[0].settings.to_dict(), solved=0.25)
    finish(folder / "a-1", jobs[2].settings.to_dict(), solved=0.75)
    finish(folder / "b-0", jobs[1].settings.to_dict(), measurement="another")  # trained, not measured
    results = gather(experiment, "tiny", tmp_path)
    assert results.missing == ("b-0", "b-1")
    assert results.labels == {"a": "A", "b": "B"}
    assert results.measured("a", "agent", "solved").tolist() == [0.25, 0.75]
    assert results.measured("b", "agent", "solved").tolist() == []
    run = results.of("a")[1]
    assert (run.seed, run.folder, run.frames, run.core_minutes) == (1, "tiny/small/a-1", 100, 0.4)
    assert run.command == "thinker train sokoban-raw --seed 1 --real-steps 100 --num-envs 2"
    assert run.curve["step"] == [25, 50, 100]
    assert results.core_seconds("a").tolist() == [60.0, 60.0]

    results.save(folder / RESULT)
    assert load_results(folder / RESULT) == results


def test_long_curves_are_thinned_out_but_keep_their_last_point(tmp_path):
    lines = [{"step": step, "minutes": 0.0, "episode/return": step / 10} for step in range(1, 1002)]
    lines.insert(5, {"step": 6, "minutes": 0.0, "eval/solved": 0.5})  # an evaluation is no point of the curve
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    curve = learning_curve(tmp_path)
    assert set(curve) == {"step", "return"}
    assert len(curve["step"]) <= 201
    assert (curve["step"][0], curve["step"][-1], curve["return"][-1]) == (1, 1001, 100.1)
    assert learning_curve(tmp_path / "nothing") == {"step": []}


def test_a_damaged_result_file_is_an_error(tmp_path):
    for number, text in enumerate(("{", "{}", '{"format": 1, "runs": []}')):
        path = tmp_path / f"{number}.json"
        path.write_text(text)
        with pytest.raises(UserError, match="is not a result file of this version"):
            load_results(path)


def test_a_page_is_made_from_the_result_file_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 50)
    claims = (
        Claim("A beats B", greater(solved("a"), solved("b"))),
        Claim("B beats A", greater(solved("b"), solved("a"))),
    )
    experiment = small_experiment("a", "b", claims=claims, notes="Small boards.")
    results = made_up({"a": (0.9, 0.8, 0.95), "b": (0.1, 0.2, 0.1)})
    page = write_report(experiment, results, tmp_path / "one")
    assert page.name == "made-up.md"
    text = page.read_text(encoding="utf-8")
    assert "| A beats B | **holds** |" in text
    assert "| B beats A | **does not hold** |" in text
    assert "| A | agent | 3 | 1,000 | 0.883 (0.8" in text
    assert "0.00 (0.00 to 0.00)" in text  # the probability that B is better
    assert "Runs that are not finished: c-0." in text
    assert "commit 0123456789; unknown processor, 2 cores" in text
    assert "thinker train a --seed 0" in text
    assert page.with_suffix(".png").read_bytes().startswith(b"\x89PNG")

    again = write_report(experiment, load_results(page.with_suffix(".json")), tmp_path / "two")
    assert again.read_text(encoding="utf-8") == text
    assert again.with_suffix(".png").read_bytes() == page.with_suffix(".png").read_bytes()


def test_only_laptop_scale_has_the_plain_name_and_tiny_numbers_carry_a_warning(tmp_path):
    results = dataclasses.replace(made_up({"a": (0.9,)}), scale="tiny")
    page = write_report(small_experiment("a"), results, tmp_path)
    assert page.name == "made-up-tiny.md"
    assert "its numbers mean nothing" in page.read_text(encoding="utf-8")
