"""Why a budget refuses."""

from __future__ import annotations

from collections.abc import Sequence

from remit.kernel.errors import RemitError

__all__ = ["BUSY_S", "BudgetRefusedError", "busy"]

BUSY_S = 1.0
"""When a call that other calls are in the way of may come again, in seconds."""


class BudgetRefusedError(RemitError):
    """A reservation would go over a limit.

    Attributes:
        code: ``BUDGET_EXHAUSTED`` (it is spent), ``BUDGET_BUSY`` (it is not, but other calls hold
            it), ``TURN_LIMIT``, ``RATE_LIMITED``, ``NOT_ALLOCATED``, ``UNPRICED`` (a limit in US
            dollars, and no price) or ``UNBOUNDED`` (a limit, and no bound to what the call may
            use).
        remaining: tokens left on the scope that refused; ``None`` where it has no token limit.
        retry_after_s: when to try again, in seconds; ``None`` when waiting does not help.
        scope: the scope that refused.
    """

    def __init__(
        self,
        code: str,
        message: str,
        remaining: int | None = None,
        retry_after_s: float | None = None,
        scope: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.remaining = remaining
        self.retry_after_s = retry_after_s
        self.scope = scope

    @property
    def busy(self) -> bool:
        """Whether only what other calls hold is in the way: then waiting can help."""
        return self.code == "BUDGET_BUSY"


def busy(path: Sequence[str]) -> BudgetRefusedError:
    """The refusal of a call that others wait before."""
    scope = path[-1] if path else ""
    return BudgetRefusedError(
        "BUDGET_BUSY",
        f"other calls already wait for reserved budget of {scope}; try again later",
        None,
        BUSY_S,
        scope,
    )
