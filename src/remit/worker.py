"""The earlier name of the worker of :mod:`remit.agents`; it stays until 1.0."""

from remit.agents import (
    IGNORABLE as IGNORABLE,
    AttachedOrder as AttachedOrder,
    HO1Executor as HO1Executor,
    WorkFailedError as WorkFailedError,
    WorkParkedError as WorkParkedError,
    result_text as result_text,
    visible as visible,
)
