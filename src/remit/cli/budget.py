"""``remit budget``: what may be used, what has been, and whether the ledger says the same."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.shared import emit, open_ledger, progress, reads

if TYPE_CHECKING:
    from remit.gateway.budget import BudgetScope, BudgetStatus
    from remit.ledger import LedgerClient

__all__ = ["budget", "limits_of"]


@click.group()
def budget() -> None:
    """Limits and spending of sessions, keys, users, teams and organisations."""


def _scoped(function: Any) -> Any:
    """The options that name whose budget is meant."""
    for name, text in (
        ("organisation", "An organisation."),
        ("team", "A team."),
        ("user", "A user."),
        ("session", "A session."),
        ("key", "A virtual key, by name or id."),
    ):
        function = click.option(f"--{name}", default=None, help=text)(function)
    return function


@budget.command()
@_scoped
@reads
def show(root: Path | None, as_json: bool, **named: str | None) -> None:
    """What was spent, is held, and may be spent; everything when nothing is named."""
    from remit.gateway.budget import TokenBudgeter, usd_of

    with open_ledger(root) as client:
        budgeter = TokenBudgeter(client)
        wanted = _names(client, named)
        if not wanted:
            states = budgeter.list()
            shown = [state for state in states if "/" not in state.scope]
        else:
            prefix = wanted[0].key
            states = [
                state
                for state in budgeter.list(prefix)
                if state.scope == prefix or state.scope.startswith(f"{prefix}/")
            ]
            shown = [state for state in states if state.scope == prefix]
            if not states:
                raise click.UsageError(f"There is no budget for {prefix}.")
    spent, reserved, tokens, limit = _sums(shown, several=not wanted)
    found = {
        "scopes": [_plain(state) for state in states],
        "spent_usd": usd_of(spent),
        "reserved_usd": usd_of(reserved),
        "limit_usd": None if limit is None else usd_of(limit),
        "spent_tokens": tokens,
    }
    emit(as_json, found, map(_line, states))


@budget.command("set")
@_scoped
@click.option("--usd", default=None, help="US dollars, such as 12.50.")
@click.option("--tokens", type=click.IntRange(0), default=None, help="Tokens, in and out.")
@click.option("--turns", type=click.IntRange(0), default=None, help="Model calls.")
@click.option("--rpm", type=click.IntRange(0), default=None, help="Calls a minute.")
@click.option("--tpm", type=click.IntRange(0), default=None, help="Tokens a minute.")
@reads
def set_(
    root: Path | None,
    as_json: bool,
    usd: str | None,
    tokens: int | None,
    turns: int | None,
    rpm: int | None,
    tpm: int | None,
    **named: str | None,
) -> None:
    """Give a scope these limits, and no others. Opens one that a bill had closed."""
    from remit.gateway.budget import TokenBudgeter

    with open_ledger(root, signing=True) as client:
        wanted = _names(client, named)
        if not wanted:
            raise click.UsageError("Name one of --key, --session, --user, --team, --organisation.")
        limits = limits_of({"usd": usd, "tokens": tokens, "turns": turns, "rpm": rpm, "tpm": tpm})
        budgeter = TokenBudgeter(client)
        entry_id = budgeter.allocate(wanted[0], limits=limits)
        (state,) = [one for one in budgeter.status(wanted[0]) if one.scope == wanted[0].key]
    emit(as_json, {"entry": entry_id, "scope": _plain(state)}, [_line(state)])


@budget.command()
@click.option("--repair", is_flag=True, help="Make the live state what the ledger says.")
@reads
def check(root: Path | None, as_json: bool, repair: bool) -> None:
    """Add up the ledger and hold the live state against it; exit 1 when they differ."""
    from remit.gateway import InFlightCalls
    from remit.gateway.budget import TokenBudgeter, audit_budgets

    with open_ledger(root, signing=repair) as client:
        InFlightCalls(client, TokenBudgeter(client), charging=False)  # makes what is not there
        audit = audit_budgets(client, repair=repair, progress=progress("adding up"))
    verdict = "equal" if audit.equal else "repaired" if repair else "NOT EQUAL"
    lines = [
        f"{one.scope}  {one.field}: live {one.live}, by the ledger {one.ledger}"
        for one in audit.differences
    ]
    lines.append(
        f"{verdict}: {audit.scopes} scopes; {audit.held_calls} calls out hold "
        f"{audit.held_tokens} tokens"
    )
    found = {
        "equal": audit.equal,
        "scopes": audit.scopes,
        "differences": [asdict(difference) for difference in audit.differences],
        "held_tokens": audit.held_tokens,
        "held_calls": audit.held_calls,
        "repaired": repair and not audit.equal,
    }
    emit(as_json, found, lines)
    if not audit.equal and not repair:
        sys.exit(1)


def limits_of(given: dict[str, Any]) -> Any:
    """Limits from options: ``usd``, ``tokens``, ``turns``, ``rpm``, ``tpm``, each or ``None``."""
    from remit.gateway.budget import BudgetLimits, nano_of

    usd = given.get("usd")
    return BudgetLimits(
        given.get("tokens"),
        None if usd is None else nano_of(usd),
        given.get("turns"),
        given.get("rpm"),
        given.get("tpm"),
    )


def _names(client: LedgerClient, named: dict[str, str | None]) -> list[BudgetScope]:
    from remit.gateway.auth import KeyStore
    from remit.gateway.budget import BudgetScope

    given = {name: value for name, value in named.items() if value}
    if len(given) > 1:
        raise click.UsageError("Name one scope only.")
    for name, value in given.items():
        if name == "session":
            return [BudgetScope(value)]
        if name == "key":
            with KeyStore(client) as keys:
                value = "dev" if value == "dev" else keys.find(value).key_id
        scope: dict[str, Any] = {f"{name}_id": value}
        return [BudgetScope(**scope)]
    return []


def _sums(states: list[BudgetStatus], *, several: bool) -> tuple[int, int, int, int | None]:
    """Spent and held nano-dollars, spent tokens, and the limit in nano-dollars.

    Over several scopes each call counts once: by its key where keys are, else by its session.
    """
    if several:
        keys = [state for state in states if state.scope.startswith("key:")]
        states = keys + [state for state in states if state.scope.startswith("session:")]
    limits = [state.nano_limit for state in states if state.nano_limit is not None]
    return (
        sum(state.spent_nano for state in states),
        sum(state.reserved_nano for state in states),
        sum(state.spent_tokens for state in states),
        sum(limits) if limits else None,
    )


def _plain(state: BudgetStatus) -> dict[str, Any]:
    from remit.gateway.budget import usd_of

    found = asdict(state)
    for name in ("spent_nano", "reserved_nano"):
        found[name.replace("_nano", "_usd")] = usd_of(found.pop(name))
    limit = found.pop("nano_limit")
    found["limit_usd"] = None if limit is None else usd_of(limit)
    found["closed"] = bool(found["closed"])
    return found


def _line(state: BudgetStatus) -> str:
    from remit.gateway.budget import usd_of

    money = f"{usd_of(state.spent_nano):.6f} USD spent"
    if state.nano_limit is not None:
        money += f" of {usd_of(state.nano_limit):.6f}"
    if state.reserved_nano:
        money += f", {usd_of(state.reserved_nano):.6f} held"
    tokens = f"{state.spent_tokens} tokens"
    if state.token_limit is not None:
        tokens += f" of {state.token_limit}"
    rest = f"{state.turns} calls" + (
        f" of {state.turn_limit}" if state.turn_limit is not None else ""
    )
    if state.unpriced_calls:
        rest += f", {state.unpriced_calls} without a price"
    if state.closed:
        rest += ", CLOSED by a bill above its bound"
    return f"{state.scope}  {money}; {tokens}; {rest}"
