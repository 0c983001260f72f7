"""The Thinker-augmented MDP as a Gymnasium vector environment: the paper's Algorithm 1.

`ThinkerEnv.step` is the algorithm's procedure STEP for all environments at once: `_imaginary_step` moves in the search
trees and evaluates new nodes with the model, `_real_step` steps the real environments and plants new roots.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_args

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

from thinker.augmented import tree as search
from thinker.augmented.checks import check_names, check_settings, checked_actions, checked_targets, not_finite
from thinker.augmented.episodes import EpisodeTracker
from thinker.augmented.nodes import Nodes
from thinker.augmented.real import adapt
from thinker.augmented.representation import NO_COLUMN, Extra, FeatureGroup, layout, represent
from thinker.augmented.view import TreeView
from thinker.errors import UserError
from thinker.interfaces import NO_ACTION, NodeOutput, RealTransition, TransitionSink, WorldModel

Observe = Literal["tree", "hidden", "root_hidden", "real_state", "predicted_state"]
"""The inputs that can be part of the augmented state (appendix A)."""
Output = Literal["torch", "numpy"]
REAL, IMAGINARY = 0, 1
"""Values of ``info["step_kind"]``."""
DEFAULT_SUCCESS = "is_success"
"""The entry of ``info`` that reports success, unless the environments' ``metadata["success"]`` names another."""


class ThinkerEnv(VectorEnv):
    """Real environments in which each step is preceded by K - 1 imaginary steps in a world model.

    An action is a pair of integers: the imaginary or real action, and whether to reset the search to its root (ignored
    on real steps). Observations are dicts with the keys ``observe``; rewards, terminations, truncations and the entries
    of ``info`` are NumPy arrays.

    Args:
        envs: the real environments: Discrete actions, Box observations of any shape, any autoreset mode.
        model: the world model that the agent searches; see `WorldModel`.
        stage_length: K, augmented steps per real step; 1 means no imaginary steps.
        max_depth: L, the depth at which a reset to the root is forced; None for no limit.
        discount: γ of the real MDP. The augmented MDP uses γ^(1/K), see `augmented_discount`.
        carry_tree: keep the subtree below the real action for the next stage.
        observe: the parts of the augmented state.
        mask: groups of features in ``tree`` that are set to zero: "hints", "base_policy_and_value".
        extra: features added to ``tree``: "action_sequence", "termination".
        output: type of the observations, "torch" (on the model's device) or "numpy".
        copy: return new arrays on every step. If False, ``obs["tree"]`` is overwritten by the next step.
        sink: receives every real step, see `TransitionSink`.
        keep_states: keep the states that the model predicts, for `search_tree`.
        device: of the observations and the model's inputs; default: ``model.device`` if it exists, else the CPU.
        seed: used by the first `reset` if that is called without a seed.
        autoreset: False leaves resets to the caller, for environments in DISABLED mode (the single-environment view).
    """

    def __init__(
        self,
        envs: VectorEnv,
        model: WorldModel,
        *,
        stage_length: int = 20,
        max_depth: int | None = 5,
        discount: float = 0.97,
        carry_tree: bool = True,
        observe: Iterable[Observe] = ("tree", "hidden"),
        mask: Iterable[FeatureGroup] = (),
        extra: Iterable[Extra] = (),
        output: Output = "torch",
        copy: bool = True,
        sink: TransitionSink | None = None,
        keep_states: bool = False,
        device: torch.device | str | None = None,
        seed: int | None = None,
        autoreset: bool = True,
    ) -> None:
        check_settings(stage_length, max_depth, discount, output)
        self._real = adapt(envs, autoreset)
        self.sink = sink
        self.envs = envs
        self.num_envs = self._real.num_envs
        self.num_actions = self._real.num_actions
        if model.num_actions != self.num_actions:
            raise UserError(
                f"the model has {model.num_actions} actions but the environments have {self.num_actions}; create the "
                f"model for this action space"
            )
        self.stage_length = stage_length
        self.max_depth = max_depth
        self.discount = float(discount)
        self.augmented_discount = self.discount ** (1 / stage_length)
        self.carry_tree = carry_tree
        self.observe = check_names("observe", observe, get_args(Observe))
        self.layout = layout(self.num_actions, stage_length, max_depth=max_depth, extra=extra)
        self.output = output
        self.copy = copy
        self.render_mode = envs.render_mode
        self.autoreset_mode = AutoresetMode.SAME_STEP
        self.metadata = {**envs.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        self.spec = envs.spec

        self._forced_reset_depth = stage_length if max_depth is None else max_depth
        self._powers = self.discount ** np.arange(stage_length + 1, dtype=np.float64)
        self._tree = search.make_tree(self.num_envs, self.num_actions, search.capacity(stage_length, max_depth))
        self._pending = search.make_pending(self.num_envs)
        self._new_index = np.zeros(self._tree.parent.shape[1], np.int32)
        self._every_env = np.arange(self.num_envs)
        self._nodes = Nodes(
            model,
            self._real.observation_space,
            self.num_envs,
            stage_length,
            keep_states=keep_states or "predicted_state" in self.observe,
            device=torch.device(getattr(model, "device", "cpu") if device is None else device),
        )
        absent = slice(NO_COLUMN, NO_COLUMN)
        self._sequence_column: int = self.layout.slices.get("action_sequence", absent).start
        self._termination_column: int = self.layout.slices.get("termination", absent).start
        self._masked_columns = self.layout.columns_of(mask)
        self._representation = np.zeros((self.num_envs, self.layout.size), np.float32)
        self._root_value = np.zeros(self.num_envs)
        self._max_return = np.zeros(self.num_envs)

        self._first_seed = seed
        self._step = 0  # k of Algorithm 1; 0 before the first reset
        self._stage = 0
        self._observation = np.zeros(0)
        self._last_action = np.zeros(0, np.int64)
        self._episodes = EpisodeTracker(
            self.num_envs,
            envs.metadata.get("success", DEFAULT_SUCCESS),
            reported_reward=envs.metadata.get("reported_reward"),
            unfinished=envs.metadata.get("unfinished"),
        )
        self._last_transition: RealTransition | None = None

        self.single_action_space = spaces.MultiDiscrete([self.num_actions, 2])
        self.single_observation_space = spaces.Dict({key: self._space_of(key) for key in self.observe})
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)

    # ------------------------------------------------------------------------------------------ Algorithm 1

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start new episodes in all environments; ``seed`` and ``options`` are passed to the real environments."""
        if self.closed:
            raise ClosedEnvironmentError("this ThinkerEnv has been closed; create a new one")
        seed, self._first_seed = self._first_seed if seed is None else seed, None
        self._observation, info = self._real.reset(seed, options)
        self._last_transition = None
        if self.sink is not None:
            self.sink.abandon_episodes()
        search.clear(self._tree, self._every_env)
        self._episodes.reset()
        self._step = 1
        self._plant_roots(np.full(self.num_envs, NO_ACTION))
        return self._observations(), {**info, **self._info(REAL, np.zeros(self.num_envs, np.float32))}

    def step(
        self,
        actions: np.ndarray | Tensor,
        policy: np.ndarray | Tensor | None = None,
        root_value: np.ndarray | Tensor | None = None,
    ) -> tuple[dict[str, Any], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take one augmented step with ``actions`` [E, 2].

        ``policy`` [E, A], if given on a real step, is the distribution that the real actions were sampled from; the
        base policy is trained on it instead of on the sampled action. ``root_value`` [E], if given on a real step,
        replaces the root's mean return as the bootstrap of value targets, for actors with a search of their own.
        """
        if self.closed:
            raise ClosedEnvironmentError("this ThinkerEnv has been closed; create a new one")
        if self._step == 0:
            raise ResetNeeded("call reset() before the first step()")
        pairs = checked_actions(actions, self.num_envs, self.num_actions)
        if self._step == self.stage_length:
            return self._real_step(pairs, *checked_targets(policy, root_value, self.num_envs, self.num_actions))
        return self._imaginary_step(pairs)

    def _imaginary_step(self, actions: np.ndarray) -> tuple[dict, np.ndarray, np.ndarray, np.ndarray, dict]:
        tree, pending = self._tree, self._pending
        self._step += 1
        count = search.move(tree, pending, actions, self._stage, self.discount, self.stage_length)
        if count:
            value, policy, reward, termination = self._nodes.unroll(pending, count)
            wrong = search.receive(tree, pending, count, reward, value, policy, termination, self.discount)
            if wrong != search.NOTHING_WRONG:
                raise not_finite("unroll", pending.environment[wrong])
        search.arrive(tree, actions, self._forced_reset_depth, self._powers)

        max_return_before = self._max_return.copy()
        self._represent()
        planning_reward = (self._max_return - max_return_before).astype(np.float32)
        nothing_ended = np.zeros(self.num_envs, bool)
        info = self._info(IMAGINARY, planning_reward)
        return self._observations(), np.zeros(self.num_envs), nothing_ended, nothing_ended.copy(), info

    def _real_step(
        self, actions: np.ndarray, policy: np.ndarray | None, root_value: np.ndarray | None
    ) -> tuple[dict, np.ndarray, np.ndarray, np.ndarray, dict]:
        self._step = 1
        observation, action = self._observation, actions[:, 0].copy()
        root_value = self._root_value.astype(np.float32) if root_value is None else root_value
        real = self._real.step(action)
        ended = real.terminated | real.truncated
        info = dict(real.info)
        search.carry(self._tree, actions, self.carry_tree, self._new_index)

        # Final states of episodes: what the agent would have seen if the episode had continued. Truncated episodes are
        # bootstrapped from it; none of it is carried into the next episode.
        final_value = np.zeros(self.num_envs, np.float32)
        now_ended = real.now_terminated | real.now_truncated
        last = np.flatnonzero(ended | now_ended)
        if len(last):
            final_value[last], final_observations = self._final(last, real.final_observation[last], action[last])
            self._add_final_info(info, last, final_observations, ended)
            search.clear(self._tree, np.flatnonzero(ended))
        self._episodes.count(info, real, ended, now_ended)

        self._observation = real.observation
        self._push(
            RealTransition(
                observation=observation,
                action=action,
                policy=policy,
                root_value=root_value,
                reward=real.reward.astype(np.float32),
                terminated=real.now_terminated.copy(),
                truncated=real.now_truncated.copy(),
                next_observation=real.final_observation,
                final_value=np.where(now_ended, final_value, np.float32(0)),
                valid=real.happened,
            )
        )
        self._plant_roots(np.where(ended, NO_ACTION, action))
        info |= self._info(REAL, np.zeros(self.num_envs, np.float32))
        return self._observations(), real.reward, real.terminated, real.truncated, info

    def _push(self, transition: RealTransition) -> None:
        self._last_transition = transition
        if self.sink is not None:
            self.sink.add(transition)

    def refresh(self) -> dict[str, Any]:
        """At the start of a stage, evaluate the roots again and return the new observations.

        For a model whose weights have changed since the last real step.
        """
        if self._step != 1:
            raise RuntimeError(f"refresh() can be called only at the start of a stage, not after step {self._step}")
        self._plant_roots(self._last_action)
        return self._observations()

    # ---------------------------------------------------------------------------------------- roots and outputs

    def _plant_roots(self, last_action: np.ndarray) -> None:
        """Start a stage in every environment at its real observation."""
        self._last_action = last_action
        self._stage += 1
        value, policy, _, _ = self._nodes.plant(self._observation, last_action)
        self._plant(self._every_env, value, policy)

    def _final(
        self, which: np.ndarray, observation: np.ndarray, last_action: np.ndarray
    ) -> tuple[np.ndarray, list[dict[str, Any]]]:
        """Root values and augmented observations [n] of the final states of the environments ``which`` [n]."""
        (value, policy, _, _), hidden, state = self._nodes.evaluate(observation, last_action)
        self._plant(which, value, policy)
        seen: dict[str, Tensor] = {}
        for key in self.observe:
            if key == "tree":
                seen[key] = self._nodes.to_device(self._representation[which])
            elif key in ("hidden", "root_hidden"):
                seen[key] = hidden
            elif key == "real_state":
                seen[key] = self._nodes.to_device(observation)
            else:
                seen[key] = self._nodes.state_of(state)
        batch = self._as_output(seen)
        rows = [{key: value[i] for key, value in batch.items()} for i in range(len(which))]
        return self._root_value[which].astype(np.float32), rows

    def _plant(self, which: np.ndarray, value: np.ndarray, policy: np.ndarray) -> None:
        wrong = search.plant(self._tree, which, value, policy, self._stage, self.discount, self.stage_length)
        if wrong != search.NOTHING_WRONG:
            raise not_finite("root", which[wrong])
        self._represent()

    def _represent(self) -> None:
        represent(
            self._tree,
            self._step,
            self.stage_length,
            self._powers,
            self._sequence_column,
            self._termination_column,
            self._representation,
            self._root_value,
            self._max_return,
        )
        if len(self._masked_columns):
            self._representation[:, self._masked_columns] = 0.0

    def _observations(self) -> dict[str, Any]:
        nodes, tree = self._nodes, self._tree
        seen: dict[str, Tensor] = {}
        for key in self.observe:
            if key == "tree":
                representation = nodes.to_device(self._representation)
                seen[key] = representation.clone() if self.copy else representation
            elif key == "hidden":
                seen[key] = nodes.hidden(tree.row[self._every_env, tree.current])
            elif key == "root_hidden":
                seen[key] = nodes.hidden(nodes.root_rows)
            elif key == "real_state":
                seen[key] = nodes.to_device(self._observation.copy())
            else:
                seen[key] = nodes.states(tree.state_row[self._every_env, tree.current])
        return self._as_output(seen)

    def _info(self, kind: int, planning_reward: np.ndarray) -> dict[str, Any]:
        return {
            "step_kind": np.full(self.num_envs, kind),
            "next_is_real": np.full(self.num_envs, self._step == self.stage_length),
            "planning_reward": planning_reward,
            "root_value": self._root_value.astype(np.float32),
            "depth": self._tree.depth.copy(),
        }

    def _add_final_info(
        self, info: dict[str, Any], last: np.ndarray, observations: list[dict[str, Any]], ended: np.ndarray
    ) -> None:
        final = np.full(self.num_envs, None, dtype=object)
        for environment, observation in zip(last, observations):
            if ended[environment]:
                final[environment] = observation
        info["final_obs"], info["_final_obs"] = final, ended.copy()

    # ---------------------------------------------------------------------------------------------- exact resume

    def state_dict(self) -> dict[str, Any]:
        """Trees, hidden states and counters: everything except the real environments and the model.

        Nested dicts of arrays, tensors and numbers. They are not copies: copy or save them before the next step.
        """
        return {
            "tree": self._tree._asdict(),
            "nodes": self._nodes.state_dict(),
            "real": self._real.state_dict(),
            "step": self._step,
            "stage": self._stage,
            "observation": self._observation,
            "last_action": self._last_action,
            "episodes": self._episodes.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state``, saved by an environment with the same arguments.

        Restore the real environments before this call: the model is asked for the roots again, since a simulator keeps
        nodes of its own.
        """
        self._observation, self._last_action = np.array(state["observation"]), np.array(state["last_action"])
        if state["nodes"]["hidden"] is not None:
            self._nodes.plant(self._observation, self._last_action)
        for name, array in state["tree"].items():
            getattr(self._tree, name)[...] = array
        self._nodes.load_state_dict(state["nodes"])
        self._last_transition = None
        self._real.load_state_dict(state["real"])
        self._step, self._stage = int(state["step"]), int(state["stage"])
        self._episodes.load_state_dict(state["episodes"])
        self._represent()

    # -------------------------------------------------------------------------------------- properties and helpers

    @property
    def model(self) -> WorldModel:
        """The world model that the agent searches."""
        return self._nodes.model

    @model.setter
    def model(self, model: WorldModel) -> None:
        self._nodes.model = model

    @property
    def device(self) -> torch.device:
        """The device of the observations."""
        return self._nodes.device

    @property
    def real_observation(self) -> np.ndarray:
        """The real states [E, *observation_shape] at the start of this stage."""
        return self._observation.copy()

    @property
    def root_output(self) -> NodeOutput:
        """What the model predicts for these states, for planners with search trees of their own."""
        return self._nodes.root_output

    @property
    def last_transition(self) -> RealTransition | None:
        """The last real step of all environments; None right after a reset."""
        return self._last_transition

    def search_tree(self) -> TreeView:
        """The search trees as they are now, read-only."""
        if self._step == 0:
            raise ResetNeeded("call reset() before search_tree()")
        return TreeView(self._tree, self._state_at)

    def _state_at(self, environment: int, node: int) -> np.ndarray | None:
        if node == search.ROOT:
            state: np.ndarray = self._observation[environment].copy()
            return state
        if self._tree.stage[environment, node] != self._stage:
            return None
        return self._nodes.kept_state(int(self._tree.state_row[environment, node]))

    def decode(self, tree: Any) -> dict[str, Any]:
        """Split a tree representation [..., size] of this environment into its named parts."""
        return self.layout.decode(tree)

    def render(self) -> tuple[Any, ...] | None:
        """Render the real environments."""
        return self.envs.render()

    def close_extras(self, **kwargs: Any) -> None:
        """Close the real environments."""
        self.envs.close(**kwargs)

    def _space_of(self, key: str) -> spaces.Box:
        if key == "tree":
            return spaces.Box(-np.inf, np.inf, (self.layout.size,), np.float32)
        if key in ("real_state", "predicted_state"):
            return self._real.observation_space
        return spaces.Box(-np.inf, np.inf, self._nodes.visible_shape, np.float32)

    def _as_output(self, seen: dict[str, Tensor]) -> dict[str, Any]:
        return seen if self.output == "torch" else {key: value.cpu().numpy() for key, value in seen.items()}
