"""The Thinker-augmented MDP (the paper's sections 4.1 to 4.3 and appendix A)."""

from thinker.augmented.env import IMAGINARY, REAL, ThinkerEnv
from thinker.augmented.representation import Layout, decode, layout

__all__ = ["IMAGINARY", "REAL", "Layout", "ThinkerEnv", "decode", "layout"]
