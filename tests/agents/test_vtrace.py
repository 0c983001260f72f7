"""V-trace and generalised advantages: their defining properties, and a slow reference."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from thinker.agents.vtrace import generalised_advantages, v_trace


def random_batch(seed, time, batch):
    """Rewards, values and ends; episodes end by termination (discount 0) or truncation (a final value)."""
    random = np.random.default_rng(seed)
    ended = random.random((time, batch)) < 0.3
    terminated = ended & (random.random((time, batch)) < 0.5)
    value = random.normal(size=(time + 1, batch))
    final_value = random.normal(size=(time, batch))
    return {
        "log_ratio": random.normal(scale=0.7, size=(time, batch)),
        "reward": random.normal(size=(time, batch)),
        "value": value[:-1],
        "next_value": np.where(ended, final_value, value[1:]),
        "discount": np.where(terminated, 0.0, random.uniform(0.5, 1.0, (time, batch))),
        "continues": ~ended,
    }


def slow_v_trace(batch, importance_clip, trace_clip, trace_decay):
    """The definition as a sum over the steps to come, one step and one environment at a time."""
    ratio = np.exp(batch["log_ratio"])
    time, size = ratio.shape
    target, advantage = np.zeros((2, time, size))
    for b in range(size):

        def corrected(s, b=b):
            """v_s by the paper's sum: discounted, importance-weighted errors until the episode ends."""
            total, weight = batch["value"][s, b], 1.0
            for t in range(s, time):
                rho = min(importance_clip, ratio[t, b])
                error = batch["reward"][t, b] + batch["discount"][t, b] * batch["next_value"][t, b]
                total += weight * rho * (error - batch["value"][t, b])
                if not batch["continues"][t, b]:
                    break
                weight *= batch["discount"][t, b] * trace_decay * min(trace_clip, ratio[t, b])
            return total

        for t in range(time):
            target[t, b] = corrected(t)
            after = batch["next_value"][t, b]
            if batch["continues"][t, b] and t + 1 < time:
                after = (1 - trace_decay) * after + trace_decay * corrected(t + 1)
            q = batch["reward"][t, b] + batch["discount"][t, b] * after
            advantage[t, b] = min(importance_clip, ratio[t, b]) * (q - batch["value"][t, b])
    return target, advantage


def tensors(batch):
    return {name: torch.from_numpy(np.asarray(value)) for name, value in batch.items()}


seeds, lengths, sizes = st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 4)
clips, decays = st.sampled_from([0.3, 1.0, 2.0]), st.sampled_from([0.0, 0.8, 1.0])


@settings(deadline=None, max_examples=100)
@given(seed=seeds, time=lengths, batch=sizes, rho=clips, c=clips, decay=decays)
def test_v_trace_is_that_of_the_slow_reference(seed, time, batch, rho, c, decay):
    given = random_batch(seed, time, batch)
    actual = v_trace(**tensors(given), importance_clip=rho, trace_clip=c, trace_decay=decay)
    target, advantage = slow_v_trace(given, rho, c, decay)
    np.testing.assert_allclose(actual.target.numpy(), target, atol=1e-9)
    np.testing.assert_allclose(actual.advantage.numpy(), advantage, atol=1e-9)


@settings(deadline=None, max_examples=50)
@given(seed=seeds, time=lengths, batch=sizes, rho=clips, c=clips, decay=decays)
def test_exact_values_give_no_error(seed, time, batch, rho, c, decay):
    given = random_batch(seed, time, batch)
    given["reward"] = given["value"] - given["discount"] * given["next_value"]
    actual = v_trace(**tensors(given), importance_clip=rho, trace_clip=c, trace_decay=decay)
    np.testing.assert_allclose(actual.target.numpy(), given["value"], atol=1e-9)
    np.testing.assert_allclose(actual.advantage.numpy(), 0, atol=1e-9)


@settings(deadline=None, max_examples=50)
@given(seed=seeds, time=lengths, batch=sizes)
def test_on_policy_without_decay_the_target_is_the_discounted_sum_of_rewards(seed, time, batch):
    given = random_batch(seed, time, batch)
    given["log_ratio"] *= 0
    expected = np.zeros((time, batch))
    for b in range(batch):
        after = given["next_value"][-1, b]
        for t in reversed(range(time)):
            if not given["continues"][t, b]:
                after = given["next_value"][t, b]
            after = given["reward"][t, b] + given["discount"][t, b] * after
            expected[t, b] = after
    actual = v_trace(**tensors(given), trace_decay=1.0)
    np.testing.assert_allclose(actual.target.numpy(), expected, atol=1e-9)
    np.testing.assert_allclose(actual.advantage.numpy(), expected - given["value"], atol=1e-9)


@settings(deadline=None, max_examples=50)
@given(seed=seeds, time=lengths, batch=sizes, decay=decays)
def test_generalised_advantages_are_decayed_sums_of_errors(seed, time, batch, decay):
    given = random_batch(seed, time, batch)
    del given["log_ratio"]
    error = given["reward"] + given["discount"] * given["next_value"] - given["value"]
    expected = np.zeros((time + 1, batch))
    for t in reversed(range(time)):
        expected[t] = error[t] + given["discount"][t] * decay * given["continues"][t] * expected[t + 1]
    actual = generalised_advantages(**tensors(given), trace_decay=decay)
    np.testing.assert_allclose(actual.advantage.numpy(), expected[:-1], atol=1e-9)
    np.testing.assert_allclose(actual.target.numpy(), expected[:-1] + given["value"], atol=1e-9)


def test_a_hand_calculation():
    """Two steps, discount 1/2, the second action twice as likely as it was, clipped at 1."""
    one = torch.tensor
    actual = v_trace(
        one([0.0, np.log(2.0)]), one([1.0, 2.0]), one([0.0, 1.0]), one([1.0, 4.0]), one([0.5, 0.5]), one([True, True])
    )
    assert actual.target.tolist() == pytest.approx([1 + 0.5 * 4, 4.0])
    assert actual.advantage.tolist() == pytest.approx([3.0, 3.0])


def test_two_kinds_of_reward_do_not_mix():
    first, second = (tensors(random_batch(seed, 6, 3)) for seed in (0, 1))
    second["log_ratio"] = first["log_ratio"]
    both = {name: torch.stack((first[name], second[name]), -1) for name in first if name != "log_ratio"}
    together = v_trace(first["log_ratio"].unsqueeze(-1), **both, trace_decay=0.9)
    for column, alone in enumerate((first, second)):
        expected = v_trace(**alone, trace_decay=0.9)
        torch.testing.assert_close(together.target[..., column], expected.target)
        torch.testing.assert_close(together.advantage[..., column], expected.advantage)
