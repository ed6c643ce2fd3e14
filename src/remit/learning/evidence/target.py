"""Targets of feedback: an exchange, a work order, a turn or a router's decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from remit.gateway import owner_of
from remit.gateway.auth import Identity
from remit.kernel.errors import NotFoundError
from remit.ledger import EntryNotFoundError, LedgerEntry, LedgerReader, Transaction
from remit.routing import find_decision

__all__ = ["Target", "TargetType", "find_target", "not_found"]

TargetType = Literal["exchange", "work_order", "turn", "decision"]

_ORDER_EVENTS = frozenset({
    "WO_PLANNED", "WO_DISPATCHED", "WO_EXECUTING", "WO_COMPLETED", "WO_FAILED",
})  # fmt: skip
_NEXT_STEP = (
    "Give an entry (LED-…), a work order (WO-…), a routing decision (DEC-…), a turn (SES-…/3), "
    "or a session (SES-…) for its latest turn. `remit trace --last` shows the ids."
)


@dataclass(frozen=True, slots=True)
class Target:
    """The target of feedback.

    Attributes:
        entry: the `EXCHANGE`, `WO_PLANNED`, `TURN_RECORDED` or the decision's `THOUGHT_RECORD`.
        kind: the kind of the target.
    """

    entry: LedgerEntry
    kind: TargetType

    @property
    def session_id(self) -> str:
        """The session of the target; may be empty."""
        found = self.entry.metadata.get("session_id") or _provenance(self.entry).get("session_id")
        return str(found or "")

    @property
    def subject_id(self) -> str | None:
        """The person whom the content concerns; ``None`` if there is none."""
        found = self.entry.metadata.get("subject_id")
        return found if isinstance(found, str) and found else None

    def is_of(self, tx: Transaction, identity: Identity) -> bool:
        """Return True if a caller may give feedback on the target.

        A key for one session may do so only in that session, and an agent's key only on its own
        exchanges. Other roles may rate everything.
        """
        if identity.session_id and identity.session_id != self.session_id:
            return False
        if identity.role != "agent":
            return True
        rows = tx.execute(
            "SELECT owner FROM session_owners WHERE session_id = ?", (self.session_id,)
        )
        if rows:
            return str(rows[0][0]) == owner_of(identity)
        return bool(identity.key_id) and self.entry.metadata.get("key_id") == identity.key_id


def find_target(ledger: LedgerReader, name: str) -> Target:
    """Return the target that an id names.

    Args:
        name: `LED-…` of an exchange, its `DISPATCH` or `LLM_CALL`, a turn, an event of a work order
            or a decision; `WO-…`; `DEC-…`; a session's id for its latest turn, or the id with `/N`
            for turn N.

    Raises:
        EntryNotFoundError: the id names nothing that can have feedback.
    """
    found = _found(ledger, name)
    if found is None:
        raise not_found(name)
    return found


def not_found(name: str) -> EntryNotFoundError:
    """Return (not raise) the error for a missing target, or a target of another caller.

    The message does not say which of the two applies.

    Args:
        name: the target's id, as the caller gave it.
    """
    return EntryNotFoundError(
        f"{name!r} is not an exchange, work order, turn or decision, so it cannot be rated.",
        next_step=_NEXT_STEP,
    )


def _found(ledger: LedgerReader, name: str) -> Target | None:
    try:
        if name.startswith("LED-"):
            return _of_entry(ledger, ledger.read(name))
        if name.startswith("DEC-"):
            return Target(find_decision(ledger, name), "decision")
    except NotFoundError:
        return None
    if "\x00" in name or not name.isprintable():
        return None
    if name.startswith("WO-"):
        return _order(ledger, name)
    session, slash, number = name.partition("/")
    if not slash:
        turns = ledger.query(session_id=session, event_type="TURN_RECORDED", order="desc", limit=1)
        return next((Target(entry, "turn") for entry in turns), None)
    for entry in ledger.query(session_id=session, event_type="TURN_RECORDED", with_content=False):
        if str(entry.metadata.get("turn_number")) == number:
            return Target(ledger.read(entry.id), "turn")
    return None


def _of_entry(ledger: LedgerReader, entry: LedgerEntry) -> Target | None:
    event, metadata = entry.event_type, entry.metadata
    if event == "EXCHANGE":
        return Target(entry, "exchange")
    if event == "TURN_RECORDED":
        return Target(entry, "turn")
    if event == "THOUGHT_RECORD" and "decision_id" in metadata:
        return Target(entry, "decision")
    if event == "LLM_CALL":
        return _found(ledger, str(metadata["exchange_entry_id"]))
    if event in _ORDER_EVENTS:
        return _order(ledger, entry.submission_id)
    if event == "DISPATCH":
        exchanges = ledger.query(
            session_id=metadata["session_id"], event_type="EXCHANGE", after=entry.id,
            with_content=False,
        )  # fmt: skip
        for exchange in exchanges:
            if exchange.metadata["dispatch_entry_id"] == entry.id:
                return Target(ledger.read(exchange.id), "exchange")
    return None


def _order(ledger: LedgerReader, wo_id: str) -> Target | None:
    planned = ledger.query(work_order_id=wo_id, event_type="WO_PLANNED", limit=1)
    return next((Target(entry, "work_order") for entry in planned), None)


def _provenance(entry: LedgerEntry) -> dict[str, object]:
    found = entry.metadata.get("provenance")
    return found if isinstance(found, dict) else {}
