"""``remit key``: virtual keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.budget import limit_options, limits_line, limits_of, state_line
from remit.cli.shared import emit, note, open_ledger, reads, table, whoami

if TYPE_CHECKING:
    from remit.gateway.auth import KeyStore, NewKey, VirtualKey
    from remit.ledger import LedgerClient

_COLUMNS = ("key_id", "name", "role", "state", "team", "limits", "prefix", "expires", "models")


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
    "--role", type=click.Choice(["admin", "operator", "agent", "auditor"]), default="agent",
    show_default=True,
)  # fmt: skip
@limit_options("budget-", 1)
@click.option("--models", callback=_names, metavar="A,B", help="Only these; gpt-4o* is a pattern.")
@click.option("--agents", callback=_names, metavar="A,B", help="Only in the name of these agents.")
@click.option("--tiers", callback=_names, metavar="A,B", help="Only in these: hot, ho2, ho1.")
@click.option("--expires", help="30d, 12h, or a date (its beginning, UTC).")
@click.option("--user", "user_id", default="", help="Id of the user it is for.")
@click.option("--team", "team_id", default="", help="Id of the team.")
@click.option("--organisation", "organisation_id", default="", help="Id of the organisation.")
@reads
def create(root: Path | None, as_json: bool, name: str, expires: str | None, **scopes: Any) -> None:
    """Make a key. It is shown this once."""
    from remit.gateway.auth import expiry_of
    from remit.gateway.budget import TokenBudgeter

    limits = limits_of(scopes)
    with _keys(root) as (client, keys):
        made = keys.create(
            name,
            **scopes,
            expires=expiry_of(expires) if expires is not None else None,
            requested_by=whoami(),
            in_transaction=TokenBudgeter(client).for_new_key(limits, whoami()),
        )
    _show_new(made, as_json)


@key.command("list")
@click.option("--all", "everything", is_flag=True, help="Those that were revoked as well.")
@reads
def list_all(root: Path | None, as_json: bool, everything: bool) -> None:
    """Keys by name, without their secrets."""
    with _keys(root, signing=False) as (client, keys):
        found = list(_with_limits(client, keys.list(include_revoked=everything)))
    rows = [[_cell(item, shown, column) for column in _COLUMNS] for item, shown in found]
    emit(as_json, {"keys": [shown for _, shown in found]}, table(_COLUMNS, rows))


@key.command()
@click.argument("name_or_id")
@reads
def show(root: Path | None, as_json: bool, name_or_id: str) -> None:
    """One key, without its secret: what it may do, its limits and what it spent."""
    from remit.gateway.budget import BudgetScope, TokenBudgeter

    with _keys(root, signing=False) as (client, keys):
        ((item, shown),) = _with_limits(client, [keys.find(name_or_id)])
        scope = BudgetScope(key_id=item.key_id)
        states = [one for one in TokenBudgeter(client).status(scope) if one.scope == scope.key]
    lines = []
    for name, value in shown.items():
        text = ", ".join(value) if isinstance(value, list) else value
        if text and not isinstance(text, dict):
            lines.append(f"{name}: {text}")
    emit(as_json, shown, [*lines, *map(state_line, states)])


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
@click.option("--grace", default="0s", help="The old secret counts for so long: 24h, 15m.")
@reads
def rotate(root: Path | None, as_json: bool, name_or_id: str, grace: str) -> None:
    """Give a key a new secret; its id, scopes, budget and history stay."""
    from remit.gateway.auth import duration_of

    grace_s = duration_of(grace).total_seconds()
    with _keys(root) as (_, keys):
        made = keys.rotate(name_or_id, grace_s=grace_s, requested_by=whoami())
    _show_new(made, as_json)


@contextmanager
def _keys(root: Path | None, *, signing: bool = True) -> Iterator[tuple[LedgerClient, KeyStore]]:
    from remit.gateway.auth import KeyStore

    with open_ledger(root, signing=signing) as client, KeyStore(client) as keys:
        yield client, keys


def _show_new(made: NewKey, as_json: bool) -> None:
    """The secret alone on standard output, so that a script can take it."""
    emit(as_json, {"id": made.key_id, "name": made.name, "key": made.key}, [made.key])
    note(f"This is the key {made.name} ({made.key_id}). It is not stored and will not be shown "
         "again.")  # fmt: skip


def _with_limits(
    client: LedgerClient, found: Iterable[VirtualKey]
) -> Iterator[tuple[VirtualKey, dict[str, Any]]]:
    """Keys as they are shown: with the names of their owners, their limits and spending."""
    from remit.gateway.auth import Directory, shown_keys
    from remit.gateway.budget import TokenBudgeter

    items = list(found)
    return zip(items, shown_keys(items, Directory(client), TokenBudgeter(client)), strict=True)


def _cell(item: VirtualKey, shown: Mapping[str, Any], column: str) -> str:
    if column == "team":
        return str(shown["team_name"] or item.team_id or "-")
    if column == "limits":
        return limits_line(shown["limits"])
    value = getattr(item, column)
    return (",".join(value) or "all") if isinstance(value, tuple) else value or "-"
