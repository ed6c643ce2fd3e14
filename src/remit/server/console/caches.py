"""The console's caches: usage of past hours and days, open approvals, entries, the learning report.

A page adds up only some hundred rows. The table ``usage`` contains a row for each session and
quarter hour, so a month can have millions of rows. Usage of a past hour does not change, because
entries are written with the current time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, TypeVar

from remit.agents import Approval, ApprovalQueue
from remit.contracts import ContractLoader
from remit.kernel.installed_files import InstalledFiles
from remit.kernel.root import Root
from remit.learning.meta import read_report
from remit.learning.proposals import ProposalError, Proposals
from remit.ledger import LedgerClient, LedgerEntry
from remit.ledger.usage import QUARTER_S
from remit.views.periods import Period, periods_of
from remit.views.usage import UsageRow, quarters_between, read_usage

_MAX_KNOWN = 6_000  # entries of some kilobytes each
_MAX_RESULTS = 64
_MAX_ROWS = 50_000  # A cached row takes half a kilobyte.
_GRACE = 2  # Quarter hours: clocks of several machines may differ, and a commit may be late.
_SUMS = (
    "calls", "failed", "fallbacks", "input_tokens", "output_tokens", "cached_input_tokens",
    "reasoning_tokens", "unpriced_calls", "measured_nano", "estimated_nano", "upper_bound_nano",
)  # fmt: skip
_sums = attrgetter(*_SUMS)
_T = TypeVar("_T")


Window = tuple[int, Sequence[UsageRow]]
"""The first quarter hour (since 1970) of an hour, a day or a part of one, and its usage."""


class KeptUsage:
    """A cache of usage by hour and day, emptied above 50,000 rows.

    Threads may share the object: two of them may read the same rows twice, and nothing else.

    Args:
        ledger: the ledger to read.
    """

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger
        self._kept: dict[tuple[int, int, tuple[str, ...]], list[UsageRow]] = {}
        self._rows = 0

    def read(
        self, by: tuple[str, ...], first: int, end: int, time_zone: str, *, hourly: bool
    ) -> list[Window]:
        """Return the usage of a time range in windows, in order of time.

        The range is cut to the time from the first usage in the ledger to now, and may then be
        empty. Windows are whole days, with hours at both ends of the range. Windows that ended a
        while ago are cached in memory; others are read from the ledger each time.

        Args:
            by: the names to group by, such as ``model``; none for one row per window.
            first: first quarter hour since 1970, inclusive.
            end: last quarter hour, exclusive.
            time_zone: time zone of the days.
            hourly: True limits windows to an hour, so that single hours can be shown.

        Returns:
            Pairs of the window's first quarter hour and its rows; no rows if nothing was used.

        Raises:
            InvalidInputError: a name or the time zone is unknown, or the range has more than 20,000
                periods.
            LedgerError: the ledger cannot be read.
        """
        earliest, latest = quarters_between(self._ledger, None, None)
        now = latest - 1
        span = _windows(max(first, earliest), min(end, latest), time_zone, hourly)
        return [(one.first, self._window(by, one, now)) for one in span]

    def _window(self, by: tuple[str, ...], window: Period, now: int) -> list[UsageRow]:
        place = (window.first, window.end, by)
        found = self._kept.get(place)
        if found is None:
            since, until = (datetime.fromtimestamp(one * QUARTER_S, UTC) for one in window[:2])
            found = read_usage(self._ledger, since=since, until=until, by=by).rows
            if window.end <= now - _GRACE:
                self._keep(place, found)
        return found

    def _keep(self, place: tuple[int, int, tuple[str, ...]], rows: list[UsageRow]) -> None:
        if self._rows + len(rows) > _MAX_ROWS:
            self._kept, self._rows = {}, 0
        self._kept[place] = rows
        self._rows += len(rows)


def _windows(first: int, end: int, time_zone: str, hourly: bool) -> Iterator[Period]:
    """Yield whole days, and hours at both ends, so that a moving end adds few new windows."""
    if hourly:
        yield from periods_of("hour", time_zone, first, end)
        return
    for day in periods_of("day", time_zone, first, end):
        if first < day.first and day.end < end:
            yield day
        else:
            yield from periods_of("hour", time_zone, day.first, day.end)


def added_up(rows: Sequence[UsageRow], names: Mapping[str, str] | None = None) -> UsageRow:
    """Return a row with the sums of other rows; its ``key_name`` is the first that is not empty.

    Args:
        rows: the rows; none gives a row of zeros.
        names: values of the new row's groups, such as ``{"model": "gpt-5"}``; empty if left out.
    """
    columns = zip(*map(_sums, rows), strict=True)
    key_name = next((one.key_name for one in rows if one.key_name), "")
    return UsageRow(names or {}, key_name, *map(sum, columns))


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
        """Return the waiting ones of the latest 100 requests, newest first; empty without any.

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


class KnownEntries(dict[str, LedgerEntry]):
    """Entries without content that pages have read, by hash; emptied above 6,000.

    They are shared, so do not change them. Threads may share the object.
    """

    def __setitem__(self, entry_hash: str, entry: LedgerEntry) -> None:
        if len(self) >= _MAX_KNOWN:
            self.clear()
        super().__setitem__(entry_hash, entry)


class UntilNextEntry:
    """Results of queries, cached until the ledger has another entry, 10 s at most; at most 64.

    A segment takes entries out of the database without another entry, hence the time limit.

    Threads may share the object: two of them may make the same result twice, and nothing else.

    Args:
        ledger: the ledger to read.
    """

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger
        self._known: tuple[Any, float, dict[Hashable, Any]] = (None, 0.0, {})

    def read(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return the result under ``key``, from ``make`` if it is not cached. Do not change it.

        Raises:
            LedgerError: the ledger cannot be read. Errors of ``make`` are raised too.
        """
        head, now = self._ledger.head(), time.monotonic()
        at, since, known = self._known
        if head != at or now > since + _LASTS_S or len(known) >= _MAX_RESULTS:
            known = {}
            self._known = head, now, known
        if key not in known:
            known[key] = make()
        made: _T = known[key]
        return made


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
            return read_report(self._ledger, known, contracts, latest=LATEST)[0]
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            # Evidence in another format was not written by Remit, so no report uses it.
            raise ProposalError("lost", _NOT_OURS, next_step=_NEXT_STEP) from error
