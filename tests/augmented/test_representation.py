"""The tree representation: its layout by name, the extra features, and masks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.fakes import FakeModel, random_episodes
from thinker.augmented import ThinkerEnv, layout


def make_env(model=None, num_envs=1, end_rate=0.0, num_actions=2, **options):
    envs = random_episodes(num_envs, end_rate, num_actions=num_actions)
    return ThinkerEnv(envs, model or FakeModel(num_actions, 0.0), **options)


def test_layout_has_the_papers_size_and_decode_names_every_number_once():
    for num_actions, stage_length in [(1, 1), (5, 20), (18, 7)]:
        plan = layout(num_actions, stage_length)
        assert plan.size == 10 * num_actions + stage_length + 9
        numbers = np.arange(plan.size)
        parts = plan.decode(numbers)
        assert np.concatenate([np.atleast_1d(part) for part in parts.values()]).tolist() == numbers.tolist()
    with pytest.raises(ValueError, match="has 79 numbers, but the last dimension of this one is 78"):
        layout(5, 20).decode(np.zeros((3, 78)))


def test_extra_features_come_last_and_tell_the_way_from_the_root_and_the_predicted_end():
    model = FakeModel(3, termination_rate=0.5)
    env = make_env(model, num_actions=3, stage_length=6, max_depth=4, extra=("termination", "action_sequence"))
    assert list(env.layout.slices)[-2:] == ["action_sequence", "termination"]
    assert env.layout.size == 10 * 3 + 6 + 9 + 4 * 3 + 1
    env.reset()
    hidden = model.root_hidden(np.array([0, 1]), -1)
    ended = False
    for depth, action in enumerate([2, 0, 1], start=1):
        obs, *_ = env.step(np.array([[action, 0]]))
        parts = env.decode(obs["tree"])
        sequence = parts["action_sequence"][0].reshape(4, 3)
        assert sequence[:depth].argmax(1).tolist() == [2, 0, 1][:depth]
        assert sequence.sum() == depth
        hidden = model.unroll_hidden(hidden, action)
        ended = ended or model.describe(hidden, False)["termination"] > 0.5
        assert parts["termination"][0] == ended


@pytest.mark.parametrize(
    ("mask", "kept"),
    [
        ("hints", {"root_value", "root_policy", "current_value", "current_policy", "current_reward"}),
        ("base_policy_and_value", {"current_reward", "root_child_visits", "current_child_visits", "rollout_reward"}),
    ],
)
def test_masked_features_are_zero_and_all_others_are_untouched(mask, kept):
    shown, masked = make_env(stage_length=9), make_env(stage_length=9, mask=(mask,))
    shown.reset(), masked.reset()
    random = np.random.default_rng(0)
    for _ in range(8):
        actions = random.integers(0, 2, (1, 2))
        full = shown.decode(shown.step(actions)[0]["tree"])
        part = masked.decode(masked.step(actions)[0]["tree"])
    always = {"root_reward", "root_action", "current_action", "trailing_discount", "step", "reset"}
    for name in full:
        if name in kept | always:
            torch.testing.assert_close(part[name], full[name])
        else:
            assert (part[name] == 0).all(), name
            assert (full[name] != 0).any(), name
