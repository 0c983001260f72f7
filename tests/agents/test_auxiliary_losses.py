"""Losses that a network adds to the actor-critic's."""

from dataclasses import dataclass

import pytest
import torch

from tests.agents.support import CPU
from tests.fakes import NoiseEnvs, raw_env
from thinker.agents import RawAgentSpec, RawNetwork
from thinker.augmented import collect
from thinker.nn.seeding import seeded


class Watchful(RawNetwork):
    """Its own loss pulls the values to 7."""

    def auxiliary_losses(self, unroll, output):
        assert output.value.shape == (len(unroll.action) + 1, *unroll.action.shape[1:2], 1)
        return {"seven": (output.value[:-1, :, 0] - 7).square()}


@dataclass(frozen=True)
class WatchfulSpec(RawAgentSpec):
    seven_scale: float = 1.0
    name: str = "seven"

    def auxiliary_scales(self):
        return {self.name: self.seven_scale}

    def build_network(self, env, *, seed, device):
        with seeded(seed):
            return Watchful(env.single_observation_space["real_state"], env.num_actions)


def learned(**settings):
    """The metrics of one update, and the weights after it."""
    env = raw_env(NoiseEnvs(4))
    spec = WatchfulSpec(batch_size=4, epochs=1, unroll_stages=5, baseline_scale=0.0, **settings)
    agent = spec.build(env, seed=0, device=CPU)
    trajectory = agent.trajectory(env)
    actor = agent.actor(env, seed=0, trajectory=trajectory)
    actor.begin(*env.reset(seed=0))
    collect(env, actor, trajectory.num_steps)
    before = trajectory.read().value[:-1].clone()
    metrics = agent.learner.learn(trajectory, 0.0)
    with torch.no_grad():
        after = agent.network(trajectory.read().given, {})[0].value[:-1]
    return metrics, before, after


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_networks_own_losses_are_reduced_reported_and_descended_like_all_others(reduction):
    metrics, before, after = learned(loss_reduction=reduction)
    expected = (before - 7).square()
    assert metrics["loss/seven"] == pytest.approx(float(getattr(torch, reduction)(expected)), rel=1e-4)
    assert after.mean() > before.mean() + 1e-3


def test_the_scale_of_an_auxiliary_loss_is_the_settings():
    _, before, unscaled = learned(seven_scale=0.0, feature_cost=0.0, real_logits_cost=0.0)
    _, _, scaled = learned(seven_scale=1.0, feature_cost=0.0, real_logits_cost=0.0)
    assert (scaled - before).mean() > 2 * (unscaled - before).abs().mean()


def test_every_auxiliary_loss_needs_a_scale_and_every_scale_a_loss():
    with pytest.raises(RuntimeError, match=r"losses .*'seven'.* and scales .*'eight'"):
        learned(name="eight")


def test_other_agents_have_none():
    spec = RawAgentSpec()
    assert spec.auxiliary_scales() == {}
    assert "seven" not in spec.build(raw_env(NoiseEnvs(2)), seed=0, device=CPU).learner.loss_scales
