"""The earlier name of the worker of :mod:`remit.agents`; it stays until 1.0."""

from remit.agents import AttachedOrder, HO1Executor, WorkFailedError, WorkParkedError, result_text
from remit.kernel import lazy_names

__all__ = ["AttachedOrder", "HO1Executor", "WorkFailedError", "WorkParkedError", "result_text"]

__getattr__ = lazy_names(__name__, {"remit.agents.worker": "IGNORABLE visible"})
