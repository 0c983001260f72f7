"""World models, their training, and the perfect simulator (the paper's section 4.4)."""

from thinker.world_model.frozen import FrozenValuesSimulatorSpec
from thinker.world_model.simulator import simulator
from thinker.world_model.spec import (
    BoardModelSpec,
    BuiltLearnedModel,
    BuiltModel,
    DualModelSpec,
    LearnedValuesSimulatorSpec,
    ModelContext,
    ModelSpec,
    NoModelSpec,
    SimulatorSpec,
    SingleModelSpec,
)
from thinker.world_model.trainer import ModelDivergedError, ModelTrainer, TrainerSettings

__all__ = [
    "BoardModelSpec",
    "BuiltLearnedModel",
    "BuiltModel",
    "DualModelSpec",
    "FrozenValuesSimulatorSpec",
    "LearnedValuesSimulatorSpec",
    "ModelContext",
    "ModelDivergedError",
    "ModelSpec",
    "ModelTrainer",
    "NoModelSpec",
    "SimulatorSpec",
    "SingleModelSpec",
    "TrainerSettings",
    "simulator",
]
