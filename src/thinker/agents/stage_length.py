"""Planning for more or fewer steps than in training: trees of other stage lengths, and trees without a search."""

from __future__ import annotations

import torch
from torch import Tensor

from thinker.augmented import Layout
from thinker.errors import UserError


def convert_stage_length(tree: Tensor, seen: Layout, known: Layout) -> Tensor:
    """Convert tree representations [..., seen.size] of stage length K' to [..., known.size] of stage length K.

    The step changes, so that the number of remaining steps in the stage is the same: k = max(1, K - (K' - k')); and
    visits, so that each counts 1 / K.
    """
    if seen.num_actions != known.num_actions or seen.slices.keys() != known.slices.keys():
        raise UserError(
            f"the agent was trained with {known.num_actions} actions and the features {', '.join(known.slices)}; this "
            f"environment has {seen.num_actions} and {', '.join(seen.slices)}. Only the stage length may differ"
        )
    shift = known.stage_length - seen.stage_length
    result = tree.new_zeros(*tree.shape[:-1], known.size)
    for name, part in known.slices.items():
        old = tree[..., seen.slices[name]]
        if name == "step":
            target = (torch.arange(seen.stage_length, device=tree.device) + shift).clamp(min=0)
            result[..., part].index_add_(-1, target, old)
        elif name == "action_sequence":  # its length depends on the largest depth of a node
            length = min(old.shape[-1], part.stop - part.start)
            result[..., part.start : part.start + length] = old[..., :length]
        elif name.endswith("child_visits"):
            result[..., part] = old * (seen.stage_length / known.stage_length)
        else:
            result[..., part] = old
    return result


def without_search(start: Tensor, layout: Layout) -> Tensor:
    """From the trees [..., size] at the start of stages, those at the last step if nothing were known but the root.

    That is what an agent sees that acts with a stage length of 1.
    """
    tree = start.clone()
    for node in ("root", "current"):
        for part in ("child_mean_return", "child_max_return", "child_visits"):
            tree[..., layout.slices[f"{node}_{part}"]] = 0
    # The only node is the root, whose own return is that of the rollout which has not begun.
    tree[..., layout.slices["max_return"]] = tree[..., layout.slices["rollout_return"]]
    tree[..., layout.slices["step"]] = 0
    tree[..., layout.slices["step"].stop - 1] = 1
    return tree
