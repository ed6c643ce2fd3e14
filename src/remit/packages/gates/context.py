"""The root that gates check, and the type of a running gate."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from remit.kernel.errors import RemitError
from remit.kernel.settings import EffectiveSettings, Settings
from remit.ledger import LedgerClient, LedgerEntry, keep_mark, read_mark
from remit.packages.checks import Finding, PackageView, RootDisk
from remit.packages.distribution import Distribution
from remit.packages.registry import Registry

GateRun = Generator[Finding, None, str | tuple[str, Mapping[str, int]]]
"""A running gate: yields findings, and returns one line about the checked things.

A gate that reads the ledger also returns a mark, from which the next run continues. The mark is
recorded and stored if the gate passes.
"""


@dataclass(frozen=True)
class GateContext:
    """An open root with everything that the gates need; the caller closes the ledger.

    Parts that may fail are functions, so that only the gate that needs a part fails with it.
    Packages, their files and the number of entries are read once for each object. :meth:`mark` and
    :meth:`keep` read and store the position of a gate's last pass.

    Attributes:
        root: the root's directory.
        ledger: the root's ledger.
        settings: the settings in force; the shipped defaults if those could not be loaded.
        model: returns provider and model of calls that name none.
        tool_ids: ids of all existing tools.
        settings_error: the reason why the settings could not be loaded, with which G3 fails;
            ``None`` if they could.
        effective: the settings in the form that is recorded; ``None`` if they could not be loaded.
        distribution: returns the running code.
        full: True to read the whole ledger, and ignore earlier verifications.
        jobs: the number of processes that verify a large ledger.
        progress: called with the name of a part, the number of checked items, and of all items.
        most_errors: the number of findings reported for one gate.
    """

    root: Path
    ledger: LedgerClient
    settings: Settings
    model: Callable[[], tuple[str, str]]
    tool_ids: Collection[str]
    settings_error: RemitError | None = None
    effective: EffectiveSettings | None = None
    distribution: Callable[[], Distribution] = Distribution.current
    full: bool = False
    jobs: int = 1
    progress: Callable[[str, int, int], None] = lambda what, done, total: None
    most_errors: int = 20

    @cached_property
    def registry(self) -> Registry:
        """The installed packages, read from the ledger once.

        Raises:
            PackageError: ``registry_damaged``: an entry does not describe a package.
            LedgerError: the ledger cannot be read.
        """
        return Registry.from_ledger(self.ledger)

    @cached_property
    def disk(self) -> RootDisk:
        """Access to the files of the root; the ledger's files need no owner."""
        return RootDisk(self.root, ledger_path=self.settings.ledger.path)

    @cached_property
    def packages(self) -> PackageView:
        """The installed packages with their documents.

        They are read at first use and held; documents that cannot be used are findings of the view.

        Raises:
            PackageError: ``registry_damaged``: an entry does not describe a package.
            LedgerError: the ledger cannot be read.
            OSError: the root cannot be opened.
        """
        routes = self.settings.routing.routes
        return PackageView(self.registry, self.disk, self.tool_ids, routes)

    @cached_property
    def entries(self) -> int:
        """The number of ledger entries at the first use; gates ignore later entries.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return self.ledger.count()

    @property
    def resumes(self) -> bool:
        """True if gates continue from their last pass, because the ledger is large."""
        return not self.full and self.entries > self.settings.gates.full_entries

    def mark(self, gate: str) -> tuple[int, int, str]:
        """Return the position at which the last passing run of a gate ended.

        Args:
            gate: the name of the gate.

        Returns:
            The number of entries that were read; the sequence number from which on an entry may
            still matter, at most that number; and the time of that run as the end of a sentence.
            The result is ``(0, 0, "")`` if there was no such run, if its entries were archived or
            changed since, or if :attr:`resumes` is False.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        found = read_mark(self.ledger, gate) if self.resumes else {}
        if not found:
            return 0, 0, ""
        read = found["size"]
        verified = f"verified on {found['verified']} (--full reads all)"
        return read, found.get("resume_at", read), verified

    def keep(self, gate: str, mark: Mapping[str, int]) -> None:
        """Store the mark of a gate that passed, for :meth:`mark`, in place of an earlier one.

        Nothing is stored for 0 entries, or if the ledger has no marks. A failure to write is
        ignored.

        Args:
            gate: the name of the gate.
            mark: the mark that the gate returned; without ``verified_entries``, 0 entries count.

        Raises:
            EntryNotFoundError: the last verified entry is missing or archived.
            LedgerError: the ledger cannot be read.
        """
        keep_mark(self.ledger, gate, mark.get("verified_entries", 0), dict(mark))


def in_order(
    streams: Iterable[Iterator[LedgerEntry]], entries: int
) -> Iterator[tuple[int, LedgerEntry]]:
    """Merge the results of several queries into the order of the ledger, without a list of all.

    An entry of two results is yielded twice.

    Args:
        streams: results of queries, each in the order of the ledger; their errors are raised.
        entries: the number of entries to consider; iteration ends at the first later one.

    Yields:
        The sequence number of an entry, and the entry.
    """
    numbered = (((entry.seq, entry) for entry in stream) for stream in streams)
    for seq, entry in heapq.merge(*numbered, key=lambda item: item[0]):
        if seq >= entries:
            return
        yield seq, entry
