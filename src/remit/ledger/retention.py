"""Retention on a schedule: what is past its time is erased while the process runs."""

from __future__ import annotations

import logging
import threading

from remit.kernel.errors import RemitError
from remit.ledger.client import LedgerClient

_log = logging.getLogger("remit.ledger")


class RetentionSchedule:
    """Applies a ledger's retention at once and then now and then, in a thread of its own.

    Args:
        ledger: whose content it is; closed after :meth:`stop`.
        every_s: seconds between two looks.
    """

    def __init__(self, ledger: LedgerClient, *, every_s: float) -> None:
        self._ledger = ledger
        self._every_s = every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="remit-retention", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End; returns when a look that is under way has ended."""
        self._stopped.set()
        self._thread.join()

    def _work(self) -> None:
        while True:
            try:
                for report in self._ledger.retain():
                    _log.info("retention erased %d values: %s", report.values, report.erasure_id)
            except RemitError as error:
                _log.warning("retention could not be applied: %s", error)
            if self._stopped.wait(self._every_s):
                return
