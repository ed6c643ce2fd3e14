"""What the gates look at, and what one of them returns."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from remit.kernel.errors import RemitError
from remit.kernel.settings import EffectiveSettings, Settings
from remit.ledger import LedgerClient, LedgerEntry, keep_mark, parse_entry_id, read_mark
from remit.packages.checks import Finding, PackageView, RootDisk
from remit.packages.distribution import Distribution
from remit.packages.registry import Registry

__all__ = ["GateContext", "GateRun", "Mark", "Summary", "in_order", "seq_of"]


class Summary(NamedTuple):
    """What a gate looked at.

    Attributes:
        message: one line, when nothing is wrong.
        mark: goes on record when it passes, and is kept for the next run to go on from.
    """

    message: str
    mark: Mapping[str, int] = {}


GateRun = Generator[Finding, None, str | Summary]
"""A gate at work: yields what is wrong, and returns what it looked at; without a mark as text."""


class Mark(NamedTuple):
    """Where the last run of a gate that passed had got to.

    Attributes:
        verified_entries: all entries before this sequence number were read.
        resume_at: sequence number from which on an entry may still matter; at most the other.
        verified: when, ending a sentence; empty when everything is read.
    """

    verified_entries: int = 0
    resume_at: int = 0
    verified: str = ""


@dataclass(frozen=True)
class GateContext:
    """One root, open, with what the gates need to know of it.

    What may fail is given as a call, so that its failure is that of the gate which needs it.

    Attributes:
        root: its directory.
        ledger: its record.
        settings: in force; the shipped defaults where those could not be loaded.
        model: gives provider and model that answer when a call names none.
        tool_ids: of all tools that there are.
        settings_error: why they could not be loaded; ``None`` when they could. G3 fails with it.
        effective: the settings as they go on record; ``None`` where they could not be loaded.
        distribution: gives the running code.
        full: read the whole ledger, however great, and whatever was verified before.
        jobs: processes to verify a great ledger in.
        progress: called with what is looked at, how much of it is done, and how much there is.
        most_errors: how many things that are wrong are reported of one gate.
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
        """What is installed, as the ledger says.

        Raises:
            PackageError: ``registry_damaged``.
        """
        return Registry.from_ledger(self.ledger)

    @cached_property
    def disk(self) -> RootDisk:
        """The files of the root."""
        return RootDisk(self.root, ledger_path=self.settings.ledger.path)

    @cached_property
    def packages(self) -> PackageView:
        """The installed packages with their files.

        Raises:
            PackageError: ``registry_damaged``.
        """
        routes = self.settings.routing.routes
        return PackageView(self.registry, self.disk, self.tool_ids, routes)

    @cached_property
    def entries(self) -> int:
        """How many entries of the ledger are looked at: those that are there now."""
        return self.ledger.count()

    @property
    def goes_on(self) -> bool:
        """Whether gates go on from where they passed the last time: of a great ledger."""
        return not self.full and self.entries > self.settings.gates.full_entries

    def mark(self, gate: str) -> Mark:
        """Where a gate goes on, so as not to read a great ledger again."""
        found = read_mark(self.ledger, gate) if self.goes_on else {}
        if not found:
            return Mark()
        read = found["size"]
        verified = f"verified on {found['verified']} (--full reads all)"
        return Mark(read, found.get("resume_at", read), verified)

    def keep(self, gate: str, mark: Mapping[str, int]) -> None:
        """Keep where a gate that passed has got to, for :meth:`mark`."""
        keep_mark(self.ledger, gate, mark.get("verified_entries", 0), dict(mark))


def in_order(
    streams: Iterable[Iterator[LedgerEntry]], entries: int
) -> Iterator[tuple[int, LedgerEntry]]:
    """The entries of several queries, of the ledger's first ``entries``, in its order, each with
    its sequence number.
    """
    numbered = (((seq_of(entry), entry) for entry in stream) for stream in streams)
    for seq, entry in heapq.merge(*numbered, key=lambda item: item[0]):
        if seq >= entries:
            return
        yield seq, entry


def seq_of(entry: LedgerEntry) -> int:
    """The sequence number of an entry."""
    seq = parse_entry_id(entry.id)
    return -1 if seq is None else seq
