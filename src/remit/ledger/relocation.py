"""Copying a whole ledger to another database.

The record is copied through an export, which is checked line by line; the other tables are copied
directly.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from remit.ledger.client import LedgerClient
from remit.ledger.errors import LedgerError
from remit.ledger.imports import Import
from remit.ledger.schema import STATE_TABLES, TABLES
from remit.ledger.subjects import BEFORE, ERASED
from remit.ledger.tlog import SignedCheckpoint

_BESIDE = {
    **{name: TABLES[name] for name in ("checkpoints", "usage", "usage_keys")},
    # What a process holds just now goes with none.
    **{name: columns for name, columns in STATE_TABLES.items()
       if name not in ("leases", "in_flight", "breakers")},
}  # fmt: skip
_INFO = ("verifier_key", "imported", BEFORE, f"{ERASED}%")
_ROWS = 5_000


def copy_ledger(source: LedgerClient, target: LedgerClient, file: Path) -> SignedCheckpoint:
    """Copy a ledger that nobody writes: record, content, erasures, checkpoints, usage and state.

    The copy is one transaction of the target. Rows about running processes (leases, calls in
    flight, breakers) and the text index are not copied. The source only gets a new checkpoint, if
    it has grown since the last one. Finally the target's tree is compared with the checkpoint.

    Args:
        source: the ledger, opened with its key.
        target: an empty ledger, opened without a key.
        file: path of the export, which holds content and remains afterwards, also after an error;
            an existing file is replaced.

    Returns:
        The head of both ledgers, signed.

    Raises:
        LedgerError: calls are in flight in the source, the source cannot be signed or exported, the
            target refuses the copy, or the copy has another tree. In the last case the target holds
            the copy.
        OSError: the export cannot be opened again.
    """
    if source.select("SELECT 1 FROM in_flight LIMIT 1"):
        raise LedgerError(
            "Calls are in flight, or were when their process died.",
            next_step="Wait for them; `remit ledger recover` of that root settles those of the "
            "dead.",
        )
    source.export(file)
    signed = SignedCheckpoint.parse(source.checkpoint())

    def copy(tx: Any) -> None:
        with file.open("rb") as lines:
            Import(tx, target._store, source.verifier_key).read(lines, None)
        tx.flush()
        for table, columns in _BESIDE.items():
            names = [column.name for column in columns]
            tx.execute(f"DELETE FROM {table}")
            insert = (
                f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
            )
            for rows in _rows(source, table, names):
                tx.execute_many(insert, rows)
        for name in _INFO:
            tx.execute("DELETE FROM ledger_info WHERE name LIKE ?", (name,))
            for row in source.select("SELECT * FROM ledger_info WHERE name LIKE ?", (name,)):
                tx.execute("INSERT INTO ledger_info VALUES (?, ?)", row)

    target.transact(copy)
    if problem := target.checkpoints.lacks(signed.checkpoint):
        raise LedgerError(f"The copy is not the ledger: {problem}")
    return signed


def _rows(source: LedgerClient, table: str, names: list[str]) -> Iterator[list[tuple[Any, ...]]]:
    listed, start = ", ".join(names), 0
    while rows := source.select(
        f"SELECT {listed} FROM {table} ORDER BY {listed} LIMIT {_ROWS} OFFSET ?", (start,)
    ):
        yield rows
        start += len(rows)
