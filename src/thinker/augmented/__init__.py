"""The Thinker-augmented MDP (the paper's sections 4.1 to 4.3 and appendix A)."""

from thinker.augmented.env import IMAGINARY, REAL, ThinkerEnv
from thinker.augmented.representation import Layout, decode, layout
from thinker.augmented.single import SingleThinkerEnv, single_vector

__all__ = ["IMAGINARY", "REAL", "Layout", "SingleThinkerEnv", "ThinkerEnv", "decode", "layout", "single_vector"]
