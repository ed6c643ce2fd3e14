"""Faults at each operation of a run of `ledger segment`: an error, a full disk, or SIGKILL."""

from __future__ import annotations

import builtins
import contextlib
import errno
import functools
import io
import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import psycopg

from remit.gateway.leases import LeaseManager
from remit.kernel.settings import default_settings
from remit.ledger import LedgerClient, LedgerWriteError
from remit.ledger.postgres.store import PostgresStore
from remit.ledger.postgres.transaction import PostgresBatch
from remit.ledger.segments import SegmentReport, move_to_segment, removal
from remit.ledger.sqlite.store import SqliteStore
from remit.ledger.sqlite.transaction import SqliteBatch
from remit.ledger.tlog import Signer
from tests.support.stores import SIGNER

__all__ = ["DISK_FAULTS", "END", "Faults", "archive_all", "archive_with_fault"]

END = 256
DISK_FAULTS = ("EIO", "ENOSPC", "EROFS")

# The functions that change files. "write" is that of an open file.
_FUNCTIONS = ("mkdir", "rename", "replace", "unlink", "rmdir", "fsync")
# An error of these kinds stays, as a disk stays full or read-only; EIO is of one operation.
_LASTING = {
    "ENOSPC": {"open", "write", "mkdir", "fsync"},
    "EROFS": {"open", "write", *_FUNCTIONS},
    "full": {"statement", "commit"},
}
_KINDS = ("file", "statement", "commit")


class Faults:
    """Counts the operations below a directory and on a ledger, and fails at one of them.

    Args:
        directory: of the segments.
        kind: of the operation: ``file``, ``statement`` or ``commit``.
        fault: ``EIO``, ``ENOSPC`` or ``EROFS`` of a file operation, ``full`` of the database, or
            ``kill``; ``""`` only counts.
        at: the operation, counted from 0 among those of its kind.
    """

    def __init__(self, directory: Path, kind: str = "", fault: str = "", at: int = -1) -> None:
        self._directory = str(directory.absolute())
        self._kind = kind
        self._fault = fault
        self._at = at
        self.counts = dict.fromkeys(_KINDS, 0)
        self.failed = ""

    def __enter__(self) -> Faults:
        self._stack = contextlib.ExitStack()
        for name in _FUNCTIONS:
            self._patch(os, name, self._function)
        for module in (io, builtins):
            self._patch(module, "open", self._open)
        for owner, full in ((SqliteBatch, _sqlite_full), (PostgresBatch, _postgres_full)):
            for name in ("_read", "execute_many", "_insert_all"):
                self._patch(owner, name, functools.partial(self._statement, full))
        for store, full in ((SqliteStore, _sqlite_full), (PostgresStore, _postgres_full)):
            self._patch(store, "run", functools.partial(self._commit, full))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _patch(self, owner: Any, name: str, wrap: Callable[[str, Any], Any]) -> None:
        plain = getattr(owner, name)
        self._stack.enter_context(mock.patch.object(owner, name, wrap(name, plain)))

    def reach(
        self,
        kind: str,
        operation: str,
        partly: Callable[[], Any] = lambda: None,
        full: Callable[[], Exception] = Exception,
    ) -> None:
        """Count an operation; if its turn has come, do it partly and fail or die."""
        count = self.counts[kind]
        self.counts[kind] += 1
        if not self._fault or self._kind not in (kind, "commit" if kind == "statement" else kind):
            return
        lasts = self.failed and operation in _LASTING.get(self._fault, ())
        if not lasts and (self.failed or (self._kind, self._at) != (kind, count)):
            return
        self.failed = self.failed or operation
        partly()
        if self._fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fault == "full":
            raise full()
        code = getattr(errno, self._fault)
        raise OSError(code, os.strerror(code), self._directory)

    def _is_inside(self, path: Any) -> bool:
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        return os.path.abspath(os.fspath(path)).startswith(self._directory)

    def _function(self, name: str, plain: Any) -> Any:
        def call(path: Any, *more: Any, **named: Any) -> Any:
            if named.get("dir_fd") is not None or self._is_inside(path):
                self.reach("file", name)
            return plain(path, *more, **named)

        return call

    def _open(self, name: str, plain: Any) -> Any:
        def call(path: Any, mode: str = "r", *more: Any, **named: Any) -> Any:
            if not isinstance(path, (int, str, os.PathLike)) or not self._is_inside(path):
                return plain(path, mode, *more, **named)
            self.reach("file", "open" if set(mode) & set("wxa+") else "read")
            file = plain(path, mode, *more, **named)
            return _File(file, self) if set(mode) & set("wxa+") else file

        return call

    def _statement(self, full: Callable[[], Exception], name: str, plain: Any) -> Any:
        def call(*given: Any) -> Any:
            self.reach("statement", "statement", full=full)
            return plain(*given)

        return call

    def _commit(self, full: Callable[[], Exception], name: str, plain: Any) -> Any:
        """Fail before a transaction is committed, or die after it: its writer never learns that."""

        def call(*given: Any) -> Any:
            if self._fault != "kill":
                self.reach("commit", "commit", full=lambda: _refused(full()))
            done = plain(*given)
            if self._fault == "kill":
                self.reach("commit", "commit")
            return done

        return call


class _File:
    """An open file that writes through :class:`Faults`."""

    def __init__(self, file: Any, faults: Faults) -> None:
        self._file = file
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: Any) -> int:
        """Write; a write that fails has written a half."""

        def partly() -> None:
            self._file.write(bytes(data)[: len(data) // 2])
            self._file.flush()

        if len(data):
            self._faults.reach("file", "write", partly)
        written: int = self._file.write(data)
        return written


def _refused(error: Exception) -> LedgerWriteError:
    return LedgerWriteError(f"The ledger refused the write: {error}.", next_step="Make room.")


def _sqlite_full() -> Exception:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error


def _postgres_full() -> Exception:
    return psycopg.errors.DiskFull("could not extend file: No space left on device")


def archive_all(client: LedgerClient, directory: Path, end: int = END) -> SegmentReport:
    """Move the entries before ``end`` under the lease, as the command does."""
    leases = LeaseManager(client, default_settings().leases)
    with (
        leases.hold_blocking("archive") as lease,
        mock.patch.object(removal, "_BATCH_ENTRIES", 60),
    ):
        return move_to_segment(
            client, end, directory, by="ann", carry=lambda *_: {}, guard=lease.require_in
        )


def archive_with_fault(
    target: str, key: bytes, directory: str, kind: str, fault: str, at: int
) -> None:
    """Move entries in a process of its own; be killed on the way."""
    signer = Signer.from_pem(SIGNER.verifier_key.name, key)
    with LedgerClient(target, signer=signer) as client, Faults(Path(directory), kind, fault, at):
        archive_all(client, Path(directory))
