"""What the gates look at, and what one of them returns."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from remit.kernel.errors import RemitError
from remit.kernel.settings import Settings
from remit.ledger import LedgerClient, LedgerEntry, parse_entry_id
from remit.packages.checks import Finding, PackageView, RootDisk
from remit.packages.distribution import Distribution
from remit.packages.registry import Registry

__all__ = ["GateContext", "GateRun", "Mark", "Summary", "in_order"]


class Summary(NamedTuple):
    """What a gate looked at.

    Attributes:
        message: one line, when nothing is wrong.
        mark: goes on record when it passes, so that the next run can go on from there.
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
        verified: when, and by which entry, ending a sentence; empty when everything is read.
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
        distribution: gives the running code.
        full: read the whole ledger, however great, and whatever was verified before.
        most_errors: how many things that are wrong are reported of one gate.
    """

    root: Path
    ledger: LedgerClient
    settings: Settings
    model: Callable[[], tuple[str, str]]
    tool_ids: Collection[str]
    settings_error: RemitError | None = None
    distribution: Callable[[], Distribution] = Distribution.current
    full: bool = False
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

    def mark(self, gate: str) -> Mark:
        """Where a gate goes on, so as not to read a great ledger again."""
        if self.full or self.entries <= self.settings.gates.full_entries:
            return Mark()
        for entry in self.ledger.query(
            event_type="GATE_PASSED", submission_id=gate, order="desc", limit=1, with_content=False
        ):
            read = entry.metadata.get("verified_entries")
            resume = entry.metadata.get("resume_at", read)
            # A mark that names entries which are not there is not believed.
            if type(read) is int and type(resume) is int and 0 <= resume <= read <= self.entries:
                verified = f"verified at {entry.timestamp} ({entry.id}; --full reads all)"
                return Mark(read, resume, verified)
        return Mark()


def in_order(
    streams: Iterable[Iterator[LedgerEntry]], entries: int
) -> Iterator[tuple[int, LedgerEntry]]:
    """The entries of several queries, of the ledger's first ``entries``, in its order, each with
    its sequence number.
    """
    numbered = (((_seq(entry), entry) for entry in stream) for stream in streams)
    for seq, entry in heapq.merge(*numbered, key=lambda item: item[0]):
        if seq >= entries:
            return
        yield seq, entry


def _seq(entry: LedgerEntry) -> int:
    seq = parse_entry_id(entry.id)
    return -1 if seq is None else seq
