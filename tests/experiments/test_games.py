"""Experiments on several games: which are played, normalised scores [runs, games], their picture, table and claims."""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys

import numpy as np
import pytest

from tests.experiments.made_up import small_experiment
from thinker.cli import main
from thinker.errors import UserError
from thinker.experiments import job, statistics
from thinker.experiments.catalogue import EXPERIMENTS, atari, minatar
from thinker.experiments.experiment import Games
from thinker.experiments.games import scores
from thinker.experiments.report import verdicts, write_report
from thinker.experiments.results import RESULT, Results, RunResult, gather, load_results
from thinker.runs.engines.local import LocalSpec

AGGREGATES = ("interquartile mean", "median", "mean")


def played(returns, *, chance=1.0, scale="laptop", experiment="minatar"):
    """Results with these returns of test episodes: {variant: {game: [one for each seed]}}."""
    runs = []
    for variant, games in returns.items():
        for game, values in games.items():
            for seed, value in enumerate(values):
                measured = {"agent": value, "base-policy" if variant == "thinker" else "random-play": chance}
                runs.append(
                    RunResult(
                        variant=variant,
                        seed=seed,
                        folder=f"{variant}-{game}-{seed}",
                        command=f"thinker train {variant} --environment.game {game}",
                        frames=1000,
                        core_minutes=3.0,
                        minutes=1.0,
                        validation={},
                        measurements={key: {"return": one, "episodes": 5} for key, one in measured.items()},
                        curve={"step": [0, 1000], "return": [chance, value], "core_minutes": [0.0, 3.0]},
                        provenance={},
                        game=game,
                    )
                )
    games = tuple(next(iter(returns.values())))
    labels = {"thinker": "Thinker", "raw": "raw MDP"}
    return Results(experiment, scale, "", "2026-01-01", 2, labels, tuple(runs), (), games)


RETURNS = {
    "thinker": {"breakout": [9.0, 5.0], "freeway": [21.0, 41.0]},
    "raw": {"breakout": [3.0, 4.0], "freeway": [11.0, 3.0, 6.0]},
}


# ------------------------------------------------------------------------------------------------- which are played


def with_games(**options):
    return small_experiment("a", "b", games=Games(("pong", "ms_pacman"), {"tiny": ("pong",)}), **options)


def test_every_variant_is_trained_on_every_game_seed_by_seed():
    names = [one.name for one in with_games().on(["MsPacman", "pong", "ms-pacman"]).jobs("tiny")]
    expected = ["a-ms-pacman-0", "b-ms-pacman-0", "a-pong-0", "b-pong-0"]
    assert names == [*expected, *(name.replace("-0", "-1") for name in expected)]
    assert [one.name for one in with_games().jobs("tiny", 1)] == ["a-pong-0", "b-pong-0"]
    chosen = EXPERIMENTS["minatar"].on(["space_invaders"]).jobs("laptop", 1)
    assert [one.name for one in chosen] == ["thinker-space-invaders-0", "raw-space-invaders-0"]
    assert [one.settings.environment.game for one in chosen] == ["space_invaders"] * 2


def test_wrong_games_get_the_nearest_ones_and_some_experiments_have_none():
    with pytest.raises(
        UserError, match=r"there is no game 'mspacmen'; did you mean ms_pacman\? games are pong, ms_pac"
    ):
        with_games().on(["mspacmen"])
    with pytest.raises(UserError, match="give at least one game"):
        with_games().on([])
    with pytest.raises(UserError, match="--games pong: small has no games to choose from"):
        small_experiment("a").on(["pong"])
    assert small_experiment("a").on(None).jobs("tiny", 1)


@pytest.mark.parametrize("game", ["seaquest", "asterix"])
def test_the_process_of_a_job_is_told_its_game(game, tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(job, "do", lambda one, folder, engine: done.append((one, folder)))
    monkeypatch.setattr(job, "_stop_with_parent", lambda: None)
    experiment = EXPERIMENTS["minatar"].on([game])
    wanted = experiment.jobs("laptop")[-1]
    words = job.command(experiment, "laptop", wanted, tmp_path, LocalSpec())
    assert job.main(words[3:]) == 0
    assert done == [(wanted, tmp_path)]


def test_without_an_extra_the_list_and_the_error_say_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setitem(sys.modules, "minatar", None)
    assert main(["reproduce", "--list", "--root", str(tmp_path), "--out", str(tmp_path)]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if " minatar " in line)
    assert "MinAtar's games need the package minatar" in line
    assert main(["reproduce", "minatar", "--root", str(tmp_path)]) == 1
    assert "pip install 'thinker[minatar]'" in capsys.readouterr().err
    assert not list(tmp_path.rglob("config.json"))


# ------------------------------------------------------------------------------------------------ aggregates


def by_hand(matrix, by):
    """The aggregate of [runs, games], as rliable defines it."""
    if by == "interquartile mean":
        numbers = sorted(matrix.ravel())
        cut = len(numbers) // 4
        return np.mean(numbers[cut : len(numbers) - cut])
    means = [np.mean(matrix[:, game]) for game in range(matrix.shape[1])]
    return np.mean(means) if by == "mean" else np.median(means)


def resamples(matrix):
    """All ways to draw the runs of every game anew, which are equally likely: [runs, games, ...] each."""
    runs, games = matrix.shape[:2]
    per_game = list(itertools.product(range(runs), repeat=runs))
    for rows in itertools.product(per_game, repeat=games):
        yield np.stack([matrix[list(chosen), game] for game, chosen in enumerate(rows)], 1)


@pytest.mark.parametrize("by", AGGREGATES)
def test_aggregates_over_games_and_their_intervals_are_those_of_all_resamples(by):
    matrix = np.array([[0.1, 3.0], [0.7, 1.0]])
    interval = statistics.aggregate(matrix, by)
    assert interval.estimate == statistics.estimate(matrix, by) == pytest.approx(by_hand(matrix, by))
    everything = [by_hand(one, by) for one in resamples(matrix)]
    expected = np.percentile(everything, [2.5, 97.5], method="inverted_cdf")
    assert interval[1:] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("by", AGGREGATES)
def test_differences_of_the_same_runs_resample_them_together(by):
    first, second = np.array([[0.1, 3.0], [0.7, 1.0]]), np.array([[0.0, 2.9], [0.5, 1.2]])
    interval = statistics.paired_difference(first, second, by)
    everything = [by_hand(x[..., 0], by) - by_hand(x[..., 1], by) for x in resamples(np.stack((first, second), 2))]
    assert interval.estimate == pytest.approx(by_hand(first, by) - by_hand(second, by))
    assert interval[1:] == pytest.approx(np.percentile(everything, [2.5, 97.5], method="inverted_cdf"), abs=1e-9)
    apart = statistics.difference(first, second, by)
    assert apart.estimate == pytest.approx(interval.estimate)
    assert apart.high - apart.low > interval.high - interval.low


@pytest.mark.parametrize("by", AGGREGATES)
def test_a_curve_of_all_games_is_the_aggregate_at_every_point(by, monkeypatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 200)
    curves = np.random.default_rng(0).random((3, 2, 4))  # [runs, games, points]
    middle, low, high = statistics.curve_band(curves, by)
    np.testing.assert_allclose(middle, [by_hand(curves[..., point], by) for point in range(4)])
    assert (low <= middle).all()
    assert (middle <= high).all()
    assert (low < high).any()
    for line in statistics.curve_band(curves[:1], by):
        np.testing.assert_allclose(line, [by_hand(curves[:1, :, point], by) for point in range(4)])


# --------------------------------------------------------------------------------------------------- MinAtar


def test_minatar_scores_are_0_for_random_play_and_1_for_the_best_run():
    results = played(RETURNS, chance=1.0)
    assert minatar.normalised(results, "breakout", np.array([1.0, 9.0, 5.0])).tolist() == [0.0, 1.0, 0.5]
    assert scores(results, "thinker", minatar.normalised).tolist() == [[1.0, 0.5], [0.5, 1.0]]
    raw = scores(results, "raw", minatar.normalised)
    np.testing.assert_allclose(raw, [[0.25, 0.25], [0.375, 0.05]])  # as many runs as each game has


def test_without_random_play_or_a_game_there_are_no_scores():
    only_thinker = played({"thinker": RETURNS["thinker"]})
    assert scores(only_thinker, "thinker", minatar.normalised).shape == (0, 2)
    missing = dataclasses.replace(played(RETURNS), games=("breakout", "asterix"))
    assert scores(missing, "raw", minatar.normalised).shape == (0, 2)
    assert {one.judgement for one in verdicts(EXPERIMENTS["minatar"], missing)} == {"undecided"}


def test_claims_compare_aggregates_over_games(monkeypatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 200)
    better = verdicts(EXPERIMENTS["minatar"], played(RETURNS))
    assert [one.judgement for one in better] == ["holds"] * 6
    assert better[0].evidence.startswith("Thinker minus raw MDP, median of agent over games")
    swapped = {"thinker": RETURNS["raw"], "raw": RETURNS["thinker"]}
    assert verdicts(EXPERIMENTS["minatar"], played(swapped))[1].judgement == "does not hold"


@pytest.mark.parametrize("games", [1, 2])
def test_the_page_has_every_game_the_aggregates_and_who_is_better(games, tmp_path, monkeypatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 50)
    results = played({variant: dict(list(one.items())[:games]) for variant, one in RETURNS.items()})
    page = write_report(EXPERIMENTS["minatar"], results, tmp_path)
    text = page.read_text(encoding="utf-8")
    assert "| game | random play | raw MDP | Thinker, base policy | Thinker |" in text
    assert "| breakout | 1.00 (1.00 to 1.00) | 3.50 (" in text
    assert "| **median** | 0.00 (0.00 to 0.00) | " in text
    never, always = "0.00 (0.00 to 0.00)", "1.00 (1.00 to 1.00)"
    assert f"| better than raw MDP | {never} |  | {never} | {always} |" in text
    assert "| core-minutes of a run |  | 3.0 |  | 3.0 |" in text
    assert page.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert load_results(page.with_suffix(".json")) == results


# ----------------------------------------------------------------------------------------------------- Atari


def test_the_published_scores_give_the_medians_of_the_paper():
    pytest.importorskip("atarihns", reason="the extra thinker[atari] is not installed")
    pytest.importorskip("ale_py", reason="the extra thinker[atari] is not installed")
    from thinker.envs.atari.scores import aggregate, benchmark_games, human_normalised

    table = atari.published()
    assert sorted(atari.GAMES) == benchmark_games()
    columns = {}
    for column, values in table.items():
        columns[column] = [human_normalised(game, value) for game, value in values.items() if value is not None]
    medians = {column: round(100 * aggregate(values)["median"]) for column, values in columns.items()}
    assert medians == {"paper: Thinker": 261, "paper: Thinker, base policy": 160, "paper: raw MDP": 102,
                       "paper: Rainbow": 227}  # fmt: skip  # without three games; its authors: 223
    assert [game for game, value in table["paper: Rainbow"].items() if value is None] == [
        "jamesbond", "riverraid", "up_n_down"]  # fmt: skip
    results = played({"thinker": {"pong": [0.0]}})
    for returns in (-20.7, 3.0, 14.6):
        expected = human_normalised("pong", returns)
        assert atari.normalised(results, "pong", np.array([returns])) == pytest.approx(expected)


def test_the_atari_table_has_the_published_columns_beside_ours(monkeypatch):
    pytest.importorskip("atarihns", reason="the extra thinker[atari] is not installed")
    monkeypatch.setattr(statistics, "RESAMPLES", 50)
    results = played({"thinker": {"pong": [-20.7, 14.6], "riverraid": [1e4, 1e4]}, "raw": {}}, experiment="atari")
    lines = list(atari.table(results))
    assert lines[0].startswith(
        "| game | paper: Rainbow | paper: raw MDP | paper: Thinker, base policy | paper: Thinker |"
    )
    assert lines[2].startswith("| pong | 20.90 | 20.97 | 20.96 | 20.84 |  | 1.00 (1.00 to 1.00) | -3.05 (")
    assert lines[3].startswith("| riverraid | n.a. | 23,984 |")
    published = {line.split(" | ")[0]: line.split(" | ")[1] for line in lines[4:7]}
    pong = (20.9 + 20.7) / (14.6 + 20.7)  # Rainbow has no score of the other game
    assert published == {f"| **{by}**": f"{pong:.2f}" for by in AGGREGATES}
    assert "after 4,000 frames of the emulator" in lines[-1]


# ------------------------------------------------------------------------------------------------ from end to end


@pytest.mark.parametrize("name", ["minatar", "atari"])
def test_one_game_is_trained_measured_and_reported(name, tmp_path, monkeypatch):
    for package in {"minatar": ["minatar"], "atari": ["ale_py", "atarihns"]}[name]:
        pytest.importorskip(package, reason=f"the extra thinker[{name}] is not installed")
    monkeypatch.setattr(statistics, "RESAMPLES", 50)
    experiment = EXPERIMENTS[name].on(["freeway"])
    root, out = tmp_path / "runs", tmp_path / "pages"
    for one in experiment.jobs("tiny", 1):
        job.do(one, experiment.folder(root, "tiny") / one.name)
    results = gather(experiment, "tiny", root, 1)
    assert results.command == f"thinker reproduce {name} --scale tiny --seeds 1 --games freeway"
    assert (results.missing, results.games) == ((), ("freeway",))
    thinker, raw = results.runs
    assert [thinker.game, raw.game] == ["freeway"] * 2
    assert set(thinker.measurements) == {"agent", "base-policy"}
    assert set(raw.measurements) == ({"agent", "random-play"} if name == "minatar" else {"agent"})
    assert "--environment.game freeway" in thinker.command
    results.save(experiment.folder(root, "tiny") / RESULT)
    written = {path: path.stat().st_mtime_ns for path in root.rglob("*.safetensors")}

    words = ["reproduce", name, "--scale", "tiny", "--seeds", "1", "--root", str(root), "--out", str(out)]
    assert main([*words, "--games", "freeway"]) == 0  # nothing is done twice
    assert main([*words, "--report"]) == 0  # of the games that were played
    assert written == {path: path.stat().st_mtime_ns for path in root.rglob("*.safetensors")}
    text = (out / f"{name}-tiny.md").read_text(encoding="utf-8")
    assert "\n| freeway | " in text
    assert "only one run of Thinker, median of agent over games" in text
    assert json.loads((out / f"{name}-tiny.json").read_text())["games"] == ["freeway"]
    assert (out / f"{name}-tiny.png").exists()
