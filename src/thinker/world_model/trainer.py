"""Trains a world model on the agent's real transitions at a fixed replay ratio (the paper's appendix B)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import nn

from thinker.errors import UserError
from thinker.interfaces import RealTransition
from thinker.nn.adam import adam_state, load_adam_state, make_adam
from thinker.nn.symmetry import BoardSymmetries
from thinker.world_model.acting import ActingCopy
from thinker.world_model.augmentation import SymmetricBatches
from thinker.world_model.batch import SequenceBatch
from thinker.world_model.losses import VALUE_POLICY_LOSSES, model_losses
from thinker.world_model.network import TrainableNetwork
from thinker.world_model.replay import Replay

PolicyTarget = Literal["distribution", "action"]
"""What the base policy is trained on: the distribution that the agent sampled its real action from, or that action."""


class ModelDivergedError(UserError, FloatingPointError):
    """A loss or gradient of the world model is not finite."""


@dataclass(frozen=True)
class TrainerSettings:
    """Training of the model. The defaults are the paper's (table of hyperparameters), except for the warm-up."""

    learning_rate: float = 1e-4  # annealed linearly to 0 over the run
    state_reward_learning_rate: float | None = None  # for the state-reward network; None: learning_rate
    value_policy_learning_rate: float | None = None  # for the value-policy network; None: learning_rate
    adam_betas: tuple[float, float] = (0.9, 0.999)
    adam_epsilon: float = 1e-8
    gradient_clip: float | None = None  # maximum norm of the gradient of each network; None: no clipping
    batch_size: int = 128  # sequences
    unroll_length: int = 5  # L, transitions in a sequence
    return_length: int | None = None  # rewards in the value target of a sequence's first state; None: the paper's 2L
    priority_exponent: float = 0.6  # α, how strongly sampling prefers sequences with large value errors; 0: uniform
    replay_ratio: float = 6.0  # transitions trained on for every transition collected
    state_reward_interval: int = 1  # after random play, the state-reward half is trained on one of so many batches
    policy_target: PolicyTarget = "distribution"  # what the base policy learns; action: the one sampled, one-hot
    warm_up_transitions: int = 5_000  # collected before training starts; the paper: 200,000, for runs of 50,000,000
    first_importance_exponent: float = 0.4  # β at the start of the run
    last_importance_exponent: float = 1.0  # β at the end of the run
    reward_loss_scale: float = 1.0
    termination_loss_scale: float = 1.0
    state_loss_scale: float = 10.0
    value_loss_scale: float = 0.25
    policy_loss_scale: float = 0.5

    def __post_init__(self) -> None:
        for name in ("batch_size", "unroll_length", "replay_ratio", "state_reward_interval", "adam_epsilon"):
            if getattr(self, name) <= 0:
                raise UserError(f"{name}={getattr(self, name)}: must be above 0")
        for name, value in dataclasses.asdict(self).items():
            if isinstance(value, (int, float)) and not 0 <= value < math.inf:
                raise UserError(f"{name}={value}: must be finite and not negative")
        if self.policy_target not in get_args(PolicyTarget):
            raise UserError(f"policy_target={self.policy_target!r}: must be one of {', '.join(get_args(PolicyTarget))}")
        if self.gradient_clip == 0:
            raise UserError("gradient_clip=0 would stop all learning: use None for no clipping")

    def learning_rate_of(self, group: str) -> float:
        """The initial learning rate for a group of `LearnedModel.parameter_groups`."""
        own = {"state_reward": self.state_reward_learning_rate, "value_policy": self.value_policy_learning_rate}
        rate = own.get(group)
        return self.learning_rate if rate is None else rate

    @property
    def loss_scales(self) -> dict[str, float]:
        """The scale of each loss by its name."""
        return {
            "reward": self.reward_loss_scale,
            "termination": self.termination_loss_scale,
            "state": self.state_loss_scale,
            "value": self.value_loss_scale,
            "policy": self.policy_loss_scale,
        }


def board_settings() -> TrainerSettings:
    """Settings for small boards on a laptop: small batches, sampled uniformly.

    A step changes two squares of a board, so the mean error of its features is small, and a large scale balances it
    with the errors of rewards up to 10. The value loss has a small scale, so that it does not dominate the policy's.
    """
    return TrainerSettings(
        state_reward_learning_rate=2e-3,
        value_policy_learning_rate=4e-3,
        batch_size=32,
        priority_exponent=0.0,
        state_loss_scale=1500.0,
        value_loss_scale=0.02,
        gradient_clip=50.0,
    )


class ModelTrainer:
    """Stores real transitions and trains the network on as many sequences as the replay ratio allows.

    Training starts once ``warm_up_transitions`` are collected and the replay can fill a batch. From then on it counts
    the transitions collected and those trained on, ``batch_size`` times ``unroll_length`` for each batch. After every
    `add`

        trained <= replay_ratio * collected < trained + batch_size * unroll_length.

    Learning rates decrease linearly to 0 and β increases linearly over ``total_transitions`` collected; with None both
    are constant. With ``symmetries`` every sampled sequence is turned and mirrored at random, by draws from ``seed``.
    Training runs on the network's device. The trainer is a `TransitionSink`.
    """

    def __init__(
        self,
        network: TrainableNetwork,
        replay: Replay,
        settings: TrainerSettings,
        total_transitions: int | None,
        acting: Sequence[ActingCopy[Any]] = (),
        *,
        symmetries: BoardSymmetries | None = None,
        seed: int = 0,
    ) -> None:
        if replay.unroll_length != settings.unroll_length:
            raise UserError(
                f"the replay returns sequences of unroll_length={replay.unroll_length}, the settings say "
                f"{settings.unroll_length}: use the same value for both"
            )
        if total_transitions is not None and total_transitions <= settings.warm_up_transitions:
            raise UserError(
                f"total_transitions={total_transitions} end before the warm-up of warm_up_transitions="
                f"{settings.warm_up_transitions}, so the model would never be trained: lower warm_up_transitions"
            )
        if settings.state_reward_interval > 1 and not network.separable:
            raise UserError(
                f"state_reward_interval={settings.state_reward_interval}: {type(network).__name__} cannot train its "
                "values without its predicted states; use 1"
            )
        self.network = network
        self.replay = replay
        self.settings = settings
        self.total_transitions = total_transitions
        self.acting = tuple(acting)  # copies that `publish` updates
        self.collected_transitions = 0
        self.trained_transitions = 0
        self.extra_transitions = 0  # trained on by `train_more`
        self._uncounted_transitions: int | None = None  # collected before training starts; None until then
        self._metrics: dict[str, float] = {}
        self._symmetric: SymmetricBatches | None = None
        if symmetries is not None:
            self._symmetric = SymmetricBatches(symmetries, replay.observation_shape, replay.num_actions, seed)
        self._scales = {name: settings.loss_scales[name] for name in network.loss_names}
        self._device = network.device
        self._optimizer = make_adam(
            [{"params": parameters, "name": name} for name, parameters in network.parameter_groups().items()],
            self._device,
            lr=settings.learning_rate,
            betas=settings.adam_betas,
            eps=settings.adam_epsilon,
        )

    @property
    def metrics(self) -> dict[str, float]:
        """Counts, and the latest losses, learning rates, β, value error and gradient norms, if any."""
        return {
            **self._metrics,
            "replay/collected_transitions": self.collected_transitions,
            "replay/trained_transitions": self.trained_transitions + self.extra_transitions,
        }

    def add(self, transition: RealTransition) -> dict[str, float]:
        """Store a real step of all environments, train on the batches that are due, and return the latest `metrics`."""
        self.store(transition)
        return self.train()

    def store(self, transition: RealTransition) -> None:
        """Store a real step of all environments, to be trained on later."""
        if self.settings.policy_target == "action":
            transition = dataclasses.replace(transition, policy=None)
        self.replay.add(transition)
        self.collected_transitions += int(transition.valid.sum())

    def abandon_episodes(self, rows: np.ndarray | None = None) -> None:
        """Call this when a reset cuts off the running episodes of the environments ``rows`` (indices; default: all).

        Their next real step starts new ones.
        """
        self.replay.abandon_episodes(rows)

    def train(self, *, publish: bool = True) -> dict[str, float]:
        """Train on the batches that are due and return the latest `metrics`; see `publish`."""
        trained_before = self.trained_transitions
        batch_transitions = self.settings.batch_size * self.settings.unroll_length
        while self._batch_is_due():
            batches = self.trained_transitions // batch_transitions
            self._train_batch(values_only=batches % self.settings.state_reward_interval != 0)
        if publish and self.trained_transitions > trained_before:
            self.publish()
        return self.metrics

    def train_more(self, transitions: int) -> dict[str, float]:
        """Train on about this many transitions beyond the replay ratio, and return the latest `metrics`."""
        if len(self.replay) >= self.settings.batch_size:
            batch_transitions = self.settings.batch_size * self.settings.unroll_length
            for _ in range(-(-transitions // batch_transitions)):
                self._train_batch()
                self.trained_transitions -= batch_transitions
                self.extra_transitions += batch_transitions
        return self.metrics

    def publish(self) -> None:
        """Load the current weights into the acting copies."""
        for copy in self.acting:
            copy.load_from(self.network)

    def state_dict(self) -> dict[str, Any]:
        """Network, optimiser, replay, symmetries and counters: nested dicts of arrays, tensors, numbers and strings.

        Arrays and tensors are not copies: copy or save them before training continues.
        """
        return {
            "network": dict(self.network.state_dict()),
            "optimizer": adam_state(self._optimizer, self.network),
            "replay": self.replay.state_dict(),
            "symmetries": {} if self._symmetric is None else self._symmetric.state_dict(),
            "collected_transitions": self.collected_transitions,
            "trained_transitions": self.trained_transitions,
            "extra_transitions": self.extra_transitions,
            "uncounted_transitions": -1 if self._uncounted_transitions is None else self._uncounted_transitions,
            "metrics": dict(self._metrics),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state``, saved by a trainer with the same arguments."""
        if bool(state["symmetries"]) != (self._symmetric is not None):
            raise UserError(
                "this state was saved by a trainer with symmetries, or this trainer has them, but not both: create it "
                "with the arguments of the saved trainer"
            )
        self.network.load_state_dict(state["network"])
        load_adam_state(self._optimizer, self.network, state["optimizer"])
        self.replay.load_state_dict(state["replay"])
        if self._symmetric is not None:
            self._symmetric.load_state_dict(state["symmetries"])
        self.collected_transitions = state["collected_transitions"]
        self.trained_transitions = state["trained_transitions"]
        self.extra_transitions = state["extra_transitions"]
        uncounted = state["uncounted_transitions"]
        self._uncounted_transitions = None if uncounted < 0 else uncounted
        self._metrics = dict(state["metrics"])
        self.publish()

    def _batch_is_due(self) -> bool:
        settings = self.settings
        if self._uncounted_transitions is None:
            if self.collected_transitions < settings.warm_up_transitions or len(self.replay) < settings.batch_size:
                return False
            self._uncounted_transitions = self.collected_transitions
        counted = self.collected_transitions - self._uncounted_transitions
        batch_transitions = settings.batch_size * settings.unroll_length
        return self.trained_transitions + batch_transitions <= settings.replay_ratio * counted

    @torch.enable_grad()  # even if env.step is called under no_grad
    def _train_batch(self, *, values_only: bool = False) -> None:
        settings, network, scales = self.settings, self.network, self._scales
        progress = min(self.collected_transitions / self.total_transitions, 1.0) if self.total_transitions else 0.0
        first, last = settings.first_importance_exponent, settings.last_importance_exponent
        importance_exponent = first + (last - first) * progress
        batch = self.replay.sample(settings.batch_size, importance_exponent)
        if self._symmetric is not None:
            batch = self._symmetric(batch)
        moved = self._to_device(batch)
        if values_only:
            scales = {name: scales[name] for name in VALUE_POLICY_LOSSES}
        output = model_losses(network.predict_values(moved) if values_only else network.predict(moved), moved, scales)
        losses = {name: float(loss.detach()) for name, loss in output.losses.items()}
        for name, loss in losses.items():
            self._check_finite(f"the loss of {name}", loss)

        self._optimizer.zero_grad()
        if output.total.requires_grad:  # not if all of the batch is random play, which has no values
            output.total.backward()
        metrics = self._metrics | {f"loss/{name}": loss for name, loss in losses.items()}
        clip = math.inf if settings.gradient_clip is None else settings.gradient_clip
        for group in self._optimizer.param_groups:
            if values_only and group["name"] != "value_policy":
                continue  # without gradients, which leaves these weights unchanged
            norm = float(nn.utils.clip_grad_norm_(group["params"], clip))
            self._check_finite(f"the gradient of {group['name']}", norm)
            if norm == 0:  # random play, which has no values: Adam must not count this as an update
                for parameter in group["params"]:
                    parameter.grad = None
            group["lr"] = settings.learning_rate_of(group["name"]) * (1.0 - progress)
            metrics[f"gradient_norm/{group['name']}"] = norm
            metrics[f"learning_rate/{group['name']}"] = group["lr"]
        self._optimizer.step()
        network.update_centres(moved)  # not before, so that nothing has changed if the batch is refused
        self.replay.update_priorities(batch.index, output.value_error)
        self.trained_transitions += settings.batch_size * settings.unroll_length
        metrics["replay/importance_exponent"] = importance_exponent
        metrics["replay/value_error"] = float(output.value_error.mean())
        self._metrics = metrics

    def _check_finite(self, what: str, value: float) -> None:
        if not math.isfinite(value):
            trained = self.trained_transitions + self.extra_transitions
            raise ModelDivergedError(
                f"{what} is {value} after training on {trained} transitions; the weights are still those of the "
                "previous batch. Lower the learning rate, set gradient_clip, or scale the rewards down"
            )

    def _to_device(self, batch: SequenceBatch) -> SequenceBatch:
        if self._device.type == "cpu":
            return batch
        moved: dict[str, Any] = {
            name: value.to(self._device) for name, value in vars(batch).items() if isinstance(value, torch.Tensor)
        }
        return dataclasses.replace(batch, **moved)
