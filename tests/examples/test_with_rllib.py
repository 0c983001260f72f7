"""RLlib's PPO trains on the augmented environment through its new API stack."""

import math

import pytest

pytest.importorskip("ray", reason="needs Ray: pip install 'thinker[ray]'")
pytest.importorskip("tree", reason="needs RLlib, which pins another Gymnasium: pip install 'ray[rllib]'")
pytest.importorskip("ray.rllib.algorithms.ppo", reason="needs RLlib: pip install 'ray[rllib]'")

import ray
import with_rllib

STEPS = 2_000


@pytest.fixture
def quiet_cluster():
    started = not ray.is_initialized()
    if started:
        ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=80 << 20)
    yield
    if started:
        ray.shutdown()


@pytest.mark.slow
def test_ppo_trains_a_few_thousand_steps(quiet_cluster):
    config = {"env": "CartPole-v1", "stage_length": 4, "discount": 0.97, "seed": 0}
    algorithm = with_rllib.build(config)
    try:
        assert algorithm.config.gamma == 0.97 ** (1 / 4)
        assert algorithm.config.enable_rl_module_and_learner
        results = with_rllib.train(algorithm, STEPS)
    finally:
        algorithm.stop()
    assert STEPS <= results[-1]["num_env_steps_sampled_lifetime"] < STEPS + 2 * with_rllib.ROLLOUT
    losses = results[-1]["learners"]["default_policy"]
    assert all(math.isfinite(losses[name]) for name in ("policy_loss", "vf_loss", "entropy"))
    assert losses["vf_loss"] > 0
    assert results[-1]["env_runners"]["episode_return_mean"] > 0


def test_the_environment_is_one_vector_and_two_actions():
    env = with_rllib.make({"env": "CartPole-v1", "stage_length": 3, "seed": 0})
    assert len(env.observation_space.shape) == 1
    assert env.action_space.nvec.tolist() == [2, 2]
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
