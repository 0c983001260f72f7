"""What the agent searches in: world models, how they learn, and the perfect simulator (the paper's section 4.4)."""

from thinker.world_model.protocol import EPISODE_START, NodeOutput, WorldModel

__all__ = ["EPISODE_START", "NodeOutput", "WorldModel"]
