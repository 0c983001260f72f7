"""Devices and threads: what is chosen by itself, and what is refused where it does not exist."""

from __future__ import annotations

import pytest
import torch

from tests.runs.support import engine, tiny
from thinker.errors import UserError
from thinker.runs.build import build_run
from thinker.runs.machine import choose_device, cores


@pytest.fixture
def available(monkeypatch):
    def pretend(*, cuda: bool = False, mps: bool = False) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)

    return pretend


@pytest.mark.parametrize(
    ("devices", "chosen"),
    [({}, "cpu"), ({"mps": True}, "mps"), ({"cuda": True}, "cuda"), ({"cuda": True, "mps": True}, "cuda")],
)
def test_auto_is_the_fastest_that_there_is(available, devices, chosen):
    available(**devices)
    assert choose_device("auto") == torch.device(chosen)
    assert choose_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_an_error_that_says_what_to_choose(available, name):
    available()
    with pytest.raises(UserError, match=f"'{name}' is not available on this machine; choose auto or cpu"):
        choose_device(name)
    with pytest.raises(UserError, match="not available"):
        build_run(tiny("sokoban-raw"), device=name)
    with pytest.raises(UserError, match="not available"):
        build_run(tiny("sokoban-raw", device=name))


@pytest.mark.parametrize("name", ["tpu", "", "cuda:0", "CPU"])
def test_an_unknown_device_is_an_error_that_lists_those_there_are(name):
    with pytest.raises(UserError, match="is unknown; choose auto, cpu, cuda or mps"):
        choose_device(name)


def test_a_device_that_is_given_replaces_the_one_in_the_settings(available):
    available()
    run = build_run(tiny("sokoban-quick", device="cuda"), device="cpu")
    assert run.device == torch.device("cpu")
    assert run.worker.env.device == torch.device("cpu")
    assert {parameter.device.type for network in run.networks().values() for parameter in network.parameters()} == {
        "cpu"
    }


@pytest.mark.parametrize(
    ("threads", "name", "each"),
    [(1, "sokoban-quick", 1), (2, "sokoban-quick", 1), (4, "sokoban-quick", 2), (4, "sokoban-raw", 4)],
)
def test_threads_are_shared_where_the_model_is_trained_beside_the_agent(threads, name, each):
    engine(tiny(name, threads=threads))
    assert torch.get_num_threads() == each


def test_cores_are_those_of_the_process_but_no_more_than_omp_num_threads(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    available = cores()
    assert available >= 1
    for limit, expected in (("1", 1), ("100000", available), ("0", available), ("many", available), ("", available)):
        monkeypatch.setenv("OMP_NUM_THREADS", limit)
        assert cores() == expected
