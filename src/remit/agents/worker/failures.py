"""The errors that stop a work order, and the recorded failure of any other error."""

from __future__ import annotations

import logging

from remit.agents.tools import ToolError, UnknownToolError
from remit.agents.workorders import OrderRecordError
from remit.contracts import ContractError
from remit.kernel.errors import RemitError

_log = logging.getLogger("remit.worker")


class WorkFailedError(RemitError):
    """A failure that ends the order; the worker records ``WO_FAILED``.

    Args:
        code: the error code.
        message: sentence that ``WO_FAILED`` records.

    Attributes:
        code: the worker's or the gateway's error code, as ``WO_FAILED`` records it.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class WorkParkedError(RemitError):
    """The order waits for a person's decision.

    The worker then leaves the order open.

    Args:
        request_ids: ids of the ``APPROVAL_REQUESTED`` entries; at least one.

    Attributes:
        request_ids: ids of the ``APPROVAL_REQUESTED`` entries.
    """

    def __init__(self, request_ids: tuple[str, ...]) -> None:
        super().__init__(
            f"Waiting for {', '.join(request_ids)}.",
            next_step="`remit approve` lists what waits, and decides it.",
        )
        self.request_ids = request_ids


def failure_of(error: Exception) -> WorkFailedError:
    """Return the recorded failure for an exception; log an unforeseen exception.

    The codes are the error's own for a WorkFailedError or ContractError, ``record_erased`` for an
    OrderRecordError, ``tool_not_allowed`` for an UnknownToolError or ToolError, otherwise
    ``internal_error``, without the error's message.

    Args:
        error: the error that ended the order.
    """
    if isinstance(error, WorkFailedError):
        return error
    if isinstance(error, OrderRecordError):
        return WorkFailedError("record_erased", error.message)
    if isinstance(error, ContractError):
        return WorkFailedError(error.code, error.message)
    if isinstance(error, (UnknownToolError, ToolError)):
        return WorkFailedError("tool_not_allowed", error.message)
    _log.warning("an order failed unexpectedly: %s", type(error).__name__)
    _log.debug("the order failed here", exc_info=error)
    return WorkFailedError("internal_error", f"{type(error).__name__} in the worker")
