"""Durable appends: the ledger's ``write`` against bare commits of the same bytes.

On SQLite the floor is a group commit. On PostgreSQL there are two: what an ordinary program
does, as many connections as writers and a commit for each row; and a group commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.floor import BareCommitter, PostgresCommitter, payload_of, rate_of_inserts
from benchmarks.postgres import PostgresServer
from benchmarks.rounds import alternate, new_directory, rate_of_threads
from benchmarks.table import Comparison
from remit.ledger import LedgerClient, LedgerEntry

PROMPT_CHARACTERS = 2_000
WRITERS = ((1, ""), (16, ">= 0.60"), (64, ""))


def compare(scratch: Path) -> Iterator[Comparison]:
    """One writer, sixteen, sixty-four; on SQLite, then on PostgreSQL."""
    size = bytes_of_an_append(new_directory(scratch))
    for writers, aim in WRITERS:
        floor, ours = alternate(
            scratch, partial(bare_rate, writers, size), partial(ledger_rate, writers)
        )
        yield Comparison(f"SQLite appends, {writers} writers", floor, ours, writers, aim)
    with PostgresServer(scratch / "postgres") as server:
        for writers, aim in WRITERS:
            rows, groups, ours = alternate(
                scratch,
                partial(postgres_row_rate, server, writers, size),
                partial(postgres_group_rate, server, writers, size),
                partial(postgres_ledger_rate, server, writers),
            )
            name = f"PostgreSQL appends, {writers} writers"
            yield Comparison(f"{name}, row by row", rows, ours, writers, aim)
            yield Comparison(f"{name}, group commit", groups, ours, writers)


def bare_rate(writers: int, size: int, directory: Path) -> float:
    """Payloads per second."""
    with BareCommitter(directory / "floor.db") as committer:
        return rate_of_threads(
            writers, lambda number: committer.submit(payload_of(number, size)).result()
        )


def ledger_rate(writers: int, directory: Path) -> float:
    """Entries per second."""
    return rate_of_writes(str(directory / "ledger.db"), writers)


def postgres_row_rate(server: PostgresServer, writers: int, size: int, _: Path) -> float:
    """Payloads per second, a connection for each writer and a commit for each row."""
    with server.database() as url:
        return rate_of_inserts(url, writers, size)


def postgres_group_rate(server: PostgresServer, writers: int, size: int, _: Path) -> float:
    """Payloads per second, a commit for all that wait."""
    with server.database() as url, PostgresCommitter(url) as committer:
        return rate_of_threads(
            writers, lambda number: committer.submit(payload_of(number, size)).result()
        )


def postgres_ledger_rate(server: PostgresServer, writers: int, _: Path) -> float:
    """Entries per second."""
    with server.database() as url:
        return rate_of_writes(url, writers)


def rate_of_writes(address: str, writers: int) -> float:
    """Entries per second."""
    with LedgerClient(address) as ledger:
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
