"""What tests do to a ledger's database from outside, whichever engine it is."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from remit.ledger import LedgerClient, LedgerEntry
from remit.ledger.tlog import Signer
from tests.support.postgres import run_sql

__all__ = ["SIGNER", "checkpoint", "conversation", "empty", "files_hold", "outside"]

SIGNER = Signer.generate("example.com/log")


def outside(target: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements past Remit; returns the rows of the last."""
    if target.startswith("postgresql://"):
        return run_sql(target, *statements)
    connection = sqlite3.connect(target)
    try:
        rows: list[Any] = []
        for statement in statements:
            rows = connection.execute(statement).fetchall()
        connection.commit()
        return rows
    finally:
        connection.close()


def empty(target: str) -> None:
    """Remove a ledger that nobody has open; there need not be one."""
    if target.startswith("postgresql://"):
        run_sql(target, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    else:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{target}{suffix}").unlink(missing_ok=True)


def conversation(client: LedgerClient, session: str, turns: int, *, subject: str = "") -> list[str]:
    """Write exchanges that each re-send what was said before; returns their ids."""
    ids = []
    messages: list[dict[str, str]] = []
    for turn in range(turns):
        messages.append({"role": "user", "content": f"question {turn} of {session}"})
        ids.append(
            client.write(
                LedgerEntry(
                    "EXCHANGE",
                    "PRC-A-001",
                    "SUCCESS",
                    "Exchange completed",
                    metadata={
                        "session_id": session,
                        "prompt": list(messages),
                        "response": f"answer {turn} of {session}",
                        "n": turn,
                    },
                ),
                subject_id=subject or None,
            )
        )
        messages.append({"role": "assistant", "content": f"answer {turn} of {session}"})
    return ids


def checkpoint(target: str) -> None:
    """Have the engine write everything to its files, as it does sooner or later."""
    if target.startswith("postgresql"):
        run_sql(target, "CHECKPOINT")


def files_hold(directory: Path, text: str) -> list[str]:
    """The files below ``directory`` that hold ``text``, as ``grep`` finds it."""
    sought = text.encode()
    return sorted(
        str(path.relative_to(directory))
        for path in directory.rglob("*")
        if path.is_file() and sought in path.read_bytes()
    )
