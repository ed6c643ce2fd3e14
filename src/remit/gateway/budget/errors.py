"""The refusal of a budget."""

from __future__ import annotations

from collections.abc import Sequence

from remit.kernel.errors import RemitError

BUSY_S = 1.0
"""When a call that other calls are in the way of may come again, in seconds."""


class BudgetRefusedError(RemitError):
    """A reservation would exceed a limit; nothing was held or charged.

    Args:
        code: as the attribute.
        message: the reason, with the next step.
        remaining: as the attribute.
        retry_after_s: as the attribute.
        scope: as the attribute.

    Attributes:
        code: ``BUDGET_EXHAUSTED`` (spent), ``BUDGET_BUSY`` (held by other calls), ``TURN_LIMIT``,
            ``RATE_LIMITED``, ``NOT_ALLOCATED``, ``UNPRICED`` (a limit in US dollars, but no price)
            or ``UNBOUNDED`` (a limit, but no upper bound of the call, as for a model without a
            price if the call states no ``max_tokens``).
        remaining: tokens left on the scope that refused; None without a token limit.
        retry_after_s: seconds until a retry can succeed; None if waiting does not help.
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
        """True if only the reservations of other calls are in the way, so that waiting can help."""
        return self.code == "BUDGET_BUSY"


def busy(path: Sequence[str]) -> BudgetRefusedError:
    """Return (not raise) the refusal of a call because other calls already wait for the same
    budget.

    The code is ``BUDGET_BUSY``, with a retry after one second.

    Args:
        path: the scopes of the call; the last is named.
    """
    scope = path[-1] if path else ""
    return BudgetRefusedError(
        "BUDGET_BUSY",
        f"other calls already wait for reserved budget of {scope}; try again later",
        None,
        BUSY_S,
        scope,
    )
