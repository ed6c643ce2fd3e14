"""The approval requests that wait for a person, cached between their events."""

from __future__ import annotations

import time

from remit.agents import Approval, ApprovalQueue
from remit.ledger import LedgerClient

_READ = 100  # requests that are read; older ones that still wait are on the page of approvals
_LASTS_S = 10.0  # A request can expire without an event.
_EVENTS = (
    "APPROVAL_REQUESTED", "APPROVAL_SIGNED", "APPROVAL_GRANTED", "APPROVAL_DENIED", "TOOL_INTENT",
)  # fmt: skip
_LATEST = " UNION ALL ".join(
    f"SELECT max(seq) AS seq FROM entries WHERE event_type = '{event}'" for event in _EVENTS
)


class WaitingApprovals:
    """The waiting requests among the latest 100, cached until an event or for ten seconds.

    Threads may share the object: two of them may read the same requests twice, and nothing else.

    Args:
        ledger: the ledger to read.
        approvals: reads the requests.
    """

    def __init__(self, ledger: LedgerClient, approvals: ApprovalQueue) -> None:
        self._ledger = ledger
        self._approvals = approvals
        self._known: tuple[int, float, list[Approval]] = (-1, 0.0, [])

    def read(self) -> list[Approval]:
        """Return the waiting requests, newest first; empty without any.

        Requests are read again after an event of approvals or tools, and after ten seconds. Do not
        change the list, which later callers get too.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        ((latest,),) = self._ledger.select(f"SELECT max(seq) FROM ({_LATEST}) AS latest")
        seq, read_at, found = self._known
        if latest != seq or time.monotonic() > read_at + _LASTS_S:
            found = [one for one in self._approvals.list(limit=_READ) if one.state == "pending"]
            self._known = (latest, time.monotonic(), found)
        return found
