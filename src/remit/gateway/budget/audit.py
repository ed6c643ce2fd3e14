"""Audit of budgets: their state is computed from the ledger alone and compared with the tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Self

import orjson

from remit.gateway.budget.account import FIELDS, MAX_COUNT, OF_A_WINDOW
from remit.gateway.budget.calls_out import CallsOut
from remit.gateway.budget.holds import Hold
from remit.gateway.budget.raised_bounds import row_of
from remit.kernel.budget import BudgetScope, nano_of
from remit.ledger import (
    KERNEL_ROWS,
    Finding,
    LedgerClient,
    LedgerFormatError,
    Select,
    Transaction,
    UsageDifference,
    as_bytes,
    audit_usage,
    entry_id,
    keep_mark,
    locked,
    pages,
    parse_entry_id,
    read_mark,
    readable,
    until_failure,
)

_EVENTS = (
    "BUDGET_ALLOCATED", "KEY_CREATED", "DISPATCH", "EXCHANGE", "EXCHANGE_ORPHANED", "BUDGET_DEBIT",
    "CONVERSATION_CHANGED",
)  # fmt: skip
_COMPARED = (
    "token_limit", "nano_limit", "turn_limit", "requests_per_minute", "tokens_per_minute",
    "spent_tokens", "spent_nano", "turns", "unpriced_calls", "period", "time_zone", "window_end",
    "window_number", "on_short",
)  # fmt: skip
_TEXTS = {"period": "", "time_zone": "", "on_short": ""}
_RESERVED = ("reserved_tokens", "reserved_nano")
_OWNERS = ("user_id", "team_id", "organisation_id")
_ENTRIES_PER_READ = 4096  # entries looked at together
_MARK = "accounts"
_BOUND = "bound_percent"  # the field of a difference in raised_bounds
# As an expression, which no index has: the entries are read in their order.
_ENTRIES = (
    "SELECT seq, event_type, record FROM entries WHERE seq BETWEEN ? AND ? "
    f"AND event_type || '' IN ({', '.join(map(repr, _EVENTS))}) "
    f"AND (event_type LIKE 'EXCHANGE%' OR {KERNEL_ROWS}) ORDER BY seq"
)
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure of an account that differs between the tables and the ledger.

    Attributes:
        scope: the account, or the model of a raised bound.
        field: the column.
        live: the value in the table; None without a row.
        ledger: the value by the ledger's entries; None without one.
    """

    scope: str
    field: str
    live: int | str | None
    ledger: int | str | None


@dataclass(frozen=True, slots=True)
class BudgetAudit:
    """The result of an audit of budgets.

    Attributes:
        scopes: number of accounts.
        differences: differences of budgets; empty if tables and ledger agree.
        held_tokens: tokens held by calls in flight and batches.
        held_calls: number of those holds.
        calls: problems in the rows of calls in flight and of conversations.
        usage: differences of the table ``usage``.
        unread: entries and tables that could not be read or added up.
    """

    scopes: int
    differences: list[Difference]
    held_tokens: int
    held_calls: int
    calls: list[Finding] = field(default_factory=list)
    usage: list[UsageDifference] = field(default_factory=list)
    unread: list[Finding] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """True if everything could be read and tables and ledger agree."""
        return not (self.differences or self.usage or self.unread)


class _Accounts:
    """Sums of the ledger's entries, by account."""

    def __init__(self) -> None:
        self.by_scope: dict[str, dict[str, Any]] = {}  # The columns of each account.
        self.since: dict[str, int] = {}  # The entry that began each account's window.
        self.raised: dict[tuple[str, str], int] = {}
        self.outstanding = CallsOut()
        self.unread: list[Finding] = []
        self._owners: dict[str, dict[str, str]] = {}

    def read(self, select: Select, first: int, end: int, progress: Progress) -> int:
        """Add the entries from ``first`` to before ``end``; note the unreadable ones in ``unread``.

        Returns:
            The sequence number after the last entry that was added.
        """
        after = first
        for rows in pages(select, _ENTRIES, first, end - 1, _ENTRIES_PER_READ):
            for seq, event_type, stored in rows:
                try:
                    self.add(seq, event_type, orjson.loads(as_bytes(stored)))
                except (ValueError, TypeError, KeyError, AttributeError) as error:
                    said = f"budgets: the entry cannot be added up: {type(error).__name__}: {error}"
                    self.unread.append((seq, said))
            after = rows[-1][0] + 1
            progress(after - first, end - first)
        return after

    def to_mark(self) -> dict[str, Any]:
        """Return the sums as JSON, for :meth:`of_mark`."""
        return {
            "scopes": {
                scope: [self.since[scope], columns] for scope, columns in self.by_scope.items()
            },
            "raised": [[*name, percent] for name, percent in self.raised.items()],
            "owners": self._owners,
            "outstanding": self.outstanding.to_mark(),
        }

    @classmethod
    def of_mark(cls, mark: dict[str, Any]) -> Self:
        """Return the sums that :meth:`to_mark` saved."""
        accounts = cls()
        for scope, (since, columns) in mark["scopes"].items():
            accounts.since[scope], accounts.by_scope[scope] = since, columns
        accounts.raised = {(one[0], one[1]): one[2] for one in mark["raised"]}
        accounts._owners = mark["owners"]
        accounts.outstanding = CallsOut.of_mark(mark["outstanding"])
        return accounts

    def add(self, seq: int, event_type: str, record: dict[str, Any]) -> None:
        """Add one entry."""
        metadata = record["metadata"]
        self.outstanding.add(seq, event_type, record)
        match event_type:
            case "KEY_CREATED":
                owners = {name: metadata.get(name) or "" for name in _OWNERS}
                self._owners[metadata["key_id"]] = owners
            case "BUDGET_ALLOCATED":
                self._allocate(seq, metadata, record["decision"])
            case "EXCHANGE" if "price_version" in metadata:
                self._charge_call(metadata, metadata["input_tokens"] + metadata["output_tokens"])
                self._raise(metadata.get("raised_bound"))
            case "EXCHANGE_ORPHANED" if "cost_certainty" in metadata:
                self._charge_call(metadata, metadata["settled_tokens"])
            case "BUDGET_DEBIT":
                tokens = metadata["input_tokens"] + metadata["output_tokens"]
                self._charge(seq, metadata, tokens, turns=False)

    def _allocate(self, seq: int, metadata: dict[str, Any], decision: str) -> None:
        usd = metadata.get("usd_limit")
        window = {
            "period": metadata.get("window", ""), "time_zone": metadata.get("time_zone", ""),
        }  # fmt: skip
        scope = metadata["scope"]
        columns = self.by_scope.get(scope)
        if columns is None:
            columns = self.by_scope[scope] = dict.fromkeys(FIELDS, 0) | _TEXTS
            self.since[scope] = seq
            begins = True
        else:
            changed = any(columns[name] != window[name] for name in window)
            begins = changed or decision == "RESET"
            if begins:  # calls that were sent before it count to the window before
                self.since[scope] = seq
                columns |= dict.fromkeys(OF_A_WINDOW, 0)
                columns["window_number"] += 1
        if begins or decision == "WINDOW_SHORTENED":
            end = metadata.get("window_end")
            columns["window_end"] = int(datetime.fromisoformat(end).timestamp() if end
                                                else 0)  # fmt: skip
        columns |= {
            "scope": scope,
            "token_limit": metadata["token_limit"],
            "turn_limit": metadata["turn_limit"],
            "nano_limit": None if usd is None else nano_of(usd),
            "requests_per_minute": metadata.get("requests_per_minute"),
            "tokens_per_minute": metadata.get("tokens_per_minute"),
            "on_short": metadata.get("on_short", ""),
            **window,
        }

    def _raise(self, raised: dict[str, Any] | None) -> None:
        if raised:
            cause = ("provider_id", "model_id", "cause", "scope")
            name = row_of([raised[one] for one in cause if one in raised])
            self.raised[name] = max(self.raised.get(name, 0), raised["percent"])

    def _charge_call(self, metadata: dict[str, Any], tokens: int) -> None:
        # A request of a batch counts from when the batch was made, and that was the turn.
        batch = metadata.get("batch_dispatch_id")
        first_attempt = metadata.get("attempt", 1) == 1 and not batch
        began = _seq(batch or metadata["dispatch_entry_id"])
        self._charge(began, metadata, tokens, turns=first_attempt)

    def _charge(self, began: int, metadata: dict[str, Any], tokens: int, *, turns: bool) -> None:
        key_id = metadata.get("key_id")
        owners = self._owners.get(key_id or "", {})
        scope = BudgetScope(
            metadata.get("session_id") or "",
            metadata.get("work_order_id") or None,
            metadata.get("agent_id") or None,
            key_id=key_id,
            user_id=metadata.get("user_id") or owners.get("user_id"),
            team_id=metadata.get("team_id") or owners.get("team_id"),
            organisation_id=metadata.get("organisation_id") or owners.get("organisation_id"),
            charged_to=tuple(metadata.get("charged_to") or ()),
        )
        usd = metadata.get("cost_usd")
        for key in scope.path:
            columns = self.by_scope.get(key)
            if columns is None or self.since[key] > began:
                continue  # The account, or its window, did not exist when the call was sent.
            columns["spent_tokens"] = min(columns["spent_tokens"] + tokens, MAX_COUNT)
            columns["turns"] += turns
            if usd is None:
                columns["unpriced_calls"] += tokens > 0
            else:
                columns["spent_nano"] = min(columns["spent_nano"] + round(usd * 1e9), MAX_COUNT)


def audit_budgets(
    ledger: LedgerClient,
    *,
    repair: bool = False,
    since_mark: bool = False,
    progress: Progress | None = None,
) -> BudgetAudit:
    """Compare the tables of budgets and usage with the ledger. Blocks.

    Entries written during the audit are read in a second round inside a transaction, so the result
    is exact on a busy ledger too. If every entry could be read, the sums are stored as a mark.

    Args:
        ledger: the ledger.
        repair: replace the rows of budgets, raised bounds and usage by those of the ledger; the
            budgets in one transaction.
        since_mark: start from the sums of the latest audit instead of adding up all entries. Only
            :meth:`~remit.ledger.LedgerClient.verify` checks that those entries are unchanged.
        progress: called with ``(done, total)``, first with 0 done; None for no call.

    Returns:
        The differences, also if they were repaired.
    """
    audit = _audit_accounts(ledger, repair, since_mark, progress or (lambda done, total: None))
    return replace(audit, usage=audit_usage(ledger, repair=repair, since_mark=since_mark))


def _audit_accounts(
    ledger: LedgerClient, repair: bool, since_mark: bool, progress: Progress
) -> BudgetAudit:
    total = ledger.count()
    accounts, first = _carried(ledger)
    if since_mark and (mark := read_mark(ledger, _MARK)) and mark["size"] >= first:
        accounts, first = _Accounts.of_mark(mark), mark["size"]
    progress(0, total - first)
    accounts.read(ledger.select, first, total, progress)
    progress(total - first, total - first)
    if not accounts.unread:
        keep_mark(ledger, _MARK, total, accounts.to_mark())

    def compare(select: Select) -> tuple[BudgetAudit, defaultdict[str, Counter[str]]]:
        nonlocal total
        total = accounts.read(select, total, 1 << 62, lambda done, total: None)
        return _compare(select, accounts)

    def repaired(tx: Transaction) -> BudgetAudit:
        audit, held = compare(tx.execute)
        if audit.differences:
            _repair(tx, accounts, held)
        return audit

    return ledger.transact(repaired) if repair else locked(ledger, compare)[0]


def carried_accounts(ledger: LedgerClient, end: int) -> dict[str, Any]:
    """Return the sums of the entries before ``end``, for an archive that removes the entries.

    Only accounts that changed since the previous archive are included.

    Raises:
        LedgerFormatError: an entry cannot be added up.
    """
    accounts, first = _carried(ledger)
    before = accounts.to_mark()["scopes"]
    before = {scope: [since, dict(columns)] for scope, (since, columns) in before.items()}
    accounts.read(ledger.select, first, end, lambda done, total: None)
    if accounts.unread:
        seq, said = accounts.unread[0]
        raise LedgerFormatError(f"{entry_id(seq or 0)} cannot be archived: {said}.")
    mark = accounts.to_mark()
    scopes = {scope: one for scope, one in mark["scopes"].items() if one != before.get(scope)}
    return {**mark, "scopes": scopes}


def _carried(ledger: LedgerClient) -> tuple[_Accounts, int]:
    """Return the sums of the archived entries and the sequence number after the last of them."""
    mark: dict[str, Any] = {}
    scopes: dict[str, Any] = {}
    ranges = ledger.archived_ranges()
    for one in ranges:
        mark = one.carried.get("accounts") or mark
        scopes |= mark.get("scopes", {})
    if not mark:
        return _Accounts(), ranges[-1].end if ranges else 0
    return _Accounts.of_mark({**mark, "scopes": scopes}), ranges[-1].end


def check_budgets(ledger: LedgerClient, since_mark: bool) -> Iterator[Finding]:
    """Yield each difference of accounts, holds and calls in flight from the ledger."""
    audit = _audit_accounts(ledger, False, since_mark, lambda done, total: None)
    yield from audit.unread
    for one in audit.differences:
        table = "raised_bounds" if one.field == _BOUND else "budgets"
        said = f"{table}: {one.field} of {one.scope} is {readable(one.live)}, by the ledger "
        said += readable(one.ledger)
        yield None, f"{said}; `remit budget check --repair` takes what the ledger says"
    yield from audit.calls


def check_usage(ledger: LedgerClient, since_mark: bool) -> Iterator[Finding]:
    """Yield each difference of ``usage`` and ``usage_keys`` from the sums of the entries."""
    for one in audit_usage(ledger, since_mark=since_mark):
        said = f"{one.row}: {one.field} is {readable(one.live)}, by the entries "
        said += readable(one.ledger)
        yield None, f"{said}; `remit budget check --repair` takes what they say"


def _seq(entry_id: str) -> int:
    seq = parse_entry_id(entry_id)
    return -1 if seq is None else seq


def _compare(
    select: Select, accounts: _Accounts
) -> tuple[BudgetAudit, defaultdict[str, Counter[str]]]:
    """Return the audit and the held amounts, keyed by scope."""
    expected = accounts.by_scope
    rows = select(f"SELECT {', '.join(FIELDS)} FROM budgets ORDER BY scope", ())
    live = {row[0]: dict(zip(FIELDS, row, strict=True)) for row in rows}
    rows = select("SELECT reservation_id, hold FROM holds", ())
    calls = list(until_failure("in_flight", lambda: accounts.outstanding.compare(select)))
    for name, text in rows:
        if Hold.read_exact(text) is None:
            calls.append((None, f"holds: the hold of {readable(name)} cannot be read"))
    rows += select("SELECT dispatch_entry_id, hold FROM in_flight WHERE hold <> ''", ())
    holds = [hold for _, text in rows if (hold := Hold.read(text)) is not None]
    held: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for hold in holds:
        for scope, number in hold.numbered():
            if scope in expected and expected[scope]["window_number"] != number:
                continue  # The hold belongs to a window that has ended.
            held[scope].update(
                reserved_tokens=hold.tokens, reserved_nano=hold.nano or 0, turns=hold.turns
            )
    differences = []
    for scope in sorted(live.keys() | expected.keys(), key=str):
        here = live.get(scope, {})
        there = _columns(expected.get(scope), held[scope])
        for name in (*_COMPARED, *_RESERVED):
            if here.get(name) != there.get(name):
                differences.append(Difference(scope, name, here.get(name), there.get(name)))
    rows = select("SELECT provider_id, model_id, percent FROM raised_bounds", ())
    raised = {(provider, model): percent for provider, model, percent in rows}
    for model in sorted(raised.keys() | accounts.raised.keys(), key=str):
        percent, recorded = raised.get(model), accounts.raised.get(model)
        if percent != recorded:
            name = "/".join(map(str, model))
            differences.append(Difference(name, _BOUND, percent, recorded))
    held_tokens = sum(hold.tokens for hold in holds)
    audit = BudgetAudit(
        len(live), differences, held_tokens, len(holds), calls, unread=accounts.unread
    )
    return audit, held


def _columns(account: dict[str, Any] | None, held: Counter[str]) -> dict[str, Any]:
    """Return the columns of an account's row. Calls in flight count as turns from their start."""
    columns = {} if account is None else {**account, "turns": account["turns"] + held["turns"]}
    return columns | {name: held[name] for name in _RESERVED}


def _repair(tx: Transaction, accounts: _Accounts, held: defaultdict[str, Counter[str]]) -> None:
    tx.execute("DELETE FROM budgets")
    rows = []
    for scope, account in accounts.by_scope.items():
        columns = _columns(account, held[scope])
        rows.append([columns[name] for name in FIELDS])
    if rows:
        marks = ", ".join("?" * len(FIELDS))
        tx.execute_many(f"INSERT INTO budgets ({', '.join(FIELDS)}) VALUES ({marks})", rows)
    tx.execute("DELETE FROM raised_bounds")
    if accounts.raised:
        tx.execute_many(
            "INSERT INTO raised_bounds (provider_id, model_id, percent) VALUES (?, ?, ?)",
            [(*name, percent) for name, percent in accounts.raised.items()],
        )
