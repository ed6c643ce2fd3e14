"""The fields of limits, and budgets as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from remit.kernel import message_text
from remit.operations.operation import Field, field
from remit.operations.text import Table, facts


def usd(**traits: Any) -> Any:
    """Declare a limit in US dollars."""
    return field("Limit in US dollars, such as 12.50.", None, least=0, metavar="USD", **traits)


def count(text: str, **traits: Any) -> Any:
    """Return the optional field of a limit that is a number; None, the default, means no limit.

    Args:
        text: description for people.
        traits: further attributes of the field.
    """
    return field(text, None, least=0, **traits)


PERIOD: dict[str, Field] = {
    "window": field(
        "Period of the dollar, token and call limits (default: no period; they never reset).", None,
        type=Literal["day", "week", "month"] | None,
    ),
    "time_zone": field(
        "Time zone in which a window begins at midnight, such as Europe/Berlin (default: UTC).",
        None, type=str | None,
    ),
    "on_short": field(
        "If a call may exceed the remaining budget: refuse it, or lower its output limit (clamp).",
        "refuse", type=Literal["refuse", "clamp"],
    ),
}  # fmt: skip
"""The fields that say for which period amounts hold, and how a call near a limit is treated."""

RATES: dict[str, Field] = {
    "rpm": count("Limit of calls per minute.", type=int | None),
    "tpm": count("Limit of tokens per minute.", type=int | None),
    **PERIOD,
}
"""The fields of limits per minute, then those of :data:`PERIOD`."""


def limits_line(stated: Mapping[str, Any]) -> str:
    """Return limits as text, such as ``$500, 40 calls a month (UTC)``; ``no limit`` if none is set.

    Args:
        stated: limits, as :meth:`BudgetLimits.to_dict` gives them.
    """
    amounts = [message_text.dollars(stated["usd_limit"])] if "usd_limit" in stated else []
    units = {"token_limit": "tokens", "turn_limit": "calls"}
    amounts += [f"{stated[name]:,} {unit}" for name, unit in units.items() if name in stated]
    line = ", ".join(amounts)
    if line and (period := stated.get("window")):
        line += f" a {period} ({stated.get('time_zone')})"
    rates = {"requests_per_minute": "calls a minute", "tokens_per_minute": "tokens a minute"}
    found = [f"{stated[name]:,} {unit}" for name, unit in rates.items() if name in stated]
    line = "; ".join([part for part in (line, ", ".join(found)) if part]) or "no limit"
    lowered = "; output limit lowered if short"
    return line + (lowered if stated.get("on_short") == "clamp" else "")


def owner_lines(found: Mapping[str, Any]) -> Iterator[str | Table]:
    """Yield the facts of a key or an owner, and the state of the budget as one line, if any.

    The limits, and with a budget the sums of spending, are only part of that line. A team or user
    is not named as its own.

    Args:
        found: the key or owner as JSON data; ``budget`` is None without one.
    """
    sums = ("spent_usd", "spent_tokens", "limit_usd") if found["budget"] else ()
    yield from facts(found, "limits", "budget", f"{found.get('kind')}s", *sums)
    if found["budget"]:
        yield state_line(found["budget"])


def state_line(state: Mapping[str, Any], name: str = "") -> str:
    """Return the state of a budget as one line: scope, owner's name, spending, and any reservation,
    unpriced calls, limits and end of the window.

    Args:
        state: the state, as :meth:`BudgetStatus.to_dict` gives it.
        name: the display name of the owner; empty if there is none.
    """
    from remit.views.wording import moment

    period = f" a {state['window']}" if state["window"] else ""
    money = f"{message_text.dollars(state['spent_usd'])} spent"
    if state["limit_usd"] is not None:
        money += f" of {message_text.dollars(state['limit_usd'])}{period}"
    if state["reserved_usd"]:
        money += f", {message_text.dollars(state['reserved_usd'])} reserved"
    tokens = message_text.count(state["spent_tokens"], "token")
    if state["token_limit"] is not None:
        tokens += f" of {state['token_limit']:,}{period}"
    calls = message_text.count(state["turns"], "call")
    if state["turn_limit"] is not None:
        calls += f" of {state['turn_limit']:,}{period}"
    if state["unpriced_calls"]:
        calls += f", {state['unpriced_calls']} unpriced"
    if state["requests_per_minute"] is not None:
        calls += f"; limit {message_text.count(state['requests_per_minute'], 'call')} a minute"
    if state["tokens_per_minute"] is not None:
        calls += f"; limit {message_text.count(state['tokens_per_minute'], 'token')} a minute"
    if state["window_end"]:
        calls += f"; the {state['window']} ends {moment(state['window_end'])}"
    if state["on_short"] == "clamp":
        calls += "; output limit lowered if short"
    return f"{state['scope']}{f' ({name})' if name else ''}  {money}; {tokens}; {calls}"
