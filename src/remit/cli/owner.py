"""``remit team``, ``user`` and ``organisation``: manages owners, with keys and budgets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.budget import limit_options, limits_line, limits_of, state_line
from remit.cli.shared import emit, limited, note, open_ledger, reads, say_list, table, whoami

if TYPE_CHECKING:
    from remit.gateway.auth import OwnerKind

_COLUMNS = ("id", "name", "keys", "spent USD", "limit USD")


def _owner_group(kind: OwnerKind, many: str) -> click.Group:
    """Return the commands of one kind of owner, such as ``team``, called ``many`` in the plural."""
    article = "an" if kind == "organisation" else "a"

    @click.group(kind)
    def group() -> None:
        """By name, with keys, budget and spending."""

    group.help = f"Manage {many}, with their keys, budgets and spending."

    @group.command(help=f"Declare {article} {kind}, and set its budget if limits are given.")
    @click.option("--id", "id_", help="Id that keys and budgets refer to (default: derived from "
                                      "the name).")  # fmt: skip
    @click.option("--name", required=True, help="Display name; content that can be erased.")
    @limit_options("budget-")
    @reads
    def create(root: Path | None, as_json: bool, id_: str | None, name: str, **given: Any) -> None:
        from remit.gateway.auth import Directory, id_of
        from remit.gateway.budget import TokenBudgeter

        limits = limits_of(given)
        if not (wanted := id_ if id_ is not None else id_of(name)):
            raise click.UsageError("An id cannot be derived from this name. Give one with --id.")
        with open_ledger(root, signing=True) as client:
            allocate = TokenBudgeter(client).allocate
            made = Directory(client).declare(
                kind, wanted, name, by=whoami(),
                in_transaction=lambda tx, scope: limits.any
                and allocate(scope, limits=limits, by=whoami(), tx=tx),
            )  # fmt: skip
        emit(as_json, made.to_dict(), [f"{made.id}  {made.name}  recorded as {made.entry}"])
        if not as_json and limits.any:
            note(f"Budget: {limits_line(limits)}")
        if not as_json:
            note(f"`remit key create --name … --{kind} {made.id}` creates a key for this {kind}.")

    @group.command("list", help=f"List {many} that were declared, or that a key or a budget names.")
    @limited
    @reads
    def list_all(root: Path | None, as_json: bool, limit: int | None) -> None:
        from remit.gateway.auth import Directory
        from remit.gateway.budget import TokenBudgeter

        with open_ledger(root) as client:
            directory = Directory(client)
            found = directory.described(directory.list(kind), TokenBudgeter(client).list())
        if as_json:
            emit(True, {f"{kind}s": found[:limit]}, ())
            return
        rows = [
            [one["id"], one["name"] or "-", str(len(one["keys"])), f"{one['spent_usd']:.6f}",
             "-" if one["limit_usd"] is None else f"{one['limit_usd']:.2f}"]
            for one in found
        ]  # fmt: skip
        say_list(table(_COLUMNS, rows), limit)

    @group.command(help=f"Show {article} {kind} with members, keys, budget and spending.")
    @click.argument("id_", metavar="ID")
    @reads
    def show(root: Path | None, as_json: bool, id_: str) -> None:
        from remit.gateway.auth import Directory
        from remit.gateway.budget import TokenBudgeter

        with open_ledger(root) as client:
            directory, states = Directory(client), TokenBudgeter(client).list()
            (one,) = directory.described([directory.find(kind, id_)], states)
        lines = [f"{kind} {one['id']}: {one['name'] or 'no declared name'}"]
        if one["entry"]:
            lines.append(f"declared {one['declared']} by {one['by']}, {one['entry']}")
        lines += [f"{name}: {', '.join(one[name])}" for name in ("users", "teams")
                  if one[name] and name != f"{kind}s"]  # fmt: skip
        lines += [f"key {key['name']} ({key['id']}), {key['role']}, {key['state']}"
                  for key in one["keys"]]  # fmt: skip
        lines += [state_line(state) for state in states if state.scope == one["scope"]]
        if not one["budget"]:
            lines.append(f"no budget of its own; its keys spent {one['spent_usd']:.6f} USD, "
                         f"{one['spent_tokens']} tokens")  # fmt: skip
        emit(as_json, one, lines)

    @group.command(help=f"Rename {article} {kind}; id, keys and budgets stay.")
    @click.argument("id_", metavar="ID")
    @click.option("--name", required=True, help="New display name.")
    @reads
    def rename(root: Path | None, as_json: bool, id_: str, name: str) -> None:
        from remit.gateway.auth import Directory

        with open_ledger(root, signing=True) as client:
            before, after = Directory(client).rename(kind, id_, name, by=whoami())
        changed = {"before": before.name or None, "after": after.name, "entry": after.entry}
        line = f"{after.id}  {before.name or '(erased)'} -> {after.name}  recorded as {after.entry}"
        emit(as_json, {**after.to_dict(), **changed}, [line])

    return group


team = _owner_group("team", "teams")
user = _owner_group("user", "users")
organisation = _owner_group("organisation", "organisations")
