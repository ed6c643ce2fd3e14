"""What the ledger alone says that budgets have used (SPEC 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import merge
from itertools import takewhile
from operator import itemgetter
from typing import Any

import orjson

from remit.gateway.budget.book import FIELDS, MOST, Hold
from remit.kernel.budget import BudgetLimits, BudgetScope, BudgetStatus, nano_of
from remit.ledger import LedgerClient, LedgerEntry, LedgerError, Transaction, parse_entry_id

__all__ = ["BudgetAudit", "Difference", "audit_budgets"]

_EVENTS = (
    "BUDGET_ALLOCATED", "KEY_CREATED", "EXCHANGE", "EXCHANGE_ORPHANED", "BUDGET_DEBIT",
)  # fmt: skip
_COMPARED = (
    "token_limit", "nano_limit", "turn_limit", "requests_per_minute", "tokens_per_minute",
    "spent_tokens", "spent_nano", "turns", "unpriced_calls", "closed",
)  # fmt: skip
_OWNERS = ("user_id", "team_id", "organisation_id")
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of one account that the live state and the ledger tell differently."""

    scope: str
    field: str
    live: int | None
    ledger: int | None


@dataclass(frozen=True, slots=True)
class BudgetAudit:
    """The live state beside the ledger.

    Attributes:
        scopes: how many accounts there are.
        differences: empty when both say the same.
        held_tokens: held by calls that are out, and by nobody else.
        held_calls: how many those are.
    """

    scopes: int
    differences: list[Difference]
    held_tokens: int
    held_calls: int

    @property
    def equal(self) -> bool:
        """Whether both say the same."""
        return not self.differences


@dataclass(slots=True)
class _Told:
    """One account as the ledger tells it."""

    since: int
    limits: BudgetLimits = field(default_factory=BudgetLimits)
    spent_tokens: int = 0
    spent_nano: int = 0
    turns: int = 0
    unpriced_calls: int = 0
    closed: int = 0

    def value(self, name: str) -> int | None:
        match name:
            case "token_limit":
                return self.limits.tokens
            case "nano_limit":
                return self.limits.nano
            case "turn_limit":
                return self.limits.turns
            case "requests_per_minute" | "tokens_per_minute":
                limit: int | None = getattr(self.limits, name)
                return limit
            case _:
                number: int = getattr(self, name)
                return number


class _Accounts:
    """Adds up the ledger, entry by entry."""

    def __init__(self) -> None:
        self.told: dict[str, _Told] = {}
        self._owners: dict[str, dict[str, str]] = {}

    def take(self, seq: int, entry: LedgerEntry) -> None:
        metadata = entry.metadata
        match entry.event_type:
            case "KEY_CREATED":
                self._owners[metadata["key_id"]] = {
                    name: metadata.get(name) or "" for name in _OWNERS
                }
            case "BUDGET_ALLOCATED":
                self._allocate(seq, metadata)
            case "EXCHANGE" if "price_version" in metadata:
                self._charge(
                    _seq(metadata["dispatch_entry_id"]),
                    metadata,
                    metadata["input_tokens"] + metadata["output_tokens"],
                    metadata.get("cost_usd"),
                    turns=metadata.get("attempt", 1) == 1,
                )
            case "EXCHANGE_ORPHANED" if "cost_certainty" in metadata:
                self._charge(
                    _seq(metadata["dispatch_entry_id"]),
                    metadata,
                    metadata["settled_tokens"],
                    metadata.get("cost_usd"),
                    turns=metadata.get("attempt", 1) == 1,
                )
            case "BUDGET_DEBIT":
                tokens = metadata["input_tokens"] + metadata["output_tokens"]
                self._charge(seq, metadata, tokens, metadata.get("cost_usd"), turns=False)

    def _allocate(self, seq: int, metadata: dict[str, Any]) -> None:
        usd = metadata.get("usd_limit")
        limits = BudgetLimits(
            metadata["token_limit"],
            None if usd is None else nano_of(usd),
            metadata["turn_limit"],
            metadata.get("requests_per_minute"),
            metadata.get("tokens_per_minute"),
        )
        account = self.told.setdefault(metadata["scope"], _Told(seq))
        account.limits, account.closed = limits, 0

    def _charge(
        self, began: int, metadata: dict[str, Any], tokens: int, usd: float | None, *, turns: bool
    ) -> None:
        key_id = metadata.get("key_id")
        owners = self._owners.get(key_id or "", {})
        user_id, team_id, organisation_id = (
            metadata.get(name) or owners.get(name) for name in _OWNERS
        )
        scope = BudgetScope(
            metadata.get("session_id") or "",
            metadata.get("work_order_id") or None,
            metadata.get("agent_id") or None,
            key_id=key_id,
            user_id=user_id,
            team_id=team_id,
            organisation_id=organisation_id,
        )
        nano = None if usd is None else round(usd * 1e9)
        for key in scope.path:
            account = self.told.get(key)
            if account is None or account.since > began:
                continue  # it was not there yet when the call went out
            account.spent_tokens = min(account.spent_tokens + tokens, MOST)
            account.turns += turns
            if nano is None:
                account.unpriced_calls += tokens > 0
            else:
                account.spent_nano = min(account.spent_nano + nano, MOST)
            over = metadata.get("over_bound", ())
            if ("tokens" in over and account.limits.tokens is not None) or (
                "cost" in over and account.limits.nano is not None
            ):
                account.closed = 1


def audit_budgets(
    ledger: LedgerClient, *, repair: bool = False, progress: Progress | None = None
) -> BudgetAudit:
    """Hold the live state of all budgets against the ledger, live holds aside.

    Args:
        ledger: both lie in its database.
        repair: make the live state what the ledger says, in one transaction.
        progress: called now and then with ``(done, in all)``.

    What happens meanwhile is looked at in a second round, inside a transaction that nobody
    else's comes into, so that a busy ledger gives a true answer too.
    """
    accounts = _Accounts()
    total = ledger.count()
    head = ledger.head()
    last = -1 if head is None else head[0]
    for number, (seq, entry) in enumerate(_relevant(ledger, last)):
        accounts.take(seq, entry)
        if progress is not None and number % 1000 == 0:
            progress(last, total)

    has_calls = _has_calls(ledger)

    def finish(tx: Transaction) -> BudgetAudit:
        for seq, entry in _since(tx, last):
            accounts.take(seq, entry)
        return _compare(tx, accounts.told, has_calls=has_calls, repair=repair)

    return ledger.transact(finish)


def _seq(entry_id: str) -> int:
    seq = parse_entry_id(entry_id)
    return -1 if seq is None else seq


def _relevant(ledger: LedgerClient, last: int) -> Iterable[tuple[int, LedgerEntry]]:
    """The entries that count, up to ``last``: each kind by its index, in the ledger's order."""
    streams = (
        ((_seq(entry.id), entry) for entry in ledger.query(event_type=event, with_content=False))
        for event in _EVENTS
    )
    # What comes meanwhile would be seen by one stream and not by another.
    return takewhile(lambda one: one[0] <= last, merge(*streams, key=itemgetter(0)))


def _since(tx: Transaction, last: int) -> Iterable[tuple[int, LedgerEntry]]:
    marks = ", ".join("?" * len(_EVENTS))
    rows = tx.execute(
        f"SELECT seq, event_type, record FROM entries WHERE seq > ? AND event_type IN ({marks}) "
        "ORDER BY seq",
        (last, *_EVENTS),
    )
    for seq, event_type, record in rows:
        told = orjson.loads(bytes(record) if not isinstance(record, (str, bytes)) else record)
        yield (
            seq,
            LedgerEntry(
                event_type=event_type, submission_id=told["submission_id"],
                decision=told["decision"], reason="", metadata=told["metadata"],
            ),
        )  # fmt: skip


def _has_calls(ledger: LedgerClient) -> bool:
    """Whether a gateway ever worked here: what its calls hold lies in a table of its own."""
    try:
        ledger.select("SELECT 1 FROM in_flight LIMIT 1")
    except LedgerError:
        return False
    return True


def _compare(
    tx: Transaction, told: dict[str, _Told], *, has_calls: bool, repair: bool
) -> BudgetAudit:
    rows = tx.execute(f"SELECT {', '.join(FIELDS)} FROM budgets ORDER BY scope")
    live = {row[0]: BudgetStatus(*row) for row in rows}
    rows = tx.execute("SELECT hold FROM holds")
    if has_calls:
        rows += tx.execute("SELECT hold FROM in_flight WHERE hold <> ''")
    holds = [hold for row in rows if (hold := Hold.read(row[0])) is not None]
    held: dict[str, list[int]] = {}
    for hold in holds:
        for key in hold.scopes:
            sums = held.setdefault(key, [0, 0, 0])
            sums[0] += hold.tokens
            sums[1] += hold.nano or 0
            sums[2] += hold.turns
    differences = []
    for key in sorted(live.keys() | told.keys()):
        account, state = told.get(key), live.get(key)
        tokens, nano, turns = held.get(key, [0, 0, 0])
        for name in _COMPARED:
            here = getattr(state, name) if state is not None else None
            there = account.value(name) if account is not None else None
            if name == "turns" and there is not None:
                there += turns  # of calls that are out: counted when they began
            if here != there:
                differences.append(Difference(key, name, here, there))
        for name, sum_ in (("reserved_tokens", tokens), ("reserved_nano", nano)):
            here = getattr(state, name) if state is not None else None
            if here != sum_:
                differences.append(Difference(key, name, here, sum_))
    if repair and differences:
        _repair(tx, told, held)
    return BudgetAudit(len(live), differences, sum(hold.tokens for hold in holds), len(holds))


def _repair(tx: Transaction, told: dict[str, _Told], held: dict[str, list[int]]) -> None:
    tx.execute("DELETE FROM budgets")
    rows = []
    for key, account in told.items():
        tokens, nano, turns = held.get(key, [0, 0, 0])
        state = BudgetStatus(
            key,
            account.limits.tokens,
            account.limits.turns,
            account.spent_tokens,
            tokens,
            account.turns + turns,
            account.limits.nano,
            account.limits.requests_per_minute,
            account.limits.tokens_per_minute,
            account.spent_nano,
            nano,
            account.unpriced_calls,
            closed=account.closed,
        )
        rows.append([getattr(state, name) for name in FIELDS])
    if rows:
        marks = ", ".join("?" * len(FIELDS))
        tx.execute_many(f"INSERT INTO budgets ({', '.join(FIELDS)}) VALUES ({marks})", rows)
