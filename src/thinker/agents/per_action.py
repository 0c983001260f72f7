"""A tree encoder that treats actions alike: one small network computes every action's logit from its own features."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from thinker.agents.network import INITIAL_HEAD_SCALE, LAST_IMAGINARY, AgentInput, Memory
from thinker.agents.tree_encoder import TreeEncoder, TreeOutput
from thinker.augmented.representation import Layout
from thinker.nn.blocks import initialise, one_hot_action
from thinker.nn.pooling import mean_and_max
from thinker.nn.scale import RunningScale

LOWEST_LOG_POLICY = -6.0
"""Logarithms of the base policy are clamped to at least this."""
ROOT, CURRENT = 0, 1
"""The two nodes that a tree representation describes."""
NODE_FEATURES = 9
"""Features of an action at one of the nodes."""
LEVELS = ("root_value", "current_value", "current_reward", "rollout_reward")
RETURNS = ("current_value", "rollout_return", "max_return")


class PerActionTreeEncoder(TreeEncoder):
    """ "per-action": what it learns of one action holds for all of them.

    Returns enter as differences to their node's value and to the best child, with a running scale of their own: the
    differences between actions are small compared to the returns themselves. Besides the network's logit, each action
    has a multiple of its log-probability under the base policy as a direct term, so that a new agent follows the base
    policy.
    """

    ACTION_WIDTH, GLOBAL_WIDTH = 64, 128
    INITIAL_PRIOR_WEIGHT = 0.5

    columns: Tensor

    def __init__(self, layout: Layout, context_width: int) -> None:
        super().__init__()
        self.layout = layout
        self.num_actions = layout.num_actions
        columns = torch.tensor([layout.slices[name].start for name in (*LEVELS, *RETURNS)])
        self.register_buffer("columns", columns, persistent=False)
        self.level_scale = RunningScale([0, 0, 1, 1])  # values, rewards
        self.difference_scale = RunningScale([0])
        # From the trailing discount on, the step and the flags; every one of them between 0 and 1
        self.flags = slice(layout.slices["trailing_discount"].start, layout.slices["reset"].stop)
        extras = layout.slices.keys() & {"termination"}
        action_inputs = 2 * NODE_FEATURES + 1 + (layout.max_depth if "action_sequence" in layout.slices else 0)
        global_inputs = context_width + len(columns) + self.flags.stop - self.flags.start + len(extras)

        width, pooled = self.ACTION_WIDTH, 2 * self.ACTION_WIDTH
        self.summary = nn.Linear(global_inputs, self.GLOBAL_WIDTH)
        self.first = nn.Linear(action_inputs, width)
        self.first_summary = nn.Linear(self.GLOBAL_WIDTH, width, bias=False)
        self.second = nn.Linear(width, width)
        self.second_summary = nn.Linear(self.GLOBAL_WIDTH + pooled, width, bias=False)
        initialise(self)
        self.logits = nn.Linear(width, 2, bias=False)  # real, imaginary
        with torch.no_grad():
            self.logits.weight.mul_(INITIAL_HEAD_SCALE)
        self.prior_weight = nn.Parameter(torch.full((2,), self.INITIAL_PRIOR_WEIGHT))  # real, imaginary
        self.width = self.GLOBAL_WIDTH + pooled

    def forward(self, flat: AgentInput, context: Tensor, episode_start: Tensor, memory: Memory) -> TreeOutput:
        tree = flat.observation["tree"]
        log_policy, per_action = self._action_features(tree, flat.last_action[:, LAST_IMAGINARY])
        summary = self.summary(torch.cat((context, *self._global_features(tree)), 1)).relu_()  # [N, GLOBAL_WIDTH]
        encoded = self.first(per_action)  # [N, A, ACTION_WIDTH]
        encoded = encoded.add_(self.first_summary(summary).unsqueeze(1)).relu_()
        pooled = torch.cat((summary, mean_and_max(encoded)), 1)
        encoded = self.second(encoded).add_(self.second_summary(pooled).unsqueeze(1)).relu_()
        pooled = torch.cat((summary, mean_and_max(encoded)), 1)
        logits = self.logits(encoded).add_(self.prior_weight * log_policy)
        return TreeOutput(pooled, logits, memory)

    def _action_features(self, tree: Tensor, last_imaginary: Tensor) -> tuple[Tensor, Tensor]:
        """Of every action: the logarithm of the base policy for the next real and the next imaginary action [N, A, 2],
        and its features [N, A, F]."""
        policy, into, visits, visited, differences = self._nodes(tree)
        log_policy = policy.clamp(min=math.exp(LOWEST_LOG_POLICY)).log()
        is_best = visited & (differences[:, :, -1] == 0)
        others = (policy, log_policy, into, visited, is_best, visits.mul(self.layout.stage_length).log1p())
        features = torch.cat((self.difference_scale(differences), torch.stack(others, 2)), 2)  # [N, 2, 9, A]
        parts = [features.flatten(1, 2), one_hot_action(last_imaginary, self.num_actions).unsqueeze(1)]
        if "action_sequence" in self.layout.slices:
            sequence = tree[:, self.layout.slices["action_sequence"]]
            parts.append(sequence.unflatten(1, (self.layout.max_depth, self.num_actions)))
        at_root = tree[:, self.layout.slices["reset"]] > 0  # [N, 1]  the next imaginary action is taken at the root
        imaginary = torch.where(at_root, log_policy[:, ROOT], log_policy[:, CURRENT])
        return torch.stack((log_policy[:, ROOT], imaginary), -1), torch.cat(parts, 1).transpose(1, 2)

    def _global_features(self, tree: Tensor) -> list[Tensor]:
        """Parts [N, ...] of the representation that do not refer to single actions."""
        levels, returns = tree.index_select(1, self.columns).split((len(LEVELS), len(RETURNS)), 1)
        differences = self.difference_scale(returns - levels[:, :1])
        parts = [self.level_scale(levels), differences, tree[:, self.flags]]
        if "termination" in self.layout.slices:
            parts.append(tree[:, self.layout.slices["termination"]])
        return parts

    def _nodes(self, tree: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Of root and current node, [N, 2, A] each: policy, action into the node, visits of the children, whether they
        were visited; and the children's differences [N, 2, 3, A], zeros where not visited: of the mean and of the
        maximum return to the node's value, and of the maximum return to the largest of all children."""
        nodes = tree[:, : self.layout.slices["rollout_return"].start].unflatten(1, (2, -1))
        policy, into, mean, largest, visits = nodes[..., 2:].unflatten(2, (5, self.num_actions)).unbind(2)
        value = nodes[..., 1:2]
        visited = visits > 0
        best = torch.where(visited, largest, -torch.inf).amax(-1, keepdim=True)
        differences = torch.stack((mean - value, largest - value, largest - best), 2)
        return policy, into, visits, visited, torch.where(visited.unsqueeze(2), differences, 0.0)

    @torch.no_grad()
    def update_scale(self, flat: AgentInput) -> None:
        tree = flat.observation["tree"]
        self.level_scale.update(tree[:, self.columns[: len(LEVELS)]])
        *_, visited, differences = self._nodes(tree)
        to_value = differences[:, :, :2].movedim(2, -1)[visited]  # [visited children, 2]
        if len(to_value):
            self.difference_scale.update(to_value.reshape(-1, 1))
