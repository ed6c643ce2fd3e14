"""Calls in flight and heads of conversations, computed from the ledger and compared with rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import orjson

from remit.gateway.budget.holds import Hold
from remit.kernel.budget import LEARNING, BudgetScope, charged_beside, path_of
from remit.ledger import Finding, Select, entry_id, imported_size, parse_entry_id

__all__ = ["CallsOut"]

_ROWS = (
    "SELECT f.dispatch_entry_id, f.session_id, f.agent_id, f.contract_id, f.work_order_id, "
    "f.key_id, f.reserved_tokens, f.hold FROM in_flight f ORDER BY f.dispatch_entry_id"
)
_START = (
    "SELECT record FROM entries WHERE session_id = ? AND event_type = 'SESSION_START' "
    "ORDER BY seq LIMIT 1"
)
_OF_KEYS = ("user", "team", "organisation")
_STATED = ("session_id", "agent_id", "contract_id")


class CallsOut:
    """Calls in flight and conversations, by the ledger's entries.

    Attributes:
        calls: sequence numbers of ``DISPATCH`` entries that nothing has answered or settled.
        heads: the last entry of each open conversation.
        deleted: deleted conversations; a call that was in flight then may end later.
    """

    def __init__(self) -> None:
        self.calls: set[int] = set()
        self.heads: dict[str, int] = {}
        self.deleted: set[str] = set()

    def to_mark(self) -> dict[str, Any]:
        """Return the state as JSON, for :meth:`of_mark`."""
        return {
            "calls": sorted(self.calls), "heads": self.heads, "deleted": sorted(self.deleted),
        }  # fmt: skip

    @classmethod
    def of_mark(cls, mark: dict[str, Any]) -> Self:
        """Return the state that :meth:`to_mark` saved."""
        made = cls()
        made.calls, made.heads = set(mark["calls"]), mark["heads"]
        made.deleted = set(mark.get("deleted", ()))
        return made

    def add(self, seq: int, event_type: str, record: dict[str, Any]) -> None:
        """Add one entry."""
        metadata = record["metadata"]
        if event_type == "DISPATCH":
            self.calls.add(seq)
        elif event_type in ("EXCHANGE", "EXCHANGE_ORPHANED"):
            dispatch = parse_entry_id(metadata.get("dispatch_entry_id") or "")
            self.calls.discard(-1 if dispatch is None else dispatch)
        name = metadata.get("conversation_id")
        is_conversation = isinstance(name, str) and name.startswith("conv")
        if is_conversation and metadata.get("outcome", "success") == "success":
            self.heads[name] = seq
            if record["decision"] == "DELETED":
                del self.heads[name]
                self.deleted.add(name)

    def compare(self, select: Select) -> Iterator[Finding]:
        """Yield each difference of ``in_flight`` and of the heads in ``response_ids`` from the
        ledger.
        """
        there: set[int] = set()
        for dispatch_id, *row in select(_ROWS, ()):
            seq = parse_entry_id(dispatch_id) if isinstance(dispatch_id, str) else None
            if seq not in self.calls or entry_id(seq) != dispatch_id:
                yield None, f"in_flight: no call is out that {dispatch_id!r} began"
                continue
            there.add(seq)
            for name in _differing(select, seq, row):
                yield seq, f"in_flight: {name} of the call is not what its DISPATCH says"
        first = imported_size(select)
        for seq in sorted(self.calls - there):
            if seq >= first:
                yield seq, "in_flight: a call that was never answered or settled has no row"
        rows = select(
            "SELECT response_id, entry_id FROM response_ids WHERE response_id LIKE 'conv%'", ()
        )
        heads: dict[Any, Any] = dict(rows)
        for name, seq in self.heads.items():
            # An earlier version gave a deleted conversation a row again when a call of it ended.
            may_lack = seq < first or name in self.deleted
            if heads.pop(name, "" if may_lack else None) not in (entry_id(seq), ""):
                yield seq, f"response_ids: the conversation {name} does not end in its last entry"
        for name in heads:
            yield None, f"response_ids: there is no conversation {name!r}"


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


def _differing(select: Select, seq: int, row: list[Any]) -> Iterator[str]:
    """Yield the columns of a row in flight that contradict its ``DISPATCH``."""
    *stated, work_order_id, key_id, reserved, held = row
    [(stored,)] = select("SELECT record FROM entries WHERE seq = ?", (seq,))
    metadata = orjson.loads(stored)["metadata"]
    for name, value in zip(_STATED, stated, strict=True):
        if metadata.get(name) != value:
            yield name
    if not held:
        return
    hold = Hold.read_exact(held)
    if hold is None:
        yield "hold"
        return
    if hold.tokens != reserved:
        yield "reserved_tokens"
    own = set(path_of(stated[0], work_order_id, stated[1], key_id, None, None, None))
    if charged_beside(hold.scopes, stated[0], key_id):
        own |= _of_callers(select, stated[0]) | {*LEARNING.path}
    if not own.issuperset(one for one in hold.scopes if one.partition(":")[0] not in _OF_KEYS):
        yield "hold, work_order_id or key_id"
