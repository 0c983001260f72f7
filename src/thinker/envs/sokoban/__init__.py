"""Sokoban: engine, levels, generator, solver, pictures and two Gymnasium environments (the paper's section 5.1)."""

from thinker.envs.sokoban.engine import observe_boards, step_boards
from thinker.envs.sokoban.env import SokobanEnv
from thinker.envs.sokoban.generator import generate_levels
from thinker.envs.sokoban.levels import LevelError, LevelSet
from thinker.envs.sokoban.rendering import observation_sprites, render_board
from thinker.envs.sokoban.vector_env import SokobanVectorEnv

__all__ = [
    "LevelError",
    "LevelSet",
    "SokobanEnv",
    "SokobanVectorEnv",
    "generate_levels",
    "observation_sprites",
    "observe_boards",
    "render_board",
    "step_boards",
]
