"""TorchRL's PPO trains on the augmented environment."""

import math

import numpy as np
import pytest

pytest.importorskip("torchrl", reason="needs TorchRL: pip install torchrl")

import with_torchrl

STEPS = 2_000


@pytest.mark.slow
def test_ppo_trains_a_few_thousand_steps(capsys):
    results = with_torchrl.main(["--steps", str(STEPS), "--stage-length", "4"])
    assert sum(result["steps"] for result in results) == 2_048  # whole rollouts
    for result in results:
        losses = [value for name, value in result.items() if name.startswith("loss_")]
        assert len(losses) >= 3
        assert all(math.isfinite(loss) and loss != 0 for loss in losses)
    assert "2048 augmented steps, mean return" in capsys.readouterr().out


def test_the_discount_is_that_of_the_augmented_mdp_and_actions_are_pairs():
    env, discount = with_torchrl.make(env="CartPole-v1", stage_length=3, discount=0.9, seed=0)
    assert discount == 0.9 ** (1 / 3)
    assert env.action_spec.space.n == 4
    wrapper = next(one for one in _chain(env._env) if isinstance(one, with_torchrl.JointActions))
    assert [wrapper.action(np.int64(number)).tolist() for number in range(4)] == [[0, 0], [0, 1], [1, 0], [1, 1]]


def _chain(env):
    while env is not None:
        yield env
        env = getattr(env, "env", None)
