"""Plays with any policy in any `ThinkerEnv` and writes down every stage: what was imagined, and what came of it.

The environment is only listened to. Its search trees are read from ``state_dict``, real and predicted states are taken
from what its world model is asked and answers, so the agent sees and does exactly what it would without a recorder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from torch import Tensor

from thinker.augmented import ThinkerEnv
from thinker.augmented.tree import NO_NODE, ROOT
from thinker.envs.sokoban import engine
from thinker.viewer.frames import FrameStore, is_sokoban
from thinker.viewer.recording import End, Episode, ImaginedStep, Recording, Reset, SearchTree, Stage, rounded
from thinker.world_model.protocol import NodeOutput, WorldModel


@dataclass(frozen=True)
class Choice:
    """What a policy does next in every environment, and how likely that was where it can tell."""

    actions: np.ndarray | Tensor  # [E, 2]
    policy: np.ndarray | Tensor | None = None  # [E, A] that the primary actions were drawn from
    reset_probability: np.ndarray | Tensor | None = None  # [E] of the reset action


Policy = Callable[[dict[str, Any], dict[str, Any]], Any]
"""(observation, info) -> `Choice`, or actions [E, 2] alone."""


@runtime_checkable
class ActingAgent(Protocol):
    """What `thinker.agents.Agent` is."""

    def begin(self, observation: dict[str, Any], info: dict[str, Any]) -> Any: ...

    def act(self) -> Any: ...

    def observe(
        self, decision: Any, observation: Any, reward: Any, terminated: Any, truncated: Any, info: Any
    ) -> Any: ...


def record(
    env: ThinkerEnv,
    policy: Policy | ActingAgent,
    *,
    episodes: int = 1,
    seed: int | None = None,
    max_real_steps: int | None = None,
    action_names: Sequence[str] | None = None,
    title: str = "",
    notes: dict[str, str] | None = None,
) -> Recording:
    """Play ``episodes`` episodes from a reset of ``env`` and record them.

    They are shared out evenly among the environments, so that short ones are not preferred: with as many environments
    as episodes, each environment's first. The order is that of the environments, and within one that of time.

    Args:
        env: any augmented environment. A ``learner`` goes on learning.
        policy: a `thinker.agents.Agent` of this environment, or a function of (observation, info).
        episodes: how many.
        seed: of ``env.reset``.
        max_real_steps: an episode is left unfinished after so many, and its environment is not recorded any more.
        action_names: what the actions are called; default: known for Sokoban, else their numbers.
        title: of the page.
        notes: shown as they are, such as the run and the command.
    """
    if episodes < 1 or (max_real_steps is not None and max_real_steps < 1):
        raise ValueError(f"episodes={episodes}, max_real_steps={max_real_steps}; expected at least 1")
    names = _action_names(env, action_names)
    space = env.envs.single_observation_space
    assert isinstance(space, spaces.Box)  # ThinkerEnv takes no other
    store = FrameStore(space, sokoban=is_sokoban(env.envs))
    player = _AgentPlayer(policy) if isinstance(policy, ActingAgent) else _FunctionPlayer(policy)
    with _listening(env) as listener:
        observation, info = env.reset(seed=seed)
        player.begin(observation, info)
        tree = env.state_dict()["tree"]  # the live arrays
        rows = []
        for e in range(min(env.num_envs, episodes)):
            quota = len(range(e, episodes, env.num_envs))
            rows.append(_Row(env, e, quota, tree, store, max_real_steps))
            rows[e].begin(listener.roots[-1][e], info)
        while not all(row.done for row in rows):
            choice = player.act()
            is_real = bool(info["next_is_real"][0])
            for row in rows:
                row.decide(choice, is_real)
            rows_used = tree["rows_used"].copy()
            listener.forget()
            observation, reward, terminated, truncated, info = env.step(choice.actions)
            player.observe(observation, reward, terminated, truncated, info)
            if is_real:
                ended = terminated | truncated
                for row in rows:
                    final = _final_state(listener.roots, ended, row.e)
                    row.act(listener.roots[-1][row.e], final, reward, terminated, truncated, info)
            else:
                asked = np.flatnonzero(tree["rows_used"] > rows_used)  # the environments with a node for the model
                states = listener.states(asked)
                for row in rows:
                    row.imagine(states.get(row.e), info)
    return Recording(
        title=title,
        environment=_name_of(env),
        actions=names,
        stage_length=env.stage_length,
        max_depth=env.max_depth,
        discount=env.discount,
        view=store.view,
        frames=store.frames,
        episodes=[episode for row in rows for episode in row.episodes],
        notes=dict(notes or {}),
    )


# ------------------------------------------------------------------------------------------- who plays


class _AgentPlayer:
    def __init__(self, agent: ActingAgent) -> None:
        self._agent = agent
        self._decision: Any = None

    def begin(self, observation: dict[str, Any], info: dict[str, Any]) -> None:
        self._agent.begin(observation, info)

    def act(self) -> Choice:
        self._decision = self._agent.act()
        taken, actions = self._decision.log_prob[:, 1].exp(), self._decision.actions
        return Choice(actions, self._decision.policy, taken.where(actions[:, 1] == 1, 1 - taken))

    def observe(self, *step: Any) -> None:
        self._agent.observe(self._decision, *step)


class _FunctionPlayer:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._seen: tuple[dict[str, Any], dict[str, Any]] = ({}, {})

    def begin(self, observation: dict[str, Any], info: dict[str, Any]) -> None:
        self._seen = observation, info

    def act(self) -> Choice:
        chosen = self._policy(*self._seen)
        return chosen if isinstance(chosen, Choice) else Choice(chosen)

    def observe(self, observation: dict[str, Any], *step: Any) -> None:
        self._seen = observation, step[-1]


# ----------------------------------------------------------------------------------- listening to the model


class _Listener:
    """A world model that remembers what it was asked and what it said since `forget`."""

    def __init__(self, model: WorldModel) -> None:
        self._model = model
        self.roots: list[np.ndarray] = []  # real observations [B, ...], call by call
        self._unrolled: Tensor | None = None  # predicted states [B, ...] of the last call

    @property
    def num_actions(self) -> int:
        return self._model.num_actions

    def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
        self.roots.append(observation.cpu().numpy().copy())
        return self._model.root(observation, last_action)

    def unroll(self, hidden: Tensor, action: Tensor) -> NodeOutput:
        output = self._model.unroll(hidden, action)
        self._unrolled = output.state
        return output

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)  # hidden_shape and observe_hidden, where the model has them

    def forget(self) -> None:
        self.roots, self._unrolled = [], None

    def states(self, environments: np.ndarray) -> dict[int, np.ndarray]:
        """The predicted states of the last step, by the environments [B] that the model was asked for."""
        if self._unrolled is None:
            return {}
        return dict(zip(environments.tolist(), self._unrolled.cpu().numpy().copy()))


@contextmanager
def _listening(env: ThinkerEnv) -> Iterator[_Listener]:
    model = env.model
    network = getattr(model, "network", None)
    gave_states = getattr(network, "give_states", None)  # learned models leave them out where nobody looks at them
    listener = _Listener(model)
    try:
        env.model = listener
        if gave_states is not None:
            network.give_states = True  # type: ignore[union-attr]
        yield listener
    finally:
        env.model = model
        if gave_states is not None:
            network.give_states = gave_states  # type: ignore[union-attr]


def _final_state(roots: list[np.ndarray], ended: np.ndarray, e: int) -> np.ndarray | None:
    """The last real state of an episode that has just ended: what the model was asked about before the new roots.

    None where rows wait one stage in their final states (see `thinker.augmented.real.Waiting`): it is already known.
    """
    if not ended[e] or len(roots) < 2 or len(roots[0]) != ended.sum():
        return None
    state: np.ndarray = roots[0][ended[:e].sum()]
    return state


# ---------------------------------------------------------------------------------- one environment's record


@dataclass
class _Prediction:
    """A stage whose imagination the real game has followed so far, down to ``node``."""

    child: dict[tuple[int, int], int]  # (node, action) -> node
    states: dict[int, np.ndarray]
    error: list[float | None]  # of the stage's tree, filled in as the truth comes to light
    node: int = ROOT


class _Row:
    """Writes down what happens in environment ``e``; ``tree`` are the live arrays [E, ...] of `search.Tree`."""

    def __init__(
        self, env: ThinkerEnv, e: int, quota: int, tree: dict[str, np.ndarray], store: FrameStore, limit: int | None
    ) -> None:
        self.e = e
        self.episodes: list[Episode] = []
        self.done = False
        self._quota, self._limit, self._store = quota, limit, store
        self._tree = {name: array[e] if array.ndim > 1 else array for name, array in tree.items()}
        self._discount = env.discount
        self._forced_depth = np.inf if env.max_depth is None else env.max_depth
        self._stages: list[Stage] = []
        self._followed: list[_Prediction] = []
        self._level: int | None = None

    def begin(self, state: np.ndarray, info: dict[str, Any]) -> None:
        """An episode begins."""
        self._level = int(info["level"][self.e]) if "level" in info else None
        self._stages, self._followed = [], []
        if "evaluating" in info and not info["evaluating"][self.e]:
            self.done = True  # no level is left
        self._begin_stage(state)

    def _begin_stage(self, state: np.ndarray) -> None:
        self._frame = self._store.add_real(state)
        self._state = state
        self._steps: list[ImaginedStep] = []
        self._states: dict[int, np.ndarray] = {}  # node -> predicted state

    def decide(self, choice: Choice, is_real: bool) -> None:
        """What the policy has chosen, before it is done; a real step ends the stage, whose tree is then complete."""
        if self.done:
            return
        tree, e = self._tree, self.e
        here = ROOT if tree["was_reset"][e] else int(tree["current"][e])
        self._base_policy = _numbers(tree["policy"][here])
        self._action, self._reset_action = (int(x) for x in choice.actions[e])
        self._agent_policy = None if choice.policy is None else _numbers(choice.policy[e])
        reset = choice.reset_probability
        self._reset_probability = None if reset is None else rounded(float(reset[e]))
        if is_real:
            self._search_tree = self._read_tree()

    def imagine(self, state: np.ndarray | None, info: dict[str, Any]) -> None:
        """An imaginary step was taken; ``state`` is what the model predicts, if the node was new to it."""
        if self.done:
            return
        tree, e = self._tree, self.e
        node, depth = int(tree["current"][e]), int(tree["depth"][e])
        if state is not None:
            self._states[node] = state
        forced = depth >= self._forced_depth
        reset: Reset = "forced" if forced else "chosen" if self._reset_action == 1 else "none"
        value = float(tree["value"][node])
        rollout_return = float(tree["path_reward"][e]) + self._discount ** (depth + 1) * value
        self._steps.append(
            ImaginedStep(
                action=self._action,
                reset=reset,
                node=node,
                depth=depth,
                frame=self._frame_of(node),
                reward=rounded(float(tree["reward"][node])),
                value=rounded(value),
                rollout_return=rounded(rollout_return),
                planning_reward=rounded(float(info["planning_reward"][e])),
                base_policy=self._base_policy,
                agent_policy=self._agent_policy,
                reset_probability=self._reset_probability,
            )
        )

    def act(
        self,
        state: np.ndarray,
        final_state: np.ndarray | None,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        info: dict[str, Any],
    ) -> None:
        """The real step was taken: the next stage begins at ``state``, maybe that of a new episode."""
        if self.done:
            return
        e, search_tree = self.e, self._search_tree
        ended = bool(terminated[e] or truncated[e])
        child = {
            (parent, action): node
            for node, (parent, action) in enumerate(zip(search_tree.parent, search_tree.action))
            if parent != NO_NODE
        }
        self._followed.append(_Prediction(child, self._states, search_tree.error))
        came = (self._state if final_state is None else final_state) if ended else state
        self._compare(came)
        self._stages.append(
            Stage(
                frame=self._frame,
                steps=self._steps,
                tree=search_tree,
                action=self._action,
                agent_policy=self._agent_policy,
                reward=rounded(float(reward[e])),
                terminated=bool(terminated[e]),
                truncated=bool(truncated[e]),
            )
        )
        if ended:
            self._end("terminated" if terminated[e] else "truncated", came, _solved(info, e))
            self.begin(state, info)
        elif len(self._stages) == self._limit:
            self._end("unfinished", state, None)
            self.done = True
        else:
            self._begin_stage(state)

    def _compare(self, real: np.ndarray) -> None:
        """Follow the predictions that the real action agrees with, and see how right they were."""
        still = []
        for prediction in self._followed:
            node = prediction.child.get((prediction.node, self._action))
            if node is not None and node in prediction.states:
                prediction.node = node
                prediction.error[node] = rounded(self._store.error(prediction.states[node], real))
                still.append(prediction)
        self._followed = still

    def _end(self, end: End, state: np.ndarray, solved: bool | None) -> None:
        frame = self._store.add_real(state)
        self.episodes.append(Episode(self.e, self._level, self._stages, frame, end, solved))
        self.done = len(self.episodes) == self._quota

    def _frame_of(self, node: int) -> int | None:
        return self._store.add(self._states[node]) if node in self._states else None

    def _read_tree(self) -> SearchTree:
        tree = self._tree
        size = int(tree["size"][self.e])
        column = {name: tree[name][:size].tolist() for name in ("parent", "action", "visits", "terminated", "stage")}
        reward, value = tree["reward"][:size].tolist(), tree["value"][:size].tolist()
        depth, path, rollout_return = [0] * size, [0.0] * size, [0.0] * size
        for node in range(size):
            above = column["parent"][node]
            if above != NO_NODE:
                depth[node] = depth[above] + 1
                path[node] = path[above] + self._discount ** depth[node] * reward[node]
            rollout_return[node] = path[node] + self._discount ** (depth[node] + 1) * value[node]
        return SearchTree(
            parent=column["parent"],
            action=column["action"],
            reward=[rounded(x) for x in reward],
            value=[rounded(x) for x in value],
            visits=column["visits"],
            mean_return=_numbers(tree["return_sum"][:size] / tree["nodes"][:size]),
            max_return=_numbers(tree["return_max"][:size]),
            rollout_return=[rounded(x) for x in rollout_return],
            terminated=column["terminated"],
            fresh=[stage == column["stage"][ROOT] for stage in column["stage"]],
            frame=[self._frame, *(self._frame_of(node) for node in range(1, size))],
            error=[None] * size,
            policy=[_numbers(policy) for policy in tree["policy"][:size]],
        )


def _numbers(values: np.ndarray | Tensor) -> list[float]:
    return [rounded(x) for x in values.tolist()]


def _solved(info: dict[str, Any], e: int) -> bool | None:
    """Whether the episode that has just ended in environment ``e`` was solved, where the environment tells."""
    final = info.get("final_info")
    for told in (final, info):
        if isinstance(told, dict) and "solved" in told:
            return bool(told["solved"][e])
    return None


def _action_names(env: ThinkerEnv, names: Sequence[str] | None) -> list[str]:
    if names is None:
        names = engine.ACTION_NAMES if is_sokoban(env.envs) else [str(action) for action in range(env.num_actions)]
    if len(names) != env.num_actions:
        raise ValueError(f"{len(names)} action_names for {env.num_actions} actions")
    return list(names)


def _name_of(env: ThinkerEnv) -> str:
    real = env.envs.unwrapped
    spec = env.spec or (real.envs[0].spec if isinstance(real, SyncVectorEnv) else None)
    return spec.id if spec is not None else type(real).__name__
