"""Planning for more or fewer steps than in training: converts trees to the stage length that the agent knows."""

from __future__ import annotations

import torch
from torch import Tensor

from thinker.augmented import Layout
from thinker.errors import UserError


def convert_stage_length(tree: Tensor, seen: Layout, known: Layout) -> Tensor:
    """Convert tree representations [..., seen.size] of stage length K' to [..., known.size] of stage length K.

    Only the step changes, so that the number of remaining steps in the stage is the same: k = max(1, K - (K' - k')).
    Visits remain fractions of the stage, n / K'.
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
        else:
            result[..., part] = old
    return result
