"""Value objects of budgets."""

from __future__ import annotations

from dataclasses import dataclass

from remit.errors import InvalidInputError

__all__ = ["BudgetCheckResult", "BudgetScope", "BudgetStatus", "DebitResult", "TokenUsage"]


@dataclass(frozen=True, slots=True)
class BudgetScope:
    """Whose budget is meant: a session, a work order in it, an agent in that.

    Attributes:
        requested_tokens: upper bound of what a call can use.
        model_id: the model that will be asked, when known.
    """

    session_id: str
    work_order_id: str | None = None
    agent_id: str | None = None
    requested_tokens: int = 0
    model_id: str | None = None

    def __post_init__(self) -> None:
        if not self.session_id:
            raise InvalidInputError("A budget scope needs a session_id.")
        if self.requested_tokens < 0:
            raise InvalidInputError("requested_tokens is negative.")

    @property
    def path(self) -> tuple[str, ...]:
        """Every key that a call in this scope counts against, the narrowest last.

        With work order and agent named: session, the agent in the session, the work order, the
        agent in the work order.
        """
        session = f"session:{_escaped(self.session_id)}"
        keys = [session]
        if self.agent_id:
            keys.append(f"{session}/agent:{_escaped(self.agent_id)}")
        if self.work_order_id:
            order = f"{session}/work_order:{_escaped(self.work_order_id)}"
            keys.append(order)
            if self.agent_id:
                keys.append(f"{order}/agent:{_escaped(self.agent_id)}")
        return tuple(keys)

    @property
    def key(self) -> str:
        """Key of the narrowest scope named."""
        return self.path[-1]


def _escaped(value: str) -> str:
    """An id without the separators of a key: no id can name another's scope."""
    return value.replace("%", "%25").replace("/", "%2F").replace(":", "%3A")


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens that a call used, as the provider counted them."""

    input_tokens: int
    output_tokens: int
    model_id: str = ""

    @property
    def total(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class BudgetCheckResult:
    """Whether a call may go out.

    Attributes:
        remaining: tokens left on the narrowest limit of the path; ``None`` without a limit.
        reason: empty, or ``CODE: sentence``.
    """

    allowed: bool
    remaining: int | None
    reason: str = ""

    @property
    def code(self) -> str:
        """The code in ``reason``; empty when allowed."""
        return self.reason.partition(":")[0]


@dataclass(frozen=True, slots=True)
class DebitResult:
    """What a settlement or debit did.

    Attributes:
        total_consumed: tokens spent in the narrowest scope so far.
        cost_incurred: US dollars; 0.0 as long as no price is known.
        ledger_entry_id: the entry that accounts for it; empty when the caller writes it.
    """

    success: bool
    remaining: int | None
    total_consumed: int
    cost_incurred: float = 0.0
    ledger_entry_id: str = ""


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """One scope as it stands. Limits of ``None`` are no limits."""

    scope: str
    token_limit: int | None
    turn_limit: int | None
    spent_tokens: int
    reserved_tokens: int
    turns: int

    @property
    def remaining(self) -> int | None:
        """Tokens neither spent nor reserved; ``None`` without a limit."""
        if self.token_limit is None:
            return None
        return self.token_limit - self.spent_tokens - self.reserved_tokens
