"""The world model of a run: one small dataclass for each type of model, with a `build` method.

A built model works with any number of environments: `BuiltModel.for_envs` returns the model for the training
environments as well as for those of an evaluation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, get_args

import torch
from gymnasium import Space, spaces
from gymnasium.vector import VectorEnv
from tyro.constructors import PrimitiveConstructorSpec

from thinker.errors import UnsupportedError, UserError
from thinker.interfaces import BoardStructure, WorldModel
from thinker.nn.sizes import SIZES, ImageSize, ModelSize, bounds_of, channels_come_last, named_size, size_for
from thinker.nn.symmetry import BoardSymmetries
from thinker.world_model.acting import ActingCopy, ActingModel, ActingValues, Network, Precision
from thinker.world_model.board import BoardNetwork, BoardStateLoss
from thinker.world_model.board_model import BoardModel
from thinker.world_model.build import (
    ValueNetwork,
    ValueNetworkName,
    build_board,
    build_dual,
    build_single,
    build_value_policy,
)
from thinker.world_model.heads import CategoricalHead, Head, HeadName, ScalarHead
from thinker.world_model.network import LearnedModel, SingleStateLoss, StateLoss
from thinker.world_model.no_model import NoModel
from thinker.world_model.replay import Replay
from thinker.world_model.simulator import simulator
from thinker.world_model.trainer import ModelTrainer, TrainerSettings

Augmentation = Literal["none", "symmetries"]
"""Changes of the training data that leave the MDP as it is."""


class BuiltModel(ABC):
    """A world model, ready to use, and its trainer if it is learned."""

    trainer: ModelTrainer | None  # None if nothing is learned

    @abstractmethod
    def for_envs(self, envs: VectorEnv, *, predict_states: bool = False) -> WorldModel:
        """The model for ``envs``, which must have the spaces that it was built for.

        All returned models share the weights that the trainer publishes. Without ``predict_states`` learned models omit
        the ``NodeOutput.state`` of imagined nodes.
        """


class BuiltLearnedModel(BuiltModel):
    """A built world model that is learned."""

    trainer: ModelTrainer


@dataclass(frozen=True)
class ModelContext:
    """What a model is built for."""

    observation_space: Space  # of a single environment, not of the vector environment
    action_space: Space  # likewise
    num_envs: int  # real environments whose transitions the trainer receives
    discount: float  # γ of the real MDP
    total_transitions: int | None  # real transitions of the whole run, over which the trainer anneals; None: constant
    seed: int  # of the weights and of what is drawn from the replay; the same weights on every device
    device: torch.device  # where the networks compute
    board: BoardStructure | None = None  # what the environment declares about its boards, if anything


class ModelSpec(ABC):
    """The world model that the agent searches."""

    @property
    @abstractmethod
    def predicts_states(self) -> bool:
        """Whether the model can predict the states of imagined nodes."""

    @abstractmethod
    def build(self, context: ModelContext) -> BuiltModel:
        """Build the model with new weights."""


def _size_from_words(words: list[str]) -> str | None:
    if words[0] == "None":
        return None
    named_size(words[0])
    return words[0]


SizeOption = Annotated[
    str | ModelSize | None,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="|".join(("None", *SIZES)),
        instance_from_str=_size_from_words,
        is_instance=lambda size: size is None or isinstance(size, str | ModelSize),
        str_from_instance=lambda size: [str(size)],
    ),
]
"""A size: a name (the only way on the command line), a custom size, or None for the one that fits the observations."""


@dataclass(frozen=True, kw_only=True)
class LearnedSpec(ModelSpec, Generic[Network]):
    """The settings that all learned models share."""

    size: SizeOption = None  # size of the networks; None: chosen from the observation space
    precision: Precision = "auto"  # precision while acting; auto: bfloat16 where the hardware supports it natively
    replay_capacity: int = 200_000  # capacity of the replay, in real transitions
    augmentation: Augmentation = "none"  # symmetries: train on turned and mirrored boards as well
    value_head: HeadName = "scalar"  # how values and rewards are predicted; categorical: as distributions over bins
    support_size: int = 601  # categorical: number of bins, odd
    support_limit: float = 300.0  # categorical: bins from minus this to this, of h(x) = sign(x)(√(|x|+1)-1) + 0.001 x
    training: TrainerSettings = field(default_factory=TrainerSettings)

    def __post_init__(self) -> None:
        if isinstance(self.size, str):
            named_size(self.size)
        if self.value_head not in get_args(HeadName):
            raise UserError(f"value_head={self.value_head!r}: must be one of {', '.join(get_args(HeadName))}")
        self.head()

    def head(self) -> Head:
        """A new head for values and rewards."""
        return ScalarHead() if self.value_head == "scalar" else CategoricalHead(self.support_size, self.support_limit)

    def build(self, context: ModelContext) -> BuiltLearnedModel:
        observation_space, training = context.observation_space, self.training
        network = self._network(
            observation_space,
            num_actions_of(context.action_space),
            board=context.board,
            head=self.head(),
            seed=context.seed,
            device=context.device,
        )
        acting = ActingCopy(network, self.precision)
        replay = Replay(
            self.replay_capacity,
            num_envs=context.num_envs,
            observation_space=observation_space,
            num_actions=network.num_actions,
            discount=context.discount,
            unroll_length=training.unroll_length,
            return_length=training.return_length,
            priority_exponent=training.priority_exponent,
            frame_stack=_frame_stack(observation_space, size_for(observation_space, self.size)),
            seed=context.seed,
        )
        trainer = ModelTrainer(
            network,
            replay,
            training,
            context.total_transitions,
            acting=(acting,),
            symmetries=self._symmetries(context, network),
            seed=context.seed,
        )
        return self._built(acting, trainer)

    def _symmetries(self, context: ModelContext, network: Network) -> BoardSymmetries | None:
        if self.augmentation == "none":
            return None
        return BoardSymmetries(context.board, network.num_actions, network.codec.channels_last)

    @abstractmethod
    def _network(self, observation_space: Space, num_actions: int, **options: Any) -> Network:
        """The network with new weights; ``options``: board, head, seed and device, see `thinker.world_model.build`."""

    @abstractmethod
    def _built(self, acting: ActingCopy[Network], trainer: ModelTrainer) -> BuiltLearnedModel:
        """The built model around the network."""


@dataclass(frozen=True)
class DualModelSpec(LearnedSpec[LearnedModel]):
    """The paper's dual network, learned from the agent's real transitions."""

    state_loss: StateLoss = "feature"  # loss of the predicted states; the paper uses feature

    @property
    def predicts_states(self) -> bool:
        return self.state_loss != "none"

    def _network(self, observation_space: Space, num_actions: int, **options: Any) -> LearnedModel:
        return build_dual(observation_space, num_actions, state_loss=self.state_loss, size=self.size, **options)

    def _built(self, acting: ActingCopy[LearnedModel], trainer: ModelTrainer) -> BuiltLearnedModel:
        return _BuiltNetwork(acting, trainer)


@dataclass(frozen=True)
class SingleModelSpec(LearnedSpec[LearnedModel]):
    """One network for everything, an ablation of the paper; without a state loss it is MuZero's model."""

    state_loss: SingleStateLoss = "l2"  # loss of the predicted states; none: no states are predicted

    @property
    def predicts_states(self) -> bool:
        return self.state_loss != "none"

    def _network(self, observation_space: Space, num_actions: int, **options: Any) -> LearnedModel:
        return build_single(observation_space, num_actions, state_loss=self.state_loss, size=self.size, **options)

    def _built(self, acting: ActingCopy[LearnedModel], trainer: ModelTrainer) -> BuiltLearnedModel:
        return _BuiltNetwork(acting, trainer)


@dataclass(frozen=True)
class BoardModelSpec(LearnedSpec[BoardNetwork]):
    """A dual network without memory, for boards that contain the whole state: much faster than the paper's."""

    size: SizeOption = "board"  # size of the networks
    state_loss: BoardStateLoss = "cross-entropy"  # loss of the predicted boards

    @property
    def predicts_states(self) -> bool:
        return True

    def _network(self, observation_space: Space, num_actions: int, **options: Any) -> BoardNetwork:
        return build_board(observation_space, num_actions, state_loss=self.state_loss, size=self.size, **options)

    def _built(self, acting: ActingCopy[BoardNetwork], trainer: ModelTrainer) -> BuiltLearnedModel:
        return _BuiltBoards(acting, trainer)


@dataclass(frozen=True)
class LearnedValuesSimulatorSpec(LearnedSpec[ValueNetwork]):
    """The real dynamics as a perfect model, with a learned base policy and value."""

    network: ValueNetworkName = "dual"  # whose value-policy half it is; board: for boards that contain the whole state

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.network not in get_args(ValueNetworkName):
            raise UserError(f"network={self.network!r}: must be one of {', '.join(get_args(ValueNetworkName))}")

    @property
    def predicts_states(self) -> bool:
        return True

    def _network(self, observation_space: Space, num_actions: int, **options: Any) -> ValueNetwork:
        return build_value_policy(observation_space, num_actions, network=self.network, size=self.size, **options)

    def _built(self, acting: ActingCopy[ValueNetwork], trainer: ModelTrainer) -> BuiltLearnedModel:
        return _BuiltLearnedValues(acting, trainer)


@dataclass(frozen=True)
class SimulatorSpec(ModelSpec):
    """The real dynamics as a perfect model, with a uniform base policy and values of 0: nothing is learned."""

    @property
    def predicts_states(self) -> bool:
        return True

    def build(self, context: ModelContext) -> BuiltModel:
        return _BuiltSimulator()


@dataclass(frozen=True)
class NoModelSpec(ModelSpec):
    """No model: the raw MDP, without search. Stages must be one step long."""

    @property
    def predicts_states(self) -> bool:
        return False

    def build(self, context: ModelContext) -> BuiltModel:
        return _BuiltNothing(NoModel(num_actions_of(context.action_space), context.device))


class _BuiltNetwork(BuiltLearnedModel):
    def __init__(self, acting: ActingCopy[LearnedModel], trainer: ModelTrainer) -> None:
        self.trainer = trainer
        self._acting = acting

    def for_envs(self, envs: VectorEnv, *, predict_states: bool = False) -> ActingModel:
        return ActingModel(self._acting, predict_states=predict_states)


class _BuiltBoards(BuiltLearnedModel):
    def __init__(self, acting: ActingCopy[BoardNetwork], trainer: ModelTrainer) -> None:
        self.trainer = trainer
        self._acting = acting

    def for_envs(self, envs: VectorEnv, *, predict_states: bool = False) -> BoardModel:
        return BoardModel(self._acting, predict_states=predict_states)


class _BuiltLearnedValues(BuiltLearnedModel):
    def __init__(self, acting: ActingCopy[ValueNetwork], trainer: ModelTrainer) -> None:
        self.trainer = trainer
        self._values = ActingValues(acting)

    def for_envs(self, envs: VectorEnv, *, predict_states: bool = False) -> WorldModel:
        return simulator(envs, self._values)


class _BuiltSimulator(BuiltModel):
    trainer = None

    def for_envs(self, envs: VectorEnv, *, predict_states: bool = False) -> WorldModel:
        return simulator(envs)


class _BuiltNothing(BuiltModel):
    trainer = None

    def __init__(self, model: NoModel) -> None:
        self._model = model

    def for_envs(self, envs: VectorEnv, *, predict_states: bool = False) -> NoModel:
        return self._model


def num_actions_of(space: Space) -> int:
    """A of a Discrete action space; raises an error for others."""
    if not isinstance(space, spaces.Discrete):
        raise UnsupportedError(f"a world model needs a Discrete action space, not {space}; discretise with a wrapper")
    return int(space.n)


def _frame_stack(space: Space, size: ModelSize) -> int:
    """The number of stacked frames that the replay can separate: they must be contiguous in memory."""
    if not isinstance(size, ImageSize) or channels_come_last(bounds_of(space)[0].shape):
        return 1
    return size.stacked_frames
