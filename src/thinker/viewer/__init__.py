"""Looking at plans: record what an agent imagines before every real step (the paper's figure 1), and show it."""

from thinker.viewer.page import write_page
from thinker.viewer.recorder import Choice, record
from thinker.viewer.recording import Episode, ImaginedStep, Recording, RecordingError, SearchTree, Stage, View

__all__ = [
    "Choice",
    "Episode",
    "ImaginedStep",
    "Recording",
    "RecordingError",
    "SearchTree",
    "Stage",
    "View",
    "record",
    "write_page",
]
