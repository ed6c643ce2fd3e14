"""Routes of users, teams and organisations, with their keys, budgets and spending."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query

from remit.gateway.auth import Directory, OwnerKind
from remit.gateway.budget import BudgetLimits, TokenBudgeter
from remit.server.api.requests import OwnerRequest, Page, Rename
from remit.server.api.responses.parties import OwnerPage, OwnerShape
from remit.server.api.routes import Caller, Routes, name_of, slice_of

_KINDS: tuple[OwnerKind, ...] = ("user", "team", "organisation")

_A = {"user": "a user", "team": "a team", "organisation": "an organisation"}


def owner_routes(directory: Directory, budgeter: TokenBudgeter) -> Routes:
    """Return the routes that declare, list, show and rename owners of each kind.

    Args:
        directory: declared names of owners.
        budgeter: budgets of the owners.
    """
    routes = Routes("owners")
    for kind in _KINDS:
        _add(routes, kind, directory, budgeter)
    return routes


def _add(routes: Routes, kind: OwnerKind, directory: Directory, budgeter: TokenBudgeter) -> None:
    path = f"/{kind}s"

    @routes.add("GET", path, f"List {kind}s", needs="read", shape=OwnerPage)
    def listed(query: Annotated[Page, Query()]) -> dict[str, Any]:
        """Return owners sorted by id: the declared ones, and those that a key or a budget names."""
        found = directory.list(kind)
        part, more = slice_of(found, (owner.id for owner in found), query.cursor, query.limit)
        return {"owners": directory.described(part, budgeter.list()), "next_cursor": more}

    @routes.add(
        "POST", path, f"Declare {_A[kind]}", needs="manage_keys", shape=OwnerShape, status=201,
        fails=[409],
    )  # fmt: skip
    def create(wanted: OwnerRequest, caller: Caller) -> dict[str, Any]:
        """Declare a name for an id, and set a budget if limits are given."""
        by = name_of(caller)
        limits = BudgetLimits.of(**wanted.model_dump(exclude={"id", "name"}))
        made = directory.declare(
            kind, wanted.id, wanted.name, by=by,
            in_transaction=lambda tx, scope: limits.any
            and budgeter.allocate(scope, limits=limits, by=by, tx=tx),
        )  # fmt: skip
        return directory.described([made], budgeter.list(made.scope))[0]

    @routes.add("GET", f"{path}/{{id:path}}", f"One {kind}", needs="read", shape=OwnerShape)
    def show(id: str) -> dict[str, Any]:  # noqa: A002 - its name in the path
        """Return an owner with members, keys, budget and spending."""
        return directory.described([directory.find(kind, id)], budgeter.list())[0]

    @routes.add(
        "PUT", f"{path}/{{id:path}}", f"Rename {_A[kind]}", needs="manage_keys", shape=OwnerShape
    )
    def rename(id: str, wanted: Rename, caller: Caller) -> dict[str, Any]:  # noqa: A002
        """Change the name; the id, keys and budgets stay."""
        _, after = directory.rename(kind, id, wanted.name, by=name_of(caller))
        return directory.described([after], budgeter.list())[0]
