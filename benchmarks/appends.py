"""Durable appends: the ledger's ``write`` against bare group commits of the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.floor import BareCommitter, payload_of
from benchmarks.rounds import alternate, new_directory, rate_of_threads
from benchmarks.table import Comparison
from remit.ledger import LedgerClient, LedgerEntry

PROMPT_CHARACTERS = 2_000


def compare(scratch: Path) -> Iterator[Comparison]:
    """One writer, then sixteen."""
    size = bytes_of_an_append(new_directory(scratch))
    for writers, name, aim in ((1, "1 thread", ""), (16, "16 threads", ">= 0.50")):
        floor, ours = alternate(
            scratch, partial(bare_rate, writers, size), partial(ledger_rate, writers)
        )
        yield Comparison(f"appends, {name}", floor, ours, writers, aim)


def bare_rate(writers: int, size: int, directory: Path) -> float:
    """Payloads per second."""
    with BareCommitter(directory / "floor.db") as committer:
        return rate_of_threads(
            writers, lambda number: committer.submit(payload_of(number, size)).result()
        )


def ledger_rate(writers: int, directory: Path) -> float:
    """Entries per second."""
    with LedgerClient(directory / "ledger.db") as ledger:
        return rate_of_threads(writers, lambda number: ledger.write(entry(number)))


def entry(number: int) -> LedgerEntry:
    """An entry with a prompt that no other number gives."""
    return LedgerEntry(
        event_type="NOTE",
        submission_id="SES-BENCHMARK",
        decision="NOTED",
        reason="Noted",
        metadata={"session_id": "SES-BENCHMARK", "prompt": f"{number:<{PROMPT_CHARACTERS}}"},
    )


def bytes_of_an_append(directory: Path) -> int:
    """Bytes of the record and the content of one entry."""
    with LedgerClient(directory / "ledger.db") as ledger:
        ledger.write(entry(0))
        return bytes_on_record(ledger)


def bytes_on_record(ledger: LedgerClient) -> int:
    """Bytes of all records and all content of a ledger."""
    ((records,),) = ledger.select("SELECT sum(length(CAST(record AS BLOB))) FROM entries")
    ((contents,),) = ledger.select("SELECT coalesce(sum(bytes), 0) FROM contents")
    return int(records + contents)
