"""A slow, obvious account of what the replay must hold and teach, and random streams of transitions to try it on."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field

import numpy as np
import torch
from gymnasium.spaces import Box

from thinker.interfaces import NO_ACTION, RealTransition

NUM_ACTIONS = 3
FRAME_SHAPE = (2, 3)  # channels and width of one frame


def observation_space(frame_stack: int) -> Box:
    return Box(-10_000, 10_000, (FRAME_SHAPE[0] * frame_stack, FRAME_SHAPE[1]), np.int32)


def transition(num_envs: int = 2, **changes) -> RealTransition:
    """One step in which nothing happens, but for ``changes``."""
    shape = (num_envs, *observation_space(1).shape)
    zeros = np.zeros(num_envs, np.float32)
    plain = RealTransition(
        observation=np.zeros(shape, np.int32),
        action=np.zeros(num_envs, np.int64),
        policy=None,
        root_value=zeros,
        reward=zeros,
        terminated=np.zeros(num_envs, bool),
        truncated=np.zeros(num_envs, bool),
        next_observation=np.zeros(shape, np.int32),
        final_value=zeros,
        valid=np.ones(num_envs, bool),
    )
    return dataclasses.replace(plain, **changes)


@dataclass
class Step:
    observation: np.ndarray
    last_action: int
    action: int
    policy: np.ndarray
    root_value: float
    reward: float
    terminated: bool
    truncated: bool
    next_observation: np.ndarray
    final_value: float
    random_play: bool
    first_frame: int  # number of the oldest frame of the observation, if frames are kept once and in order
    abandoned: bool = False  # the environment was reset after this step without the episode's having ended

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated


@dataclass
class RandomStreams:
    """E environments that end, are truncated, wait, and are sometimes reset early; every observation is different."""

    num_envs: int
    seed: int
    frame_stack: int = 1
    end_probability: float = 0.1
    wait_probability: float = 0.0
    policy_probability: float = 0.5
    random_play_probability: float = 0.0
    streams: list[list[Step]] = field(init=False)

    def __post_init__(self) -> None:
        self.generator = np.random.default_rng(self.seed)
        self.streams = [[] for _ in range(self.num_envs)]
        self.last_action = [NO_ACTION] * self.num_envs
        self.observation = [self.first_observation() for _ in range(self.num_envs)]
        self.frame_count = [0] * self.num_envs

    def frame(self) -> np.ndarray:
        return self.generator.integers(-10_000, 10_001, FRAME_SHAPE).astype(np.int32)

    def first_observation(self) -> np.ndarray:
        frames = [self.frame() for _ in range(self.frame_stack)]
        if self.generator.random() < 0.5:  # some environments repeat the first frame, others show what came before
            frames = [frames[-1]] * self.frame_stack
        return np.concatenate(frames)

    def abandon(self, row: int) -> None:
        if self.last_action[row] != NO_ACTION:
            self.streams[row][-1].abandoned = True
        self.last_action[row] = NO_ACTION
        self.observation[row] = self.first_observation()

    def next_transition(self) -> RealTransition:
        random, number = self.generator.random, self.num_envs
        valid = random(number) >= self.wait_probability
        ended = random(number) < self.end_probability
        terminated = ended & (random(number) < 0.5)
        truncated = ended & ~(terminated & (random(number) < 0.7))  # both at once happens too
        action = self.generator.integers(NUM_ACTIONS, size=number)
        policy = self.generator.dirichlet(np.ones(NUM_ACTIONS), number).astype(np.float32)
        transition = RealTransition(
            observation=np.stack(self.observation),
            action=action,
            policy=policy if random() < self.policy_probability else None,
            root_value=self.generator.normal(size=number).astype(np.float32),
            reward=self.generator.normal(size=number).astype(np.float32),
            terminated=terminated,
            truncated=truncated,
            next_observation=np.stack(
                [np.concatenate([stack[FRAME_SHAPE[0] :], self.frame()]) for stack in self.observation]
            ),
            final_value=np.where(ended, self.generator.normal(size=number), 0.0).astype(np.float32),
            valid=valid,
            random_play=bool(random() < self.random_play_probability),
        )
        for row in np.flatnonzero(valid):
            self._append(row, transition)
        return transition

    def _append(self, row: int, transition: RealTransition) -> None:
        action = int(transition.action[row])
        one_hot = np.eye(NUM_ACTIONS, dtype=np.float32)[action]
        if self.last_action[row] == NO_ACTION:
            self.frame_count[row] += self.frame_stack
        step = Step(
            observation=transition.observation[row],
            last_action=self.last_action[row],
            action=action,
            policy=one_hot if transition.policy is None else transition.policy[row],
            root_value=float(transition.root_value[row]),
            reward=float(transition.reward[row]),
            terminated=bool(transition.terminated[row]),
            truncated=bool(transition.truncated[row]) and not bool(transition.terminated[row]),
            next_observation=transition.next_observation[row],
            final_value=float(transition.final_value[row]),
            random_play=transition.random_play,
            first_frame=self.frame_count[row] - self.frame_stack,
        )
        self.frame_count[row] += 1
        self.streams[row].append(step)
        self.last_action[row] = NO_ACTION if step.ended else action
        self.observation[row] = self.first_observation() if step.ended else step.next_observation

    def sampleable(self, length: int, num_frames: int, return_length: int) -> set[tuple[int, int]]:
        """(row, number) of all transitions that are held and whose targets are known."""
        found = set()
        for row, stream in enumerate(self.streams):
            for number, step in enumerate(stream):
                held = number >= len(stream) - length and step.first_frame >= self.frame_count[row] - num_frames
                if held and targets_known(stream[number : number + return_length + 1], return_length):
                    found.add((row, number))
        return found


def targets_known(window: list[Step], horizon: int) -> bool:
    for passed, step in enumerate(window):
        if step.ended or passed == horizon:
            return True
        if step.abandoned:
            return False
    return False


def expected_sequence(
    stream: list[Step], t: int, unroll_length: int, return_length: int, discount: float
) -> dict[str, np.ndarray]:
    """The targets of one sequence, straight from the definitions. Actions after the end are -1: any will do."""
    L = unroll_length
    end = next((number for number in range(t, len(stream)) if stream[number].ended), len(stream))
    ends_in_termination = end < len(stream) and stream[end].terminated
    result = {
        "observation": np.zeros((L + 1, *stream[t].observation.shape), np.int32),
        "last_action": np.array(stream[t].last_action),
        "action": np.full(L, -1),
        "reward": np.zeros(L),
        "termination": np.zeros(L),
        "value_target": np.zeros(L + 1),
        "policy_target": np.zeros((L + 1, NUM_ACTIONS)),
        "state_mask": np.zeros(L),
        "reward_mask": np.zeros(L),
        "termination_mask": np.zeros(L),
        "value_mask": np.zeros(L + 1),
        "policy_mask": np.zeros(L + 1),
    }
    result["observation"][0] = stream[t].observation
    for step in range(L + 1):
        if t + step <= end:  # a state in which an action was taken
            result["policy_target"][step] = stream[t + step].policy
            result["policy_mask"][step] = result["value_mask"][step] = not stream[t + step].random_play
            result["value_target"][step] = multi_step_return(stream, t + step, t + return_length, discount)
        elif t + step == end + 1 and ends_in_termination:  # the terminal state, whose value is 0
            result["value_mask"][step] = not stream[end].random_play
    for step in range(L):
        if t + step <= end:
            taken = stream[t + step]
            result["action"][step] = taken.action
            result["reward"][step] = taken.reward
            result["termination"][step] = taken.terminated
            for name in ("state_mask", "reward_mask", "termination_mask"):
                result[name][step] = 1
            result["observation"][step + 1] = taken.next_observation
        else:
            result["observation"][step + 1] = result["observation"][step]  # masked, but never another episode's
            result["termination"][step] = result["termination_mask"][step] = ends_in_termination
    return result


def multi_step_return(stream: list[Step], first: int, last: int, discount: float) -> float:
    """r_{first+1} + γ r_{first+2} + ... + γ^(last-first-1) r_last + γ^(last-first) root_value_last."""
    total = 0.0
    for number in range(first, last):
        step = stream[number]
        total += discount ** (number - first) * step.reward
        if step.terminated:
            return total
        if step.truncated:
            return total + discount ** (number + 1 - first) * step.final_value
    return total + discount ** (last - first) * stream[last].root_value


def assert_plain(state: object) -> None:
    """Nothing in a state needs pickle: dicts by name, arrays of numbers, tensors, numbers, strings."""
    if isinstance(state, dict):
        assert all(isinstance(key, str) for key in state)
        for value in state.values():
            assert_plain(value)
    elif isinstance(state, np.ndarray):
        assert state.dtype.kind in "biuf"
    else:
        assert isinstance(state, (int, float, str, torch.Tensor))
        if not isinstance(state, torch.Tensor):
            json.dumps(state)
