"""``remit budget``: sets budgets, shows spending, and compares both with the ledger."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.shared import (
    echo_json,
    emit,
    is_great,
    limited,
    note,
    open_ledger,
    progress,
    reads,
    say_list,
    whoami,
)
from remit.kernel.errors import RemitError

if TYPE_CHECKING:
    from remit.gateway.budget import BudgetLimits, BudgetScope, BudgetStatus
    from remit.ledger import LedgerClient

_AMOUNTS = ("usd", "tokens", "turns", "rpm", "tpm")
_OWNERS = ("key", "session", "user", "team", "organisation")


def limit_options(prefix: str = "", least: int = 0) -> Callable[[Any], Any]:
    """Return a decorator that adds the options for limits; :func:`limits_of` reads their values.

    Args:
        prefix: the start of the names of the amount options, such as ``budget-``.
        least: the smallest accepted limit per minute.
    """

    def decorate(function: Any) -> Any:
        for option in (
            windowed,
            click.option("--tpm", type=click.IntRange(least), help="Limit of tokens per minute."),
            click.option("--rpm", type=click.IntRange(least), help="Limit of calls per minute."),
            click.option(f"--{prefix}turns", "turns", type=click.IntRange(0),
                         help="Limit of model calls."),
            click.option(f"--{prefix}tokens", "tokens", type=click.IntRange(0),
                         help="Limit of tokens, input and output together."),
            click.option(f"--{prefix}usd", "usd", metavar="USD",
                         help="Limit in US dollars, such as 12.50."),
        ):  # fmt: skip
            function = option(function)
        return function

    return decorate


def limits_of(given: dict[str, Any]) -> BudgetLimits:
    """Remove the values of :func:`limit_options` from ``given`` and return them as limits."""
    from remit.gateway.budget import BudgetLimits

    names = (*_AMOUNTS, "window", "time_zone", "on_short")
    return BudgetLimits.of(**{name: given.pop(name) for name in names})


def windowed(function: Any) -> Any:
    """Add the options for the period of the limits and for calls above the remaining budget."""
    for option in (
        click.option("--on-short", type=click.Choice(["refuse", "clamp"]), default="refuse",
                     show_default=True, help="If a call may exceed the remaining budget: refuse "
                                             "it, or lower its output limit."),
        click.option("--time-zone", help="Time zone in which a window begins at midnight, such "
                                         "as Europe/Berlin (default: UTC)."),
        click.option("--window", type=click.Choice(["day", "week", "month"]),
                     help="Period of the dollar, token and call limits (default: no period; they "
                          "never reset)."),
    ):  # fmt: skip
        function = option(function)
    return function


@click.group()
def budget() -> None:
    """Show and set budgets of sessions, keys, users, teams and organisations."""


def _scoped(function: Any) -> Any:
    """Add the options that name the owner of a budget."""
    for name in reversed(_OWNERS):
        text = "A virtual key, by name or id." if name == "key" else f"A {name}."
        function = click.option(f"--{name}", help=text.replace("A o", "An o"))(function)
    return click.option("--agent", help="With --session: an agent of the session.")(function)


@budget.command()
@_scoped
@limited
@reads
def show(root: Path | None, as_json: bool, limit: int | None, **named: str | None) -> None:
    """Show limits, spending and reservations of one budget, or of all."""
    from remit.gateway.auth import Directory
    from remit.gateway.budget import TokenBudgeter, usd_of

    with open_ledger(root) as client:
        scope = _scope(client, named)
        states = TokenBudgeter(client).list(scope.key if scope else "")
        names = Directory(client).scope_names()
    if scope is None:
        # Each call counts once: by its key where there is one, else by its session.
        shown = [
            state
            for state in states
            if "/" not in state.scope and state.scope.startswith(("key:", "session:"))
        ]
    else:
        states = [state for state in states if f"{state.scope}/".startswith(f"{scope.key}/")]
        shown = [state for state in states if state.scope == scope.key]
        if not states:
            raise click.UsageError(
                f"There is no budget for {scope.key}. `remit budget set` creates one; usage is "
                "counted from then on."
            )
    limits = [state.nano_limit for state in shown if state.nano_limit is not None]
    found = {
        "scopes": [{**state.to_dict(), "name": names.get(state.scope)} for state in states[:limit]],
        "spent_usd": usd_of(sum(state.spent_nano for state in shown)),
        "reserved_usd": usd_of(sum(state.reserved_nano for state in shown)),
        "limit_usd": usd_of(sum(limits)) if limits else None,
        "spent_tokens": sum(state.spent_tokens for state in shown),
    }
    if as_json:
        echo_json(found)
    else:
        say_list((state_line(state, names.get(state.scope, "")) for state in states), limit)


@budget.command("set")
@_scoped
@limit_options()
@click.option("--unlimited", is_flag=True, help="Remove all limits; usage is still counted.")
@reads
def set_(root: Path | None, as_json: bool, unlimited: bool, **given: Any) -> None:
    """Set the limits of a budget; they replace all earlier limits.

    With --window, the dollar, token and call limits apply to each day, week or month. A change of
    the window starts a new window; any other change keeps what was spent.
    """
    from remit.gateway.auth import Directory
    from remit.gateway.budget import TokenBudgeter

    limits = limits_of(given)
    if limits.any == unlimited:
        raise click.UsageError(
            "--unlimited removes all limits and cannot be combined with a limit."
            if unlimited
            else "No limit was given. Pass --usd, --tokens, --turns, --rpm or --tpm, which "
            "replace all limits, or --unlimited, which removes them."
        )
    named = {name: given.pop(name) for name in (*_OWNERS, "agent")}
    with open_ledger(root, signing=True) as client:
        scope = _scope(client, named)
        if scope is None:
            raise click.UsageError(
                "Give one of --key, --session, --user, --team and --organisation."
            )
        budgeter = TokenBudgeter(client)
        entry_id = budgeter.allocate(scope, limits=limits, by=whoami())
        (state,) = [state for state in budgeter.status(scope) if state.scope == scope.key]
        said = client.read(entry_id).metadata
        name = Directory(client).scope_names().get(state.scope, "")
    before = said.get("before")
    found = {
        "entry": entry_id,
        "by": said["by"],
        "before": before,
        "scope": {**state.to_dict(), "name": name or None},
    }
    emit(as_json, found, [state_line(state, name)])
    if not as_json:
        was = "no budget" if before is None else limits_line(before)
        note(f"Before: {was}. Set by {said['by']}, recorded as {entry_id}.")


@budget.command()
@click.option("--repair", is_flag=True, help="Set the stored balances to the sums of the ledger.")
@click.option("--full", is_flag=True, help="Add up the whole ledger, whatever its size.")
@reads
def check(root: Path | None, as_json: bool, repair: bool, full: bool) -> None:
    """Compare the stored balances with the ledger; exit 1 if they differ.

    In a large ledger ([gates] full_entries) the check continues from the last one.
    """
    from remit.gateway.budget import BudgetAudit, audit_budgets
    from remit.ledger import LedgerError, reason_of

    try:
        with open_ledger(root, signing=repair) as client:
            audit = audit_budgets(
                client,
                repair=repair,
                since_mark=not (full or repair) and is_great(client, root),
                progress=progress("adding up"),
            )
    except Exception as error:
        # Whatever is stored, the command prints its report; other errors are not the ledger's.
        if repair or (isinstance(error, RemitError) and not isinstance(error, LedgerError)):
            raise
        audit = BudgetAudit(0, [], 0, 0, unread=[(None, reason_of(error))])
    verdict = "match" if audit.equal else "repaired" if repair else "MISMATCH"
    problems = [said if seq is None else f"seq {seq}: {said}" for seq, said in audit.unread]
    lines = [
        f"{found.scope}  {found.field}: stored {found.live}, ledger {found.ledger}"
        for found in audit.differences
    ]
    lines += [
        f"{one.row}  {one.field}: stored {one.live}, ledger {one.ledger}" for one in audit.usage
    ]
    lines += problems
    lines.append(
        f"{verdict}: {audit.scopes} scopes; {audit.held_calls} calls in flight reserve "
        f"{audit.held_tokens} tokens"
    )
    found = {"equal": audit.equal, **asdict(audit), "repaired": repair and not audit.equal}
    del found["calls"], found["unread"]
    found["problems"] = problems
    found["usage"] = [one._asdict() for one in audit.usage]
    emit(as_json, found, lines)
    if not audit.equal and not repair:
        sys.exit(1)


def _scope(client: LedgerClient, named: dict[str, str | None]) -> BudgetScope | None:
    from remit.gateway.auth import KeyStore

    agent = named.pop("agent", None) or ""
    given = [(owner, name) for owner, name in named.items() if name]
    if len(given) > 1:
        raise click.UsageError(
            "Give only one of --key, --session, --user, --team and --organisation."
        )
    if agent and not named["session"]:
        raise click.UsageError("The budget of an agent belongs to a session: give --session too.")
    with KeyStore(client) as keys:
        return keys.budget_scope(*given[0], agent=agent) if given else None


def limits_line(limits: BudgetLimits | Mapping[str, Any]) -> str:
    """Return limits as text, such as ``$500, 40 calls a month (UTC)``; ``no limit`` if none is set.

    Args:
        limits: limits, or a mapping as :meth:`BudgetLimits.to_dict` gives it.
    """
    from remit.views.wording import dollars

    stated = limits if isinstance(limits, Mapping) else limits.to_dict()
    amounts = [dollars(stated["usd_limit"])] if "usd_limit" in stated else []
    units = {"token_limit": "tokens", "turn_limit": "calls"}
    amounts += [f"{stated[name]:,} {unit}" for name, unit in units.items() if name in stated]
    line = ", ".join(amounts)
    if line and (window := stated.get("window")):
        line += f" a {window} ({stated.get('time_zone')})"
    rates = {"requests_per_minute": "calls a minute", "tokens_per_minute": "tokens a minute"}
    found = [f"{stated[name]:,} {unit}" for name, unit in rates.items() if name in stated]
    line = "; ".join([part for part in (line, ", ".join(found)) if part]) or "no limit"
    lowered = "; output limit lowered if short"
    return line + (lowered if stated.get("on_short") == "clamp" else "")


def state_line(state: BudgetStatus, name: str = "") -> str:
    """Return the state of a budget as one line, with the name of the owner."""
    shown = state.to_dict()
    money = f"{shown['spent_usd']:.6f} USD spent"
    if shown["limit_usd"] is not None:
        money += f" of {shown['limit_usd']:.6f}"
    if shown["reserved_usd"]:
        money += f", {shown['reserved_usd']:.6f} reserved"
    tokens = f"{state.spent_tokens} tokens"
    if state.token_limit is not None:
        tokens += f" of {state.token_limit}"
    calls = f"{state.turns} call{'' if state.turns == 1 else 's'}"
    if state.turn_limit is not None:
        calls += f" of {state.turn_limit}"
    if state.unpriced_calls:
        calls += f", {state.unpriced_calls} unpriced"
    if state.requests_per_minute is not None:
        calls += f"; limit {state.requests_per_minute} calls a minute"
    if state.tokens_per_minute is not None:
        calls += f"; limit {state.tokens_per_minute} tokens a minute"
    if state.period:
        calls += f"; this {state.period}, until {shown['window_end']}"
    if state.on_short:
        calls += "; output limit lowered if short"
    return f"{state.scope}{f' ({name})' if name else ''}  {money}; {tokens}; {calls}"
