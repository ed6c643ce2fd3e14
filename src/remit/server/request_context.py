"""An authenticated request, and the context in which its content is recorded."""

from __future__ import annotations

import re
from dataclasses import dataclass

from msgspec import Struct

from remit.gateway import MAX_ID_CHARS
from remit.gateway.auth import Identity
from remit.ledger import LedgerClient, LedgerEntry, Prepared
from remit.server.in_flight_limits import Share
from remit.server.refusals import HttpError

_PRINTABLE = re.compile(rb"[ -~]*")


class RequestContext(Struct, frozen=True, gc=False):
    """The session, the person and the caller for whom a request's content is recorded.

    Immutable.

    Attributes:
        session_id: the session of ``x-remit-session``, of the caller's token, or of key and day.
        named_session_id: the session of ``x-remit-session``; empty without that header.
        subject_id: the person of ``x-remit-subject``, else that of a device's key; may be empty.
        agent_id: the agent of ``x-remit-agent``, or the caller's name.
        key_id: the caller's key; empty for a token without one.
        work_order_id: the order of ``x-remit-work-order`` or of the token; may be empty.
    """

    session_id: str
    named_session_id: str
    subject_id: str
    agent_id: str
    key_id: str
    work_order_id: str

    def prepare(self, ledger: LedgerClient, entry: LedgerEntry) -> Prepared:
        """Prepare an entry that the request causes, with its session, person, agent and key.

        Nothing is written. The entry's own metadata takes precedence.

        Args:
            ledger: the ledger that will hold the entry.
            entry: the entry; its metadata is replaced by an extended copy.

        Raises:
            InvalidInputError: the entry cannot be recorded.
        """
        named = {"session_id": self.session_id, "agent_id": self.agent_id}
        if self.key_id:
            named["key_id"] = self.key_id
        entry.metadata = {**named, **entry.metadata}
        return ledger.prepare(entry, subject_id=self.subject_id or None)


@dataclass(slots=True)
class AuthenticatedRequest:
    """An authenticated request.

    Lives as long as its request.

    Attributes:
        headers: the headers that Remit reads, keyed by lower-case name.
        identity: the caller.
        token: the key or token that authenticated the request; ``None`` in dev mode.
        share: the caller's place among the requests in flight; ``None`` until it is counted.
    """

    headers: dict[bytes, bytes]
    identity: Identity
    token: str | None = None
    share: Share | None = None

    def text(self, name: bytes) -> str:
        """Return a header's value, without surrounding blanks; empty if the header is missing.

        Args:
            name: name of the header in lower case; one of those that Remit reads.

        Raises:
            HttpError: 400, the value is not printable ASCII or is longer than ``MAX_ID_CHARS``.
        """
        raw = self.headers.get(name)
        if raw is None:
            return ""
        value = raw.strip()
        if len(value) > MAX_ID_CHARS or not _PRINTABLE.fullmatch(value):
            raise HttpError(
                400,
                "invalid_header",
                f"The header {name.decode()} is not printable ASCII of at most {MAX_ID_CHARS} "
                "characters; leave the header out, or shorten its value.",
                param=name.decode(),
            )
        return value.decode("ascii")
