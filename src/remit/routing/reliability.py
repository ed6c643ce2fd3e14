"""Reliability of models, computed from the latest recorded decisions."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping

from remit.kernel.errors import RemitError
from remit.ledger import LedgerClient, LedgerEntry

_log = logging.getLogger("remit.routing")

USUAL = 95
"""Reliability in percent that is assumed of a model without data."""

# Failures that speak of the model's health, not of what was asked.
_BAD = frozenset({"TIMEOUT", "RATE_LIMITED", "SERVER_ERROR", "PROVIDER_ERROR", "AUTH_ERROR"})
_ASSUMED_CALLS, _ASSUMED_GOOD = 20, 19
_STEP = 5


class Reliability:
    """Reliability of models: the percentage of recent calls that were answered.

    Calls in the latest decisions count if they succeeded or failed for the model's health;
    refusals of a single request do not. To each model's calls 20 are added, of which 19 were
    answered. Values are rounded down to steps of 5, so that equal calls have equal candidates for a
    while. A thread refreshes the numbers.

    Args:
        ledger: the ledger.
        decisions: number of latest decisions to read; 0 to read none.
        every_s: seconds between reads.
    """

    def __init__(self, ledger: LedgerClient, decisions: int, every_s: float) -> None:
        self._ledger = ledger
        self._decisions = decisions
        self._every_s = every_s
        self._lock = threading.Lock()
        self._due = 0.0
        self._known: Mapping[str, int] = {}

    def percents(self) -> Mapping[str, int]:
        """Return the percentages of models with recent calls, keyed by name; may be out of date.

        Starts a refresh in a thread if one is due.
        """
        if self._decisions and time.monotonic() >= self._due:
            with self._lock:
                due, self._due = self._due, time.monotonic() + self._every_s
            if time.monotonic() >= due:
                threading.Thread(target=self._look, name="reliability", daemon=True).start()
        return self._known

    def refresh(self) -> Mapping[str, int]:
        """Read the decisions now and return the percentages, keyed by name. Blocks.

        If the ledger cannot be read, the failure is logged and the earlier values are returned.
        """
        self._look()
        return self._known

    def _look(self) -> None:
        try:
            found = _count(self._ledger, self._decisions)
        except RemitError as error:
            _log.warning("the reliability of models could not be read: %s", error.message)
        except Exception as error:  # noqa: BLE001 - the ledger may have been closed meanwhile
            _log.debug("the reliability of models could not be read: %r", error)
        else:
            if found != self._known:
                self._known = found


def _latest(ledger: LedgerClient, decisions: int) -> Iterator[LedgerEntry]:
    """Yield the latest decisions, newest first."""
    found = (
        ledger.query(
            event_type="THOUGHT_RECORD", outcome=outcome, limit=decisions, order="desc",
            with_content=False,
        )
        for outcome in ("success", "error")
    )  # fmt: skip
    newest = heapq.merge(*found, key=lambda entry: (len(entry.id), entry.id), reverse=True)
    return itertools.islice(newest, decisions)


def _count(ledger: LedgerClient, decisions: int) -> dict[str, int]:
    good: Counter[str] = Counter()
    all_calls: Counter[str] = Counter()
    for entry in _latest(ledger, decisions):
        attempts = entry.metadata.get("attempts")
        for call in attempts if isinstance(attempts, list) else ():
            if not isinstance(call, Mapping) or not isinstance(call.get("model_id"), str):
                continue
            succeeded = call.get("outcome") == "success"
            if succeeded or call.get("error_code") in _BAD:
                all_calls[call["model_id"]] += 1
                good[call["model_id"]] += succeeded
    found = {}
    for model, count in all_calls.items():
        percent = 100 * (good[model] + _ASSUMED_GOOD) // (count + _ASSUMED_CALLS)
        found[model] = percent - percent % _STEP
    return found
