"""A permit: a granted request, which lets one exact action begin, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from remit.kernel.canonical import exact_json, sha256_hex
from remit.ledger import Erased, LedgerEntry, Prepared, Transaction, is_authentic

__all__ = ["Permit", "arguments_hash"]

_OF_ORDER = "SELECT id, record FROM entries WHERE work_order_id = ? AND event_type = 'TOOL_INTENT'"
_OF_SESSION = (
    "SELECT id, record FROM entries WHERE session_id = ? AND event_type = 'TOOL_INTENT' AND seq > ?"
)


def arguments_hash(arguments: Mapping[str, Any]) -> str:
    """Return the SHA-256, 64 lower-case hex digits, of the arguments' JCS encoding.

    Arguments that JCS cannot carry (an integer beyond 2**53) are hashed as JSON text with sorted
    keys.

    It is derived from content, and so is content itself on record.

    Raises:
        InvalidInputError: they have no JSON text.
    """
    return sha256_hex(exact_json(dict(arguments)))


@dataclass(frozen=True, slots=True)
class Permit:
    """What a person granted, as it stands on record.

    Attributes:
        request: the ``APPROVAL_REQUESTED``.
        granted: its ``APPROVAL_GRANTED``.
    """

    request: LedgerEntry
    granted: LedgerEntry

    @property
    def arguments(self) -> Any:
        """What the tool is to run with: as asked for, or as the person changed it."""
        return self.granted.metadata.get("arguments", self.request.metadata["arguments"])

    def instead_of(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """What is to run in place of what was asked for; anything else stays, to be refused."""
        asked = self.request.metadata["arguments"]
        if isinstance(asked, Erased) or arguments_hash(asked) != arguments_hash(wanted):
            return dict(wanted)
        return dict(self.arguments)

    def begin(
        self,
        intent: LedgerEntry,
        tool_digest: str,
        prepare: Callable[[LedgerEntry], Prepared],
    ) -> Callable[[Transaction], str]:
        """Writes the ``TOOL_INTENT`` of the action, in the transaction that uses the approval up.

        The function that this returns gives an empty text where the intent was written, else why
        it was not: then nothing was. What else is in the transaction stands either way.

        Args:
            intent: names the tool, its arguments, the call's key; the permit adds ``approval``.
            tool_digest: of the tool's definition as it is now (:attr:`remit.Tool.digest`).
            prepare: of the ledger's handle that the intent is written by.
        """
        request_id = self.request.id
        intent.metadata["approval"] = request_id
        problem = self._mismatch(intent.metadata, tool_digest)
        prepared = None if problem else prepare(intent)

        def write(tx: Transaction) -> str:
            if prepared is None:
                return problem
            expires = self.granted.metadata.get("expires")
            if expires and tx.wall_ms > datetime.fromisoformat(expires).timestamp() * 1000:
                return f"the approval {request_id} ended at {expires}"
            if used_by := self._used_by(tx):
                return f"the approval {request_id} was used already, by {used_by}"
            tx.append(prepared)
            return ""

        return write

    def _mismatch(self, action: Mapping[str, Any], tool_digest: str) -> str:
        """How an action differs from what was granted; empty when it does not."""
        asked, said = self.request.metadata, self.granted.metadata
        if (
            self.granted.event_type != "APPROVAL_GRANTED"
            or self.granted.submission_id != self.request.id
            or not is_authentic(self.granted)
        ):
            return f"{self.granted.id} does not grant {self.request.id}"
        if not action["tool_id"] == asked["tool_id"] == said["tool_id"]:
            return f"the approval {self.request.id} is for the tool {asked['tool_id']}"
        if action["idempotency_key"] != asked["idempotency_key"]:
            return f"the approval {self.request.id} is for another call of {asked['tool_id']}"
        if isinstance(self.arguments, Erased):
            return f"what the approval {self.request.id} is for was erased"
        # Approvals of earlier versions name neither hash: those hold for what was asked.
        granted = said.get("arguments_hash", arguments_hash(self.arguments))
        if arguments_hash(action["arguments"]) != granted:
            return f"the approval {self.request.id} is for other arguments"
        if said.get("tool_digest", tool_digest) != tool_digest:
            return f"the definition of {asked['tool_id']} was changed after {self.request.id}"
        return ""

    def _used_by(self, tx: Transaction) -> str:
        """The intent that used it; empty when none did."""
        provenance = self.request.metadata["provenance"]
        if order := provenance.get("work_order_id"):
            rows = tx.execute(_OF_ORDER, (order,))
        else:
            place = int(self.request.id[4:], 16)
            rows = tx.execute(_OF_SESSION, (provenance["session_id"], place))
        # A quote within any other value would be escaped: this can only be the key itself.
        mark = f'"approval":"{self.request.id}"'
        return next((str(entry_id) for entry_id, record in rows if mark in record), "")
