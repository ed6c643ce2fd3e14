"""The earlier name of the worker of :mod:`remit.agents`; it stays until 1.0."""

from remit.agents import (
    IGNORABLE,
    AttachedOrder,
    HO1Executor,
    WorkFailedError,
    WorkParkedError,
    result_text,
    visible,
)

__all__ = [
    "IGNORABLE",
    "AttachedOrder",
    "HO1Executor",
    "WorkFailedError",
    "WorkParkedError",
    "result_text",
    "visible",
]
