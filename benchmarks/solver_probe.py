"""Parts of `benchmarks.limits`: world models with the solver's values, or compared with the real rules at every node;
uniform search; and the recording of held-out play.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from thinker.augmented import ROOT, ThinkerEnv
from thinker.augmented.tree import NO_NODE
from thinker.envs.sokoban import engine
from thinker.envs.sokoban.solver import Solutions, level_keys
from thinker.envs.sokoban.vector_env import SokobanVectorEnv
from thinker.errors import UserError
from thinker.interfaces import NO_ACTION, Actor, Decision, NodeOutput, WorldModel

HORIZON = 5
"""Boards are compared after one step and after this many."""
Numbers = dict[str, float]


def to_boards(observation: np.ndarray | Tensor) -> np.ndarray:
    """Tile codes uint8 [B, H, W] of one-hot planes [B, 7, H, W]."""
    planes = observation.detach().float().cpu().numpy() if isinstance(observation, Tensor) else observation
    return planes.argmax(1).astype(np.uint8)


def to_planes(boards: np.ndarray) -> np.ndarray:
    """One-hot planes uint8 [B, 7, H, W] of tile codes [B, H, W]."""
    return (boards[:, None] == np.arange(engine.NUM_TILES)[:, None, None]).astype(np.uint8)


def roots(model: WorldModel, boards: np.ndarray, last_action: np.ndarray) -> NodeOutput:
    """The model's roots at real boards [B, H, W]."""
    device = getattr(model, "device", torch.device("cpu"))
    observation, action = torch.from_numpy(to_planes(boards)), torch.from_numpy(last_action)
    with torch.no_grad():
        return model.root(observation.to(device), action.to(device))


def predicted(output: NodeOutput) -> np.ndarray:
    """The predicted boards [B, H, W]."""
    if output.state is None:
        raise UserError("this run's model predicts no states; only models that do can be compared with the solver")
    return to_boards(output.state)


def has_one_player(boards: np.ndarray) -> np.ndarray:
    """Whether there is exactly one player on each of the boards [B, H, W]."""
    return np.asarray((boards >= engine.PLAYER).sum((1, 2)) == 1)


def _boxes(boards: np.ndarray) -> np.ndarray:
    return np.asarray((boards == engine.BOX) | (boards == engine.BOX_ON_TARGET))


class Wrapper:
    """A world model around another one; subclasses change what it predicts."""

    def __init__(self, model: WorldModel) -> None:
        self.inner = model
        self.num_actions = model.num_actions
        for name in ("device", "hidden_shape"):
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))

    def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
        """See `WorldModel`."""
        return self.inner.root(observation, last_action)

    def unroll(self, hidden: Tensor, action: Tensor) -> NodeOutput:
        """See `WorldModel`."""
        return self.inner.unroll(hidden, action)

    def visible_hidden(self, hidden: Tensor) -> Tensor:
        """See `WorldModel`."""
        choose = getattr(self.inner, "visible_hidden", None)
        visible: Tensor = hidden if choose is None else choose(hidden)
        return visible


class WithSolverValues(Wrapper):
    """A world model whose values are the solver's, of the boards that it predicts."""

    def __init__(self, model: WorldModel, solutions: Solutions) -> None:
        super().__init__(model)
        self._solutions = solutions
        self._levels: set[bytes] = set()  # those of the real boards

    def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
        """See `WorldModel`."""
        output, boards = self.inner.root(observation, last_action), to_boards(observation)
        self._levels |= set(level_keys(boards))
        return replace(output, value=self._values(boards).to(output.value))

    def unroll(self, hidden: Tensor, action: Tensor) -> NodeOutput:
        """See `WorldModel`."""
        output = self.inner.unroll(hidden, action)
        return replace(output, value=self._values(predicted(output)).to(output.value))

    def _values(self, boards: np.ndarray) -> Tensor:
        values = np.full(len(boards), self._solutions.unsolvable_value)
        known = np.array([key in self._levels for key in level_keys(boards)])
        whole = known & has_one_player(boards)
        if whole.any():
            values[whole] = np.nan_to_num(self._solutions.values(boards[whole]), nan=self._solutions.unsolvable_value)
        return torch.from_numpy(values)


class Accuracy:
    """Counts how well a model predicts steps whose true results are known."""

    def __init__(self) -> None:
        self._right, self._boards = np.zeros(HORIZON + 1, np.int64), np.zeros(HORIZON + 1, np.int64)
        self._right_pushes, self._pushes = 0, 0
        self._reward_error, self._steps = 0.0, 0
        self._missed, self._ends, self._false, self._broken = 0, 0, 0, 0

    def add(
        self,
        output: NodeOutput,
        before: np.ndarray,
        board: np.ndarray,
        reward: np.ndarray,
        ended: np.ndarray,
        depth: np.ndarray,
    ) -> None:
        """Compare predictions with the truth.

        Args:
            output: the model's nodes [B]
            before: the true boards [B, H, W] from which the nodes' actions were taken
            board: those after the actions; any boards where an episode ended
            reward: [B]
            ended: [B] bool
            depth: steps from the root [B], 1 for its children
        """
        imagined = predicted(output)
        right = (imagined == board).all((1, 2))
        same_level = np.array([mine == real for mine, real in zip(level_keys(imagined), level_keys(board))])
        for steps in (1, HORIZON):
            going_on = (depth == steps) & ~ended
            self._right[steps] += (right & going_on).sum()
            self._boards[steps] += going_on.sum()
        pushes = (_boxes(before) != _boxes(board)).any((1, 2)) & (depth == 1) & ~ended
        self._right_pushes += int((right & pushes).sum())
        self._pushes += int(pushes.sum())
        self._reward_error += float(np.abs(output.reward.float().cpu().numpy() - reward).sum())
        ends = (output.termination > 0.5).cpu().numpy()
        self._steps += len(ended)
        self._ends += int(ended.sum())
        self._missed += int((ended & ~ends).sum())
        self._false += int((ends & ~ended).sum())
        self._broken += int((~(same_level & has_one_player(imagined)) & ~ended).sum())

    def numbers(self) -> Numbers:
        """All numbers; NaN where nothing was to be compared."""
        return {
            "steps": self._steps,
            "exact_1": share(self._right[1], self._boards[1]),
            "exact_push": share(self._right_pushes, self._pushes),
            f"exact_{HORIZON}": share(self._right[HORIZON], self._boards[HORIZON]),
            "broken": share(self._broken, self._steps - self._ends),
            "reward_error": share(self._reward_error, self._steps),
            "missed_ends": share(self._missed, self._ends),
            "false_ends": share(self._false, self._steps - self._ends),
        }


class Shadowed(Wrapper):
    """A world model whose hidden states carry the true board along, to compare every imagined node with it.

    A hidden state is a flat row: the model's own, then the true board, its depth, and whether its episode has ended.
    Boards that idle because no held-out level is left for them are not compared.
    """

    def __init__(self, model: WorldModel, envs: SokobanVectorEnv) -> None:
        super().__init__(model)
        self._envs = envs
        self.accuracy = Accuracy()
        self._shape: torch.Size | None = None

    def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
        """See `WorldModel`."""
        output, boards = self.inner.root(observation, last_action), to_boards(observation)
        self._shape = output.hidden.shape[1:]
        over = self._envs.snapshot()["status"] != engine.RUNNING
        if len(over) != len(boards):  # final observations, which are never unrolled
            over = np.ones(len(boards), np.bool_)
        return replace(output, hidden=self._row(output.hidden, boards, np.zeros(len(boards), np.int64), over))

    def unroll(self, hidden: Tensor, action: Tensor) -> NodeOutput:
        """See `WorldModel`."""
        own = self._own(hidden)
        output = self.inner.unroll(own, action)
        height, width = predicted(output).shape[1:]
        extra = hidden[:, own[0].numel() :].cpu().numpy().astype(np.int64)
        before, depth, over = extra[:, :-2].astype(np.uint8).reshape(-1, height, width), extra[:, -2] + 1, extra[:, -1]
        boards = before.copy()
        reward, solved = np.empty(len(boards)), np.empty(len(boards), np.bool_)
        engine.step_boards(boards, action.cpu().numpy(), reward, solved)
        alive = over == 0
        if alive.any():
            kept = chosen_rows(output, np.flatnonzero(alive))
            self.accuracy.add(kept, before[alive], boards[alive], reward[alive], solved[alive], depth[alive])
        return replace(output, hidden=self._row(output.hidden, boards, depth, over | solved))

    def visible_hidden(self, hidden: Tensor) -> Tensor:
        """See `WorldModel`."""
        return super().visible_hidden(self._own(hidden))

    def _own(self, hidden: Tensor) -> Tensor:
        if self._shape is None:
            raise RuntimeError("call root() first")
        return hidden[:, : self._shape.numel()].reshape(-1, *self._shape).contiguous()

    def _row(self, hidden: Tensor, boards: np.ndarray, depth: np.ndarray, over: np.ndarray) -> Tensor:
        extra = torch.from_numpy(np.c_[boards.reshape(len(boards), -1), depth, over])
        return torch.cat((hidden.flatten(1), extra.to(hidden)), 1)


def chosen_rows(output: NodeOutput, rows: np.ndarray) -> NodeOutput:
    """The nodes at ``rows`` [n]."""
    index = torch.from_numpy(rows).to(output.value.device)
    return NodeOutput(
        hidden=output.hidden[index],
        value=output.value[index],
        policy=output.policy[index],
        reward=output.reward[index],
        termination=output.termination[index],
        state=None if output.state is None else output.state[index],
    )


def share(part: float, whole: float) -> float:
    """``part`` of ``whole``; NaN of nothing."""
    return float(part / whole) if whole else float("nan")


# -------------------------------------------------------------------------------------------------------------- play


class UniformSearch:
    """Draws imaginary actions uniformly; the real one is that with the highest max return, ties at random."""

    def __init__(self, env: ThinkerEnv, seed: int) -> None:
        self._env = env
        self._random = np.random.default_rng(seed)
        self._next_is_real = False

    def begin(self, observation: dict[str, Tensor], info: dict[str, Any]) -> None:
        """See `Actor`."""
        self._next_is_real = bool(info["next_is_real"].all())

    def act(self) -> Decision:
        """See `Actor`."""
        count, num_actions = self._env.num_envs, self._env.num_actions
        action = self._random.integers(0, num_actions, count)
        if self._next_is_real:
            tree = self._env.search_tree()
            children = tree.children[:, ROOT]
            returns = tree.max_return[np.arange(count)[:, None], np.maximum(children, 0)]
            returns = np.where(children == NO_NODE, -np.inf, returns)
            best = returns == returns.max(1, keepdims=True)
            action = np.where(best, self._random.random(best.shape), -1.0).argmax(1)
        return Decision(torch.from_numpy(np.stack((action, np.zeros_like(action)), 1)))

    def observe(self, decision: Decision, observation: dict[str, Tensor], *results: Any) -> None:
        """See `Actor`."""
        self.begin(observation, results[-1])

    def refresh(self, observation: dict[str, Tensor]) -> None:
        """See `Actor`."""

    def state_dict(self) -> dict[str, Any]:
        """See `Actor`."""
        return {"generator": self._random.bit_generator.state, "next_is_real": self._next_is_real}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Actor`."""
        self._random.bit_generator.state = state["generator"]
        self._next_is_real = state["next_is_real"]


@dataclass(frozen=True)
class Played:
    """T real steps, one episode after another."""

    board: np.ndarray  # [T, H, W] uint8
    last_action: np.ndarray  # [T] int64
    chosen: np.ndarray  # [T] int64   the actor's action
    action: np.ndarray  # [T] int64   the action taken: the same, unless the actor is led along solutions
    reward: np.ndarray  # [T] float64
    terminated: np.ndarray  # [T] bool
    episode: np.ndarray  # [T] int64
    solved: np.ndarray  # [episodes] bool


def play(env: ThinkerEnv, actor: Actor, episodes: int, lead: Solutions | None = None) -> Played:
    """Let ``actor`` play held-out ``episodes``. With ``lead``, every real step follows a shortest solution instead."""
    playing = np.arange(env.num_envs)
    last_action, solved = np.full(env.num_envs, NO_ACTION), np.zeros(episodes, bool)
    rows: list[tuple[np.ndarray, ...]] = []
    observation, info = env.reset()
    actor.begin(observation, info)
    while (playing < episodes).any():
        decision, is_real = actor.act(), bool(info["next_is_real"].all())
        chosen, boards = decision.actions[:, 0].cpu().numpy().copy(), to_boards(env.real_observation)
        action = chosen
        if is_real and lead is not None:
            action = lead.best_actions(boards)
            primary = torch.from_numpy(action).to(decision.actions)
            decision = replace(decision, actions=torch.stack((primary, decision.actions[:, 1]), 1))
        observation, reward, terminated, truncated, info = env.step(decision.actions)
        actor.observe(decision, observation, reward, terminated, truncated, info)
        if not is_real:
            continue
        on = playing < episodes
        columns = boards, last_action, chosen, action, reward, terminated, playing
        rows.append(tuple(column[on] for column in columns))  # a selection by a mask is a copy
        ended = terminated | truncated
        solved[playing[on & terminated]] = True
        playing = playing + ended * env.num_envs
        last_action = np.where(ended, NO_ACTION, action)
    steps = [np.concatenate(column) for column in zip(*rows)]
    order = np.argsort(steps[-1], kind="stable")
    return Played(*[column[order] for column in steps] + [solved])
