"""The Thinker-augmented MDP (the paper's sections 4.1 to 4.3 and appendix A)."""

from thinker.augmented.collect import EndedEpisodes, collect
from thinker.augmented.env import IMAGINARY, REAL, Observe, Output, ThinkerEnv
from thinker.augmented.representation import Extra, FeatureGroup, Layout, layout
from thinker.augmented.single import SingleThinkerEnv, single_vector
from thinker.augmented.tree import NO_NODE, ROOT
from thinker.augmented.view import TreeView

__all__ = [
    "IMAGINARY",
    "NO_NODE",
    "REAL",
    "ROOT",
    "EndedEpisodes",
    "Extra",
    "FeatureGroup",
    "Layout",
    "Observe",
    "Output",
    "SingleThinkerEnv",
    "ThinkerEnv",
    "TreeView",
    "collect",
    "layout",
    "single_vector",
]
