"""Routes of budgets."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Query

from remit.gateway.auth import Directory, KeyStore
from remit.gateway.budget import USD_NAMES, BudgetLimits, TokenBudgeter, audit_budgets, usd_of
from remit.ledger import LedgerClient
from remit.server.api.requests import BudgetChange, PrefixQuery
from remit.server.api.responses.budgets import Audit, BudgetPage, BudgetSet
from remit.server.api.routes import Caller, Routes, name_of, slice_of
from remit.server.refusals import HttpError

_OWNERS = {"key", "session", "user", "team", "organisation"}


def budget_routes(
    ledger: LedgerClient,
    budgeter: TokenBudgeter,
    keys: KeyStore,
    directory: Directory,
    full_entries: int,
) -> Routes:
    """Return the routes of budgets: limits, spending, and their check against the ledger.

    The routes refuse with HttpError 400 a change that names no scope or several, or no limit.

    Args:
        ledger: the ledger.
        budgeter: the budgets.
        keys: resolves names of keys.
        directory: names of owners.
        full_entries: a ledger with more entries is checked from where the last audit ended.
    """
    routes = Routes("budgets")

    @routes.add("GET", "/budgets", "List budgets", needs="read", shape=BudgetPage)
    def budgets(query: Annotated[PrefixQuery, Query()]) -> dict[str, Any]:
        """Return every scope with a budget, sorted by name: limits, spending, reservations."""
        found = budgeter.list(query.prefix or "")
        part, more = slice_of(found, (status.scope for status in found), query.cursor, query.limit)
        names = directory.scope_names()
        shown = [{**status.to_dict(), "name": names.get(status.scope)} for status in part]
        return {"scopes": shown, "next_cursor": more}

    @routes.add(
        "PUT", "/budgets", "Set limits", needs="manage_budgets", shape=BudgetSet, fails=[404]
    )
    def change(wanted: BudgetChange, caller: Caller) -> dict[str, Any]:
        """Replace a scope's limits by these. A change of the window starts a new one."""
        owners = wanted.model_dump(include=_OWNERS, exclude_none=True)
        if len(owners) != 1:
            why = "Name only one of key, session, user, team and organisation."
            raise HttpError(400, "invalid_input", why)
        limits = BudgetLimits.of(**wanted.model_dump(exclude={*_OWNERS, "agent", "unlimited"}))
        if limits.any == wanted.unlimited:
            why = "Give usd, tokens, turns, rpm or tpm: these limits replace all earlier ones; or "
            raise HttpError(400, "invalid_input", f"{why}unlimited alone, to take them away.")
        scope = keys.budget_scope(*owners.popitem(), agent=wanted.agent or "")
        entry_id = budgeter.allocate(scope, limits=limits, by=name_of(caller))
        (state,) = [state for state in budgeter.status(scope) if state.scope == scope.key]
        said = ledger.read(entry_id).metadata
        name = directory.scope_names().get(state.scope)
        return {
            "entry": entry_id,
            "by": said["by"],
            "before": said.get("before"),
            "scope": {**state.to_dict(), "name": name},
        }

    @routes.add(
        "GET", "/budgets/check", "Compare budgets with the ledger",
        needs="manage_budgets", shape=Audit,
    )  # fmt: skip
    def check() -> dict[str, Any]:
        """Add up the ledger, and compare the budgets with the result. Operators only.

        A large ledger is added up from the last check on.
        """
        audit = audit_budgets(ledger, since_mark=ledger.count() > full_entries)
        found = asdict(audit)
        del found["calls"]
        found["problems"] = [said for _, said in found.pop("unread")]
        return {
            "equal": audit.equal,
            **found,
            "usage": [one._asdict() for one in audit.usage],
            "differences": [_in_usd(difference) for difference in found["differences"]],
        }

    return routes


def _in_usd(difference: dict[str, Any]) -> dict[str, Any]:
    """Return a difference with money in US dollars."""
    if difference["field"] not in USD_NAMES:
        return difference
    shown = {**difference, "field": USD_NAMES[difference["field"]]}
    for side in ("live", "ledger"):
        if isinstance(shown[side], int):
            shown[side] = usd_of(shown[side])
    return shown
