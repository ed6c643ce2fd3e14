"""Routes of budgets."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from remit.gateway.auth import KeyStore
from remit.gateway.budget import (
    BudgetLimits,
    BudgetScope,
    BudgetStatus,
    TokenBudgeter,
    audit_budgets,
    nano_of,
    usd_of,
)
from remit.ledger import LedgerClient
from remit.server.api.access import allow, failures
from remit.server.api.pages import answer, slice_of
from remit.server.api.requests import BudgetChange, PrefixQuery
from remit.server.api.responses import Audit, BudgetPage, BudgetSet
from remit.server.refusals import HttpError

__all__ = ["budget_routes"]

_MANAGE = [allow("manage_budgets")]
_NAMED = ("key", "session", "user", "team", "organisation")
_MONEY = {"nano_limit": "limit_usd", "spent_nano": "spent_usd", "reserved_nano": "reserved_usd"}


def budget_routes(ledger: LedgerClient, budgeter: TokenBudgeter, keys: KeyStore) -> APIRouter:
    """What may be used, what has been, and whether the ledger says the same."""
    routes = APIRouter(prefix="/api/budgets", tags=["budgets"])

    @routes.get(
        "", response_model=BudgetPage, responses=failures(), dependencies=[allow("read")],
        summary="List budgets",
    )  # fmt: skip
    def budgets(query: Annotated[PrefixQuery, Query()]) -> Response:
        """Every scope that has a budget, by name: limits, what was spent, what is held."""
        found = budgeter.list(query.prefix or "")
        part, more = slice_of(found, (status.scope for status in found), query.cursor, query.limit)
        return answer({"scopes": [_plain(status) for status in part], "next_cursor": more})

    @routes.put(
        "", response_model=BudgetSet, responses=failures(404), dependencies=_MANAGE,
        summary="Set limits",
    )  # fmt: skip
    def change(wanted: BudgetChange) -> Response:
        """Give a scope these limits, and no others. Opens one that a bill had closed."""
        scope = _scope(keys, wanted)
        limits = BudgetLimits(
            wanted.tokens,
            None if wanted.usd is None else nano_of(wanted.usd),
            wanted.turns,
            wanted.rpm,
            wanted.tpm,
        )
        entry_id = budgeter.allocate(scope, limits=limits)
        (state,) = budgeter.status(scope)
        return answer({"entry": entry_id, "scope": _plain(state)})

    @routes.get(
        "/check", response_model=Audit, responses=failures(), dependencies=_MANAGE,
        summary="Hold budgets against the ledger",
    )  # fmt: skip
    def check() -> Response:
        """Add up the whole ledger and hold the live state against it. Operators only."""
        audit = audit_budgets(ledger)
        found = asdict(audit)
        found["differences"] = [_in_usd(each) for each in found["differences"]]
        return answer({"equal": audit.equal, **found})

    return routes


def _scope(keys: KeyStore, wanted: BudgetChange) -> BudgetScope:
    named = [(name, value) for name in _NAMED if (value := getattr(wanted, name)) is not None]
    if len(named) != 1:
        raise HttpError(
            400, "invalid_input", "Name one of key, session, user, team, organisation, not more."
        )
    ((name, value),) = named
    if name == "session":
        return BudgetScope(value)
    if name == "key" and value != "dev":  # dev mode's own is no virtual key
        value = keys.find(value).key_id
    return BudgetScope(**{f"{name}_id": value})


def _plain(state: BudgetStatus) -> dict[str, Any]:
    shown = asdict(state)
    for name, usd_name in _MONEY.items():
        nano = shown.pop(name)
        shown[usd_name] = None if nano is None else usd_of(nano)
    return {**shown, "closed": bool(state.closed)}


def _in_usd(difference: dict[str, Any]) -> dict[str, Any]:
    """A difference, with money in dollars."""
    if difference["field"] not in _MONEY:
        return difference
    shown = {**difference, "field": _MONEY[difference["field"]]}
    for side in ("live", "ledger"):
        shown[side] = None if shown[side] is None else usd_of(shown[side])
    return shown
