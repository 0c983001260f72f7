"""A pretended GPU: finds code that mixes CPU and CUDA tensors, on machines that have no GPU.

Within ``with fake_cuda():`` everything on device "cuda" is a `FakeCudaTensor`. To the code under test it lives on
"cuda:0"; inside it is a CPU tensor, with which every operation is computed for real, so that ``item()``, ``bool()`` and
``cpu().numpy()`` give true values, and networks learn exactly what they learn on the CPU. What a real GPU refuses is an
error here too:

* an operation on both CUDA and CPU tensors, except for transfers (``to``, ``cpu``, ``cuda``, ``copy_``, assignment to
  slices), CPU scalars (0-dim) in pointwise operations, and CPU indices of CUDA tensors (``x[indices]``);
* ``numpy()`` of a CUDA tensor;
* random numbers on "cuda" from a generator on the CPU.

    with fake_cuda():
        network = Network().to("cuda")
        loss = network(torch.zeros(8, 3, device="cuda")).sum()
        loss.backward()

The tensors are for use inside of the context only. Threads that are started inside of it are inside of it too.

What this cannot show: whether CUDA has a kernel for an operation and data type (it has none for products of integer
matrices), numbers that differ from the CPU's, speed, memory, missing synchronisation (streams, ``non_blocking``), more
than one GPU. What it does not offer, though a real GPU does: ``torch.Generator("cuda")``, CUDA's random state,
autocast, storages and data pointers, pickling, changes of a tensor's shape in place (``resize_``, ``squeeze_``), and
assigning a tensor of the other device to ``data`` (``module.to`` is fine). ``type(x) is torch.Tensor`` is False, so
that optimizers left to choose take the plain loop rather than ``foreach``. Windows is not supported.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import functools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = torch.device("cuda", 0)
# The device that PyTorch's C++ code sees. For "cuda" autograd would ask for streams, which need a GPU; of this type of
# device, for which no backend is left, it expects nothing.
INTERNAL_DEVICE = torch.device("ve", 0)
INTERNAL_DEVICE_NUMBER = 16  # in c10/core/DeviceType.h

aten = torch.ops.aten
# Carry values from one device to the other
TRANSFERS = (aten.copy_, aten.copy, aten._to_copy, aten.fill_, aten.fill)
# The indexed tensor and the values must be on one device; the indices may be on the CPU.
INDEXING = (aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_, aten._unsafe_index)
# Take CPU scalars; so do pointwise operations, but not more than one.
TAKES_SCALARS = (
    *(aten.where, aten.masked_fill, aten.masked_fill_, aten.rsub, aten.floor_divide, aten.floor_divide_),
    *INDEXING,
)


class FakeCudaTensor(Tensor):
    """A tensor that claims to be on "cuda:0". ``held`` is the CPU tensor of the same shape and strides behind it."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, held: Tensor) -> FakeCudaTensor:
        strides, offset = held.stride(), held.storage_offset()
        fake: FakeCudaTensor = Tensor._make_wrapper_subclass(
            cls, held.shape, strides=strides, storage_offset=offset, dtype=held.dtype, device=INTERNAL_DEVICE
        )
        fake.held = held
        return fake

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        return compute(func, args, kwargs or {})

    # With these two, `nn.Module.to` exchanges what its parameters hold, so that they stay the same objects.
    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["held"], None

    @staticmethod
    def __tensor_unflatten__(held: dict[str, Tensor], *_: Any) -> FakeCudaTensor:
        return FakeCudaTensor(held["held"])

    device = property(lambda self: DEVICE)
    is_cuda = property(lambda self: True)

    def get_device(self) -> int:
        return DEVICE.index

    def tolist(self) -> Any:
        return self.held.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if force:
            return self.detach().cpu().numpy()
        raise TypeError(f"can't convert {DEVICE} device type tensor to numpy. Use Tensor.cpu() to copy it first.")

    @property
    def data(self) -> Tensor:
        return torch._C.TensorBase.data.__get__(self)  # type: ignore[attr-defined]

    @data.setter
    def data(self, new: Tensor) -> None:
        if not isinstance(new, FakeCudaTensor):
            raise NotImplementedError("the fake device cannot assign a CPU tensor to the data of a CUDA tensor")
        torch._C.TensorBase.data.__set__(self, new)  # type: ignore[attr-defined]
        self.held = new.held.detach()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user support the deepcopy protocol")
        if id(self) not in memo:
            new = FakeCudaTensor(copy.deepcopy(self.held, memo))
            is_parameter = isinstance(self, nn.Parameter)
            memo[id(self)] = nn.Parameter(new, False) if is_parameter else new
        return memo[id(self)].requires_grad_(self.requires_grad)

    def __repr__(self) -> str:  # type: ignore[override]
        return f"FakeCudaTensor({self.held})"

    def __format__(self, format_spec: str) -> str:
        return format(self.held, format_spec)


def is_cuda(device: Any) -> bool:
    """Whether ``device``, which may be any argument of a function, is the fake device."""
    if isinstance(device, str) and device.split(":")[0] == "cuda":
        device = torch.device(device)
    if not isinstance(device, torch.device):
        return False
    if device.type == "cuda" and device.index not in (None, DEVICE.index):
        raise RuntimeError(f"CUDA error: invalid device ordinal ({device}, but there is only {DEVICE})")
    return device.type in (DEVICE.type, INTERNAL_DEVICE.type)


def check_devices(func: Any, args: tuple, kwargs: dict, on_cpu: list[Tensor]) -> None:
    """Raise what CUDA raises where ``func`` cannot take the tensors ``on_cpu`` together with those on "cuda"."""
    packet = func.overloadpacket
    if packet in TRANSFERS:
        return
    if packet in INDEXING:
        self, indices, *values = args
        if not isinstance(self, FakeCudaTensor) and any(isinstance(index, FakeCudaTensor) for index in indices):
            raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
        on_cpu = [tensor for tensor in (self, *values[:1]) if not isinstance(tensor, FakeCudaTensor)]
    given = dict(zip((argument.name for argument in func._schema.arguments), args)) | kwargs
    written = pytree.tree_leaves([given.get(a.name) for a in func._schema.arguments if a.is_write])
    takes_scalars = packet in TAKES_SCALARS or (torch.Tag.pointwise in func.tags and len(on_cpu) == 1)
    for tensor in on_cpu:
        if tensor is kwargs.get("lr"):  # of fused optimizers
            continue
        if tensor.ndim > 0 or not takes_scalars or any(tensor is other for other in written):
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
                f"(in {func}; the one on the cpu is of shape {tuple(tensor.shape)})"
            )


def compute(func: Any, args: tuple, kwargs: dict) -> Any:
    """``func`` computed on the CPU; the outputs are on "cuda" where the device asked for is, or else the inputs are."""
    leaves = pytree.tree_leaves((args, kwargs))
    fakes = {id(leaf.held): leaf for leaf in leaves if isinstance(leaf, FakeCudaTensor)}
    to_cuda = bool(fakes) if kwargs.get("device") is None else is_cuda(kwargs["device"])
    if func is aten._pin_memory.default:
        return args[0].clone()
    kwargs = {name: value for name, value in kwargs.items() if name != "pin_memory"}
    if not fakes and not to_cuda:
        return func(*args, **kwargs)
    if to_cuda and any(isinstance(leaf, torch.Generator) for leaf in leaves):
        raise RuntimeError(f"Expected a 'cuda' device type for generator but found 'cpu' (in {func})")
    on_cpu = {id(leaf): leaf for leaf in leaves if isinstance(leaf, Tensor) and not isinstance(leaf, FakeCudaTensor)}
    if fakes and on_cpu:
        check_devices(func, args, kwargs, list(on_cpu.values()))

    if to_cuda and kwargs.get("device") is not None:
        kwargs["device"] = torch.device("cpu")
    held_args, held_kwargs = pytree.tree_map_only(FakeCudaTensor, lambda fake: fake.held, (args, kwargs))
    output = func(*held_args, **held_kwargs)
    for fake in fakes.values():
        if fake.shape != fake.held.shape or fake.stride() != fake.held.stride():
            raise NotImplementedError(f"the fake device cannot change the shape of a tensor in place (in {func})")

    def wrap(tensor: Tensor) -> Tensor:
        if id(tensor) in fakes:  # it was changed in place
            return fakes[id(tensor)]
        return FakeCudaTensor(tensor) if to_cuda and id(tensor) not in on_cpu else tensor

    return pytree.tree_map_only(Tensor, wrap, output)


class DeviceArguments(TorchFunctionMode):
    """Gives PyTorch the `INTERNAL_DEVICE` where the code under test says "cuda"."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.device:
            return func(*args, **kwargs)
        if func is Tensor.cuda:
            func, args, kwargs = Tensor.to, (args[0], DEVICE), {}
        if func in (torch.tensor, torch.as_tensor) and isinstance(args[0], list | tuple):  # it may hold CUDA scalars
            args = (pytree.tree_map_only(FakeCudaTensor, lambda fake: fake.held, args[0]), *args[1:])
        args = tuple(INTERNAL_DEVICE if is_cuda(value) else value for value in args)
        kwargs = {name: INTERNAL_DEVICE if is_cuda(value) else value for name, value in kwargs.items()}
        return func(*args, **kwargs)


@functools.cache
def is_composite(func: Any) -> bool:
    """Whether ``func`` is made of other operations. Such ones arrive here in inference mode only."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


class Operations(TorchDispatchMode):
    """Has every operation done by `compute`, also those that have no CUDA tensor among their inputs."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if is_composite(func):
            with self:
                return func.decompose(*args, **(kwargs or {}))
        return compute(func, args, kwargs or {})


def provide_device_guard() -> None:
    """Autograd asks for the "guard" of each tensor's device: let that of `INTERNAL_DEVICE` do nothing, as the CPU's."""
    library = next(Path(torch.__file__).parent.glob("lib/*c10.*"))
    registry = (ctypes.c_void_p * (INTERNAL_DEVICE_NUMBER + 1)).in_dll(
        ctypes.CDLL(str(library)), "_ZN3c104impl26device_guard_impl_registryE"
    )
    registry[INTERNAL_DEVICE_NUMBER] = registry[0]


CUDA_FUNCTIONS = {
    "is_available": True,
    "device_count": 1,
    "current_device": DEVICE.index,
    "get_device_capability": (8, 0),
    "get_device_name": "fake CUDA device",
    "is_current_stream_capturing": False,
    "synchronize": None,
    "_lazy_init": None,
}
"""What functions of `torch.cuda` return inside of `fake_cuda`."""


@contextlib.contextmanager
def inside() -> Iterator[None]:
    """What holds for one thread. Autograd stays in that thread, as it has none of its own for this device."""
    with torch.autograd.set_multithreading_enabled(False), DeviceArguments(), Operations():
        yield


@contextlib.contextmanager
def fake_cuda() -> Iterator[None]:
    """A context in which there is a device "cuda"; see the module."""
    provide_device_guard()
    run_thread = threading.Thread.run

    def run_thread_inside(thread: threading.Thread) -> None:
        with inside():
            run_thread(thread)

    with contextlib.ExitStack() as patches:
        # `torch.tensor` is to make a CPU tensor and send that to the device, where `Operations` can see it.
        patches.callback(torch._C._set_only_lift_cpu_tensors, torch._C._only_lift_cpu_tensors())
        torch._C._set_only_lift_cpu_tensors(True)
        for name, result in CUDA_FUNCTIONS.items():
            patches.enter_context(mock.patch.object(torch.cuda, name, return_value=result))
        patches.enter_context(mock.patch.object(threading.Thread, "run", run_thread_inside))
        with inside():
            yield


def assert_same_on_cuda(run: Callable[[torch.device], Any]) -> None:
    """Assert that what ``run(device)`` returns, tensors in any nesting, is on ``device`` and equal on both devices.

    Random numbers come from the CPU's generator, which begins with the same seed both times.
    """
    torch.manual_seed(0)
    expected = pytree.tree_leaves(run(torch.device("cpu")))
    torch.manual_seed(0)
    with fake_cuda():
        found = pytree.tree_leaves(run(torch.device("cuda")))
        assert len(found) == len(expected) > 0
        for one, other in zip(found, expected):
            assert one.device == DEVICE
            assert one.stride() == other.stride()
            assert torch.equal(one.cpu(), other)
