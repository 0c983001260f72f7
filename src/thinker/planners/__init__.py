"""Planners: actors that search by a fixed rule."""

from thinker.planners.actor import PlannerActor
from thinker.planners.base_policy import BasePolicy, RandomPlay
from thinker.planners.exhaustive import ExhaustiveSearch, ExhaustiveSpec
from thinker.planners.gumbel import GumbelMCTS, GumbelMCTSSpec
from thinker.planners.mcts import MCTS, MCTSSpec
from thinker.planners.planner import PlannerSpec, SearchResult, SearchTree
from thinker.planners.random_search import RandomSearch, RandomSearchSpec
from thinker.planners.search import search

__all__ = [
    "MCTS",
    "BasePolicy",
    "ExhaustiveSearch",
    "ExhaustiveSpec",
    "GumbelMCTS",
    "GumbelMCTSSpec",
    "MCTSSpec",
    "PlannerActor",
    "PlannerSpec",
    "RandomPlay",
    "RandomSearch",
    "RandomSearchSpec",
    "SearchResult",
    "SearchTree",
    "search",
]
