"""Compaction: removing erased bytes from the server's files, as far as a client can."""

from __future__ import annotations

import time

import psycopg

from remit.ledger.postgres.connection import Writer

_RETRY_S = 0.05


def compact(writer: Writer, timeout_s: float) -> tuple[bool, str]:
    """Rewrite the tables with content, and release old segments of the write-ahead log.

    The tables are ``contents``, ``content_search`` and ``content_subjects``. Waits until no older
    transaction or replication slot can see the deleted rows, and no prepared transaction exists. If
    one is left after the time limit, nothing is rewritten. A table is locked while it is rewritten.

    Args:
        writer: connected, outside a transaction.
        timeout_s: time limit of waiting for older transactions, in seconds.

    Returns:
        False if an older transaction stays open, so that nothing was rewritten; and a sentence
        about the remaining bytes, empty if none remain. Bytes remain then, or if the role may not
        switch the log, or if the server recycles the log's segments.

    Raises:
        psycopg.Error: a statement failed.
    """
    if not _wait_for_snapshots(writer, timeout_s):
        return False, (
            "A transaction that began before the erasure is still open, so the server keeps "
            "the erased rows for it. End that transaction, then run `remit ledger compact`."
        )
    ((schema,),) = writer.fetch("SELECT quote_ident(current_schema())")
    for table in ("contents", "content_search", "content_subjects"):
        # A plain VACUUM leaves the bytes in the pages; FULL rewrites the table.
        writer.script(f"VACUUM (FULL) {schema}.{table}")
    try:
        writer.script("SELECT pg_switch_wal()")
        writer.script("CHECKPOINT")
    except psycopg.errors.InsufficientPrivilege:
        return True, (
            "The erased bytes are gone from the tables; the server's write-ahead log "
            "holds them until a superuser runs: SELECT pg_switch_wal(); CHECKPOINT;"
        )
    if writer.fetch("SHOW wal_recycle")[0][0] == "on":
        return True, (
            "The erased bytes are gone from the tables; old segments of the server's write-ahead "
            "log are kept for use again (wal_recycle=on) and hold them until then."
        )
    return True, ""


def _wait_for_snapshots(writer: Writer, timeout_s: float) -> bool:
    """Return True once no transaction can see deleted rows; False after the time limit."""
    ((now,),) = writer.fetch("SELECT pg_current_xact_id()::xid::text")
    end = time.monotonic() + timeout_s
    while True:
        ((older,),) = writer.fetch(
            "SELECT (SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            "AND datname = current_database() AND age(backend_xmin) > age($1::text::xid)) + "
            "(SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()) + "
            "(SELECT count(*) FROM pg_replication_slots WHERE age(xmin) > age($1::text::xid))",
            (now,),
        )
        if not older:
            return True
        if time.monotonic() > end:
            return False
        time.sleep(_RETRY_S)
