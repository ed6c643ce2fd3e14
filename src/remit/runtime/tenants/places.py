"""The place of a tenant's ledger, and locks of a tenant's root."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from remit import ledger as ledgers  # A direct import of its names would load PostgreSQL.
from remit.kernel.durable_files import take_lock
from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.kernel.settings import LedgerSettings, default_settings
from remit.kernel.tenant import HOST, TenantFile
from remit.ledger import KeptHead, LedgerClient, LedgerKeyError, ledger_key
from remit.ledger.tlog import VerifierKey


@dataclass(frozen=True, slots=True)
class Place:
    """The file, or the schema of a PostgreSQL database, of a tenant's present or future ledger.

    Immutable; no connection is held. The methods find, make, open, rename and delete the ledger,
    and block. Each raises :class:`LedgerError` if the ledger or its database cannot be used, and
    RemitError if :attr:`location` does. Whatever is removed must belong to the tenant's key, or
    bear the comment of an unfinished move.

    Attributes:
        file: the tenant's file, which names the place.
        root: root of the tenant.
        host_path: ``[ledger] path`` of the host.
    """

    file: TenantFile
    root: Root
    host_path: str

    @property
    def database(self) -> str:
        """URL of the database, without the schema; empty for a file."""
        return self.host_path if self.file.database == HOST else self.file.database

    @property
    def location(self) -> str:
        """The path or URL with which a client opens the ledger.

        Raises:
            RemitError: the ledger is in the host's database, and the host's settings name none.
        """
        place = self.file.ledger_path(self.host_path)
        return place if self.file.database else str(self.root.path / place)

    def exists(self) -> bool:
        """Return True if the file or schema exists.

        Whether it is a ledger is not checked.

        Raises:
            LedgerError: the name of the schema is invalid, or the database cannot be used.
        """
        if self.database:
            return ledgers.has_schema(self.database, self.file.ledger)
        return Path(self.location).exists()

    def make(self, mark: str) -> None:
        """Make the schema, or the directory of the file; the ledger itself is not made.

        An existing directory stays; a schema that exists with the same comment is kept, and one
        with another comment is refused.

        Args:
            mark: comment of the schema, by which :meth:`remove_unfinished` recognises it.

        Raises:
            LedgerError: the schema exists with another comment, or cannot be made.
            OSError: the directory cannot be made.
        """
        if self.database:
            ledgers.make_schema(self.database, self.file.ledger, mark)
        else:
            Path(self.location).parent.mkdir(parents=True, exist_ok=True, mode=0o700)

    def open(
        self, settings: LedgerSettings, *, signing: bool = False, owner: VerifierKey | None = None
    ) -> LedgerClient:
        """Open the ledger, also during a move or removal of the tenant; migrate an earlier layout.

        Args:
            settings: ``[ledger]`` of the tenant.
            signing: True to sign checkpoints with the private key in the tenant's root. A ledger
                without an owner is then bound to the key, which is a write. Entries can be appended
                in either case.
            owner: key of the log that the ledger must belong to, without effect if ``signing``. If
                left out, the key in the tenant's root; without that, the owner is not compared. A
                ledger that names no owner is accepted with any key.

        Returns:
            The client, which the caller closes.

        Raises:
            LedgerKeyError: the ledger belongs to another log; or a needed key of the root is
                unreadable, made for another origin or, with ``signing``, missing.
            LedgerError: there is no ledger, or it cannot be opened.
            RemitError: as for :attr:`location`.
        """
        key = ledger_key(self.root, settings)
        return LedgerClient(
            self.location,
            settings=settings,
            create=False,
            signer=key.signer() if signing else None,
            verifier_key=owner or key.verifier_key(),
            kept=KeptHead(key),
        )

    def rename(self, to: Place, timeout_s: float) -> None:
        """Rename the ledger within its directory or database.

        Args:
            to: the place with the new name, in the same directory or database, which is not
                checked. An existing file there is replaced, and an existing
                schema is refused.
            timeout_s: longest wait for writers of a file, in seconds. For a schema the wait is a
                minute.

        Raises:
            LedgerError: the ledger cannot be renamed, is in use, or the new schema exists.
            OSError: a file that SQLite keeps next to the ledger cannot be removed; the ledger is
                renamed.
        """
        if self.database:
            ledgers.rename_schema(self.database, self.file.ledger, to.file.ledger)
        else:
            ledgers.rename_ledger_file(Path(self.location), Path(to.location), timeout_s)

    def is_own(self, owner: VerifierKey) -> bool:
        """Return True if the ledger belongs to ``owner``; False if there is none.

        Args:
            owner: the tenant's key, as the host recorded it.

        Raises:
            LedgerKeyError: the ledger belongs to another key, or to none.
            LedgerError: the ledger cannot be read.
        """
        if not self.exists():
            return False
        settings = default_settings().ledger.model_copy(update={"origin": self.file.origin})
        with self.open(settings, owner=owner) as log:
            if not log.checkpoints.owner():
                raise LedgerKeyError(
                    f"The ledger {log.location} names no owner.",
                    next_step="Find out which program wrote it, and move it elsewhere; Remit "
                    "changes only ledgers of the tenant.",
                )
        return True

    def remove(self, owner: VerifierKey) -> None:
        """Delete the ledger with its content; a ledger that does not exist is no error.

        Args:
            owner: key that the ledger must belong to.

        Raises:
            LedgerKeyError: the ledger belongs to another key, or names no owner; nothing was
                deleted.
            LedgerError: the ledger cannot be opened or deleted.
        """
        if not self.is_own(owner):
            return
        if self.database:
            ledgers.drop_schema(self.database, self.file.ledger, None)
        else:
            ledgers.remove_ledger_file(Path(self.location), None)

    def remove_unfinished(self, mark: str, owner: VerifierKey) -> None:
        """Delete an unfinished copy: a schema with comment ``mark``, or an empty or own file.

        Another schema or ledger stays. Nothing there is no error.

        Args:
            mark: the comment that :meth:`make` gave the schema.
            owner: the tenant's key, which an own file names.

        Raises:
            LedgerError: the schema or file cannot be read or deleted.
        """
        if self.database:
            ledgers.drop_schema(self.database, self.file.ledger, mark)
        else:
            ledgers.remove_ledger_file(Path(self.location), owner)


@contextlib.contextmanager
def locked(path: Path, how: int, wait_s: float = 0.0) -> Iterator[bool]:
    """Hold a file lock for the block; yield False if it was not acquired in time.

    The block runs in either case. The system releases the lock if the process dies. Waiting blocks
    the thread, and looks every 0.05 seconds. The file stays.

    Args:
        path: path of the lock's file, which is made.
        how: ``fcntl.LOCK_EX`` or ``fcntl.LOCK_SH``.
        wait_s: longest wait for other processes, in seconds.

    Raises:
        OSError: the file cannot be opened.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield take_lock(handle, how, wait_s)
    finally:
        os.close(handle)


@contextlib.contextmanager
def drained(root: Root, name: str, wait_s: float) -> Iterator[None]:
    """Keep the servers of this machine from opening a tenant during the block.

    Servers close the tenant themselves when they see the plan.

    Args:
        root: root of the tenant, with a plan that keeps others from opening it.
        name: name of the tenant.
        wait_s: longest wait for servers to close the tenant, in seconds.

    Raises:
        RemitError: a server still serves the tenant.
        OSError: the file of the lock cannot be opened.
    """
    with locked(root.path / ".open.lock", fcntl.LOCK_EX, wait_s) as is_free:
        if not is_free:
            raise RemitError(
                f"A server still runs calls of the tenant {name}.",
                next_step="Nothing was changed. Retry, or allow more time for running calls to "
                "end.",
            )
        yield
