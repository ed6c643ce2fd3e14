"""The account of a budget scope: limits, spending, reservations, the hold of a call, refusals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import msgspec
from msgspec import Struct

from remit.kernel.budget_values import Amount, BudgetStatus, usd_of
from remit.kernel.budget_windows import window_at
from remit.kernel.errors import RemitError
from remit.kernel.message_text import fixed

FIELDS = tuple(field.name for field in fields(BudgetStatus))
"""Columns of the table ``budgets``, in the order of :class:`~remit.gateway.budget.BudgetStatus`."""

MAX_COUNT = 1 << 62
"""Counts stop here: it fits the columns."""

OF_A_WINDOW = (
    "spent_tokens", "reserved_tokens", "turns", "spent_nano", "reserved_nano", "unpriced_calls",
)  # fmt: skip
"""Columns that begin at 0 in each window."""

CHANGING = (
    *OF_A_WINDOW, "minute", "minute_requests", "minute_tokens", "window_end", "window_number",
)  # fmt: skip
"""Columns that calls change."""

MINUTE_S = 60
_DAY_S = 86_400
_RAISE = "raise the limit with `remit budget set`"
_LOWER = f"lower max_tokens, or {_RAISE}"
# A window's end is at most two windows away, one of which a clock a little ahead has begun.
_LONGEST_AHEAD_S = {"day": 3 * _DAY_S, "week": 15 * _DAY_S, "month": 63 * _DAY_S}
_MAX_PERCENT = 1_000
"""No bound is raised beyond ten times: one absurd bill must not bar a model for ever."""


class TokenUsage(Struct, gc=False):
    """The tokens of a call, as the provider counted them or as they are charged.

    Attributes:
        input_tokens: tokens of the request.
        output_tokens: tokens of the answer.
        model_id: the model; empty if unknown.
        cost_nano: cost in nano-dollars; ``None`` if no price is known.
    """

    input_tokens: int
    output_tokens: int
    model_id: str = ""
    cost_nano: int | None = None

    @property
    def total(self) -> int:
        """The sum of input and output tokens."""
        return self.input_tokens + self.output_tokens


class Hold(Struct, forbid_unknown_fields=True, gc=False):
    """The reservation of one call on each of its accounts.

    Not changed once made. :meth:`encode` and :meth:`read` are its form in a column.

    Attributes:
        scopes: the accounts.
        tokens: reserved input and output tokens.
        nano: cost in nano-dollars; None if the model has no price.
        turns: number of calls that were counted.
        minute: minutes since 1970 at the reservation, for the limits per minute.
        bounded: False if the call had no upper bound.
        windows: number of each scope's window; empty if all are 0.
        percent: the percentage to which earlier bills had raised the bound.
        model: provider, model, cause and account of the bound; older versions wrote the first two.
        output: the lowered output limit of each answer; None if it was not lowered.
    """

    scopes: tuple[str, ...]
    tokens: int
    nano: int | None
    turns: int
    minute: int
    bounded: bool = True
    windows: tuple[int, ...] = ()
    percent: int = 100
    model: tuple[str, ...] | None = None
    output: int | None = None

    def numbered(self) -> list[tuple[str, int]]:
        """Return the scopes, each with the number of its window."""
        return list(zip(self.scopes, self.windows or (0,) * len(self.scopes), strict=True))

    def exceeded_by(self, usage: TokenUsage) -> list[str]:
        """Return which of ``tokens`` and ``cost`` exceed the bound, in this order.

        Empty if neither does, or if the call had no upper bound. A missing price exceeds nothing.

        Args:
            usage: the billed usage.
        """
        if not self.bounded:
            return []
        tokens_over = usage.input_tokens + usage.output_tokens > self.tokens
        cost_over = self.nano is not None and (usage.cost_nano or 0) > self.nano
        return ["tokens"] * tokens_over + ["cost"] * cost_over

    def raised_by(self, usage: TokenUsage) -> int | None:
        """Return the percentage to which a bill raises the model's bound; None if it does not.

        The percentage is relative to the unraised bound, rounded up, and at most 1,000.

        Args:
            usage: the billed usage.
        """
        if self.model is None or not self.exceeded_by(usage):
            return None
        parts = [(usage.total, self.tokens)]
        if self.nano is not None and usage.cost_nano is not None:
            parts.append((usage.cost_nano, self.nano))
        percent = max(-(-used * self.percent // max(held, 1)) for used, held in parts)
        return min(percent, _MAX_PERCENT)

    def overrun(self, usage: TokenUsage) -> dict[str, Any]:
        """Return the metadata of an ``EXCHANGE`` whose bill exceeds its bound; empty for any other.

        The keys are ``over_bound``, a list of ``tokens`` and ``cost``, and, if the bill raises the
        bound of a model, ``raised_bound`` with the names of the bound and ``percent``.

        Args:
            usage: the billed usage.
        """
        if not (over := self.exceeded_by(usage)):
            return {}
        found: dict[str, Any] = {"over_bound": over}
        percent = self.raised_by(usage)
        if percent is not None and self.model is not None:
            names = ("provider_id", "model_id", "cause", "scope")
            found["raised_bound"] = {**dict(zip(names, self.model, strict=False)),
                                     "percent": percent}  # fmt: skip
        return found

    def encode(self) -> str:
        """Return the hold as JSON text for a column."""
        return _encode(self).decode()

    @classmethod
    def read(cls, text: str) -> Hold | None:
        """Return the hold in a column; None if the text is not a hold.

        Args:
            text: the column's text, of this or an older version.
        """
        try:
            hold = _decode(text)
        except (ValueError, TypeError):
            return None
        return hold if len(hold.windows) in (0, len(hold.scopes)) else None

    @classmethod
    def read_exact(cls, text: str) -> Hold | None:
        """Return the hold if the text is what :meth:`encode` wrote, in this or an older version.

        Older versions wrote the first fields only: each new field was added at the end. Any other
        text is not a hold, although :meth:`read` may understand it. None for such a text.

        Args:
            text: the column's text.
        """
        hold = cls.read(text)
        if hold is None:
            return None
        written = msgspec.json.decode(text)
        values = {name: getattr(hold, name) for name in cls.__struct_fields__[: len(written)]}
        return hold if msgspec.json.encode(values).decode() == text else None

    @classmethod
    def decode(cls, text: str) -> Hold:
        """Return the hold that :meth:`encode` wrote; raise ValueError for any other text."""
        return _decode(text)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Hold).decode


def bound_of(path: Sequence[str], amount: Amount) -> tuple[str, ...] | None:
    """Return provider, model, cause and account of the bound that the bill of a call may raise.

    The account is the key's, else the first.

    Args:
        path: scopes that pay.
        amount: upper bound of the call.

    Returns:
        The four names; None if the amount names no model.
    """
    if amount.model is None:
        return None
    for scope in path:
        if scope.startswith("key:"):
            return (*amount.model, scope)
    return (*amount.model, path[0] if path else "")


def row_of(raised: Sequence[str]) -> tuple[str, str]:
    """Return the columns ``provider_id`` and ``model_id`` of a bound in ``raised_bounds``.

    The second one names cause and account too. Rows of older versions name neither, and raise
    nothing any more.

    Args:
        raised: provider and model of the bound, then its cause and account, if known.
    """
    provider_id, model_id, *more = raised
    return provider_id, f"{model_id} [{'] ['.join(more)}]" if more else model_id


class Account:
    """A row of the table ``budgets``, changed in memory.

    The fields have the names of :data:`FIELDS`. No method reads or writes the database.

    Args:
        row: the values of :data:`FIELDS`.
    """

    __slots__ = FIELDS

    def __init__(self, row: Sequence[Any]) -> None:
        (
            self.scope, self.token_limit, self.turn_limit, self.spent_tokens,
            self.reserved_tokens, self.turns, self.nano_limit, self.requests_per_minute,
            self.tokens_per_minute, self.spent_nano, self.reserved_nano, self.unpriced_calls,
            self.minute, self.minute_requests, self.minute_tokens, self.period, self.time_zone,
            self.window_end, self.window_number, self.on_short,
        ) = row  # fmt: skip

    def status(self) -> BudgetStatus:
        """Return an immutable copy."""
        return BudgetStatus(*[getattr(self, name) for name in FIELDS])

    def spend(self, tokens: int, cost_nano: int | None) -> None:
        """Charge usage to the account.

        Tokens and cost are added, up to :data:`MAX_COUNT`. Usage without a price counts as an
        unpriced call if it has tokens. Reservations and turns do not change.

        Args:
            tokens: input and output tokens.
            cost_nano: cost in nano-dollars; ``None`` if no price is known.
        """
        self.spent_tokens = min(self.spent_tokens + tokens, MAX_COUNT)
        if cost_nano is None:
            self.unpriced_calls += tokens > 0
        else:
            self.spent_nano = min(self.spent_nano + cost_nano, MAX_COUNT)

    def start_window(self, now: float) -> bool:
        """Begin the window that contains ``now`` if the current one has ended; return True if it
        began.

        A new window sets spending, reservations and turns to 0 and has the next number. An account
        without windows returns False.

        Args:
            now: seconds since 1970.

        Raises:
            InvalidInputError: this machine does not know the account's time zone.
        """
        if not self.window_end or now < self.window_end:
            return False
        self.window_end = window_at(self.period, self.time_zone, now)[1]
        self.window_number += 1
        for name in OF_A_WINDOW:
            setattr(self, name, 0)
        return True

    def end_sooner(self, now: float) -> bool:
        """Shorten a window that was opened by a clock running ahead; return True if it was
        shortened.

        The window keeps its spending and stands for the next window, which began too early.

        Args:
            now: seconds since 1970.

        Raises:
            InvalidInputError: this machine does not know the account's time zone.
        """
        if self.window_end - now <= _LONGEST_AHEAD_S[self.period]:
            return False
        following = window_at(self.period, self.time_zone, now)[1]
        self.window_end = window_at(self.period, self.time_zone, following)[1]
        return True

    def admits(self, amount: Amount, turns: int) -> bool:
        """Return True if no limit refuses the amount.

        If False, :meth:`refusal` decides.

        An amount without an upper bound gives False, and so does one without a price under a limit
        in US dollars.

        Args:
            amount: upper bound of the call.
            turns: number of calls to count.
        """
        limit = self.token_limit
        if limit is not None and self.spent_tokens + self.reserved_tokens + amount.tokens > limit:
            return False
        limit, nano = self.nano_limit, amount.nano
        if limit is not None and (
            nano is None or self.spent_nano + self.reserved_nano + nano > limit
        ):
            return False
        return (
            amount.bounded
            and ((limit := self.turn_limit) is None or self.turns + turns <= limit)
            and ((limit := self.requests_per_minute) is None
                 or self.minute_requests + turns <= limit)
            and ((limit := self.tokens_per_minute) is None
                 or self.minute_tokens + amount.tokens <= limit)
        )  # fmt: skip

    def changing(self) -> tuple[int | str, ...]:
        """Return the values of :data:`CHANGING`, each at most :data:`MAX_COUNT`, then the scope."""
        values = (
            self.spent_tokens, self.reserved_tokens, self.turns, self.spent_nano,
            self.reserved_nano, self.unpriced_calls, self.minute, self.minute_requests,
            self.minute_tokens, self.window_end, self.window_number,
        )  # fmt: skip
        if max(values) > MAX_COUNT:
            values = tuple([min(value, MAX_COUNT) for value in values])
        return (*values, self.scope)

    def is_short_of(self, amount: Amount) -> bool:
        """Return True if the unspent amount, reservations ignored, is less than ``amount``.

        Args:
            amount: tokens and nano-dollars; an unknown price counts as 0.
        """
        tokens, nano = self.token_limit, self.nano_limit
        return (tokens is not None and self.spent_tokens + amount.tokens > tokens) or (
            nano is not None and self.spent_nano + (amount.nano or 0) > nano
        )

    def refusal(
        self, amount: Amount, turns: int, allow_unpriced: bool, wait_s: Callable[[], float]
    ) -> BudgetRefusedError | None:
        """Return the error with which the account refuses ``amount``; None if it does not refuse.

        The error is returned, not raised. Limits are examined in this order: calls, requests per
        minute, bounds, tokens per minute, tokens, US dollars. So a call without ``max_tokens`` to a
        model without a price is ``UNBOUNDED`` rather than ``UNPRICED``. A limit that only
        reservations of others exceed gives ``BUDGET_BUSY``, unless another limit refuses for good.

        Args:
            amount: upper bound of the call.
            turns: number of calls to count.
            allow_unpriced: let models without a price pass a limit in US dollars.
            wait_s: returns the seconds until the next minute begins.
        """
        scope, left = self.scope, None
        provider, model = (amount.model or ("", "the call"))[:2]
        name = f"{provider}/{model}" if provider else model
        if self.token_limit is not None:
            left = self.token_limit - self.spent_tokens - self.reserved_tokens

        def refused(code: str, message: str, retry_s: float | None = None) -> BudgetRefusedError:
            return BudgetRefusedError(code, f"{scope} {message}", left, retry_s, scope)

        def short(message: str, needed: int, most: int) -> BudgetRefusedError:
            if needed > most:
                return refused("BUDGET_EXHAUSTED", message)
            return refused("BUDGET_BUSY", f"{message}; other calls have reserved the rest", BUSY_S)

        if self.turn_limit is not None and self.turns + turns > self.turn_limit:
            return refused("TURN_LIMIT", f"has used all of its {self.turn_limit} calls; {_RAISE}")
        limit = self.requests_per_minute
        if limit is not None and self.minute_requests + turns > limit:
            message = f"has used its {limit} calls a minute; wait for the next minute, or {_RAISE}"
            return refused("RATE_LIMITED", message, wait_s())
        if not amount.bounded and (
            left is not None or self.nano_limit is not None or self.tokens_per_minute is not None
        ):
            step = amount.unbounded or "leave out what has no limit"
            if not step.startswith(("send ", "choose ", "leave ")):
                step = f"leave out {step}"
            message = f"has a limit, and the cost of {name} has no upper bound: {step}, or use a"
            return refused("UNBOUNDED", f"{message} key without a limit")
        limit = self.tokens_per_minute
        if limit is not None and self.minute_tokens + amount.tokens > limit:
            free = max(0, limit - self.minute_tokens)
            message = f"has {free} of {limit} tokens left in this minute, and {name} may need "
            message += f"{amount.tokens}; wait for the next minute, lower max_tokens, or {_RAISE}"
            return refused("RATE_LIMITED", message, wait_s())
        busy = None
        if left is not None and amount.tokens > left:
            message = f"has {left} tokens left, and {name} may need {amount.tokens}; {_LOWER}"
            busy = short(message, amount.tokens, left + self.reserved_tokens)
            if not busy.busy:
                return busy
        if self.nano_limit is not None:
            if amount.nano is None:
                if allow_unpriced:
                    return busy
                message = f"has a limit in US dollars, and {name} has no price"
                how = f"{model} --provider {provider}" if provider else "MODEL"
                command = f"remit price set {how} --input … --output … "
                command += "--context-window … --max-output-tokens …"
                step = (
                    amount.unbounded or f"check the name (`remit price list`), or run `{command}`"
                )
                return refused("UNPRICED", f"{message}; {step}")
            nano_left = self.nano_limit - self.spent_nano - self.reserved_nano
            if amount.nano > nano_left:
                left_usd, needed_usd = fixed(usd_of(nano_left)), fixed(usd_of(amount.nano))
                message = f"has {left_usd} USD left, and {name} may cost {needed_usd}; {_LOWER}"
                return short(message, amount.nano, nano_left + self.reserved_nano)
        return busy


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
