"""HO1, the worker: executes one order with what it was given, and nothing else."""

from remit.agents.worker.attached import AttachedOrder
from remit.agents.worker.execution import WorkFailedError, WorkParkedError
from remit.agents.worker.executor import HO1Executor
from remit.agents.worker.model_answer import IGNORABLE, visible
from remit.agents.worker.toolbox import result_text

__all__ = [
    "IGNORABLE", "AttachedOrder", "HO1Executor", "WorkFailedError", "WorkParkedError",
    "result_text", "visible",
]  # fmt: skip
