"""The fake CUDA device finds what a GPU would refuse, and computes what the CPU computes."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from tests.fake_device import FakeCudaTensor, assert_same_on_cuda, fake_cuda
from thinker.nn.blocks import ActionLayer, Layers, Predictor, ResidualBlock, UnrollFunction, initialise, one_hot_action
from thinker.nn.lstm_attention import LSTMAttention
from thinker.nn.scale import NOT_SCALED, RunningScale

MIXED = "same device"


@pytest.fixture
def cuda():
    with fake_cuda():
        yield torch.device("cuda")


def parameters_and_gradients(module: nn.Module) -> list[Tensor]:
    return [tensor for parameter in module.parameters() for tensor in (parameter, parameter.grad) if tensor is not None]


# What a GPU refuses


MIXTURES: dict[str, Callable[[Tensor, Tensor], Any]] = {  # of matrices [3, 3] on the GPU and on the CPU
    "add": lambda gpu, cpu: gpu + cpu,
    "add to the CPU's": lambda gpu, cpu: cpu + gpu,
    "add in place": lambda gpu, cpu: gpu.add_(cpu),
    "add to the CPU's in place": lambda gpu, cpu: cpu.add_(gpu),
    "a CUDA scalar": lambda gpu, cpu: cpu * gpu[0, 0],
    "a CUDA scalar added in place": lambda gpu, cpu: cpu[0, 0].add_(gpu[0, 0]),
    "out": lambda gpu, cpu: torch.add(gpu, gpu, out=cpu),
    "compare": lambda gpu, cpu: gpu == cpu,
    "equal": lambda gpu, cpu: torch.equal(gpu, cpu),
    "matmul": lambda gpu, cpu: gpu @ cpu,
    "einsum": lambda gpu, cpu: torch.einsum("ij,jk->ik", gpu, cpu),
    "linear": lambda gpu, cpu: F.linear(gpu, gpu, cpu[0]),
    "conv2d": lambda gpu, cpu: F.conv2d(gpu[None, None], cpu[None, None]),
    "layer_norm": lambda gpu, cpu: F.layer_norm(gpu, (3,), cpu[0]),
    "cross_entropy": lambda gpu, cpu: F.cross_entropy(gpu, cpu[0].long()),
    "cat": lambda gpu, cpu: torch.cat((gpu, cpu)),
    "stack": lambda gpu, cpu: torch.stack((gpu, cpu)),
    "stack scalars": lambda gpu, cpu: torch.stack((gpu[0, 0], cpu[0, 0])),
    "where": lambda gpu, cpu: torch.where(gpu > 0, gpu, cpu),
    "mask": lambda gpu, cpu: gpu.masked_fill(cpu > 0, 0),
    "masked_select": lambda gpu, cpu: gpu.masked_select(cpu > 0),
    "lerp": lambda gpu, cpu: gpu.lerp_(cpu, 0.5),
    "gather": lambda gpu, cpu: gpu.gather(1, cpu.long()),
    "scatter": lambda gpu, cpu: gpu.scatter(1, cpu.long(), gpu),
    "index_select": lambda gpu, cpu: gpu.index_select(0, cpu[0].long()),
    "index_copy": lambda gpu, cpu: gpu.index_copy_(0, torch.arange(3), gpu),
    "index_add": lambda gpu, cpu: gpu.index_add_(0, torch.arange(3, device="cuda"), cpu),
    "assign CPU values to indices": lambda gpu, cpu: gpu.__setitem__(torch.tensor([0, 1]), cpu[:2]),
    "assign CUDA values to indices": lambda gpu, cpu: cpu.__setitem__(torch.tensor([0, 1]), gpu[:2]),
    "embedding": lambda gpu, cpu: F.embedding(cpu.long(), gpu),
    "module": lambda gpu, cpu: nn.Linear(3, 3)(gpu),
    "functional_call": lambda gpu, cpu: functional_call(nn.Linear(3, 3).to("cuda"), {"weight": cpu}, (gpu,)),
    "inside of a C++ function": lambda gpu, cpu: torch.addmm(gpu, gpu, cpu),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_mixing_devices_is_an_error(cuda, name):
    with pytest.raises(RuntimeError, match=MIXED):
        MIXTURES[name](torch.ones(3, 3, device=cuda), torch.ones(3, 3))


@pytest.mark.parametrize("name", MIXTURES)
def test_mixing_devices_is_an_error_without_autograd(cuda, name):
    with torch.inference_mode(), pytest.raises(RuntimeError, match=MIXED):
        MIXTURES[name](torch.ones(3, 3, device=cuda), torch.ones(3, 3))


@pytest.mark.parametrize("name", MIXTURES)
def test_what_is_an_error_on_two_devices_is_none_on_one(cuda, name):
    if name not in ("module", "index_copy"):  # which have a CPU tensor of their own
        MIXTURES[name](torch.ones(3, 3, device=cuda), torch.ones(3, 3, device=cuda))


def test_a_cpu_tensor_cannot_be_indexed_with_cuda_indices(cuda):
    with pytest.raises(RuntimeError, match="indices should be either on cpu"):
        torch.ones(3)[torch.tensor([0, 1], device=cuda)]
    with pytest.raises(RuntimeError, match="indices should be either on cpu"):
        torch.ones(3)[torch.ones(3, device=cuda) > 0] = 1.0


def test_numpy_needs_a_copy_on_the_cpu(cuda):
    x = torch.arange(3, device=cuda)
    for convert in (lambda x: x.numpy(), np.asarray):
        with pytest.raises(TypeError, match=r"can't convert cuda:0 .* Tensor\.cpu\(\)"):
            convert(x)
    assert x.cpu().numpy().tolist() == [0, 1, 2]


def test_a_cpu_generator_draws_on_the_cpu_only(cuda):
    generator = torch.Generator().manual_seed(0)
    policy = torch.ones(2, 3, device=cuda)
    for draw in (
        lambda: torch.rand(3, generator=generator, device=cuda),
        lambda: torch.multinomial(policy, 1, generator=generator),
        lambda: policy.uniform_(generator=generator),
    ):
        with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator"):
            draw()
    drawn = torch.rand(3, generator=generator).to(cuda)
    assert torch.equal(drawn.cpu(), torch.rand(3, generator=generator.manual_seed(0)))
    assert torch.multinomial(policy, 1).device.type == "cuda"


def test_there_is_one_gpu_and_only_inside(cuda):
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.ones(1, device="cuda:1")
    assert torch.cuda.is_available()
    assert torch.cuda.get_device_capability(cuda) == (8, 0)


# What a GPU allows


FACTORIES: dict[str, Callable[[Any], Tensor]] = {
    "zeros": lambda device: torch.zeros(2, 3, device=device),
    "ones": lambda device: torch.ones(2, 3, dtype=torch.int64, device=device),
    "full": lambda device: torch.full((2,), 7.0, device=device),
    "arange": lambda device: torch.arange(5, device=device),
    "linspace": lambda device: torch.linspace(0, 1, 5, device=device),
    "empty": lambda device: torch.empty(2, 3, device=device).fill_(3),
    "eye": lambda device: torch.eye(3, device=device),
    "tensor": lambda device: torch.tensor([[1, 2], [3, 4]], device=device),
    "tensor of scalars": lambda device: torch.tensor([torch.ones((), device=device), 2.0], device=device),
    "as_tensor of a list": lambda device: torch.as_tensor([1.5, 2], device=device),
    "as_tensor of an array": lambda device: torch.as_tensor(np.arange(3), device=device),
    "from_numpy": lambda device: torch.from_numpy(np.arange(3)).to(device),
    "rand": lambda device: torch.rand(3, device=device),
    "randn": lambda device: torch.randn(3, device=device),
    "randint": lambda device: torch.randint(9, (3,), device=device),
    "randperm": lambda device: torch.randperm(9, device=device),
    "new_zeros": lambda device: torch.ones(1, device=device).new_zeros(2, 3),
    "new_full": lambda device: torch.ones(1, device=device).new_full((2,), 7),
    "new_tensor": lambda device: torch.ones(1, device=device).new_tensor([1, 2]),
    "zeros_like": lambda device: torch.zeros_like(torch.ones(2, device=device)),
    "rand_like": lambda device: torch.rand_like(torch.ones(2, device=device)),
    "to(dtype)": lambda device: torch.ones(2).to(device, torch.int64),
    "to(other)": lambda device: torch.ones(2).to(torch.ones(1, dtype=torch.int64, device=device)),
    "pinned": lambda device: torch.ones(2).to(device, non_blocking=True),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_tensors_can_be_made_on_the_device(name):
    assert_same_on_cuda(FACTORIES[name])
    with fake_cuda():
        assert FACTORIES[name]("cuda").device == FACTORIES[name]("cuda:0").device == torch.device("cuda:0")


def test_default_device_can_be_cuda(cuda):
    with cuda:
        assert nn.Linear(2, 2).weight.device.type == torch.zeros(2).device.type == "cuda"


def test_values_can_be_read(cuda):
    x = torch.tensor([0.5, 2.0], device=cuda)
    assert (x[1].item(), float(x[0]), int(x[1]), bool(x[0] < x[1])) == (2.0, 0.5, 2, True)
    assert x.tolist() == [0.5, 2.0]
    assert f"{x[0]:.2f}" == "0.50"
    assert [value.item() for value in x] == [0.5, 2.0]
    assert "0.5" in repr(x)
    assert x.is_cuda
    assert x.get_device() == 0


def test_copies_on_the_cpu_are_plain_tensors_of_their_own(cuda):
    x = torch.ones(3, device=cuda)
    for copied in (x.cpu(), x.to("cpu"), x.detach().cpu().contiguous(), torch.zeros(3).copy_(x)):
        assert type(copied) is Tensor
        assert copied.device.type == "cpu"
        copied.zero_()
    assert x.tolist() == [1, 1, 1]
    sent = torch.ones(3)
    x = sent.cuda()
    sent.zero_()
    assert x.tolist() == [1, 1, 1]
    assert x.copy_(sent) is x
    assert x.tolist() == [0, 0, 0]


def test_moving_to_where_it_is_makes_no_copy(cuda):
    x = torch.ones(3, device=cuda)
    assert all(
        same is x for same in (x.to("cuda"), x.cuda(), x.to(x.device), x.float(), torch.as_tensor(x, device=cuda))
    )
    assert x.to("cuda", copy=True) is not x


def test_cpu_scalars_and_cpu_indices_are_allowed(cuda):
    x = torch.tensor([1.0, 2.0, 3.0], device=cuda)
    scalar, indices, mask = torch.tensor(2.0), torch.tensor([0, 2]), torch.tensor([True, False, True])
    for found in (x * scalar, scalar * x, x.clone().mul_(scalar), torch.where(x > 0, scalar, x) * x):
        assert found.device.type == "cuda"
        assert found.tolist() == [2, 4, 6]
    assert (x + np.float64(1)).tolist() == (x + 1).tolist() == [2, 3, 4]
    assert x[indices].tolist() == x[mask].tolist() == x[[0, 2]].tolist() == x[indices.numpy()].tolist() == [1, 3]
    x[indices] = scalar
    x[1:] = torch.tensor([7.0, 8.0])
    x[mask] = x[mask] + 1
    assert x.tolist() == [3, 7, 9]


def test_views_share_memory(cuda):
    x = torch.zeros(2, 3, device=cuda)
    x[0].add_(1)
    x.t()[2] = 5
    x.view(-1).unbind()[4].fill_(7)
    x.detach()[1, 0] = 9
    assert x.tolist() == [[1, 1, 5], [9, 7, 5]]


def test_other_operations_give_what_the_cpu_gives():
    def run(device: torch.device) -> list[Tensor]:
        x, index = torch.randn(4, 6).to(device), torch.tensor([2, 0], device=device)
        picture = torch.randn(2, 3, 8, 8).to(device).contiguous(memory_format=torch.channels_last)
        return [
            x.clone().index_copy_(0, index, x[:2]),
            x.clone().index_add_(0, index, x[:2]),
            x.index_select(1, index),
            x.gather(1, index.expand(4, 2)),
            x.scatter(1, index.expand(4, 2), 1.0),
            x.scatter_add(1, index.expand(4, 2), x),
            torch.cat(x.chunk(2, 1)),
            torch.bincount(index, minlength=5),
            *x.sort(),
            *x.max(1),
            x.softmax(-1).multinomial(2),
            torch.nonzero(x > 0),
            F.unfold(picture, 3, padding=1),
            F.max_pool2d(picture, 2),
            F.avg_pool2d(picture, 2),
            F.interpolate(picture, scale_factor=2),
            F.one_hot(index, 4),
            torch.einsum("bchw,bdhw->bcd", picture, picture),
            x.bfloat16() @ x.bfloat16().t(),
        ]

    assert_same_on_cuda(run)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_networks_can_be_used_without_autograd(context):
    def run(device: torch.device) -> Tensor:
        with context():
            return SmallNetwork().to(device)(torch.randn(2, 3, 8, 8).to(device))

    assert_same_on_cuda(run)


# Autograd, modules, optimizers


class SmallNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.BatchNorm2d(8)),
            *(nn.ConvTranspose2d(8, 4, 2, stride=2), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.LayerNorm(16)),
        )
        self.output = nn.Linear(16, 5)
        self.register_buffer("scale", torch.full((5,), 2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.layers(x)) * self.scale


def train(network: nn.Module, device: torch.device, steps: int = 5, **adam: Any) -> list[Tensor]:
    """Trained parameters, and what Adam remembers of them."""
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01, **adam)
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x = torch.randn(4, 3, 8, 8, generator=generator).to(device)
        target = torch.randint(5, (4,), generator=generator).to(device)
        optimizer.zero_grad()
        for half in ((x[:2], target[:2]), (x[2:], target[2:])):  # gradients accumulate
            F.cross_entropy(network(half[0]), half[1]).backward()
        norm = nn.utils.clip_grad_norm_(network.parameters(), 0.5)
        assert norm.device == next(network.parameters()).device
        optimizer.step()
    moments = [state[name] for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    return [*network.parameters(), *network.buffers(), *moments]


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_network_learns_exactly_what_it_learns_on_the_cpu(fused, memory_format):
    def run(device: torch.device) -> list[Tensor]:
        network = SmallNetwork().to(device)
        for parameter in network.parameters():
            if parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=memory_format)
                assert parameter.is_contiguous(memory_format=memory_format)
        return train(network, device, fused=fused)

    assert_same_on_cuda(run)


def test_fused_adam_must_have_its_state_on_cuda(cuda):
    weight = nn.Parameter(torch.ones(2, device=cuda))
    optimizer = torch.optim.Adam([weight], lr=torch.tensor(0.1), fused=True)  # the rate may be on the CPU
    for name in ("step", "exp_avg"):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        optimizer.state[weight][name] = optimizer.state[weight][name].cpu()
        with pytest.raises(RuntimeError, match=MIXED):
            optimizer.step()
        optimizer.state[weight][name] = optimizer.state[weight][name].to(cuda)


def test_gradients_flow_between_devices(cuda):
    on_cpu = torch.tensor([1.0, 2.0], requires_grad=True)
    on_cuda = torch.tensor([3.0, 4.0], device=cuda, requires_grad=True)
    (on_cpu.to(cuda) * on_cuda).cpu().sum().backward()
    assert type(on_cpu.grad) is Tensor
    assert on_cpu.grad.tolist() == [3, 4]
    assert on_cuda.grad.device.type == "cuda"
    assert on_cuda.grad.tolist() == [1, 2]


def test_gradients_of_changes_in_place_and_indices():
    def run(device: torch.device) -> list[Tensor]:
        x = torch.arange(6.0).view(2, 3).to(device).requires_grad_()
        y = x * 2
        y[0].mul_(x[1])  # through a view
        y[:, 1] = 0
        z = y[torch.tensor([0, 0, 1])] * y.detach().max()
        z[z > 5] = 1.0
        (first,) = torch.autograd.grad(z.square().sum(), x, create_graph=True)
        first.sum().backward()
        return [z, first, x.grad]

    assert_same_on_cuda(run)


def test_modules_can_be_moved_copied_and_loaded(cuda):
    network = SmallNetwork()
    weight = network.output.weight
    assert network.to("cuda").output.weight is weight
    assert all(tensor.device.type == "cuda" for tensor in network.state_dict().values())
    assert all(isinstance(parameter, nn.Parameter) and parameter.requires_grad for parameter in network.parameters())

    copied = copy.deepcopy(network)
    before = {name: tensor.cpu() for name, tensor in network.state_dict().items()}
    train(network, cuda, fused=True)
    assert all(torch.equal(tensor.cpu(), before[name]) for name, tensor in copied.state_dict().items())
    assert not torch.equal(network.output.weight.cpu(), before["output.weight"])

    copied.load_state_dict(network.state_dict())
    network.load_state_dict(before)  # from the CPU
    assert torch.equal(network.output.weight.cpu(), before["output.weight"])
    train(copied, cuda, fused=True)
    assert type(network.cpu().output.weight) is nn.Parameter
    assert network(torch.zeros(1, 3, 8, 8)).device.type == "cpu"


def test_deepcopy_keeps_what_is_shared_and_what_needs_gradients(cuda):
    layer = nn.Linear(2, 2).to(cuda).requires_grad_(False)
    layer.bias.requires_grad_()
    module = nn.ModuleList((layer, layer))
    copied = copy.deepcopy(module)
    assert copied[0].weight is copied[1].weight is not layer.weight
    assert isinstance(copied[0].weight, nn.Parameter)
    assert not copied[0].weight.requires_grad
    assert copied[0].bias.requires_grad


def test_functional_call_uses_the_weights_given():
    def run(device: torch.device) -> list[Tensor]:
        layer = nn.Linear(3, 2).to(device)
        frozen = {name: parameter.detach() * 2 for name, parameter in layer.named_parameters()}
        x = torch.randn(4, 3).to(device).requires_grad_()
        output = functional_call(layer, frozen, (x,))
        output.sum().backward()
        assert layer.weight.grad is None
        return [output, x.grad]

    assert_same_on_cuda(run)


def test_data_can_be_assigned(cuda):
    layer = nn.Conv2d(2, 3, 3).to(cuda)
    weight = layer.weight
    values = weight.cpu().detach()
    for change in (Tensor.bfloat16, Tensor.float, lambda data: data.contiguous(memory_format=torch.channels_last)):
        weight.data = change(weight.data)
        values = change(values)
        assert (weight.dtype, weight.stride()) == (values.dtype, values.stride())
        assert torch.equal(weight.detach().cpu(), values)
    shared = torch.zeros_like(weight)
    weight.data = shared
    shared.fill_(2)
    assert bool((weight == 2).all())
    assert layer.weight is weight
    layer(torch.ones(1, 2, 4, 4, device=cuda)).sum().backward()


def test_threads_started_inside_see_the_device(cuda):
    def run() -> Tensor:
        x = torch.ones(2, device="cuda", requires_grad=True)
        x.square().sum().backward()
        return x.grad

    with ThreadPoolExecutor(1) as pool:
        gradient = pool.submit(run).result()
    assert isinstance(gradient, FakeCudaTensor)
    assert gradient.tolist() == [2, 2]


def test_nothing_is_left_behind():
    run, available = threading.Thread.run, torch.cuda.is_available
    with fake_cuda(), pytest.raises(RuntimeError, match=MIXED):
        torch.ones(2, device="cuda") + torch.ones(2)
    assert threading.Thread.run is run
    assert torch.cuda.is_available is available
    assert type(torch.ones(2) + torch.tensor([1.0, 2.0])) is Tensor


# The project's modules


@pytest.mark.parametrize(("spatial", "positions"), [(None, "flatten"), ((4, 5), "flatten"), ((4, 5), "pool")])
def test_world_model_blocks_run_on_cuda(spatial, positions):
    def run(device: torch.device) -> Any:
        layers = Layers(8, spatial, num_actions=3)
        unroll, block = UnrollFunction(layers, inputs=10, count=2), ResidualBlock(layers, 8)
        predictor = Predictor(layers, (8, 4), {"value": 1, "policy": 3}, positions=positions)
        network = nn.ModuleList((unroll, block, predictor))
        initialise(network)
        nn.init.normal_(predictor.output.weight)
        network.to(device)
        x, shortcut = (torch.randn(2, channels, *(spatial or ())).to(device) for channels in (10, 8))
        if spatial is not None:
            network.to(memory_format=torch.channels_last)
            x, shortcut = (each.contiguous(memory_format=torch.channels_last) for each in (x, shortcut))
        action = one_hot_action(torch.tensor([2, -1], device=device), 3)
        hidden = block(unroll(x, action, shortcut))
        outputs = predictor(hidden)
        sum(output.square().sum() for output in outputs.values()).backward()
        return hidden, outputs, parameters_and_gradients(network)

    assert_same_on_cuda(run)


@pytest.mark.parametrize("spatial", [None, (4, 5)], ids=["vector", "board"])
def test_kept_action_tables_run_on_cuda(spatial):
    def run(device: torch.device) -> list[Tensor]:
        layer = ActionLayer(2, 4, 3, spatial).to(device).requires_grad_(False)
        x = torch.randn(5, 2, *(spatial or ())).to(device)
        action = one_hot_action(torch.arange(5, device=device) % 3, 3)
        layer.keep_table()
        outputs = [layer(x, action)]
        layer.action_weight.mul_(2)
        layer.keep_table()
        for parameter in layer.parameters():
            parameter.data = parameter.data.to(torch.bfloat16)
        layer.table = None
        return [*outputs, layer(x.bfloat16(), action)]

    assert_same_on_cuda(run)


def test_lstm_attention_runs_on_cuda():
    def run(device: torch.device) -> Any:
        network = LSTMAttention(width=8, heads=2, window=3, cells=2).to(device)
        optimizer = torch.optim.Adam(network.parameters(), fused=True)
        memory = network.initial_memory(4)
        outputs = []
        for _ in range(2):
            x, start = torch.randn(5, 4, 8).to(device), (torch.rand(5, 4) < 0.2).to(device)
            output, memory = network(x, start, {name: value.detach() for name, value in memory.items()})
            optimizer.zero_grad()
            output.square().sum().backward()
            optimizer.step()
            outputs.append(output)
        return outputs, memory, parameters_and_gradients(network)

    assert_same_on_cuda(run)


def test_running_scale_runs_on_cuda():
    def run(device: torch.device) -> list[Tensor]:
        scale = RunningScale([0, NOT_SCALED, 1, 0]).to(device)
        for _ in range(3):
            scale.update(torch.randn(6, 4).to(device))
        return [scale(torch.randn(6, 4).to(device)), *scale.buffers()]

    assert_same_on_cuda(run)
