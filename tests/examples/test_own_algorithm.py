"""The PPO of the examples: its arithmetic, that it learns, and that a seed decides the whole run."""

import numpy as np
import own_algorithm
import pytest
import torch

import thinker

RANDOM_PLAY = 22.0  # the mean return of random actions in CartPole


def test_advantages_are_those_worked_out_by_hand():
    rewards = torch.tensor([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]])
    ends = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    values = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
    advantages = own_algorithm.generalised_advantages(rewards, ends, values, torch.tensor([4.0, 0.0]), 0.5, 0.5)
    # In environment 0 the episode ends after its second step: nothing from the third reaches back over it.
    last, second = 2 + 0.5 * 4 - 3, 1 - 2
    first = (0 + 0.5 * 2 - 1) + 0.25 * second
    assert advantages[:, 0].tolist() == [first, second, last]
    assert advantages[:, 1].tolist() == [1 + 0.25 * 1.25, 1.25, 1.0]


def test_the_reset_action_has_no_part_in_a_real_steps_probability():
    env = own_algorithm.make_cartpole(stage_length=3, seed=0, real_steps=2_000)
    policy = own_algorithm.Policy(env)
    policy.reset.bias.data = torch.tensor([2.0, -1.0])
    inputs, is_real = policy.flat(env.reset()[0])[:2], torch.tensor([True, False])
    primary, reset, _ = policy(inputs, is_real)
    stay, jump = (
        own_algorithm.log_probability(primary, reset, torch.tensor([[0, r], [0, r]]), is_real) for r in (0, 1)
    )
    assert stay[0] == jump[0]
    assert (stay[1] - jump[1]).item() == pytest.approx(3.0, rel=1e-5)


def short_run(seed: int) -> own_algorithm.Progress:
    env = own_algorithm.make_cartpole(stage_length=3, seed=seed, real_steps=2_000)
    settings = own_algorithm.PPOSettings(real_steps=2_000, rollout_length=8, epochs=2, reward_scale=0.05)
    return own_algorithm.train(env, settings, seed=seed, log=lambda line: None)


def test_two_runs_of_one_seed_are_identical_and_of_another_seed_are_not():
    first, second, other = short_run(3), short_run(3), short_run(4)
    assert first.real_steps == 1_792  # whole rollouts of 8 steps of 32 environments
    assert first.episode_returns == second.episode_returns != other.episode_returns
    assert first.model_losses == second.model_losses
    assert first.model_losses[-1] != other.model_losses[-1]
    for one, same in zip(first.policy.state_dict().values(), second.policy.state_dict().values()):
        assert torch.equal(one, same)


def test_the_agent_trains_beside_a_simulator_which_has_no_losses():
    env = thinker.make("CartPole-v1", num_envs=2, model="simulator", stage_length=3, observe=("tree", "real_state"))
    lines: list[str] = []
    progress = own_algorithm.train(env, own_algorithm.PPOSettings(real_steps=32, rollout_length=8), log=lines.append)
    assert progress.model_losses == [{}, {}]
    assert "no training yet" in lines[-1]


@pytest.mark.slow
def test_the_shortened_example_learns_to_balance_and_its_model_learns_to_predict():
    lines: list[str] = []
    progress = own_algorithm.main(["--quick"], log=lines.append)
    assert "after 14848 real steps" in lines[-1]
    assert np.mean(progress.episode_returns[:50]) < 1.5 * RANDOM_PLAY
    assert progress.mean_return(30) > 2 * RANDOM_PLAY
    trained = [losses for losses in progress.model_losses if losses]
    for name in ("loss/reward", "loss/state", "loss/termination"):
        early, late = (np.mean([losses[name] for losses in part]) for part in (trained[:5], trained[-5:]))
        assert late < 0.7 * early, name
