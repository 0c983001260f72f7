"""The model trainer: the exact replay ratio, schedules, errors before damage, and exact state."""

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.world_model.networks_support import VARIANTS
from tests.world_model.replay_reference import assert_plain
from thinker.errors import UserError
from thinker.interfaces import RealTransition
from thinker.nn.sizes import VectorSize
from thinker.world_model import trainer as trainer_module
from thinker.world_model.build import build_value_policy
from thinker.world_model.replay import Replay
from thinker.world_model.trainer import ModelDivergedError, ModelTrainer, TrainerSettings

LINE_LENGTH = 5
SPACE = Box(-1.0, 1.0, (LINE_LENGTH,), np.float32)
SMALL = VectorSize(channels=16)


class Lines:
    """On a line of 5 cells, right with probability 0.7; the right end pays 1 and terminates, 20 steps truncate."""

    def __init__(self, num_envs: int, seed: int = 0, wait_probability: float = 0.0) -> None:
        self.generator = np.random.default_rng(seed)
        self.wait_probability = wait_probability
        self.cell = np.zeros(num_envs, np.int64)
        self.steps = np.zeros(num_envs, np.int64)

    def step(self) -> RealTransition:
        number = len(self.cell)
        valid = self.generator.random(number) >= self.wait_probability
        action = (self.generator.random(number) < 0.7).astype(np.int64)
        cells = np.eye(LINE_LENGTH, dtype=np.float32)
        after = np.clip(self.cell + 2 * action - 1, 0, LINE_LENGTH - 1)
        terminated = after == LINE_LENGTH - 1
        truncated = (self.steps == 19) & ~terminated
        transition = RealTransition(
            observation=cells[self.cell],
            action=action,
            policy=None,
            root_value=np.zeros(number, np.float32),
            reward=terminated.astype(np.float32),
            terminated=terminated,
            truncated=truncated,
            next_observation=cells[after],
            final_value=np.zeros(number, np.float32),
            valid=valid,
        )
        ended = terminated | truncated
        self.cell = np.where(valid, np.where(ended, 0, after), self.cell)
        self.steps = np.where(valid, np.where(ended, 0, self.steps + 1), self.steps)
        return transition


def make_trainer(
    num_envs: int = 4, variant: str = "dual-feature", total: int | None = 2_000, acting=(), **changes
) -> ModelTrainer:
    chosen = TrainerSettings(**{"batch_size": 8, "unroll_length": 2, "warm_up_transitions": 100, **changes})
    if variant == "value-policy":
        network = build_value_policy(SPACE, 2, size=SMALL)
    else:
        network = VARIANTS[variant](SPACE, 2, size=SMALL)
    replay = Replay(
        1_000,
        num_envs=num_envs,
        observation_space=SPACE,
        num_actions=2,
        discount=0.9,
        unroll_length=chosen.unroll_length,
    )
    return ModelTrainer(network, replay, chosen, total, acting)


@settings(deadline=None, max_examples=40)
@given(
    num_envs=st.integers(1, 20),
    ratio=st.sampled_from([0.3, 1.0, 6.0, 31.7]),
    batch_size=st.integers(1, 40),
    warm_up=st.integers(0, 300),
    wait=st.sampled_from([0.0, 0.5]),
)
def test_the_replay_ratio_is_exact_after_every_step(num_envs, ratio, batch_size, warm_up, wait):
    with pytest.MonkeyPatch.context() as patch:

        def train_batch(self, *, values_only):
            self.trained_transitions += self.settings.batch_size * self.settings.unroll_length

        patch.setattr(ModelTrainer, "_train_batch", train_batch)
        trainer = make_trainer(num_envs, replay_ratio=ratio, batch_size=batch_size, warm_up_transitions=warm_up)
        lines, collected, begun_at = Lines(num_envs, wait_probability=wait), 0, None
        for _ in range(60):
            transition = lines.step()
            trained_before = trainer.trained_transitions
            metrics = trainer.add(transition)
            collected += transition.valid.sum()
            assert metrics["replay/collected_transitions"] == trainer.collected_transitions == collected
            trained = metrics["replay/trained_transitions"]
            if begun_at is None:
                if collected < warm_up or len(trainer.replay) < batch_size:
                    assert trained == 0
                    continue
                begun_at = collected
            # No burst: never more in one step than that step's transitions, and what was left over, allow.
            assert trained - trained_before < ratio * transition.valid.sum() + batch_size * 2
            assert trained <= ratio * (collected - begun_at) < trained + batch_size * 2


def test_training_makes_the_right_predictions_and_lowers_every_loss():
    trainer, lines = make_trainer(learning_rate=3e-3, batch_size=32, total=4_000, replay_ratio=20), Lines(4)
    history = []
    for _ in range(600):
        metrics = trainer.add(lines.step())
        if "loss/reward" in metrics:
            history.append(metrics)
    for name in ("reward", "termination", "state", "value"):
        early = np.mean([metrics[f"loss/{name}"] for metrics in history[:5]])
        late = np.mean([metrics[f"loss/{name}"] for metrics in history[-20:]])
        assert late < 0.5 * early, name
    with torch.no_grad():
        cells = torch.eye(LINE_LENGTH)[:4]
        node = trainer.network.root(cells, torch.tensor([-1, 1, 1, 1]))
        right = trainer.network.unroll(node.hidden, torch.ones(4, dtype=torch.long))
    assert right.reward.argmax() == 3
    assert (right.termination > 0.5).tolist() == [False, False, False, True]
    assert ((node.policy[:, 1] > 0.55) & (node.policy[:, 1] < 0.85)).all()
    assert node.value[0] < node.value[1] < node.value[2] < node.value[3]


@pytest.mark.parametrize("variant", ["dual-l2", "dual-no-state", "single-l2", "single-no-state", "value-policy"])
def test_every_variant_trains(variant):
    trainer, lines = make_trainer(variant=variant), Lines(4)
    before = copy.deepcopy(trainer.network.state_dict())
    for _ in range(60):
        metrics = trainer.add(lines.step())
    assert {name for name in metrics if name.startswith("loss/")} == {f"loss/{n}" for n in trainer.network.loss_names}
    assert any((before[name] != value).any() for name, value in trainer.network.state_dict().items())


@pytest.mark.parametrize("variant", ["dual-feature", "value-policy"])
def test_random_play_trains_the_state_reward_half_only(variant):
    trainer, lines = make_trainer(variant=variant, learning_rate=1e-3), Lines(4)
    before = copy.deepcopy(trainer.network.state_dict())
    for _ in range(60):
        metrics = trainer.add(dataclasses.replace(lines.step(), random_play=True))
    assert trainer.trained_transitions > 0
    assert metrics["loss/value"] == metrics["loss/policy"] == 0
    changed = moved(before, trainer)
    assert bool(changed) == (variant == "dual-feature")
    assert all(name.startswith("state_reward.") for name in changed)
    for _ in range(60):
        metrics = trainer.add(lines.step())
    assert metrics["loss/policy"] > 0
    assert any(name.startswith(("value_policy.", "predictor.")) for name in moved(before, trainer))


def test_random_play_does_not_enlarge_the_first_update_of_the_value_policy_half():
    trainer, lines = make_trainer(total=None, learning_rate=1e-3, replay_ratio=4), Lines(4)  # one batch for each step
    for _ in range(100):
        trainer.add(dataclasses.replace(lines.step(), random_play=True))
    before = copy.deepcopy(trainer.network.state_dict())
    changed: set[str] = set()
    while not changed:  # the first batches may still contain random play only
        trainer.add(lines.step())
        changed = {name for name in moved(before, trainer) if name.startswith("value_policy.")}
    after = trainer.network.state_dict()
    largest = max(float((after[name] - before[name]).abs().max()) for name in changed)
    assert largest == pytest.approx(1e-3, rel=0.01)  # of Adam; three times as much if it counted updates by nothing


def moved(before, trainer) -> set[str]:
    """The weights that differ from ``before``."""
    return {name for name, value in trainer.network.state_dict().items() if (before[name] != value).any()}


def test_learning_rates_fall_to_zero_and_importance_exponent_rises_to_one():
    trainer = make_trainer(total=400, state_reward_learning_rate=1e-2, learning_rate=1e-3, replay_ratio=4)
    lines = Lines(4)
    for _ in range(100):
        metrics = trainer.add(lines.step())
        if "loss/value" not in metrics:
            continue
        progress = trainer.collected_transitions / 400
        assert metrics["learning_rate/state_reward"] == pytest.approx(1e-2 * (1 - progress))
        assert metrics["learning_rate/value_policy"] == pytest.approx(1e-3 * (1 - progress))
        assert metrics["replay/importance_exponent"] == pytest.approx(0.4 + 0.6 * progress)
    assert progress == 1.0
    weights = copy.deepcopy(trainer.network.state_dict())
    trained = trainer.trained_transitions
    for _ in range(10):
        trainer.add(lines.step())
    assert trainer.trained_transitions > trained
    for name, value in trainer.network.state_dict().items():
        assert torch.equal(value, weights[name])


def test_without_a_total_nothing_is_annealed():
    trainer, lines = make_trainer(total=None), Lines(4)
    for _ in range(100):
        metrics = trainer.add(lines.step())
    assert metrics["learning_rate/state_reward"] == 1e-4
    assert metrics["replay/importance_exponent"] == 0.4


def test_defaults_are_the_papers_but_for_the_warm_up():
    paper = TrainerSettings()
    assert (paper.learning_rate, paper.adam_betas, paper.adam_epsilon) == (1e-4, (0.9, 0.999), 1e-8)
    assert (paper.batch_size, paper.unroll_length, paper.replay_ratio) == (128, 5, 6)
    assert paper.loss_scales == {"reward": 1, "termination": 1, "state": 10, "value": 0.25, "policy": 0.5}
    assert (paper.first_importance_exponent, paper.last_importance_exponent) == (0.4, 1.0)
    assert paper.warm_up_transitions == 5_000


@pytest.mark.parametrize(("target", "expected"), [("distribution", [0.25, 0.75]), ("action", [0.0, 1.0])])
def test_the_policys_target_is_the_distribution_or_the_action(target, expected):
    trainer = make_trainer(policy_target=target)
    lines = Lines(4)
    for _ in range(30):
        step = lines.step()
        policy = np.full((4, 2), 0.25, np.float32)
        policy[np.arange(4), step.action] = 0.75
        trainer.store(dataclasses.replace(step, policy=policy))
    batch = trainer.replay.sample(8, 1.0)
    known = batch.policy_mask[:, 0] > 0
    taken = batch.policy_target[:, 0][known].sort(-1).values
    torch.testing.assert_close(taken, torch.tensor(expected).expand_as(taken))


def test_priorities_become_the_value_errors():
    trainer, lines = make_trainer(replay_ratio=8 * 2 / 4), Lines(4)  # one batch per step
    for _ in range(40):
        trainer.add(lines.step())
    sampled = []
    update = trainer.replay.update_priorities

    def remember(index, value_error):
        update(index, value_error)
        sampled.append((index, value_error))

    trainer.replay.update_priorities = remember
    trainer.add(lines.step())
    ((index, value_error),) = sampled
    number, row = np.divmod(index, 4)
    leaves = trainer.replay.state_dict()["tree"]["leaves"].reshape(4, -1)[row, number % 250]
    np.testing.assert_allclose(leaves, np.maximum(value_error.numpy(), 1e-3) ** 0.6, rtol=1e-6)
    assert trainer.metrics["replay/value_error"] == pytest.approx(float(value_error.mean()))


@pytest.mark.parametrize("name", ["reward", "termination", "state", "value", "policy"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_named_before_any_weight_changes(monkeypatch, name, bad):
    trainer, lines = make_trainer(replay_ratio=16), Lines(4)
    while trainer.trained_transitions == 0:
        trainer.add(lines.step())
    weights = copy.deepcopy(trainer.network.state_dict())
    real = trainer_module.model_losses

    def spoiled(*arguments):
        output = real(*arguments)
        output.losses[name] = output.losses[name] * bad
        return output

    monkeypatch.setattr(trainer_module, "model_losses", spoiled)
    with pytest.raises(ModelDivergedError, match=f"the loss of {name} is"):
        trainer.add(lines.step())
    for key, value in trainer.network.state_dict().items():
        assert torch.equal(value, weights[key])


def test_a_gradient_that_is_not_finite_is_named_before_any_weight_changes():
    trainer, lines = make_trainer(replay_ratio=16), Lines(4)
    while trainer.trained_transitions == 0:
        trainer.add(lines.step())
    weights = copy.deepcopy(trainer.network.state_dict())
    next(trainer.network.value_policy.parameters()).register_hook(lambda gradient: gradient * math.nan)
    with pytest.raises(ModelDivergedError, match="the gradient of value_policy is nan"):
        trainer.add(lines.step())
    for key, value in trainer.network.state_dict().items():
        assert torch.equal(value, weights[key])


def test_gradient_clip_bounds_each_network_and_is_off_by_default():
    def gradients(clip: float | None) -> tuple[float, float]:
        trainer, lines = make_trainer(gradient_clip=clip), Lines(4)
        while trainer.trained_transitions == 0:
            metrics = trainer.add(lines.step())
        squares = [p.grad.square().sum() for p in trainer.network.value_policy.parameters() if p.grad is not None]
        return metrics["gradient_norm/value_policy"], float(torch.stack(squares).sum().sqrt())

    reported, actual = gradients(None)
    assert actual == pytest.approx(reported, rel=1e-4)
    reported, actual = gradients(reported / 3)
    assert actual == pytest.approx(reported / 3, rel=1e-4)


def test_acting_copies_take_over_the_weights_after_training_only():
    class Copy:
        loads = 0

        def load_from(self, network):
            self.loads += 1
            self.weights = copy.deepcopy(network.state_dict())

    copies = [Copy(), Copy()]
    trainer, lines = make_trainer(acting=copies, replay_ratio=16), Lines(4)
    trainings = 0
    for _ in range(60):
        before = trainer.trained_transitions
        trainer.add(lines.step())
        trainings += trainer.trained_transitions > before
        assert [each.loads for each in copies] == [trainings, trainings]
    assert trainings > 0
    for name, value in trainer.network.state_dict().items():
        assert torch.equal(copies[1].weights[name], value)


@pytest.mark.parametrize("steps", [10, 26, 73])
def test_a_loaded_trainer_goes_on_exactly_as_the_saved_one(steps):
    trainer, lines = make_trainer(learning_rate=1e-3), Lines(4, wait_probability=0.2)
    for _ in range(steps):
        trainer.add(lines.step())
    state, later_lines = copy.deepcopy(trainer.state_dict()), copy.deepcopy(lines)
    assert_plain(state)

    fresh = make_trainer(learning_rate=1e-3)
    other_lines = Lines(4, seed=7)
    for _ in range(40):  # whatever was in it must not matter
        fresh.add(other_lines.step())
    fresh.load_state_dict(state)
    assert_same(fresh.state_dict(), state)
    for _ in range(60):
        assert fresh.add(later_lines.step()) == trainer.add(lines.step())
    assert trainer.trained_transitions > 0
    ours, theirs = fresh.state_dict(), trainer.state_dict()
    assert_same(ours["replay"]["tree"], theirs["replay"]["tree"])
    assert_same(ours["network"], theirs["network"])
    assert_same(ours["optimizer"], theirs["optimizer"])


def assert_same(ours: object, theirs: object) -> None:
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for name in theirs:
            assert_same(ours[name], theirs[name])
    elif isinstance(theirs, (np.ndarray, torch.Tensor)):
        np.testing.assert_array_equal(ours, theirs)
    else:
        assert ours == theirs


def test_two_runs_with_the_same_seeds_are_identical():
    runs = []
    for _ in range(2):
        trainer, lines = make_trainer(), Lines(4)
        runs.append([trainer.add(lines.step()) for _ in range(60)])
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"replay_ratio": 0.0}, "replay_ratio=0.0"),
        ({"state_reward_interval": 0}, "state_reward_interval=0"),
        ({"state_reward_interval": 2}, "DualNetwork cannot train its values without its predicted states"),
        ({"learning_rate": -1.0}, "learning_rate=-1.0"),
        ({"value_loss_scale": math.nan}, "value_loss_scale=nan"),
        ({"gradient_clip": 0.0}, "gradient_clip=0"),
        ({"policy_target": "best"}, "policy_target='best': must be one of distribution, action"),
        ({"warm_up_transitions": 5_000}, "total_transitions=2000 end before"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        make_trainer(**changes)


def test_a_replay_of_another_unroll_length_is_refused():
    trainer = make_trainer()
    with pytest.raises(UserError, match="unroll_length=2, the settings say 5"):
        ModelTrainer(trainer.network, trainer.replay, TrainerSettings(), None)
