"""Training targets of a sequence of real transitions: equations 2 and 3, multi-step returns of appendix B.

Differences from the paper as printed:

* It discounts the last reward of the multi-step return once too often; here r_{t+2L} is discounted by γ^(2L-l-1), as in
  any multi-step return.
* It sums all losses over all L steps and does not say what happens at an episode's end. Here only the termination is
  trained on actions beyond a termination, where it stays 1; nothing is trained beyond a truncation. The last value that
  is trained is that of the terminal state: 0.
* A return that a truncation cuts off is bootstrapped with the model's value of the final state.
* The policy's target is the distribution that the agent sampled from where it is known, and one_hot(a) elsewhere.
* Random play teaches states, rewards and terminations only: its policy and returns are not those of the agent.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

# The episode after a transition.
CONTINUES = 0
TERMINATED = 1
TRUNCATED = 2

TRANSITION = np.dtype(
    [
        ("frame", np.int64),  # position of the newest frame of s_t in the environment's stream of frames
        ("action", np.int32),  # a_t
        ("last_action", np.int32),  # the action that led to s_t, NO_ACTION at an episode's start
        ("reward", np.float32),  # r_{t+1}
        ("root_value", np.float32),  # mean return of the root s_t at the end of its stage
        ("final_value", np.float32),  # the model's value of s_{t+1} if the episode ended
        ("outcome", np.int32),  # CONTINUES, TERMINATED or TRUNCATED
        ("random_play", np.bool_),  # a_t is from random play, not the agent's
    ],
    align=True,
)
"""One stored transition, without its frame and its policy."""


class SequenceTargets(NamedTuple):
    """The targets and masks of a `SequenceBatch` as NumPy arrays, and the positions of the frames."""

    frame: np.ndarray  # [N, L+1] int64   newest frames of s_t .. s_{t+L}; the final one after the episode's end
    last_action: np.ndarray  # [N] int64
    action: np.ndarray  # [N, L] int64
    reward: np.ndarray  # [N, L] float32
    termination: np.ndarray  # [N, L] float32
    value_target: np.ndarray  # [N, L+1] float32
    policy_target: np.ndarray  # [N, L+1, A] float32
    state_mask: np.ndarray  # [N, L] float32
    reward_mask: np.ndarray  # [N, L] float32
    termination_mask: np.ndarray  # [N, L] float32
    value_mask: np.ndarray  # [N, L+1] float32
    policy_mask: np.ndarray  # [N, L+1] float32


@numba.njit(cache=True)
def sequence_targets(
    ring: np.ndarray,  # [E, C] TRANSITION
    policies: np.ndarray,  # [E, C, A]
    row: np.ndarray,  # [N] the environment of each sequence
    start: np.ndarray,  # [N] t, counted from the first transition of the environment
    unroll_length: int,
    return_length: int,  # 2L in the paper
    discount: float,
    padding_action: np.ndarray,  # [N, L]
) -> SequenceTargets:
    """Targets of the sequences that start at ``start``.

    For each sequence, ``return_length`` + 1 transitions from t on must be stored, or all up to the episode's end if
    that comes earlier. A termination is final whatever the actions after it, so these are ``padding_action``.
    """
    num_sequences, length, num_actions = row.shape[0], ring.shape[1], policies.shape[2]
    transitions = (num_sequences, unroll_length)
    states = (num_sequences, unroll_length + 1)
    frame = np.empty(states, np.int64)
    last_action = np.empty(num_sequences, np.int64)
    action = padding_action.copy()
    reward = np.zeros(transitions, np.float32)
    termination = np.zeros(transitions, np.float32)
    value_target = np.zeros(states, np.float32)
    policy_target = np.zeros((num_sequences, unroll_length + 1, num_actions), np.float32)
    state_mask = np.zeros(transitions, np.float32)
    reward_mask = np.zeros(transitions, np.float32)
    termination_mask = np.zeros(transitions, np.float32)
    value_mask = np.zeros(states, np.float32)
    policy_mask = np.zeros(states, np.float32)

    for n in range(num_sequences):
        stream = ring[row[n]]
        t = start[n]

        # The number of transitions of the episode before t + return_length, and the outcome of the last one.
        steps = 1
        while steps < return_length and stream[(t + steps - 1) % length].outcome == CONTINUES:
            steps += 1
        last = stream[(t + steps - 1) % length]
        terminated = last.outcome == TERMINATED

        if terminated:
            value = 0.0
        elif last.outcome == TRUNCATED:
            value = float(last.final_value)
        else:
            value = float(stream[(t + return_length) % length].root_value)
        for step in range(steps - 1, -1, -1):
            value = stream[(t + step) % length].reward + discount * value
            if step <= unroll_length:
                value_target[n, step] = value

        last_action[n] = stream[t % length].last_action
        for step in range(unroll_length + 1):
            frame[n, step] = stream[t % length].frame + min(step, steps)
            known = step < steps  # an action was taken in this state
            of_agent = not stream[(t + min(step, steps - 1)) % length].random_play
            value_mask[n, step] = of_agent and (known or (terminated and step == steps))
            policy_mask[n, step] = of_agent and known
            if known:
                policy_target[n, step] = policies[row[n], (t + step) % length]

        for step in range(unroll_length):
            known = step < steps
            state_mask[n, step] = known
            reward_mask[n, step] = known
            termination_mask[n, step] = known or terminated
            termination[n, step] = terminated and step >= steps - 1
            if known:
                action[n, step] = stream[(t + step) % length].action
                reward[n, step] = stream[(t + step) % length].reward

    return SequenceTargets(
        frame,
        last_action,
        action,
        reward,
        termination,
        value_target,
        policy_target,
        state_mask,
        reward_mask,
        termination_mask,
        value_mask,
        policy_mask,
    )
