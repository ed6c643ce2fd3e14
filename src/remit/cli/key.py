"""``remit key``: virtual keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from remit.cli.budget import limit_options, limits_line, limits_of, state_line
from remit.cli.shared import emit, note, open_ledger, reads, table, whoami

if TYPE_CHECKING:
    from remit.gateway.auth import KeyStore, NewKey, VirtualKey
    from remit.ledger import LedgerClient

F = TypeVar("F", bound=Callable[..., Any])

_COLUMNS = ("key_id", "name", "role", "state", "team", "limits", "prefix", "expires", "models")


def _names(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Return the names of a comma-separated list; none if the option is absent.

    Raises:
        click.BadParameter: the list contains an empty name.
    """
    names = () if value is None else tuple(name.strip() for name in value.split(","))
    if not all(names):
        raise click.BadParameter("The list contains an empty name.")
    return names


def pass_through_options(command: F) -> F:
    """Add ``--pass-through`` and ``--pass-through-unpriced`` to a command."""
    for option, text in (
        ("--pass-through-unpriced", "Like --pass-through; a limit in USD does not refuse these."),
        ("--pass-through", "Requests without a model call that the key may make, such as "
         "'/vector_stores*' or 'POST /uploads*'; repeatable (default: only reads)."),
    ):  # fmt: skip
        command = click.option(option, multiple=True, metavar="PATTERN", help=text)(command)
    return command


@click.group()
def key() -> None:
    """Manage virtual keys, which authenticate callers and limit what they may do."""


@key.command()
@click.option("--name", required=True, help="Display name.")
@click.option(
    "--role", type=click.Choice(["admin", "operator", "agent", "auditor"]), default="agent",
    show_default=True,
)  # fmt: skip
@limit_options("budget-", 1)
@click.option(
    "--models",
    callback=_names,
    metavar="A,B",
    help="Allowed models; gpt-4o* is a pattern (default: all).",
)
@click.option(
    "--agents",
    callback=_names,
    metavar="A,B",
    help="Agents that the key may act for (default: all).",
)
@click.option(
    "--tiers", callback=_names, metavar="A,B", help="Allowed tiers: hot, ho2, ho1 (default: all)."
)
@pass_through_options
@click.option("--expires", help="Expiry: a duration such as 30d or 12h, or a date (00:00 UTC).")
@click.option("--user", "user_id", default="", help="Id of the user that the key belongs to.")
@click.option("--team", "team_id", default="", help="Id of the team that the key belongs to.")
@click.option(
    "--organisation",
    "organisation_id",
    default="",
    help="Id of the organisation that the key belongs to.",
)
@reads
def create(root: Path | None, as_json: bool, name: str, expires: str | None, **scopes: Any) -> None:
    """Create a key and print its secret, which is shown only once."""
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


@key.command("set")
@click.argument("name_or_id")
@pass_through_options
@click.option("--no-pass-through", is_flag=True, help="Empty both lists: only reads are left.")
@reads
def set_lists(
    root: Path | None, as_json: bool, name_or_id: str, no_pass_through: bool, **given: Any
) -> None:
    """Replace the requests without a model call that a key may make. The secret stays."""
    lists = {name: patterns for name, patterns in given.items() if patterns or no_pass_through}
    if not lists or (no_pass_through and any(given.values())):
        raise click.UsageError("Give --pass-through, --pass-through-unpriced, or "
                               "--no-pass-through alone.")  # fmt: skip
    with _keys(root) as (_, keys):
        found = keys.change(name_or_id, **lists, requested_by=whoami())
    allowed = ", ".join(found.pass_through) or "only reads"
    unpriced = ", ".join(found.pass_through_unpriced) or "none"
    line = f"{found.key_id}  {found.name}  pass-through: {allowed}; without a price: {unpriced}"
    emit(as_json, found.to_dict(), [line])


@key.command("list")
@click.option("--all", "everything", is_flag=True, help="Include revoked keys.")
@reads
def list_all(root: Path | None, as_json: bool, everything: bool) -> None:
    """List keys by name, without secrets."""
    with _keys(root, signing=False) as (client, keys):
        found = list(_with_limits(client, keys.list(include_revoked=everything)))
    rows = [[_cell(item, shown, column) for column in _COLUMNS] for item, shown in found]
    emit(as_json, {"keys": [shown for _, shown in found]}, table(_COLUMNS, rows))


@key.command()
@click.argument("name_or_id")
@reads
def show(root: Path | None, as_json: bool, name_or_id: str) -> None:
    """Show a key's permissions, limits and spending, without its secret."""
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
@click.option("--reason", default="", help="Reason (recorded permanently).")
@reads
def revoke(root: Path | None, as_json: bool, name_or_id: str, reason: str) -> None:
    """Revoke a key permanently; all servers refuse it within a second."""
    with _keys(root) as (_, keys):
        key_id = keys.find(name_or_id).key_id
        entry_id = keys.revoke(key_id, reason, requested_by=whoami())
        found = keys.find(key_id)
    line = f"{found.key_id}  {found.name}  revoked at {found.revoked} ({entry_id})"
    emit(as_json, {"id": found.key_id, "name": found.name, "entry": entry_id}, [line])


@key.command()
@click.argument("name_or_id")
@click.option("--grace", default="0s", help="How long the old secret stays valid: 24h, 15m.")
@reads
def rotate(root: Path | None, as_json: bool, name_or_id: str, grace: str) -> None:
    """Give a key a new secret. Its id, permissions, budget and history stay."""
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
    """Print only the secret on standard output, and a note on standard error.

    A script can read the secret directly.
    """
    emit(as_json, {"id": made.key_id, "name": made.name, "key": made.key}, [made.key])
    note(f"This is the secret of the key {made.name} ({made.key_id}). It is not stored and will "
         "not be shown again.")  # fmt: skip


def _with_limits(
    client: LedgerClient, found: Iterable[VirtualKey]
) -> Iterator[tuple[VirtualKey, dict[str, Any]]]:
    """Pair each key with the names of its owners, its limits and its spending."""
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
