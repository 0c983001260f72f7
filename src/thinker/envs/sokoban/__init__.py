"""Sokoban (the paper's section 5.1): rules, levels, generator, solver, rendering, environments, simulator.

Importing this package does not import PyTorch; the simulator in `thinker.envs.sokoban.simulator` does.
"""

from thinker.envs.sokoban.engine import draw_boards, step_boards
from thinker.envs.sokoban.env import SokobanEnv
from thinker.envs.sokoban.generator import generate_levels
from thinker.envs.sokoban.levels import LevelError, LevelSet
from thinker.envs.sokoban.rendering import observation_sprites, render_board
from thinker.envs.sokoban.spec import SokobanSpec
from thinker.envs.sokoban.vector_env import SokobanVectorEnv

__all__ = [
    "LevelError",
    "LevelSet",
    "SokobanEnv",
    "SokobanSpec",
    "SokobanVectorEnv",
    "draw_boards",
    "generate_levels",
    "observation_sprites",
    "render_board",
    "step_boards",
]
