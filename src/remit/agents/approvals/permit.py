"""Permits: each lets one exactly described action begin, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from remit.kernel.canonical import exact_json, sha256_hex
from remit.ledger import Erased, LedgerEntry, Prepared, Transaction, is_authentic

__all__ = ["Permit", "arguments_hash"]

_ORDER_INTENTS = (
    "SELECT id, record FROM entries WHERE work_order_id = ? AND event_type = 'TOOL_INTENT'"
)
_SESSION_INTENTS = (
    "SELECT id, record FROM entries WHERE session_id = ? AND event_type = 'TOOL_INTENT' AND seq > ?"
)


def arguments_hash(arguments: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the JCS encoding of arguments, 64 lower-case hex digits.

    Arguments that JCS cannot express (an integer beyond 2**53) are hashed as JSON text with sorted
    keys. The hash reveals something about content, so entries contain it as content.

    Raises:
        InvalidInputError: the arguments cannot be expressed as JSON.
    """
    return sha256_hex(exact_json(dict(arguments)))


@dataclass(frozen=True, slots=True)
class Permit:
    """The grant of one action.

    Attributes:
        request: the ``APPROVAL_REQUESTED`` entry.
        granted: its ``APPROVAL_GRANTED`` entry.
    """

    request: LedgerEntry
    granted: LedgerEntry

    @property
    def arguments(self) -> Any:
        """The granted arguments: as requested, or as changed by a person.

        An ``Erased`` value if their content was erased.
        """
        return self.granted.metadata.get("arguments", self.request.metadata["arguments"])

    def instead_of(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Return the granted arguments in place of the requested ones.

        Arguments that differ from the request are returned unchanged; :meth:`begin` refuses them.

        Args:
            wanted: the arguments with which the caller would run the tool.
        """
        requested = self.request.metadata["arguments"]
        if isinstance(requested, Erased) or arguments_hash(requested) != arguments_hash(wanted):
            return dict(wanted)
        return dict(self.arguments)

    def begin(
        self,
        intent: LedgerEntry,
        tool_digest: str,
        prepare: Callable[[LedgerEntry], Prepared],
    ) -> Callable[[Transaction], str]:
        """Return a function that writes the ``TOOL_INTENT`` of the granted action in a transaction.

        The function returns an empty text if the intent was written and the permit is thereby used
        up. Otherwise it writes nothing and returns the reason: the action differs from the grant,
        or the grant is expired, used or not valid.

        Args:
            intent: the entry, with the tool, the arguments and the idempotency key. The field
                ``approval`` is added to its metadata.
            tool_digest: hash of the tool's present definition (:attr:`remit.Tool.digest`).
            prepare: prepares the entry for writing, such as
                :meth:`remit.ledger.LedgerClient.prepare`.
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
                return f"the approval {request_id} expired at {expires}"
            if used_by := self._used_by(tx):
                return f"the approval {request_id} was used already, by {used_by}"
            tx.append(prepared)
            return ""

        return write

    def _mismatch(self, action: Mapping[str, Any], tool_digest: str) -> str:
        """Return how an action differs from the grant; empty if they agree."""
        request, grant = self.request.metadata, self.granted.metadata
        if (
            self.granted.event_type != "APPROVAL_GRANTED"
            or self.granted.submission_id != self.request.id
            or not is_authentic(self.granted)
        ):
            return f"{self.granted.id} does not grant {self.request.id}"
        if not action["tool_id"] == request["tool_id"] == grant["tool_id"]:
            return f"the approval {self.request.id} is for the tool {request['tool_id']}"
        if action["idempotency_key"] != request["idempotency_key"]:
            return f"the approval {self.request.id} is for another call of {request['tool_id']}"
        if isinstance(self.arguments, Erased):
            return f"the arguments of the approval {self.request.id} were erased"
        # Approvals of earlier versions contain neither hash and apply to the requested arguments.
        granted_hash = grant.get("arguments_hash", arguments_hash(self.arguments))
        if arguments_hash(action["arguments"]) != granted_hash:
            return f"the approval {self.request.id} is for other arguments"
        if grant.get("tool_digest", tool_digest) != tool_digest:
            return f"the definition of {request['tool_id']} was changed after {self.request.id}"
        return ""

    def _used_by(self, tx: Transaction) -> str:
        """Return the id of the intent that used the permit; empty if it is unused."""
        provenance = self.request.metadata["provenance"]
        if order := provenance.get("work_order_id"):
            rows = tx.execute(_ORDER_INTENTS, (order,))
        else:
            place = int(self.request.id[4:], 16)
            rows = tx.execute(_SESSION_INTENTS, (provenance["session_id"], place))
        # Quotes within values are escaped, so the mark can only match the member itself.
        mark = f'"approval":"{self.request.id}"'
        return next((str(entry_id) for entry_id, record in rows if mark in record), "")
