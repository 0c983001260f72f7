"""Checkpoints come back bit for bit, are whole or absent after a crash at any moment, and damage is always noticed."""

import contextlib
import errno
import json
import multiprocessing
import os
import random
import shutil
import struct
import time
import tracemalloc
import warnings
from pathlib import Path
from unittest import mock

import hypothesis.extra.numpy as hypothesis_numpy
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from thinker.runs import checkpoint
from thinker.runs.checkpoint import (
    ARRAYS,
    MANIFEST,
    STATE,
    TENSORS,
    CheckpointError,
    DamagedCheckpointError,
    LayoutError,
    list_checkpoints,
    load,
    load_latest,
    save,
)

FILES = (TENSORS, ARRAYS, STATE, MANIFEST)
TENSOR_TYPES = sorted(checkpoint._TENSOR_TYPES, key=str)


def assert_same(left, right):
    """Equal types and equal bits, all the way down."""
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert list(left) == list(right)
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for a, b in zip(left, right):
            assert_same(a, b)
    elif isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        if left.numel():
            assert (
                left.detach()
                .contiguous()
                .view(-1)
                .view(torch.uint8)
                .equal(right.contiguous().view(-1).view(torch.uint8))
            )
    elif isinstance(left, (np.ndarray, np.generic)):
        assert left.dtype == right.dtype
        assert left.shape == right.shape
        assert left.tobytes() == right.tobytes()
    elif isinstance(left, float):
        assert struct.pack("d", left) == struct.pack("d", right)
    else:
        assert left == right


def random_tensor(dtype, shape, seed):
    size = torch.empty(0, dtype=dtype).element_size()
    count = int(np.prod(shape))
    bits = np.random.default_rng(seed).integers(0, 256, count * size, dtype=np.uint8)  # NaNs with payloads included
    if dtype == torch.bool:
        return torch.from_numpy(bits % 2 == 1).reshape(shape)
    return torch.from_numpy(bits).view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)


tensors = st.builds(
    random_tensor, st.sampled_from(TENSOR_TYPES), st.lists(st.integers(0, 4), max_size=3), st.integers(0, 1000)
)
array_types = st.one_of(
    hypothesis_numpy.scalar_dtypes(), hypothesis_numpy.array_dtypes(hypothesis_numpy.scalar_dtypes(), max_size=3)
)
arrays = hypothesis_numpy.arrays(array_types, hypothesis_numpy.array_shapes(min_dims=0, min_side=0, max_side=4))
leaves = st.one_of(
    tensors,
    arrays,
    st.none(),
    st.booleans(),
    st.integers(-(2**200), 2**200),
    st.floats(),
    st.text(max_size=8),
    hypothesis_numpy.from_dtype(np.dtype(np.float64)),
    hypothesis_numpy.from_dtype(np.dtype(np.int32)),
)
keys = st.one_of(
    st.text(max_size=4), st.sampled_from(["$tensor", "$array", "$$tuple", "$float", "__metadata__", "a/b", "a"])
)
states = st.dictionaries(
    keys,
    st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.dictionaries(keys, inner, max_size=4),
            st.lists(inner, max_size=3).map(tuple),
        ),
        max_leaves=10,
    ),
    max_size=5,
)


@pytest.mark.filterwarnings("ignore:Stored array in format 3.0")  # field names beyond ASCII
@settings(max_examples=60, deadline=None)
@given(states)
def test_any_nested_state_comes_back_bit_for_bit(tmp_path_factory, state):
    folder = tmp_path_factory.mktemp("checkpoints")
    with mock.patch.object(os, "fsync"):  # which takes most of the time
        path = save(folder, 7, state)
    step, loaded = load(path)
    assert step == 7
    assert_same(loaded, state)
    shutil.rmtree(folder)


def test_generators_continue_exactly_after_a_round_trip(tmp_path):
    generator, torch_generator = np.random.default_rng(5), torch.Generator().manual_seed(5)
    legacy = np.random.MT19937(5)
    generator.random(3)
    save(
        tmp_path,
        0,
        {"numpy": generator.bit_generator.state, "torch": torch_generator.get_state(), "legacy": legacy.state},
    )
    _, state = load_latest(tmp_path)
    fresh, fresh_torch, fresh_legacy = np.random.default_rng(), torch.Generator(), np.random.MT19937()
    fresh.bit_generator.state = state["numpy"]
    fresh_torch.set_state(state["torch"])
    fresh_legacy.state = state["legacy"]
    assert np.array_equal(fresh.random(100), generator.random(100))
    assert torch.equal(torch.rand(100, generator=fresh_torch), torch.rand(100, generator=torch_generator))
    assert np.array_equal(fresh_legacy.random_raw(100), legacy.random_raw(100))


def test_views_transposes_parameters_and_shared_memory_are_saved_by_value(tmp_path):
    base = torch.arange(24.0).reshape(2, 3, 4)
    array = np.arange(24.0).reshape(4, 6)
    state = {
        "whole": base,
        "view": base[:, 1],
        "transposed": base.permute(2, 0, 1),
        "expanded": torch.ones(1, 3).expand(5, 3),
        "channels_last": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "slice": array[:, ::2],
        "fortran": np.asfortranarray(array),
        "parameter": torch.nn.Parameter(torch.ones(3)),
    }
    save(tmp_path, 0, state)
    _, loaded = load_latest(tmp_path)
    for name, value in state.items():
        assert np.array_equal(loaded[name], value.detach() if isinstance(value, torch.Tensor) else value), name
    assert type(loaded["parameter"]) is torch.Tensor


def test_what_was_loaded_is_memory_of_its_own_whatever_becomes_of_the_file(tmp_path):
    tensor = torch.arange(100_000.0)
    path = save(tmp_path, 0, {"tensor": tensor, "array": tensor.numpy()})
    _, loaded = load(path)
    for name in (TENSORS, ARRAYS):
        with open(path / name, "rb+") as file:
            file.write(bytes((path / name).stat().st_size))
    assert_same(loaded, {"tensor": tensor, "array": tensor.numpy()})
    loaded["array"][:] = 0  # it can be written to


@pytest.mark.parametrize("change", [('"step": 2', '"step": 9'), (f'"layout": {checkpoint.LAYOUT}', '"layout": 97')])
def test_a_manifest_with_another_step_or_layout_is_damaged(tmp_path, change):
    save(tmp_path, 1, example_state(1))
    manifest = save(tmp_path, 2, example_state(2)) / MANIFEST
    text = manifest.read_text()
    assert change[0] in text
    manifest.write_text(text.replace(*change))
    with pytest.warns(UserWarning, match=r"manifest.json was changed"):
        assert load_latest(tmp_path)[0] == 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1: 2}, r"state\['x'\] has the key 1"),
        ([1, {"y": {1, 2}}], r"state\['x'\]\[1\]\['y'\] is a set"),
        (np.array([None]), r"state\['x'\] is an array of object"),
        (torch.zeros(2, dtype=torch.complex128), "torch.complex128"),
        (torch.zeros(2, 2).to_sparse(), "layout torch.sparse_coo"),
        (b"bytes", "is a bytes"),
    ],
)
def test_what_cannot_be_saved_is_named_before_anything_is_written(tmp_path, value, message):
    with pytest.raises(TypeError, match=message):
        save(tmp_path / "checkpoints", 0, {"x": value})
    assert not (tmp_path / "checkpoints").exists()


def test_the_newest_are_kept_and_the_order_is_that_of_saving(tmp_path):
    for step in (10, 20, 30, 40, 40, 15):  # the same step twice; then back to an earlier one
        save(tmp_path, step, {"step": step}, keep=3)
        assert load_latest(tmp_path) == (step, {"step": step})
    assert [path.name for path in list_checkpoints(tmp_path)] == ["000004-step-40", "000005-step-40", "000006-step-15"]
    save(tmp_path, 50, {}, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["000007-step-50"]


def test_nothing_saved_is_none(tmp_path):
    assert load_latest(tmp_path) is None
    assert load_latest(tmp_path / "absent") is None
    (tmp_path / ".tmp-000001-step-5").mkdir()  # of a process killed in its first save
    (tmp_path / "notes").mkdir()
    assert load_latest(tmp_path) is None


def example_state(number):
    return {
        "network": {
            "weight": torch.full((30, 7), float(number)),
            "bias": torch.full((5,), number, dtype=torch.bfloat16),
        },
        "replay": np.full((50, 3), number, np.uint8),
        "keys": np.array([number], np.uint64),
        "number": number,
        "best": float("-inf"),
    }


class Killed(BaseException):
    """The process ends here: nothing that comes after may touch the disk."""


class Crash:
    """Lets the first ``survived`` operations on the disk pass and dies in the next, half done where it can be."""

    def __init__(self, monkeypatch, survived, error):
        self.left, self.error, self.dead, self.cleaning = survived, error, False, False
        for owner, name in [
            (os, "fsync"),
            (os, "rename"),
            (Path, "mkdir"),
            (shutil, "rmtree"),
            (shutil, "copymode"),
            (checkpoint, "save_file"),
            (np.lib.format, "write_array"),
            (json, "dumps"),
        ]:
            monkeypatch.setattr(owner, name, self.wrap(name, getattr(owner, name)))

    def wrap(self, name, operation):
        def wrapped(*args, **options):
            if self.dead and isinstance(self.error, Killed):
                raise self.error
            if self.left == 0 and not self.dead:
                self.dead = True
                if name == "write_array":
                    args[0].write(b"half")
                elif name == "save_file":
                    Path(args[1]).write_bytes(b"half")
                elif name == "rmtree":  # some files are gone already
                    next(Path(args[0]).iterdir()).unlink()
                raise self.error
            self.left -= 1
            return operation(*args, **options)

        return wrapped


def test_after_a_kill_at_any_operation_the_last_whole_checkpoint_is_there(tmp_path, monkeypatch):
    outcomes = set()
    for survived in range(100):
        folder = tmp_path / str(survived)
        for number in (1, 2):
            save(folder, number, example_state(number), keep=2)
        with monkeypatch.context() as patch:
            crash = Crash(patch, survived, Killed())
            with contextlib.suppress(Killed):
                save(folder, 3, example_state(3), keep=2)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # not even a warning: a half-written or half-removed one has another name
            step, state = load_latest(folder)
        assert_same(state, example_state(step))
        for path in list_checkpoints(folder):
            assert_same(load(path)[1], example_state(load(path)[0]))
        outcomes.add(step)
        save(folder, 4, example_state(4), keep=2)
        assert load_latest(folder)[0] == 4
        assert not list(folder.glob(".*")), "leftovers are removed at the next save"
        assert len(list_checkpoints(folder)) == 2
        if not crash.dead:
            break
    assert survived > 15, "the crashes must have gone through all operations"
    assert outcomes == {2, 3}


def test_after_an_os_error_at_any_operation_the_error_is_clear_and_nothing_else_has_changed(tmp_path, monkeypatch):
    failures = 0
    for survived in range(100):
        folder = tmp_path / str(survived)
        for number in (1, 2):
            save(folder, number, example_state(number), keep=2)
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        problem = None
        with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            crash = Crash(patch, survived, OSError(errno.ENOSPC, "No space left on device"))
            try:
                save(folder, 3, example_state(3), keep=2)
            except CheckpointError as error:
                problem = str(error)
        if problem is not None:
            failures += 1
            assert "No space left on device" in problem
            assert "MiB are free" in problem
            assert before == {path: path.read_bytes() for path in before}, "the old ones are untouched"
        else:  # the new one was safe before: only the removal of an old one can have failed
            assert load_latest(folder)[0] == 3
            assert not crash.dead or "could not be removed" in str(caught[0].message)
        assert not list(folder.glob(".tmp-*3")), "no temporary files"
        assert_same(load_latest(folder)[1], example_state(load_latest(folder)[0]))
        if not crash.dead:
            break
    assert failures > 15


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"step 5 could not be written to .*Not a directory"):
        save(tmp_path / "file" / "checkpoints", 5, {})


def test_a_full_disk_while_tensors_are_written_is_a_clear_error(tmp_path):
    resource = pytest.importorskip("resource")
    save(tmp_path, 1, example_state(1))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for state in ({"tensor": torch.zeros(100_000)}, {"array": np.zeros(100_000)}):
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
            with pytest.raises(CheckpointError, match="could not be written"):
                save(tmp_path, 2, state)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in tmp_path.iterdir()] == ["000001-step-1"]


def save_for_ever(folder):
    number = load_latest(folder)[0]
    while True:
        number += 1
        save(
            folder, number, {"number": number, "array": np.full(200_000, number), "tensor": torch.full((9,), number)}, 2
        )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_killed_at_random_moments_always_leaves_a_whole_checkpoint(tmp_path):
    save(tmp_path, 0, {"number": 0})
    context, moments, steps = multiprocessing.get_context("fork"), random.Random(0), [0]
    for _ in range(12):
        process = context.Process(target=save_for_ever, args=(tmp_path,))
        process.start()
        time.sleep(moments.uniform(0.02, 0.3))
        process.kill()
        process.join()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            step, state = load_latest(tmp_path)
        assert step >= steps[-1]
        assert state["number"] == step
        if step:
            assert (state["array"] == step).all()
            assert (state["tensor"] == step).all()
        steps.append(step)
    assert steps[-1] > 0


def test_any_change_of_any_byte_is_noticed_and_the_checkpoint_before_is_used(tmp_path):
    generator = random.Random(0)
    save(tmp_path, 1, example_state(1))
    newest = save(tmp_path, 2, example_state(2))
    for name in FILES:
        original = (newest / name).read_bytes()
        for position in [0, len(original) - 1, *(generator.randrange(len(original)) for _ in range(25))]:
            changed = bytearray(original)
            changed[position] ^= 1 << generator.randrange(8)
            (newest / name).write_bytes(changed)
            if name == MANIFEST:  # there a change may be one that means nothing, such as a tab for a space
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    step, state = load_latest(tmp_path)
            else:
                with pytest.warns(UserWarning, match=f"{newest.name} is damaged: .*{name}"):
                    step, state = load_latest(tmp_path)
                assert step == 1
            assert_same(state, example_state(step))
        (newest / name).write_bytes(original)
    assert load_latest(tmp_path)[0] == 2


@pytest.mark.parametrize("name", FILES)
def test_truncated_lengthened_and_missing_files_are_noticed_and_named(tmp_path, name):
    save(tmp_path, 1, example_state(1))
    newest = save(tmp_path, 2, example_state(2))
    original = (newest / name).read_bytes()
    for content in (b"", original[:1], original[: len(original) // 2], original[:-1], original + b"x", None):
        (newest / name).unlink()
        if content is not None:
            (newest / name).write_bytes(content)
        with pytest.raises(DamagedCheckpointError, match=name):
            load(newest)
        with pytest.warns(UserWarning, match=name):
            assert load_latest(tmp_path)[0] == 1
        (newest / name).write_bytes(original)


def test_a_content_that_matches_its_hashes_but_makes_no_sense_is_damaged_too(tmp_path):
    path = save(tmp_path, 1, example_state(1))
    manifest = json.loads((path / MANIFEST).read_text())
    for name, nonsense in [
        (STATE, b'{"state": {"$tensor": "absent"}, "arrays": 0}'),
        (STATE, b"[]"),
        (ARRAYS, b"\x93NUMPY"),
        (TENSORS, b"\xff" * 16),
    ]:
        content = (path / name).read_bytes()
        (path / name).write_bytes(nonsense)
        files = {**manifest["files"], name: list(checkpoint._fingerprint(path / name))}
        rewrite_manifest(path, files=files)
        with pytest.raises(DamagedCheckpointError, match="cannot be read"):
            load(path)
        (path / name).write_bytes(content)
    rewrite_manifest(path, files=manifest["files"])
    assert load(path)[0] == 1


def rewrite_manifest(path, **changes):
    manifest = {**json.loads((path / MANIFEST).read_text()), **changes}
    del manifest["sha256"]
    (path / MANIFEST).write_text(json.dumps({**manifest, "sha256": checkpoint._content_hash(manifest)}))


def test_a_pickled_array_is_never_unpickled(tmp_path):
    class Trap:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "trap"),))

    path = save(tmp_path, 1, {"array": np.zeros(1)})
    with open(path / ARRAYS, "wb") as file:
        np.lib.format.write_array(file, np.array([Trap()], object), allow_pickle=True)
    files = json.loads((path / MANIFEST).read_text())["files"]
    rewrite_manifest(path, files={**files, ARRAYS: list(checkpoint._fingerprint(path / ARRAYS))})
    with pytest.raises(DamagedCheckpointError, match="allow_pickle"):
        load(path)
    assert not (tmp_path / "trap").exists()


def test_when_all_are_damaged_an_error_says_so(tmp_path):
    for step in (1, 2):
        (save(tmp_path, step, {}) / STATE).unlink()
    with pytest.warns(UserWarning, match="state.json is missing"), pytest.raises(CheckpointError, match="--fresh"):
        load_latest(tmp_path)


def test_another_layout_is_refused_with_both_versions_instead_of_falling_back(tmp_path):
    save(tmp_path, 1, {})
    rewrite_manifest(save(tmp_path, 2, {}), layout=99)
    with pytest.raises(LayoutError, match=rf"has layout 99, .* layout {checkpoint.LAYOUT};"):
        load_latest(tmp_path)


def test_large_arrays_are_not_copied_while_they_are_written(tmp_path):
    array = np.ones(32 * 2**20, np.uint8)
    tracemalloc.start()  # NumPy reports its memory there
    try:
        save(tmp_path, 1, {"array": array})
        assert tracemalloc.get_traced_memory()[1] < 8 * 2**20
    finally:
        tracemalloc.stop()
