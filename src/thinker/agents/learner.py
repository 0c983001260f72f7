"""The agent's learner: an actor-critic with two kinds of reward (section 5, appendices D and G).

`ActorCriticLearner.learn` takes one trajectory, `_on_policy_returns` or `_off_policy_returns` computes targets and
advantages, `_losses` the losses of policies and values, and `_descend` takes the gradient step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from thinker.agents.network import AgentNetwork, AgentOutput
from thinker.agents.settings import LearnerSettings
from thinker.agents.trajectory import Trajectory, Unroll
from thinker.agents.vtrace import Returns, generalised_advantages, v_trace
from thinker.errors import UserError
from thinker.nn.adam import adam_state, load_adam_state, make_adam
from thinker.nn.scale import RunningScale

REAL, PLANNING = "real", "planning"
"""The kinds of reward; a network's ``reward_names`` are the columns of rewards, values and advantages."""


class AdvantageScale(RunningScale):
    """The running scale of the advantages of each kind of reward, updated once for each trajectory.

    Noise is not enlarged to the size of real advantages: normalised, it would train policies, values and all features
    below them as much as rewards do. Where rewards are rare, few features would be left when the first one comes.

    Args:
        names: the kinds of reward.
    """

    SLOWEST = 0.1  # it must keep up with the policy
    LARGEST = 10.0
    SMALLEST = 1e-8
    NOISE = 0.01
    """Real advantages are scaled as if their root mean square was at least this part of the largest real reward so far,
    and not at all before the first reward."""
    LARGEST_AMPLIFICATION = 3.0
    """Planning advantages are enlarged at most this many times as much as real ones. Where the search hardly finds
    anything better, planning rewards are mainly the noise of the model."""

    largest_reward: Tensor

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(range(len(names)))
        self.real = names.index(REAL)
        self.register_buffer("largest_reward", torch.zeros(()))

    @torch.no_grad()
    def follow(self, advantage: Tensor, reward: Tensor) -> None:
        """Update the scale with the advantages and rewards [T, B, R] of a trajectory."""
        self.update(advantage.flatten(0, 1))
        self.largest_reward.copy_(torch.maximum(self.largest_reward, reward[..., self.real].abs().amax()))
        noise = torch.where(self.largest_reward > 0, self.NOISE * self.largest_reward, 1.0)
        size = 1 / self.factor  # [R]
        size[self.real] = torch.maximum(size[self.real], noise)
        self.factor.copy_(1 / torch.maximum(size, size[self.real] / self.LARGEST_AMPLIFICATION))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # Runs of earlier versions can be evaluated.
        state_dict.setdefault(prefix + "largest_reward", torch.zeros_like(self.largest_reward))
        super()._load_from_state_dict(state_dict, prefix, *rest)


class NotFiniteError(UserError, FloatingPointError):
    """A loss or the gradient was NaN or infinite; the weights were not updated with it."""


class ActorCriticLearner:
    """Trains ``network`` on trajectories that it collected itself.

    Args:
        network: the network to train; its parameters and input scales are changed in place.
        settings: see `LearnerSettings`; the objective is chosen there.
        discount: of the augmented MDP, γ^(1/K): ``env.augmented_discount``.
        stage_length: K, augmented steps per real step.
        seed: of the generator that shuffles the environments into batches.
    """

    def __init__(
        self,
        network: AgentNetwork,
        settings: LearnerSettings,
        *,
        discount: float,
        stage_length: int = 1,
        seed: int = 0,
    ) -> None:
        if not 0 <= discount <= 1:
            raise UserError(f"discount is {discount}; it must lie between 0 and 1")
        if stage_length < 1:
            raise UserError(f"stage_length is {stage_length}; it must be at least 1")
        if settings.reward_scales(0.0).keys() != set(network.reward_names):
            raise UserError(
                f"the network learns from the rewards {network.reward_names}, but the settings have scales of "
                f"{tuple(settings.reward_scales(0.0))}; override reward_scales() in the agent's spec"
            )
        self.network = network
        self.settings = settings
        self.discount = discount
        self.trace_decay = settings.trace_decay ** (1 / stage_length)  # λ per augmented step
        self.real_weight = float(stage_length) if settings.balance_actions else 1.0
        self.updates = 0  # gradient steps so far
        self._generator = torch.Generator().manual_seed(seed)
        betas = (settings.adam_beta_1, settings.adam_beta_2)
        self._optimiser = make_adam(
            network.parameters(), network.device, lr=settings.learning_rate, betas=betas, eps=settings.adam_epsilon
        )
        self._advantage_scale = AdvantageScale(network.reward_names).to(network.device)
        self.loss_scales = {
            "policy": 1.0,
            **{f"value_{name}": settings.baseline_scale for name in network.reward_names},
            **{f"entropy_{name}": cost for name, cost in settings.entropy_costs().items()},
            "features": settings.feature_cost,
            "real_logits": settings.real_logits_cost,
            **settings.auxiliary_scales(),
        }

    def learn(self, trajectory: Trajectory, progress: float) -> dict[str, float]:
        """Learn from one trajectory; ``progress``, 0 .. 1, is the fraction of the run completed so far.

        Returns the metrics, averaged over the gradient steps.
        """
        settings = self.settings
        learning_rate = settings.learning_rate * (1 - progress)
        for group in self._optimiser.param_groups:
            group["lr"] = learning_rate
        whole = trajectory.read()
        returns_of_all = self._on_policy_returns(whole)
        if settings.normalise_advantages:
            self._advantage_scale.follow(returns_of_all.advantage, whole.reward)
            if torch.isfinite(self._advantage_scale.mean_square).all():  # otherwise `_descend` reports it
                self.network.set_value_unit(1 / self._advantage_scale.factor)
        metrics = []
        for _ in range(settings.epochs):
            for environments in self._batches(trajectory.num_envs):
                unroll = trajectory.read(environments)
                output, _ = self.network(unroll.given, unroll.memory)
                log_prob = _log_prob(unroll, output.logits, output.reset_logits)
                log_ratio = log_prob - _behaviour_log_prob(unroll)  # [T, B]
                if settings.objective == "ppo":
                    returns = Returns(*(x.index_select(1, environments) for x in returns_of_all))
                else:
                    returns = self._off_policy_returns(unroll, output, log_ratio.detach())
                losses = self._losses(unroll, output, log_prob, log_ratio, returns, progress)
                gradient_norm = self._descend(losses)
                metrics.append({**self._metrics(unroll, losses, log_ratio), "agent/gradient_norm": gradient_norm})
        # After learning, so that the inputs are scaled as they were while acting.
        self.network.update_scales(whole.given)
        averages = {name: sum(float(one[name]) for one in metrics) / len(metrics) for name in metrics[0]}
        return {**averages, "agent/learning_rate": learning_rate}

    def _batches(self, num_envs: int) -> Iterator[Tensor]:
        """The environments, shuffled, in batches of nearly equal size."""
        order = torch.randperm(num_envs, generator=self._generator).to(self.network.device)
        yield from order.tensor_split(-(-num_envs // self.settings.batch_size))

    # ----------------------------------------------------------------------------- returns and advantages

    def _on_policy_returns(self, unroll: Unroll) -> Returns:
        """Generalised advantages, from the values predicted while acting."""
        returns = generalised_advantages(
            unroll.reward,
            unroll.value[:-1],
            *self._continuation(unroll, unroll.value),
            trace_decay=self.trace_decay,
        )
        return self._for_the_actor(unroll, returns)

    def _off_policy_returns(self, unroll: Unroll, output: AgentOutput, log_ratio: Tensor) -> Returns:
        """V-trace, from the current network's values."""
        value = output.value.detach()
        returns = v_trace(
            log_ratio.unsqueeze(-1),
            unroll.reward,
            value[:-1],
            *self._continuation(unroll, value),
            importance_clip=self.settings.importance_clip,
            trace_clip=self.settings.trace_clip,
            trace_decay=self.trace_decay,
        )
        return self._for_the_actor(unroll, returns)

    def _continuation(self, unroll: Unroll, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What follows each step: next value, discount, whether the episode continues; each [T, B, R].

        For the real reward episodes end as in the environment: after termination the value is 0, after truncation it is
        the critic's value of the final observation. For the planning reward every stage is a separate episode.
        """
        cut = (unroll.truncated & ~unroll.terminated).unsqueeze(-1)
        next_value = torch.where(cut, unroll.final_value, value[1:])
        stage_over = unroll.given.next_is_real[:-1]
        ends = {REAL: (unroll.terminated, unroll.terminated | unroll.truncated), PLANNING: (stage_over, stage_over)}
        nothing_left = torch.stack([ends[name][0] for name in self.network.reward_names], -1)
        over = torch.stack([ends[name][1] for name in self.network.reward_names], -1)
        return next_value, self.discount * ~nothing_left, ~over

    def _for_the_actor(self, unroll: Unroll, returns: Returns) -> Returns:
        """``returns`` without the planning advantages of real actions."""
        for column, name in enumerate(self.network.reward_names):
            if name == PLANNING:
                returns.advantage[..., column] *= ~unroll.given.next_is_real[:-1]
        return returns

    # ------------------------------------------------------------------------------- losses and gradients

    def _losses(
        self,
        unroll: Unroll,
        output: AgentOutput,  # [T + 1, B, ...]
        log_prob: Tensor,  # [T, B]
        log_ratio: Tensor,  # [T, B]
        returns: Returns,  # [T, B, R]
        progress: float,
    ) -> dict[str, Tensor]:
        """All losses, not yet multiplied by their scales."""
        settings = self.settings
        total = self._total
        # The scale c^p is applied to the advantage and not to the planning reward, so that neither the critic nor the
        # running scale has to track a reward that is annealed.
        advantages = self._advantage_scale(returns.advantage) if settings.normalise_advantages else returns.advantage
        scales = settings.reward_scales(progress)
        advantage = sum(
            (scales[name] * advantages[..., column] for column, name in enumerate(self.network.reward_names)),
            start=torch.zeros_like(advantages[..., 0]),
        )
        if settings.objective == "ppo":
            ratio = log_ratio.exp()
            clipped = ratio.clamp(1 - settings.clip_ratio, 1 + settings.clip_ratio)
            policy_loss = -torch.minimum(ratio * advantage, clipped * advantage)
        else:
            policy_loss = -log_prob * advantage

        real = unroll.given.next_is_real[:-1]
        policy_loss = policy_loss * torch.where(real, self.real_weight, 1.0)
        entropy, reset_entropy = _entropy(output.logits[:-1]), _entropy(output.reset_logits[:-1])
        entropies = {
            "real": self.real_weight * entropy * real,
            "imaginary": entropy * ~real + reset_entropy * unroll.reset_acts,
        }
        error = (returns.target - output.value[:-1]) * self._advantage_scale.factor  # ones if not normalised
        losses = {
            "policy": total(policy_loss),
            **{f"entropy_{name}": -total(entropies[name]) for name in settings.entropy_costs()},
            "features": total(output.features.square().sum(-1)[:-1]),
            "real_logits": total(output.logits.square().sum(-1)[:-1] * real),
        }
        for column, name in enumerate(self.network.reward_names):
            losses[f"value_{name}"] = 0.5 * total(error[..., column].square())
        for name, loss in self.network.auxiliary_losses(unroll, output).items():
            losses[name] = total(loss)
        return losses

    @property
    def _total(self) -> Callable[[Tensor], Tensor]:
        return torch.mean if self.settings.loss_reduction == "mean" else torch.sum

    def _descend(self, losses: dict[str, Tensor]) -> Tensor:
        """One gradient step; returns the gradient's norm before clipping."""
        if losses.keys() != self.loss_scales.keys():
            raise RuntimeError(
                f"losses {sorted(losses)} and scales {sorted(self.loss_scales)} must have the same names"
            )
        for name, loss in losses.items():
            if not torch.isfinite(loss):
                raise NotFiniteError(
                    f"the agent's loss {name!r} is {loss.item()} in gradient step {self.updates + 1}; the weights are "
                    f"those of the previous step. Lower the learning rate, or check the rewards and observations"
                )
        self._optimiser.zero_grad()
        torch.stack([self.loss_scales[name] * loss for name, loss in losses.items()]).sum().backward()
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.gradient_norm_clip)
        if not torch.isfinite(norm):
            raise NotFiniteError(
                f"the gradient of the agent's losses is {norm.item()} in gradient step {self.updates + 1}; the weights "
                f"are those of the previous step. Lower the learning rate"
            )
        self._optimiser.step()
        self.updates += 1
        return norm

    def _metrics(self, unroll: Unroll, losses: dict[str, Tensor], log_ratio: Tensor) -> dict[str, Tensor]:
        metrics = {f"loss/{name}": loss.detach() for name, loss in losses.items()}
        real = unroll.given.next_is_real[:-1].float()
        # Per real step, and per imaginary step for both of its actions together
        metrics["agent/entropy_real"] = -losses["entropy_real"].detach() / (self.real_weight * self._total(real))
        if "entropy_imaginary" in losses:
            imaginary = self._total(1 - real).clamp(min=1e-8)  # 0 if the stage length is 1
            metrics["agent/entropy_imaginary"] = -losses["entropy_imaginary"].detach() / imaginary
        # Estimate of the Kullback-Leibler divergence from the behaviour policy
        log_ratio = log_ratio.detach()
        metrics["agent/divergence"] = (log_ratio.exp() - 1 - log_ratio).mean()
        return metrics

    # ----------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Tensor]:
        """The learner's complete state as a flat dict of tensors: network, optimiser, scales, generator."""
        state = {f"network/{name}": value for name, value in self.network.state_dict().items()}
        for name, parts in adam_state(self._optimiser, self.network).items():
            state |= {f"optimiser/{name}/{part}": value for part, value in parts.items()}
        state |= {f"advantage_scale/{name}": value for name, value in self._advantage_scale.state_dict().items()}
        return {**state, "updates": torch.tensor(self.updates), "generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from a state; tensors are copied."""

        def under(prefix: str) -> dict[str, Tensor]:
            return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}

        self.network.load_state_dict(under("network/"))
        self._advantage_scale.load_state_dict(under("advantage_scale/"))
        names = [name for name, _ in self.network.named_parameters()]
        load_adam_state(self._optimiser, self.network, {name: under(f"optimiser/{name}/") for name in names})
        self.updates = int(state["updates"])
        self._generator.set_state(state["generator"].cpu())


def _log_prob(unroll: Unroll, logits: Tensor, reset_logits: Tensor) -> Tensor:
    """Log-probability [T, B] of the actions taken; the reset counts only where it has an effect."""
    primary = logits[:-1].log_softmax(-1).gather(-1, unroll.action[..., :1]).squeeze(-1)
    reset = reset_logits[:-1].log_softmax(-1).gather(-1, unroll.action[..., 1:]).squeeze(-1)
    return primary + reset * unroll.reset_acts


def _behaviour_log_prob(unroll: Unroll) -> Tensor:
    """The same under the behaviour policy."""
    return unroll.log_prob[..., 0] + unroll.log_prob[..., 1] * unroll.reset_acts


def _entropy(logits: Tensor) -> Tensor:
    """Entropy [...] of distributions given by logits [..., A]."""
    log_policy = logits.log_softmax(-1)
    return -(log_policy.exp() * log_policy).sum(-1)
