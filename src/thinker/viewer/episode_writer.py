"""Writes down the episodes of one environment, stage by stage, for `thinker.viewer.recorder`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from thinker.augmented import NO_NODE, ROOT, ThinkerEnv
from thinker.interfaces import Decision
from thinker.planners import PlannerActor
from thinker.viewer.frames import FrameStore
from thinker.viewer.recording import End, Episode, ImaginedStep, RecordedTree, Reset, Stage, rounded
from thinker.viewer.rendering import Renderer
from thinker.viewer.searches import read_search


class RealOutcome:
    """What the last real step of all E environments led to."""

    def __init__(self, env: ThinkerEnv, reward: np.ndarray, reported: np.ndarray, info: dict[str, Any]) -> None:
        """``reward``, ``info``: from ``env.step``, and ``reported`` [E]: where it said that an episode has ended."""
        transition = env.last_transition
        if transition is None:
            raise RuntimeError("no real step has been taken since the last reset")
        self.happened = transition.valid  # [E] bool  False where a row only waited in its final state
        self.reward = reward  # [E] float64
        self.terminated = transition.terminated  # [E] bool  by this very step, reported now or one stage later
        self.truncated = transition.truncated  # [E] bool
        self.next_state = transition.next_observation  # [E, *observation_shape]  final where the episode ended
        self.reported = reported
        self.root_state = env.real_observation  # [E, *observation_shape]  where the next stage begins
        self.info = info

    def success(self, e: int) -> bool | None:
        """Whether the episode that was just reported was a success, if the environment tells."""
        told = self.info["episode"].get("success")
        return None if told is None else bool(told[e])


@dataclass
class _Prediction:
    """A stage whose imagination the real actions have followed so far, down to ``node``."""

    start: np.ndarray  # the real state at the root
    child: dict[tuple[int, int], int]  # (node, action) -> node
    states: dict[int, np.ndarray]  # predicted, by node
    error: list[float | None]  # of the stage's tree, filled in as the real states become known
    node: int = ROOT


class EpisodeWriter:
    """Writes down what happens in environment ``e`` until it has ``quota`` episodes.

    Call `begin` after the reset, then for every augmented step `decide` before it, and `imagine` or `act` after it.
    """

    def __init__(
        self,
        env: ThinkerEnv,
        e: int,
        quota: int,
        frames: FrameStore,
        renderer: Renderer,
        max_real_steps: int | None,
        planner: PlannerActor | None,
    ) -> None:
        """``planner``: the actor, if it has search trees of its own; they are recorded instead of those of ``env``."""
        self.e = e
        self.episodes: list[Episode] = []
        self.done = False
        self._quota, self._max_real_steps, self._frames, self._renderer = quota, max_real_steps, frames, renderer
        self._planner = planner
        self._tree = env.search_tree()
        self._discount = env.discount
        self._forced_depth = np.inf if env.max_depth is None else env.max_depth
        self._waiting = False  # in the final state, for the end to be reported: nothing happens there
        self._level: int | None = None
        self._stages: list[Stage] = []
        self._followed: list[_Prediction] = []

    def begin(self, state: np.ndarray, info: dict[str, Any]) -> None:
        """An episode begins at the real ``state`` [*observation_shape]."""
        self._level = _level(info, self.e)
        self._stages, self._followed = [], []
        self._final_picture: int | None = None
        if "evaluating" in info and not info["evaluating"][self.e]:
            self.done = True
        if not self.done:
            self._begin_stage(state)

    def _begin_stage(self, state: np.ndarray) -> None:
        self._frame, self._picture = self._frames.add_real(state), self._renderer.picture(self.e)
        self._start = state.copy()
        self._steps: list[ImaginedStep] = []
        self._rollouts: int | None = None
        self._states: dict[int, np.ndarray] = {}  # predicted, by node

    def decide(self, decision: Decision, is_real: bool) -> None:
        """The actor has decided on the next step; if that is real, the search of this stage is over."""
        if self.done or self._waiting:
            return
        e = self.e
        self._base_policy = _numbers(self._tree.policy[e, self._tree.position[e]])
        self._action, self._reset_action = (int(action) for action in decision.actions[e])
        self._agent_policy = None if decision.policy is None else _numbers(decision.policy[e])
        probability = decision.reset_probability
        self._reset_probability = None if probability is None else rounded(float(probability[e]))
        if is_real:
            self._recorded_tree = self._read_tree() if self._planner is None else self._read_search(self._planner)

    def imagine(self, planning_reward: np.ndarray) -> None:
        """An imaginary step was taken; it earned ``planning_reward`` [E]."""
        if self.done or self._waiting:
            return
        tree, e = self._tree, self.e
        node, depth, value = int(tree.current[e]), int(tree.depth[e]), float(tree.value[e, tree.current[e]])
        self._keep_state(node)
        reset: Reset = "none"
        if depth >= self._forced_depth:
            reset = "forced"
        elif self._reset_action == 1:
            reset = "chosen"
        self._steps.append(
            ImaginedStep(
                action=self._action,
                reset=reset,
                node=node,
                depth=depth,
                frame=self._frame_of(node),
                reward=rounded(float(tree.reward[e, node])),
                value=rounded(value),
                rollout_return=rounded(float(tree.path_reward[e]) + self._discount ** (depth + 1) * value),
                planning_reward=rounded(float(planning_reward[e])),
                base_policy=self._base_policy,
                agent_policy=self._agent_policy,
                reset_probability=self._reset_probability,
            )
        )

    def act(self, outcome: RealOutcome) -> None:
        """The real step was taken."""
        e = self.e
        if self.done:
            return
        if outcome.happened[e]:
            self._end_stage(outcome)
        self._waiting = False
        if outcome.reported[e]:
            self._end("terminated" if self._stages[-1].terminated else "truncated", outcome)
            self.begin(outcome.root_state[e], outcome.info)
        elif outcome.terminated[e] or outcome.truncated[e]:
            self._waiting, self._final_picture = True, self._renderer.picture(self.e)
        elif len(self._stages) == self._max_real_steps:
            self._final_picture = self._renderer.picture(self.e)
            self._end("unfinished", outcome)
            self.done = True
        else:
            self._begin_stage(outcome.root_state[e])

    def _end_stage(self, outcome: RealOutcome) -> None:
        e, tree = self.e, self._recorded_tree
        edges = zip(tree.parent[1:], tree.action[1:])
        child = {edge: node for node, edge in enumerate(edges, start=1)}
        self._followed.append(_Prediction(self._start, child, self._states, tree.error))
        self._compare(outcome.next_state[e])
        self._stages.append(
            Stage(
                frame=self._frame,
                picture=self._picture,
                steps=self._steps,
                rollouts=self._rollouts,
                tree=tree,
                action=self._action,
                agent_policy=self._agent_policy,
                reward=rounded(float(outcome.reward[e])),
                terminated=bool(outcome.terminated[e]),
                truncated=bool(outcome.truncated[e]),
            )
        )

    def _compare(self, real: np.ndarray) -> None:
        """Follow the predictions that the real action agrees with, and measure their error."""
        still_followed = []
        for prediction in self._followed:
            node = prediction.child.get((prediction.node, self._action))
            if node is not None and node in prediction.states:
                prediction.node = node
                error = self._frames.error(prediction.states[node], real, prediction.start)
                prediction.error[node] = rounded(error)
                still_followed.append(prediction)
        self._followed = still_followed

    def _end(self, end: End, outcome: RealOutcome) -> None:
        frame = self._frames.add_real(outcome.next_state[self.e])
        success = None if end == "unfinished" else outcome.success(self.e)
        self.episodes.append(Episode(self.e, self._level, self._stages, frame, self._final_picture, end, success))
        self.done = len(self.episodes) == self._quota

    # ------------------------------------------------------------------------------------------- the search tree

    def _keep_state(self, node: int) -> None:
        """Keep the predicted state of ``node``, if there is one. Below a predicted end there is none."""
        tree, e = self._tree, self.e
        if node not in self._states and not tree.terminated[e, tree.parent[e, node]]:
            state = tree.state(e, node)
            if state is not None:
                self._states[node] = state

    def _frame_of(self, node: int) -> int | None:
        return self._frames.add(self._states[node]) if node in self._states else None

    def _read_tree(self) -> RecordedTree:
        """The tree as it is now, with its nodes numbered anew; so are the nodes of steps and of predicted states."""
        tree, e = self._tree, self.e
        nodes = self._nodes()
        number = {node: new for new, node in enumerate(nodes)}
        self._steps = [dataclasses.replace(step, node=number[step.node]) for step in self._steps]
        self._states = {number[node]: state for node, state in self._states.items()}
        parent = [NO_NODE, *(number[int(tree.parent[e, node])] for node in nodes[1:])]
        reward, value = tree.reward[e, nodes], tree.value[e, nodes]
        before, weight = _on_the_way(parent, reward, self._discount)
        return RecordedTree(
            parent=parent,
            action=tree.action[e, nodes].tolist(),
            reward=_numbers(reward),
            value=_numbers(value),
            visits=tree.visits[e, nodes].tolist(),
            mean_return=_numbers(before + weight * tree.mean_return[e, nodes]),
            max_return=_numbers(before + weight * tree.max_return[e, nodes]),
            rollout_return=_numbers(before + weight * (reward + self._discount * value)),
            terminated=tree.terminated[e, nodes].tolist(),
            fresh=tree.reached[e, nodes].tolist(),
            frame=[self._frame, *(self._frame_of(node) for node in range(1, len(nodes)))],
            error=[None] * len(nodes),
            policy=[_numbers(policy) for policy in tree.policy[e, nodes]],
        )

    def _read_search(self, planner: PlannerActor) -> RecordedTree:
        """The planner's tree; so are its rollouts and predicted states."""
        if planner.result is None:
            raise RuntimeError("the planner has not searched yet")
        search = read_search(
            planner.spec, planner.result, self.e, discount=self._discount, frame=self._frame, frames=self._frames
        )
        self._steps, self._rollouts, self._states = search.steps, search.rollouts, search.states
        return search.tree

    def _nodes(self) -> list[int]:
        """The nodes that hang on the root, the root first; others were dropped below a predicted end."""
        tree, e = self._tree, self.e
        nodes = [ROOT]
        attached = {ROOT}
        for node in range(1, int(tree.size[e])):
            if int(tree.parent[e, node]) in attached:
                nodes.append(node)
                attached.add(node)
        return nodes


def _on_the_way(parent: list[int], reward: np.ndarray, discount: float) -> tuple[np.ndarray, np.ndarray]:
    """For every node, the discounted rewards on the path from the root to its parent, and the node's own discount.

    With these, g of a path that passes through a node is ``before + weight * g(node, end)``. Parents come before their
    children.
    """
    before, weight = np.zeros(len(parent)), np.ones(len(parent))
    for node in range(1, len(parent)):
        above = parent[node]
        before[node] = before[above] + weight[above] * reward[above]
        weight[node] = weight[above] * discount
    return before, weight


def _numbers(values: np.ndarray | Tensor) -> list[float]:
    return [rounded(x) for x in values.tolist()]


def _level(info: dict[str, Any], e: int) -> int | None:
    told = np.asarray(info.get("level"))
    return int(told[e]) if told.ndim == 1 and told.dtype.kind in "iu" else None
