"""The options of `thinker train PRESET` are those of its types of environment, model and agent, and no others."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest

from thinker.cli import main
from thinker.cli.bench import BenchOptions
from thinker.cli.options import with_settings
from thinker.cli.train import TrainOptions
from thinker.runs.presets import PRESETS, preset
from thinker.runs.settings import settings_from_dict

NOTHING_BUT_HELP = {"--help"}


def help_of(name: str, capsys, monkeypatch, command: str = "train") -> tuple[str, str]:
    """What comes before the options, and the options."""
    monkeypatch.setenv("COLUMNS", "100")  # one column of boxes
    with pytest.raises(SystemExit) as ended:
        main([command, name, "--help"])
    assert ended.value.code == 0
    lines = [line.strip("│ ") for line in capsys.readouterr().out.splitlines()]  # boxes, where the output can show them
    (first,) = (number for number, line in enumerate(lines) if re.fullmatch(r"\W*options\W*", line))
    return "\n".join(lines[:first]), "\n".join(lines[first:])


def shown(options: str) -> set[str]:
    """The options at the beginning of a line: ``--fresh, --no-fresh`` are two."""
    heads = re.findall(r"^((?:-\w, )?--[a-z][^\s,]*(?:, --[^\s,]+)*)", options, re.MULTILINE)
    return {word for head in heads for word in head.split(", ") if word.startswith("--")}


def options_of(settings: Any, prefix: str = "") -> set[str]:
    """One option for each field of a dataclass, two for yes and no."""
    found = set()
    for field in dataclasses.fields(settings):
        value, name = getattr(settings, field.name), field.name.replace("_", "-")
        if dataclasses.is_dataclass(value):
            found |= options_of(value, f"{prefix}{name}.")
        else:
            found.add(f"--{prefix}{name}")
            if isinstance(value, bool):
                found.add(f"--{prefix}no-{name}")
    return found


@pytest.mark.parametrize("name", PRESETS)
def test_the_options_are_exactly_those_of_the_chosen_types(name, capsys, monkeypatch):
    _, options = help_of(name, capsys, monkeypatch)
    assert shown(options) == NOTHING_BUT_HELP | options_of(TrainOptions()) | options_of(preset(name))


def test_without_a_model_nothing_asks_for_one(capsys, monkeypatch):
    raw, quick = (shown(help_of(name, capsys, monkeypatch)[1]) for name in ("sokoban-raw", "sokoban-quick"))
    assert "--agent.planning-reward-scale" in quick - raw
    assert "--agent.tree-encoder" in quick - raw
    assert {"--model.state-loss", "--model.training.replay-ratio"} <= quick
    assert not [option for option in raw if option.startswith("--model.")]
    assert {"--environment.size", "--environment.levels", "--agent.learning-rate"} <= raw & quick


def test_only_environments_of_gymnasium_have_an_id(capsys, monkeypatch):
    for name in PRESETS:
        options = shown(help_of(name, capsys, monkeypatch)[1])
        of_gymnasium = name in ("cartpole", "gymnasium", "gymnasium-raw")
        assert ("--environment.id" in options) == of_gymnasium
        assert ("--environment.boxes" in options) == name.startswith(("sokoban", "boxoban"))


@pytest.mark.parametrize(("words", "boxes"), [(["2"], 2), (["1", "4"], (1, 4))])
def test_boxes_are_a_number_or_a_range_and_survive_json(words, boxes):
    received = []
    arguments = ["sokoban-quick", "--environment.boxes", *words, "--environment.augmentation", "symmetries"]
    with_settings("train", arguments, TrainOptions(), lambda name, options, settings: received.append(settings))
    (settings,) = received
    assert settings.environment.boxes == boxes
    assert settings.environment.augmentation == "symmetries"
    assert settings_from_dict(json.loads(json.dumps(settings.to_dict()))) == settings


@pytest.mark.parametrize("name", ["cartpole", "gymnasium", "gymnasium-raw"])
def test_options_of_other_environments_do_not_speak_of_levels(name, capsys, monkeypatch):
    _, options = help_of(name, capsys, monkeypatch)
    assert re.findall(r"sokoban|boxoban|levels?\b", options, re.IGNORECASE) == []


def test_every_option_is_explained(capsys, monkeypatch):
    for name in PRESETS:
        _, options = help_of(name, capsys, monkeypatch)
        unexplained = re.findall(r"^(--[a-z]\S+)[^\n]*\n\(default", options, re.MULTILINE)
        allowed = re.compile(r"--(agent|model\.training)\.(adam|gradient|.*-loss-scale)")  # the usual names
        assert [option for option in unexplained if not allowed.match(option)] == []


def test_the_presets_are_listed_and_the_first_is_the_default(capsys, monkeypatch):
    description, _ = help_of("cartpole", capsys, monkeypatch)
    for name, function in PRESETS.items():
        assert f"{name:<18} {function.__doc__}" in description
    assert "cartpole: " in description
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    assert "usage: thinker train sokoban-quick" in capsys.readouterr().out


def test_bench_has_the_options_of_the_preset_as_well(capsys, monkeypatch):
    _, options = help_of("cartpole", capsys, monkeypatch, command="bench")
    assert shown(options) == NOTHING_BUT_HELP | options_of(BenchOptions()) | options_of(preset("cartpole"))
