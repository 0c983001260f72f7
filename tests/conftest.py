"""Shared by all tests: what has to be set before anything computes."""

import os

import torch

# Virtual machines may advertise AMX and trap it; oneDNN reads this when it is first used.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# One thread each, so that two test processes do not slow each other down on two cores.
torch.set_num_threads(1)
