"""What an agent learned (the paper's appendix F): its resets, imaginary and real actions, and MCTS beside it."""

from thinker.experiments.behaviour.analysis import Analysis, analyse, number_of_tasks
from thinker.experiments.behaviour.findings import Finding
from thinker.experiments.behaviour.report import write_report
from thinker.experiments.behaviour.stages import Stages, check_plans, collect_stages

__all__ = [
    "Analysis",
    "Finding",
    "Stages",
    "analyse",
    "check_plans",
    "collect_stages",
    "number_of_tasks",
    "write_report",
]
