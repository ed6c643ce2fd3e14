"""Budgets, raised bounds, calls in flight and conversations as folds over entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import orjson

from remit.gateway.budget.account import FIELDS, MAX_COUNT, OF_A_WINDOW, Hold, row_of
from remit.kernel.budget_values import LEARNING, BudgetScope, charged_beside, nano_of, path_of
from remit.ledger import (
    LedgerClient,
    LedgerEntry,
    Projection,
    Row,
    Select,
    State,
    entry_id,
    parse_entry_id,
)

_REPAIR = "remit budget check --repair"
_OF_A_MINUTE = ("minute", "minute_requests", "minute_tokens")
_COLUMNS = tuple(name for name in FIELDS if name not in ("scope", *_OF_A_MINUTE))
_OWNERS = ("user_id", "team_id", "organisation_id")
_STATED = ("session_id", "agent_id", "contract_id")
_START = (
    "SELECT record FROM entries WHERE session_id = ? AND event_type = 'SESSION_START' "
    "ORDER BY seq LIMIT 1"
)
HOLDS = "SELECT hold FROM holds UNION ALL SELECT hold FROM in_flight WHERE hold <> ''"


def carried_marks(ledger: LedgerClient) -> dict[str, Any]:
    """Return the sums of the archived entries, as the latest ``ARCHIVED`` entries carry them.

    Empty if nothing was archived. The form is that of :func:`carried_of`.

    Args:
        ledger: the ledger.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    mark: dict[str, Any] = {}
    scopes: dict[str, Any] = {}
    for one in ledger.archived_ranges():
        mark = one.carried.get("accounts") or mark
        scopes |= mark.get("scopes", {})
    return {**mark, "scopes": scopes} if mark else {}


def carried_of(rows: Callable[[Projection], list[Row]]) -> dict[str, Any]:
    """Return folded rows in the form that ``ARCHIVED`` entries carry.

    The keys are ``scopes`` (by account: the entry that began its window, and its columns),
    ``raised`` (bounds), ``owners`` (by key id) and ``outstanding`` (open calls and conversations).

    Args:
        rows: returns the folded rows of one of :data:`MONEY`.
    """
    heads = rows(CONVERSATIONS)
    return {
        "scopes": {
            row["scope"]: [row["since"], {name: row.get(name, 0) for name in FIELDS}]
            for row in rows(BUDGETS)
        },
        "raised": [
            [row["provider_id"], row["model_id"], row["percent"]] for row in rows(RAISED_BOUNDS)
        ],
        "owners": {row["key_id"]: {name: row[name] for name in _OWNERS} for row in rows(OWNERS)},
        "outstanding": {
            "calls": [parse_entry_id(row["dispatch_entry_id"]) for row in rows(IN_FLIGHT)],
            "heads": {
                row["response_id"]: parse_entry_id(row["head"]) for row in heads if row["head"]
            },
            "deleted": sorted(row["response_id"] for row in heads if row["optional"]),
        },
    }


def _begin(ledger: LedgerClient, rows: State, table: str) -> Iterator[Any]:
    """Set the rows of one table to the sums of the archived entries."""
    mark = carried_marks(ledger)
    calls = mark.get("outstanding", {})
    match table:
        case "budgets":
            for scope, (since, columns) in mark.get("scopes", {}).items():
                rows.put(table, {**columns, "scope": scope, "since": since})
        case "raised_bounds":
            for provider_id, model_id, percent in mark.get("raised", ()):
                row = {"provider_id": provider_id, "model_id": model_id, "percent": percent}
                rows.put(table, row)
        case "in_flight":
            for seq in calls.get("calls", ()):
                _fold_call(rows, ledger.read(entry_id(seq), with_content=False), seq)
        case "response_ids":
            heads, deleted = calls.get("heads", {}), calls.get("deleted", ())
            for name in dict.fromkeys((*heads, *deleted)):
                head = entry_id(heads[name]) if name in heads else ""
                row = {"response_id": name, "head": head, "optional": int(name in deleted)}
                rows.put(table, {**row, "entry_seq": heads.get(name)})
    yield from ()


# -- owners of keys ----------------------------------------------------------------------------


def _fold_owner(rows: State, entry: LedgerEntry, seq: int) -> None:
    owners = {name: entry.metadata.get(name) or "" for name in _OWNERS}
    key_id, role = entry.metadata["key_id"], entry.metadata.get("role")
    rows.put("key_owners", {"key_id": key_id, "role": role, **owners})


OWNERS = Projection(
    "key_owners", ("key_id",), ("role", *_OWNERS), ("KEY_CREATED",), _fold_owner,
    imported=True, stored=False,
)  # fmt: skip
"""The roles and owners of all keys, imported ones too, which other folds and checks read."""


# -- budgets -----------------------------------------------------------------------------------


def _fold_budget(rows: State, entry: LedgerEntry, seq: int) -> None:
    metadata = entry.metadata
    match entry.event_type:
        case "BUDGET_ALLOCATED":
            _allocate(rows, seq, metadata, entry.decision)
        case "EXCHANGE" if "price_version" in metadata:
            _charge_call(rows, metadata, metadata["input_tokens"] + metadata["output_tokens"])
        case "EXCHANGE_ORPHANED" if "cost_certainty" in metadata:
            _charge_call(rows, metadata, metadata["settled_tokens"])
        case "BUDGET_DEBIT":
            tokens = metadata["input_tokens"] + metadata["output_tokens"]
            _charge(rows, seq, metadata, tokens, turns=False)


def _allocate(rows: State, seq: int, metadata: dict[str, Any], decision: str) -> None:
    window = {
        "period": metadata.get("window", ""), "time_zone": metadata.get("time_zone", ""),
    }  # fmt: skip
    usd, scope = metadata.get("usd_limit"), metadata["scope"]
    account = rows.get("budgets", scope)
    begins = True
    if account is None:
        account = {"scope": scope, "window_number": 0}
    else:
        changed = any(account[name] != window[name] for name in window)
        begins = changed or decision == "RESET"
        account["window_number"] += begins
    if begins:  # Calls that were sent before count to the window before.
        account |= {**dict.fromkeys(OF_A_WINDOW, 0), "since": seq}
    if begins or decision == "WINDOW_SHORTENED":
        end = metadata.get("window_end")
        account["window_end"] = int(datetime.fromisoformat(end).timestamp()) if end else 0
    account |= {
        "token_limit": metadata["token_limit"],
        "turn_limit": metadata["turn_limit"],
        "nano_limit": None if usd is None else nano_of(usd),
        "requests_per_minute": metadata.get("requests_per_minute"),
        "tokens_per_minute": metadata.get("tokens_per_minute"),
        "on_short": metadata.get("on_short", ""),
        **window,
    }
    rows.put("budgets", account)


def _charge_call(rows: State, metadata: dict[str, Any], tokens: int) -> None:
    # A request of a batch counts from when the batch was made, and that was the turn.
    batch = metadata.get("batch_dispatch_id")
    first_attempt = metadata.get("attempt", 1) == 1 and not batch
    began = parse_entry_id(batch or metadata["dispatch_entry_id"])
    _charge(rows, -1 if began is None else began, metadata, tokens, turns=first_attempt)


def _charge(rows: State, began: int, metadata: dict[str, Any], tokens: int, *, turns: bool) -> None:
    key_id = metadata.get("key_id")
    owners = (rows.get("key_owners", key_id) if key_id else None) or {}
    path = path_of(
        metadata.get("session_id") or "",
        metadata.get("work_order_id") or None,
        metadata.get("agent_id") or None,
        key_id,
        *(metadata.get(name) or owners.get(name) for name in _OWNERS),
        charged_to=tuple(metadata.get("charged_to") or ()),
    )
    usd = metadata.get("cost_usd")
    for key in path:
        account = rows.get("budgets", key)
        if account is None or account["since"] > began:
            continue  # The account, or its window, did not exist when the call was sent.
        account["spent_tokens"] = min(account["spent_tokens"] + tokens, MAX_COUNT)
        account["turns"] += turns
        if usd is None:
            account["unpriced_calls"] += tokens > 0
        else:
            account["spent_nano"] = min(account["spent_nano"] + round(usd * 1e9), MAX_COUNT)
        rows.put("budgets", account)


def _add_holds(select: Select, rows: State) -> None:
    """Add the amounts that calls and batches hold; calls count as turns from their start."""
    for (text,) in select(HOLDS, ()):
        if (hold := Hold.read(text)) is None:
            continue
        for scope, number in hold.numbered():
            account = rows.get("budgets", scope)
            if account is None:  # The row is missing, and named so.
                account = {"scope": scope, "window_number": number}
            if account["window_number"] != number:
                continue  # The hold belongs to a window that has ended.
            for name, amount in (
                ("reserved_tokens", hold.tokens), ("reserved_nano", hold.nano or 0),
                ("turns", hold.turns),
            ):  # fmt: skip
                account[name] = (account.get(name) or 0) + amount
            rows.put("budgets", account)


BUDGETS = Projection(
    "budgets", ("scope",), _COLUMNS,
    ("BUDGET_ALLOCATED", "EXCHANGE", "EXCHANGE_ORPHANED", "BUDGET_DEBIT"), _fold_budget,
    memory=("since",), nullable=("token_limit", "turn_limit", "nano_limit", "requests_per_minute",
                                 "tokens_per_minute"),
    imported=True, repair=_REPAIR, begin=_begin, adjust=_add_holds,
)  # fmt: skip
"""The accounts; ``since`` is the entry that began an account's window. No entry gives the counts of
the current minute."""


# -- raised bounds -----------------------------------------------------------------------------


def _fold_bound(rows: State, entry: LedgerEntry, seq: int) -> None:
    raised = entry.metadata.get("raised_bound")
    if raised and "price_version" in entry.metadata:
        causes = ("provider_id", "model_id", "cause", "scope")
        name = row_of([raised[one] for one in causes if one in raised])
        before = rows.get("raised_bounds", *name) or {"percent": 0}
        percent = max(before["percent"], raised["percent"])
        row = {"provider_id": name[0], "model_id": name[1], "percent": percent}
        rows.put("raised_bounds", row)


RAISED_BOUNDS = Projection(
    "raised_bounds", ("provider_id", "model_id"), ("percent",), ("EXCHANGE",), _fold_bound,
    imported=True, repair=_REPAIR, begin=_begin,
)  # fmt: skip
"""The upper bounds that bills raised."""


# -- calls in flight ---------------------------------------------------------------------------


def _fold_call(rows: State, entry: LedgerEntry, seq: int) -> None:
    if entry.event_type == "DISPATCH":
        stated = {name: entry.metadata.get(name) for name in _STATED}
        rows.put("in_flight", {"dispatch_entry_id": entry_id(seq), **stated, "entry_seq": seq})
    elif dispatch := entry.metadata.get("dispatch_entry_id"):
        rows.delete("in_flight", dispatch)


def _check_call(rows: State, live: Row, folded: Row) -> Iterator[str]:
    """Yield the columns that contradict each other about the money that a call holds."""
    if not live["hold"]:
        return
    hold = Hold.read_exact(live["hold"])
    if hold is None:
        yield "hold"
        return
    if hold.tokens != live["reserved_tokens"]:
        yield "reserved_tokens"
    session_id, key_id = live["session_id"], live["key_id"]
    own = set(
        path_of(session_id, live["work_order_id"], live["agent_id"], key_id, None, None, None)
    )
    if charged_beside(hold.scopes, session_id, key_id):
        own |= _of_callers(rows.select, session_id) | {*LEARNING.path}
    owners = ("user", "team", "organisation")
    foreign = {one.partition(":")[0] for one in hold.scopes if one not in own}.difference(owners)
    if foreign:
        yield "hold"
    if "key" in foreign:
        yield "key_id"


def _of_callers(select: Select, session_id: str) -> set[str]:
    """Return the accounts of the callers of a sub-agent's session: sessions, orders and the key."""
    found: set[str] = set()
    seen: set[str] = set()
    while session_id not in seen:
        seen.add(session_id)
        for (stored,) in select(_START, (session_id,)):
            started = orjson.loads(stored)["metadata"]
            if key_id := started.get("key_id"):
                found.update(BudgetScope(key_id=key_id).path)
            if caller := started.get("caller"):
                session_id = caller["session_id"]
                found.update(
                    path_of(session_id, caller["work_order_id"], caller["agent_id"],
                            None, None, None, None)
                )  # fmt: skip
    return found


IN_FLIGHT = Projection(
    "in_flight", ("dispatch_entry_id",),
    (*_STATED, "work_order_id", "key_id", "reserved_tokens", "hold"),
    ("DISPATCH", "EXCHANGE", "EXCHANGE_ORPHANED"), _fold_call,
    begin=_begin, check=_check_call,
)  # fmt: skip
"""The calls that nothing has answered or settled. No entry gives their leases and holds."""


# -- conversations -----------------------------------------------------------------------------


def _fold_conversation(rows: State, entry: LedgerEntry, seq: int) -> None:
    name = entry.metadata.get("conversation_id")
    is_conversation = isinstance(name, str) and name.startswith("conv")
    if is_conversation and entry.metadata.get("outcome", "success") == "success":
        row = rows.get("response_ids", name) or {"response_id": name, "optional": 0}
        row |= {"head": entry_id(seq), "entry_seq": seq}
        if entry.decision == "DELETED":
            # An earlier version gave a deleted conversation a row again when a call of it ended.
            row |= {"head": "", "optional": 1}
        rows.put("response_ids", row)


def _check_conversation(rows: State, live: Row, folded: Row) -> Iterator[str]:
    if not folded["head"]:
        yield "response_id"  # The conversation was deleted.
    elif live["entry_id"] not in (folded["head"], ""):
        yield "entry_id"


CONVERSATIONS = Projection(
    "response_ids", ("response_id",), ("entry_id",),
    ("DISPATCH", "EXCHANGE", "EXCHANGE_ORPHANED", "CONVERSATION_CHANGED"), _fold_conversation,
    memory=("head", "optional"), where="substr(response_id, 1, 4) = 'conv'",
    begin=_begin, check=_check_conversation,
)  # fmt: skip
"""The last entry of each conversation."""

MONEY = (OWNERS, BUDGETS, RAISED_BOUNDS, IN_FLIGHT, CONVERSATIONS)
"""The tables of this package and of the calls that spend, in the order of their folds."""
