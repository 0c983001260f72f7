"""Thinking longer or shorter than in training: trees of another stage length, as the agent knows them."""

from __future__ import annotations

import torch
from torch import Tensor

from thinker.augmented import Layout
from thinker.errors import UserError


def convert_stage_length(tree: Tensor, seen: Layout, known: Layout) -> Tensor:
    """Tree representations [..., seen.size] of stage length K' as those [..., known.size] of stage length K.

    Only the step changes, so that it tells how many steps remain in the stage: k = max(1, K - (K' - k')). Visits stay
    shares of the stage, n / K'.
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
        elif name == "action_sequence":  # its length is the deepest that a node can lie
            length = min(old.shape[-1], part.stop - part.start)
            result[..., part.start : part.start + length] = old[..., :length]
        else:
            result[..., part] = old
    return result
