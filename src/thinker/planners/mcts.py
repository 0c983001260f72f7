"""Monte Carlo tree search as in MuZero: simulations by pUCT, real actions by visits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from thinker.augmented import ROOT, ThinkerEnv
from thinker.errors import UserError
from thinker.interfaces import NodeOutput, WorldModel
from thinker.planners import selection
from thinker.planners.actor import PlannerActor
from thinker.planners.planner import PlannerSpec, SearchResult, check_at_least, check_max_depth, make_spec
from thinker.planners.tree_search import TreeSearch

UNLIMITED = np.iinfo(np.int32).max


@dataclass(frozen=True)
class MCTSSpec(PlannerSpec):
    """Monte Carlo tree search by pUCT, with the statistics and constants of mctx's ``muzero_policy``.

    The improved policy is the share of visits. Actions are sampled in proportion to visits^(1 / temperature), where the
    temperature depends on how much of training is complete; outside of training it is the last one. The greedy choice,
    and that of temperature 0, is the most visited action, and among several of them the one with the highest Q.
    """

    simulations: int = 50  # per real step; each evaluates at most one new node
    max_depth: int | None = None  # of the tree; None for no limit
    exploration: float = 1.25  # weight of the prior in the score of an action
    exploration_base: float = 19652.0  # visits at which that weight begins to grow
    tie_noise: float = 1e-7  # largest number added to scores, to break ties; with 0 the first action is taken
    dirichlet_alpha: float = 0.3  # of the noise that is mixed into the roots' priors in training
    dirichlet_fraction: float = 0.25  # its share
    temperatures: tuple[float, float, float] = (1.0, 0.5, 0.25)  # until 50 %, until 75 %, and from there on
    unroll_stages: int = 8  # real steps between two updates of the model in training

    def __post_init__(self) -> None:
        check_at_least(self, "simulations", 1)
        check_at_least(self, "unroll_stages", 1)
        check_max_depth(self.max_depth)
        for name in ("exploration", "tie_noise"):
            check_at_least(self, name, 0.0)
        for name in ("exploration_base", "dirichlet_alpha"):
            if not 0 < getattr(self, name) < np.inf:
                raise UserError(f"{name} is {getattr(self, name)!r}; it must be greater than 0")
        if not 0 <= self.dirichlet_fraction <= 1:
            raise UserError(f"dirichlet_fraction is {self.dirichlet_fraction!r}; it must be between 0 and 1")
        if len(self.temperatures) != 3 or not all(0 <= t < np.inf for t in self.temperatures):
            raise UserError(
                f"temperatures is {self.temperatures!r}; it must be three numbers of at least 0: until 50 % and until "
                f"75 % of training, and after that"
            )

    def search(
        self,
        model: WorldModel,
        root: NodeOutput,
        *,
        discount: float,
        random: np.random.Generator,
        greedy: bool = False,
        exploring: bool = False,
        progress: float = 0.0,
        keep_states: bool = False,
    ) -> SearchResult:
        """See `PlannerSpec`."""
        search = TreeSearch(model, root, simulations=self.simulations, discount=discount, keep_states=keep_states)
        prior = search.tree.policy[:, ROOT].astype(np.float64)
        if exploring and self.dirichlet_fraction:
            noise = random.dirichlet(np.full(search.num_actions, self.dirichlet_alpha), search.batch)
            prior = (1 - self.dirichlet_fraction) * prior + self.dirichlet_fraction * noise
        stream = random.integers(0, 2**64, search.batch, dtype=np.uint64)
        max_depth = UNLIMITED if self.max_depth is None else self.max_depth
        weights = selection.prior_weights(self.simulations, self.exploration, self.exploration_base)
        scratch = np.empty(search.num_actions)

        def select(simulation: int) -> int:
            return selection.select_by_puct(
                search.tree, search.leaves, prior, search.rows_used, max_depth, weights, self.tie_noise, stream, scratch
            )

        search.run(select)
        visits, q = search.tree.edge_visits[:, ROOT], search.tree.q[:, ROOT]
        temperature = 0.0 if greedy else self.temperature(progress if exploring else 1.0)
        action = sample_by_visits(visits, temperature, random) if temperature else most_visited(visits, q)
        return search.result(action, visits / visits.sum(1, keepdims=True))

    def temperature(self, progress: float) -> float:
        """The temperature of sampling when the fraction ``progress`` (0 .. 1) of training is complete."""
        return self.temperatures[0 if progress < 0.5 else 1 if progress < 0.75 else 2]


class MCTS(PlannerActor):
    """Monte Carlo tree search as an actor; ``settings`` are those of `MCTSSpec`, see also `PlannerActor`."""

    def __init__(
        self, env: ThinkerEnv, *, seed: int = 0, greedy: bool = False, keep_states: bool = False, **settings: Any
    ) -> None:
        super().__init__(env, make_spec(MCTSSpec, settings), seed=seed, greedy=greedy, keep_states=keep_states)


def most_visited(visits: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The most visited actions [B] of ``visits`` [B, A]; ties go to the highest ``q`` [B, A]."""
    most = visits == visits.max(1, keepdims=True)
    return np.where(most, q, -np.inf).argmax(1)


def sample_by_visits(visits: np.ndarray, temperature: float, random: np.random.Generator) -> np.ndarray:
    """Actions [B] drawn in proportion to ``visits``^(1 / ``temperature``), visits [B, A]."""
    with np.errstate(divide="ignore"):
        logits = np.log(visits / visits.max(1, keepdims=True)) / temperature
    cumulative = np.exp(logits).cumsum(1)
    return (random.random((len(visits), 1)) * cumulative[:, -1:] >= cumulative).sum(1)
