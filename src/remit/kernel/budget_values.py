"""Value objects of budgets: scopes, limits, amounts and states."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Literal, cast
from urllib.parse import unquote

from msgspec import Struct

from remit.kernel.budget_windows import zone_of
from remit.kernel.canonical import is_countable
from remit.kernel.errors import InvalidInputError

NANO = 1_000_000_000
"""Nano-dollars in a dollar: money is counted in whole nano-dollars."""

USD_NAMES = {
    "nano_limit": "limit_usd",
    "spent_nano": "spent_usd",
    "reserved_nano": "reserved_usd",
}
"""Names of a scope's sums in dollars, keyed by the field in nano-dollars."""


@dataclass(frozen=True, slots=True)
class BudgetScope:
    """The accounts that a call is charged to: session, work order, agent, and the key's owners.

    Immutable. :attr:`path` gives the keys of the accounts.

    Attributes:
        session_id: the session; empty for a call that only the owners pay.
        work_order_id: the work order in the session; ``None`` for none.
        agent_id: the agent in the session; ``None`` for none.
        requested_tokens: upper bound of the call's tokens.
        model_id: the model; ``None`` if unknown.
        key_id: the virtual key that pays; ``None`` for none.
        user_id: the user of the key; ``None`` for none.
        team_id: the team of the key; ``None`` for none.
        organisation_id: the organisation of the key; ``None`` for none.
        charged_to: keys of further paying accounts: the sessions and orders that contain this
            session.

    Raises:
        InvalidInputError: there is no session and no owner, a work order or agent is given without
            a session, or ``requested_tokens`` is negative or no whole number.
    """

    session_id: str = ""
    work_order_id: str | None = None
    agent_id: str | None = None
    requested_tokens: int = 0
    model_id: str | None = None
    key_id: str | None = None
    user_id: str | None = None
    team_id: str | None = None
    organisation_id: str | None = None
    charged_to: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        owners = (self.key_id, self.user_id, self.team_id, self.organisation_id)
        if not self.session_id and (self.work_order_id or self.agent_id or not any(owners)):
            raise InvalidInputError("A budget scope needs a session_id.")
        if not is_countable(self.requested_tokens):
            raise InvalidInputError("requested_tokens is negative, too great or no whole number.")

    @property
    def path(self) -> tuple[str, ...]:
        """The keys of all accounts that a call is charged to, the narrowest last.

        The order: organisation, team, user and virtual key; those in ``charged_to``; session, agent
        in the session, work order, agent in the work order. Absent accounts are left out. The form
        of a key is that of :func:`path_of`.
        """
        return path_of(
            self.session_id, self.work_order_id, self.agent_id, self.key_id, self.user_id,
            self.team_id, self.organisation_id, self.charged_to,
        )  # fmt: skip

    @property
    def key(self) -> str:
        """The key of the narrowest account, which is the last of :attr:`path`."""
        return self.path[-1]


@lru_cache(512)
def path_of(
    session_id: str,
    work_order_id: str | None,
    agent_id: str | None,
    key_id: str | None,
    user_id: str | None,
    team_id: str | None,
    organisation_id: str | None,
    charged_to: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """Return the :attr:`BudgetScope.path` of a scope with these fields, the narrowest key last.

    A key has the form ``kind:id``, such as ``session:s1/agent:a``; ``%``, ``/`` and ``:`` in ids
    are percent-encoded. The order is organisation, team, user, key, ``charged_to``, session, its
    agent, work order, and the order's agent. Absent and empty ids are left out; without a session,
    agent and work order are ignored. The results of the last 512 arguments are cached.

    Args:
        session_id: the session; empty for none.
        work_order_id: the work order in the session.
        agent_id: the agent in the session.
        key_id: the virtual key.
        user_id: the user.
        team_id: the team.
        organisation_id: the organisation.
        charged_to: keys of further accounts, placed between the owners and the session.
    """
    keys = [
        f"{kind}:{_escaped(name)}"
        for kind, name in (
            ("organisation", organisation_id),
            ("team", team_id),
            ("user", user_id),
            ("key", key_id),
        )
        if name
    ]
    keys += charged_to
    if not session_id:
        return tuple(keys)
    session = f"session:{_escaped(session_id)}"
    keys.append(session)
    if agent_id:
        keys.append(f"{session}/agent:{_escaped(agent_id)}")
    if work_order_id:
        order = f"{session}/work_order:{_escaped(work_order_id)}"
        keys.append(order)
        if agent_id:
            keys.append(f"{order}/agent:{_escaped(agent_id)}")
    return tuple(keys)


def _escaped(value: str) -> str:
    """Return an id without the separators of a key, so no id can name another's scope."""
    return value.replace("%", "%25").replace("/", "%2F").replace(":", "%3A")


LEARNING = BudgetScope("learning")
"""The account of learning's own calls, next to that of the repeated exchange."""


def owners_of(scopes: Iterable[str]) -> dict[str, str]:
    """Return the ids of the owners among the account keys of a path, with escapes decoded.

    The last key of a kind counts; keys of other kinds are ignored.

    Args:
        scopes: keys of a path, as in :attr:`BudgetScope.path`.

    Returns:
        ``user_id``, ``team_id`` and ``organisation_id``, each only if the path has such a key.
    """
    owners = {}
    for key in scopes:
        kind, _, name = key.partition(":")
        if kind in ("user", "team", "organisation"):
            owners[f"{kind}_id"] = unquote(name)
    return owners


def charged_beside(scopes: Iterable[str], session_id: str, key_id: str = "") -> list[str]:
    """Return the keys of a path that belong to another session or virtual key than the call's.

    Keys of organisations, teams and users are left out.

    Args:
        scopes: keys of a path.
        session_id: the call's session.
        key_id: the call's virtual key; empty for none.

    Returns:
        The keys of sessions, of accounts in them and of virtual keys, in the order of the path.
    """
    own = f"session:{_escaped(session_id)}"
    named = f"key:{_escaped(key_id)}"
    return [
        key
        for key in scopes
        if key.startswith(("session:", "key:"))
        and key not in (own, named)
        and not key.startswith(f"{own}/")
    ]


def nano_of(usd: float | str | Decimal) -> int:
    """Return a sum of dollars in whole nano-dollars (10⁻⁹ dollars), rounded down.

    Args:
        usd: US dollars, as a number or decimal text.

    Raises:
        InvalidInputError: the value is not a finite number, is negative, or is beyond the range of
            decimals.
    """
    try:
        nano = Decimal(str(usd)) * NANO
        if nano < 0 or not nano.is_finite():
            raise InvalidOperation
        return int(nano)
    except ArithmeticError as error:  # decimal's errors, Overflow too
        raise InvalidInputError(
            f"{usd!r} is not an amount in US dollars.", next_step="Give a number such as 12.50."
        ) from error


def usd_of(nano: int) -> float:
    """Return a sum of nano-dollars in dollars, for people and records.

    Args:
        nano: billionths of a US dollar.
    """
    return nano / NANO


class Amount(Struct, gc=False):  # an Amount is never part of a reference cycle
    """The upper bound of a call's tokens and cost; immutable.

    Attributes:
        tokens: input and output tokens together.
        nano: cost in nano-dollars; ``None`` if the model has no price.
        bounded: False if a part of the call has no known bound; limits then refuse the call.
        unbounded: name of that part, for people: ``tools[2] (type "bespoke")``; for a request that
            has no price, the step that lets it pass a limit in US dollars.
        model: provider, model and cause of the bound, if such a bound can have been raised.
        output: maximum output tokens of one answer; 0 if there is none to lower.
        lowered: returns the same call with another ``output``; a smaller one gives no greater
            amount.
    """

    tokens: int
    nano: int | None = None
    bounded: bool = True
    unbounded: str = ""
    model: tuple[str, ...] | None = None
    output: int = 0
    lowered: Callable[[int], Amount] | None = None

    def raised(self, percent: int) -> Amount:
        """Return an amount with ``percent`` hundredths of the tokens and the cost, each rounded up.

        For 100 the amount itself is returned. ``None`` as cost stays ``None``. The maximum output
        and the other fields stay; ``lowered`` raises its result likewise.

        Args:
            percent: 150 for half as much again.
        """
        if percent == 100:
            return self
        lowered = self.lowered
        return Amount(
            -(-self.tokens * percent // 100),
            None if self.nano is None else -(-self.nano * percent // 100),
            self.bounded,
            self.unbounded,
            self.model,
            self.output,
            None if lowered is None else lambda output: lowered(output).raised(percent),
        )


Window = Literal["day", "week", "month"]
OnShort = Literal["refuse", "clamp"]


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """The limits of one scope; ``None`` means no limit, 0 lets nothing pass.

    Immutable. Each limit is at most 2⁵³ - 1.

    Attributes:
        tokens: input and output tokens together.
        nano: nano-dollars.
        turns: model calls; a call and its retries count once.
        requests_per_minute: model calls that begin in one minute of the clock.
        tokens_per_minute: tokens that these calls reserve or use.
        window: period of the limits of tokens, dollars and turns: ``day``, ``week`` or ``month``;
            ``None`` for ever.
        time_zone: zone in which windows begin at midnight, on Monday or on the first of a month;
            empty becomes ``UTC`` if there is a window. Refused without a window.
        on_short: ``refuse`` a call that may need more than remains, or ``clamp`` its output limit
            to the number of tokens that the remaining tokens and dollars pay for.

    Raises:
        InvalidInputError: a limit is no whole number or too great, or a window, time zone or
            ``on_short`` is invalid.
    """

    tokens: int | None = None
    nano: int | None = None
    turns: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    window: Window | None = None
    time_zone: str = ""
    on_short: OnShort = "refuse"

    def to_dict(self) -> dict[str, Any]:
        """Return the limits that are set, by name, with money in US dollars.

        The names are ``usd_limit``, ``token_limit``, ``turn_limit``, ``requests_per_minute``,
        ``tokens_per_minute``, ``window``, ``time_zone``, and ``on_short`` unless that is
        ``refuse``.
        """
        stated = {
            "usd_limit": None if self.nano is None else usd_of(self.nano),
            "token_limit": self.tokens,
            "turn_limit": self.turns,
            "requests_per_minute": self.requests_per_minute,
            "tokens_per_minute": self.tokens_per_minute,
            "window": self.window,
            "time_zone": self.time_zone or None,
            "on_short": self.on_short if self.on_short != "refuse" else None,
        }
        return {name: value for name, value in stated.items() if value is not None}

    @classmethod
    def of(
        cls,
        *,
        usd: float | str | Decimal | None = None,
        tokens: int | None = None,
        turns: int | None = None,
        rpm: int | None = None,
        tpm: int | None = None,
        window: Window | None = None,
        time_zone: str | None = None,
        on_short: OnShort | None = None,
    ) -> BudgetLimits:
        """Return limits in the terms of people, with money in dollars; ``None`` means no limit.

        Args:
            usd: US dollars, rounded down to whole nano-dollars.
            tokens: input and output tokens together.
            turns: model calls.
            rpm: requests in a minute.
            tpm: tokens in a minute.
            window: ``day``, ``week`` or ``month``; ``None`` for ever.
            time_zone: an IANA name; ``None`` for UTC.
            on_short: ``refuse`` or ``clamp``; ``None`` for ``refuse``.

        Raises:
            InvalidInputError: a value cannot be a limit, or a time zone is given without a window.
        """
        nano = None if usd is None else nano_of(usd)
        return cls(tokens, nano, turns, rpm, tpm, window, time_zone or "", on_short or "refuse")

    @property
    def any(self) -> bool:
        """True if tokens, cost, turns or a rate is limited. A window alone is no limit."""
        values = (self.tokens, self.nano, self.turns, self.requests_per_minute,
                  self.tokens_per_minute)  # fmt: skip
        return any(value is not None for value in values)

    def __post_init__(self) -> None:
        values = (self.tokens, self.nano, self.turns, self.requests_per_minute,
                  self.tokens_per_minute)  # fmt: skip
        for value in values:
            # What a JSON number keeps exact: limits are rebuilt from the record to the last one.
            if value is not None and not is_countable(value):
                raise InvalidInputError(
                    "A budget limit is no whole number, negative, or above 9,007,199 USD."
                )
        if self.window not in (None, "day", "week", "month"):
            raise InvalidInputError(
                f"{self.window!r} is not a budget window.", next_step="Use day, week or month."
            )
        if self.time_zone and self.window is None:
            raise InvalidInputError(
                "A time zone was given without a window.",
                next_step="Add a window: day, week or month.",
            )
        if self.on_short not in ("refuse", "clamp"):
            raise InvalidInputError(f"on_short is {self.on_short!r}; use refuse or clamp.")
        if self.window is not None:
            object.__setattr__(self, "time_zone", self.time_zone or "UTC")
            zone_of(self.time_zone)


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """The state of one scope. Limits of ``None`` mean no limit; money is in nano-dollars.

    Attributes:
        scope: key of the account, as in :attr:`BudgetScope.path`.
        token_limit: limit of input and output tokens together.
        turn_limit: limit of the number of model calls.
        spent_tokens: tokens of ended calls in the window.
        reserved_tokens: upper bound of the tokens of running calls.
        turns: number of model calls begun in the window. Like spending, 0 at the next window.
        nano_limit: limit of the cost.
        requests_per_minute: limit of calls in a minute.
        tokens_per_minute: limit of tokens in a minute.
        spent_nano: cost of ended calls in the window.
        reserved_nano: upper bound of the cost of running calls.
        unpriced_calls: number of ended calls in the window whose price, and so cost, is unknown.
        minute: the minute since 1970 of ``minute_requests`` and ``minute_tokens``.
        minute_requests: number of calls in that minute.
        minute_tokens: number of tokens in that minute.
        period: ``day``, ``week`` or ``month`` of limits and spending; empty for ever.
        time_zone: IANA name of the zone in which windows begin; empty without a window.
        window_end: end of the window, in seconds since 1970; 0 for never.
        window_number: number of windows that have passed, or that a change restarted.
        on_short: ``clamp`` if a call's output limit is lowered to what the remaining tokens and
            dollars pay for; else empty.
    """

    scope: str
    token_limit: int | None
    turn_limit: int | None
    spent_tokens: int
    reserved_tokens: int
    turns: int
    nano_limit: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    spent_nano: int = 0
    reserved_nano: int = 0
    unpriced_calls: int = 0
    minute: int = 0
    minute_requests: int = 0
    minute_tokens: int = 0
    period: str = ""
    time_zone: str = ""
    window_end: int = 0
    window_number: int = 0
    on_short: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name, with money in US dollars: ``limit_usd``, ``spent_usd`` and
        ``reserved_usd``.

        ``period`` is named ``window``. ``window`` and ``time_zone`` are ``None`` without a window,
        ``window_end`` is ISO 8601 in UTC or ``None``, and ``on_short`` is ``refuse`` or ``clamp``.
        The number of the window is left out.
        """
        shown = asdict(self)
        del shown["window_number"]
        shown["window"] = shown.pop("period") or None
        end = shown.pop("window_end")
        shown["time_zone"] = self.time_zone or None
        shown["window_end"] = datetime.fromtimestamp(end, UTC).isoformat() if end else None
        shown["on_short"] = self.on_short or "refuse"
        for name, usd_name in USD_NAMES.items():
            nano = shown.pop(name)
            shown[usd_name] = None if nano is None else usd_of(nano)
        return shown

    @property
    def remaining(self) -> int | None:
        """The tokens neither spent nor reserved, possibly negative; ``None`` without a limit."""
        if self.token_limit is None:
            return None
        return self.token_limit - self.spent_tokens - self.reserved_tokens

    @property
    def limits(self) -> BudgetLimits:
        """The limits without the state, as new :class:`BudgetLimits`.

        InvalidInputError is raised if the stored values cannot be limits, such as an unknown time
        zone.
        """
        return BudgetLimits(
            self.token_limit, self.nano_limit, self.turn_limit, self.requests_per_minute,
            self.tokens_per_minute, cast("Window | None", self.period or None), self.time_zone,
            cast("OnShort", self.on_short or "refuse"),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class BudgetCheckResult:
    """The decision on a call.

    Attributes:
        allowed: True if the call may be sent.
        remaining: remaining tokens of the narrowest limit in the path; ``None`` without a limit.
        reason: empty, or ``CODE: sentence``.
    """

    allowed: bool
    remaining: int | None
    reason: str = ""

    @property
    def code(self) -> str:
        """The code in ``reason``, such as ``BUDGET_EXHAUSTED``; empty if the call is allowed."""
        return self.reason.partition(":")[0]
