"""Random search: rollouts of uniformly random actions (the paper's appendix F)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from thinker.augmented import ThinkerEnv
from thinker.augmented.rows import Rows
from thinker.interfaces import NodeOutput, WorldModel
from thinker.planners.actor import PlannerActor
from thinker.planners.planner import PlannerSpec, SearchResult, SearchTree, check_at_least, check_max_depth, make_spec
from thinker.planners.rollouts import CheckedModel, best_action

_NO_NODE = -1


@dataclass(frozen=True)
class RandomSearchSpec(PlannerSpec):
    """Rollouts of uniformly random actions; the real action is the first of the best rollout.

    The search walks from the root by imaginary actions that are all equally likely. It returns to the root in two
    cases, otherwise never: at ``max_depth``, and where the model predicts the end of the episode. A simulation is one
    imaginary step, as in the augmented MDP: steps to a node that is already in the tree count as well, although the
    model is not called for them. With ``simulations`` = K - 1 the search has the budget of an agent with stage length
    K.

    The rollout to a node at depth n is worth r_1 + γ r_2 + ... + γ^(n-1) r_n + γ^n v_n, with v = 0 at a predicted end.
    All nodes count, not only those where the walk returned to the root. In the result, ``q`` is the highest rollout
    return of those that start with an action, ``value`` the highest of all, and ``visits`` counts arrivals. Equally
    good actions are equally likely; if greedy, the first of them is taken. There is no other exploration in training.
    """

    simulations: int = 20  # imaginary steps
    max_depth: int | None = 5  # L, where the search returns to the root; None: only at predicted ends
    unroll_stages: int = 8  # real steps between two updates of the model in training

    def __post_init__(self) -> None:
        check_at_least(self, "simulations", 1)
        check_at_least(self, "unroll_stages", 1)
        check_max_depth(self.max_depth)

    def rollout_ends(self, tree: SearchTree, row: int) -> np.ndarray:
        """See `PlannerSpec`: the last new node of every walk; walks over known nodes only are left out."""
        nodes = np.flatnonzero(tree.visits[row, 1:]) + 1
        goes_on = np.zeros(len(nodes), bool)
        goes_on[:-1] = tree.parent[row, nodes[1:]] == nodes[:-1]
        ends: np.ndarray = nodes[~goes_on]
        return ends

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
        checked = CheckedModel(model, root, keep_states=keep_states)
        count, num_actions, capacity = len(root.hidden), model.num_actions, self.simulations + 1
        every = np.arange(count)
        child = np.full((count, capacity, num_actions), _NO_NODE, np.int32)
        parent, action_into = np.full((2, count, capacity), -1, np.int32)
        depth, visits = np.zeros((2, count, capacity), np.int32)
        reward, value = np.zeros((2, count, capacity), np.float32)
        policy = np.zeros((count, capacity, num_actions), np.float32)
        ended = np.zeros((count, capacity), bool)
        value[:, 0], policy[:, 0] = checked.root.value, checked.root.policy
        state = checked.states(capacity)
        visits[:, 0] = 1
        hidden = Rows(root.hidden, count * capacity)
        hidden.write(every * capacity, root.hidden)

        limit = capacity if self.max_depth is None else self.max_depth
        size = np.ones(count, np.int64)
        here = np.zeros(count, np.int64)  # the node that each search has walked to
        for _ in range(self.simulations):
            action = random.integers(num_actions, size=count)
            visits[here == 0, 0] += 1  # a rollout starts
            row = np.flatnonzero(child[every, here, action] == _NO_NODE)
            if len(row):
                above, by, node = here[row], action[row], size[row]
                size[row] += 1
                new = checked.unroll(hidden.read(row * capacity + above), by, row)
                hidden.write(row * capacity + node, new.hidden)
                child[row, above, by] = node
                parent[row, node], action_into[row, node], depth[row, node] = above, by, depth[row, above] + 1
                value[row, node], policy[row, node] = new.value, new.policy
                reward[row, node], ended[row, node] = new.reward, new.ended
                if state is not None:
                    state[row, node] = new.state
            here = child[every, here, action].astype(np.int64)
            visits[every, here] += 1
            returns = ended[every, here] | (depth[every, here] == limit)
            here[returns] = 0

        # The highest return of the rollouts from each node, without its own reward; children come after their parents.
        best = value.astype(np.float64)
        for last in range(capacity - 1, 0, -1):
            row = np.flatnonzero(parent[:, last] != _NO_NODE)
            above = parent[row, last].astype(np.int64)
            best[row, above] = np.maximum(best[row, above], reward[row, last] + discount * best[row, last])
        first = child[:, 0]  # [B, A]
        tried = first != _NO_NODE
        q = np.where(tried, reward[every[:, None], first] + discount * best[every[:, None], first], 0.0)
        action, probabilities = best_action(q, tried, random, greedy)
        best[:, 0] = q[every, action]
        return SearchResult(
            action=action,
            policy=probabilities,
            value=best[:, 0].astype(np.float32),
            visits=np.where(tried, visits[every[:, None], first], 0).astype(np.int32),
            q=q.astype(np.float32),
            simulations=self.simulations,
            tree=SearchTree(
                parent=parent,
                action=action_into,
                depth=depth,
                visits=visits,
                reward=reward,
                value=value,
                mean_return=best.astype(np.float32),
                policy=policy,
                ended=ended,
                state=state,
            ),
        )


class RandomSearch(PlannerActor):
    """Acts by random search before every real step; see `RandomSearchSpec`.

    Args:
        env: the environments to act in, with ``stage_length=1``.
        seed: of the generator that draws imaginary actions.
        greedy: take the first of equally good actions instead of drawing one.
        keep_states: keep the predicted states in ``result.tree``.
        settings: the fields of `RandomSearchSpec`.
    """

    def __init__(
        self, env: ThinkerEnv, *, seed: int = 0, greedy: bool = False, keep_states: bool = False, **settings: Any
    ) -> None:
        spec = make_spec(RandomSearchSpec, settings)
        super().__init__(env, spec, seed=seed, greedy=greedy, keep_states=keep_states)
