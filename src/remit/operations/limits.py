"""The fields of limits, and budgets as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from remit.kernel import words
from remit.operations.operation import Operation, field

if TYPE_CHECKING:
    from remit.gateway.budget import BudgetLimits


def usd(**traits: Any) -> Any:
    """Declare a limit in US dollars."""
    return field("Limit in US dollars, such as 12.50.", None, least=0, metavar="USD", **traits)


def count(text: str, least: int = 0, **traits: Any) -> Any:
    """Declare a limit of a count.

    Args:
        text: description for people.
        least: the smallest accepted value.
        traits: further attributes of the field.
    """
    return field(text, None, least=least, **traits)


class Limited(Operation):
    """A request with limits per minute, and with a period of the other limits."""

    rpm: int | None = count("Limit of calls per minute.")
    tpm: int | None = count("Limit of tokens per minute.")
    window: Literal["day", "week", "month"] | None = field(
        "Period of the dollar, token and call limits (default: no period; they never reset).", None
    )
    time_zone: str | None = field(
        "Time zone in which a window begins at midnight, such as Europe/Berlin (default: UTC).",
        None,
    )
    on_short: Literal["refuse", "clamp"] = field(
        "If a call may exceed the remaining budget: refuse it, or lower its output limit (clamp).",
        "refuse",
    )


def limits_of(request: Limited, prefix: str = "") -> BudgetLimits:
    """Return the limits of a request.

    Args:
        request: the request.
        prefix: the start of the names of the amounts, such as ``budget_``.

    Raises:
        InvalidInputError: a value cannot be a limit, or a time zone is given without a window.
    """
    from remit.gateway.budget import BudgetLimits

    amounts: dict[str, Any] = {
        name: getattr(request, f"{prefix}{name}") for name in ("usd", "tokens", "turns")
    }
    others: dict[str, Any] = {
        name: getattr(request, name) for name in ("rpm", "tpm", "window", "time_zone", "on_short")
    }
    return BudgetLimits.of(**amounts, **others)


def limits_line(stated: Mapping[str, Any]) -> str:
    """Return limits as text, such as ``$500, 40 calls a month (UTC)``; ``no limit`` if none is set.

    Args:
        stated: limits, as :meth:`BudgetLimits.to_dict` gives them.
    """
    from remit.views.wording import dollars

    amounts = [dollars(stated["usd_limit"])] if "usd_limit" in stated else []
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


def state_line(state: Mapping[str, Any], name: str = "") -> str:
    """Return the state of a budget as one line, with the name of the owner.

    Args:
        state: the state, as :meth:`BudgetStatus.to_dict` gives it.
        name: the display name of the owner; empty if there is none.
    """
    money = f"{state['spent_usd']:.6f} USD spent"
    if state["limit_usd"] is not None:
        money += f" of {state['limit_usd']:.6f}"
    if state["reserved_usd"]:
        money += f", {state['reserved_usd']:.6f} reserved"
    tokens = words.count(state["spent_tokens"], "token")
    if state["token_limit"] is not None:
        tokens += f" of {state['token_limit']}"
    calls = words.count(state["turns"], "call")
    if state["turn_limit"] is not None:
        calls += f" of {state['turn_limit']}"
    if state["unpriced_calls"]:
        calls += f", {state['unpriced_calls']} unpriced"
    if state["requests_per_minute"] is not None:
        calls += f"; limit {words.count(state['requests_per_minute'], 'call')} a minute"
    if state["tokens_per_minute"] is not None:
        calls += f"; limit {words.count(state['tokens_per_minute'], 'token')} a minute"
    if state["window"]:
        calls += f"; this {state['window']}, until {state['window_end']}"
    if state["on_short"] == "clamp":
        calls += "; output limit lowered if short"
    return f"{state['scope']}{f' ({name})' if name else ''}  {money}; {tokens}; {calls}"
