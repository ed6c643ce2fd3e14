"""The learning report, which reads thousands of exchanges, kept for a minute."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Any, NamedTuple

from remit.contracts import ContractLoader
from remit.kernel.installation import InstalledFiles
from remit.kernel.root import Root
from remit.learning.meta import read_report
from remit.learning.proposals import ProposalError, Proposals
from remit.ledger import LedgerClient

__all__ = ["LATEST", "KeptReport", "Learned"]

LATEST = 2_000
"""Exchanges that are read, at most."""

_FOR_S = 60.0
_NOT_OURS = "What was learned cannot be shown: an entry that it is read from is not Remit's own."
_LOOK = "`remit learn report` fails at the same entry, and says where."
# What makes an older report wrong, not only late: decisions, and content that has to be gone.
_AT_ONCE = (
    "SIGNAL_PROPOSED", "SIGNAL_ADOPTED", "SIGNAL_REJECTED", "SIGNAL_ROLLED_BACK", "ERASURE",
)  # fmt: skip
_LAST_OF = "SELECT " + ", ".join(
    f"(SELECT max(seq) FROM entries WHERE event_type = '{event}')" for event in _AT_ONCE
)


class Learned(NamedTuple):
    """A report.

    Attributes:
        report: as :meth:`~remit.learning.meta.Report.to_dict` has it.
        read_at: when, ISO 8601.
    """

    report: dict[str, Any]
    read_at: str


class KeptReport:
    """Reads the report, and gives it again while nothing was written or a minute has not passed.

    Args:
        root: whose contracts and proposals it is of.
        ledger: the record.
    """

    def __init__(self, root: Root, ledger: LedgerClient) -> None:
        self._root = root
        self._ledger = ledger
        self._lock = threading.Lock()  # of two that ask at once, one waits for the other's
        self._kept: Learned | None = None
        self._head: tuple[int, str] | None = None
        self._decided: tuple[Any, ...] = ()
        self._until = 0.0

    def read(self) -> Learned:
        """The report, a minute old at most.

        Raises:
            ProposalError: an entry that it is read from is not as Remit writes it.
        """
        with self._lock:
            head = self._ledger.head()
            [decided] = self._ledger.select(_LAST_OF)
            is_late = head != self._head and time.monotonic() >= self._until
            if self._kept is None or is_late or decided != self._decided:
                self._kept = Learned(self._read(), datetime.now(UTC).isoformat(timespec="seconds"))
                self._head, self._decided = head, decided
                self._until = time.monotonic() + _FOR_S
            return self._kept

    def _read(self) -> dict[str, Any]:
        contracts = ContractLoader(
            self._root.tier("ho1"), installed=InstalledFiles(self._root.path)
        )
        known = Proposals(self._root, self._ledger)
        try:
            return read_report(self._ledger, known, contracts, latest=LATEST).to_dict()
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            # Learning takes its evidence as Remit wrote it, and from nobody else.
            raise ProposalError("lost", _NOT_OURS, next_step=_LOOK) from error
