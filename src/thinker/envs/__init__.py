"""The environments that come with Thinker; importing this module registers them with Gymnasium."""

import gymnasium

gymnasium.register(
    id="thinker/Sokoban-v0",
    entry_point="thinker.envs.sokoban.env:SokobanEnv",
    vector_entry_point="thinker.envs.sokoban.vector_env:SokobanVectorEnv",
)
gymnasium.register(id="thinker/MinAtar-v0", entry_point="thinker.envs.minatar:MinAtarEnv")
gymnasium.register(id="thinker/Atari-v0", entry_point="thinker.envs.atari.env:AtariEnv")
