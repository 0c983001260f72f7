"""Looking at plans: record what an actor imagines before every real step (the paper's figure 1), and show it."""

from thinker.viewer.page import write_page
from thinker.viewer.recorder import Policy, record
from thinker.viewer.recording import (
    Episode,
    ImaginedStep,
    RecordedTree,
    Recording,
    RecordingError,
    Renderings,
    Stage,
    View,
)
from thinker.viewer.video import write_video

__all__ = [
    "Episode",
    "ImaginedStep",
    "Policy",
    "RecordedTree",
    "Recording",
    "RecordingError",
    "Renderings",
    "Stage",
    "View",
    "record",
    "write_page",
    "write_video",
]
