"""The learning report, cached for a minute, because a report reads thousands of exchanges."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Any

from remit.contracts import ContractLoader
from remit.kernel.installed_files import InstalledFiles
from remit.kernel.root import Root
from remit.learning.meta import read_report
from remit.learning.proposals import ProposalError, Proposals
from remit.ledger import LedgerClient

LATEST = 2_000
"""The largest number of exchanges that a report reads."""

_FOR_S = 60.0
_NOT_OURS = "The learning report cannot be shown: a recorded entry does not have Remit's format."
_NEXT_STEP = "Run `remit learn report --debug` to find the entry."
# After these events a cached report would be wrong or show erased content.
_REFRESH_EVENTS = (
    "SIGNAL_PROPOSED", "SIGNAL_CANARY", "SIGNAL_ADOPTED", "SIGNAL_REJECTED", "SIGNAL_ROLLED_BACK",
    "ERASURE",
)  # fmt: skip
_LAST_OF = "SELECT " + ", ".join(
    f"(SELECT max(seq) FROM entries WHERE event_type = '{event}')" for event in _REFRESH_EVENTS
)


class KeptReport:
    """A cached learning report; safe for several threads.

    Args:
        root: the root of the contracts and proposals.
        ledger: the ledger to read.
    """

    def __init__(self, root: Root, ledger: LedgerClient) -> None:
        self._root = root
        self._ledger = ledger
        self._lock = threading.Lock()  # Concurrent readers wait for one computation.
        self._kept: tuple[dict[str, Any], str] | None = None
        self._head: tuple[int, str] | None = None
        self._decided: tuple[Any, ...] = ()
        self._until = 0.0

    def read(self) -> tuple[dict[str, Any], str]:
        """Return the report as data and the time of its computation (ISO 8601). Blocks.

        The report reads the latest 2,000 exchanges. It is computed again if the ledger grew and a
        minute has passed, and at once after an event of a proposal or an erasure. Other threads
        wait for the computation. The data is shared: do not change it.

        Raises:
            ProposalError: a recorded entry does not have the format that Remit writes.
            LedgerError: the ledger cannot be read.
        """
        with self._lock:
            head = self._ledger.head()
            [decided] = self._ledger.select(_LAST_OF)
            is_late = head != self._head and time.monotonic() >= self._until
            if self._kept is None or is_late or decided != self._decided:
                self._kept = self._read(), datetime.now(UTC).isoformat(timespec="seconds")
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
            # Evidence in another format was not written by Remit, so no report uses it.
            raise ProposalError("lost", _NOT_OURS, next_step=_NEXT_STEP) from error
