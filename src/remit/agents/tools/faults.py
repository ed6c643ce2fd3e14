"""Which failures of a tool are its own, and which are the doing of what it was asked."""

from __future__ import annotations

from remit.agents.tools.definition import ToolUnavailableError
from remit.kernel.errors import RemitError

_OF_ARGUMENTS = (
    RemitError, ValueError, TypeError, LookupError, ArithmeticError, FileNotFoundError,
    FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError, RecursionError,
    MemoryError,
)  # fmt: skip
"""What arguments alone can make a tool raise: other arguments may well succeed."""

_NOT_THE_REQUEST = frozenset({401, 403, 407, 408, 429})
"""HTTP statuses below 500 that say nothing of the request: credentials, time, limits."""


def is_own_fault(error: BaseException) -> bool:
    """Whether an exception says that the tool itself is out of order, whatever it was asked."""
    if isinstance(error, ToolUnavailableError):
        return True
    response = getattr(error, "response", None)  # as the exceptions of HTTP clients have it
    status = getattr(response, "status_code", None)
    if isinstance(status, int) and 400 <= status < 500:
        return status in _NOT_THE_REQUEST
    return not isinstance(error, _OF_ARGUMENTS)
