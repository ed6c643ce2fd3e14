"""``remit key``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.budget import limits_of
from remit.cli.shared import emit, note, open_ledger, reads, table, whoami

if TYPE_CHECKING:
    from remit.gateway.auth import KeyStore, NewKey, VirtualKey
    from remit.ledger import LedgerClient, Transaction

_DURATION = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_NOT_AGAIN = "It is not stored and will not be shown again."
_COLUMNS = ("key_id", "name", "role", "state", "prefix", "expires", "models")


def _usd(ctx: click.Context, param: click.Parameter, value: str | None) -> Decimal | None:
    """An amount of US dollars, exact."""
    try:
        amount = None if value is None else Decimal(value)
    except InvalidOperation:
        amount = Decimal(-1)
    if amount is not None and not (amount.is_finite() and amount >= 0):
        raise click.BadParameter(f"{value!r} is not an amount of dollars from 0 on.")
    return amount


def _expiry(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """A duration from now, or an ISO date or time; without a zone it is UTC."""
    if value is None:
        return None
    try:
        if _DURATION.fullmatch(value):
            return datetime.now(UTC) + _duration(ctx, param, value)
        moment = datetime.fromisoformat(value)
    except OverflowError as error:
        raise click.BadParameter(f"{value!r} is beyond all calendars.") from error
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r} is neither 30d or 12h nor a date such as 2027-01-31."
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _duration(ctx: click.Context, param: click.Parameter, value: str) -> timedelta:
    """``30d``, ``12h``, ``15m``, ``90s``."""
    found = _DURATION.fullmatch(value)
    if found is None:
        raise click.BadParameter(f"{value!r} is not a time such as 30d, 12h, 15m or 90s.")
    try:
        return timedelta(seconds=int(found[1]) * _SECONDS[found[2]])
    except OverflowError as error:
        raise click.BadParameter(f"{value!r} is beyond all calendars.") from error


def _names(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Names with commas between them."""
    names = () if value is None else tuple(name.strip() for name in value.split(","))
    if not all(names):
        raise click.BadParameter("There is an empty name in the list.")
    return names


@click.group()
def key() -> None:
    """Virtual keys: who may call, and what for."""


@key.command()
@click.option("--name", required=True, help="What people call it.")
@click.option(
    "--role",
    type=click.Choice(["admin", "operator", "agent", "auditor"]),
    default="agent",
    show_default=True,
)
@click.option(
    "--budget-usd", callback=_usd, metavar="USD", help="Most US dollars that it may spend."
)
@click.option("--budget-tokens", type=click.IntRange(min=0), help="Most tokens.")
@click.option("--rpm", type=click.IntRange(min=1), help="Most requests a minute.")
@click.option("--tpm", type=click.IntRange(min=1), help="Most tokens a minute.")
@click.option("--models", callback=_names, metavar="A,B", help="Only these; gpt-4o* is a pattern.")
@click.option("--agents", callback=_names, metavar="A,B", help="Only in the name of these agents.")
@click.option("--tiers", callback=_names, metavar="A,B", help="Only in these: hot, ho2, ho1.")
@click.option("--expires", callback=_expiry, help="30d, 12h, or a date (its beginning, UTC).")
@click.option("--user", default="", help="Id of the user it is for.")
@click.option("--team", default="", help="Id of the team.")
@click.option("--organisation", default="", help="Id of the organisation.")
@reads
def create(
    root: Path | None,
    as_json: bool,
    budget_usd: Decimal | None,
    budget_tokens: int | None,
    rpm: int | None,
    tpm: int | None,
    user: str,
    team: str,
    organisation: str,
    **scopes: Any,
) -> None:
    """Make a key. It is shown this once."""
    given = {"usd": budget_usd, "tokens": budget_tokens, "rpm": rpm, "tpm": tpm}
    limits = limits_of(given)
    from remit.gateway.budget import BudgetScope, TokenBudgeter

    with _keys(root) as (client, keys):
        budgeter = TokenBudgeter(client)

        def set_limits(tx: Transaction, key_id: str) -> dict[str, Any]:
            budgeter.allocate(BudgetScope(key_id=key_id), limits=limits, tx=tx)
            return {}

        made = keys.create(
            scopes.pop("name"),
            **scopes,
            user_id=user,
            team_id=team,
            organisation_id=organisation,
            requested_by=whoami(),
            in_transaction=set_limits,
        )
    _show_new(made, as_json)


@key.command("list")
@click.option("--all", "everything", is_flag=True, help="Those that were revoked as well.")
@reads
def list_all(root: Path | None, as_json: bool, everything: bool) -> None:
    """Keys by name, without their secrets."""
    with _keys(root, signing=False) as (_, keys):
        found = keys.list(include_revoked=everything)
    rows = [[_cell(item, column) for column in _COLUMNS] for item in found]
    emit(as_json, {"keys": [_plain(item) for item in found]}, table(_COLUMNS, rows))


@key.command()
@click.argument("name_or_id")
@click.option("--reason", default="", help="Why; stays on record.")
@reads
def revoke(root: Path | None, as_json: bool, name_or_id: str, reason: str) -> None:
    """End a key for good, everywhere within a second. Doing it twice changes nothing."""
    with _keys(root) as (_, keys):
        key_id = keys.find(name_or_id).key_id
        entry_id = keys.revoke(key_id, reason, requested_by=whoami())
        found = keys.find(key_id)
    line = f"{found.key_id}  {found.name}  revoked at {found.revoked}, see {entry_id}"
    emit(as_json, {"id": found.key_id, "name": found.name, "entry": entry_id}, [line])


@key.command()
@click.argument("name_or_id")
@click.option(
    "--grace", callback=_duration, default="0s", help="The old secret counts for so long: 24h, 15m."
)
@reads
def rotate(root: Path | None, as_json: bool, name_or_id: str, grace: timedelta) -> None:
    """Give a key a new secret; its id, scopes, budget and history stay."""
    with _keys(root) as (_, keys):
        made = keys.rotate(name_or_id, grace_s=grace.total_seconds(), requested_by=whoami())
    _show_new(made, as_json)


@contextmanager
def _keys(root: Path | None, *, signing: bool = True) -> Iterator[tuple[LedgerClient, KeyStore]]:
    from remit.gateway.auth import KeyStore

    with open_ledger(root, signing=signing) as client, KeyStore(client) as keys:
        yield client, keys


def _show_new(made: NewKey, as_json: bool) -> None:
    """The secret alone on standard output, so that a script can take it."""
    emit(as_json, {"id": made.key_id, "name": made.name, "key": made.key}, [made.key])
    note(f"This is the key {made.name} ({made.key_id}). {_NOT_AGAIN}")


def _plain(item: VirtualKey) -> dict[str, Any]:
    from dataclasses import asdict

    given = asdict(item)
    return {"id": given.pop("key_id"), "name": given.pop("name"), "state": item.state, **given}


def _cell(item: VirtualKey, column: str) -> str:
    value = getattr(item, column)
    return (",".join(value) or "all") if isinstance(value, tuple) else value or "-"
