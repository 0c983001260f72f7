"""Shared by all tests: one thread each, so that two test processes do not slow each other down on two cores."""

import torch

torch.set_num_threads(1)
