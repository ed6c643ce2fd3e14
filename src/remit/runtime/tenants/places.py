"""Where a tenant's ledger is, was, or is to be; and locks of its root."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from remit import ledger as ledgers  # functions of PostgreSQL are loaded when they are called
from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.kernel.settings import LedgerSettings, default_settings
from remit.kernel.tenant import HOST, TenantFile
from remit.ledger import KeptHead, LedgerClient, LedgerKeyError, ledger_key
from remit.ledger.tlog import VerifierKey

__all__ = ["Place", "drained", "locked"]

_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Place:
    """A file, or a schema of a PostgreSQL database, that holds a tenant's ledger or is to hold it.

    Each method raises :class:`LedgerError` if the place cannot be used.

    Attributes:
        file: says where it is.
        root: the tenant's.
        host_path: the host's ``[ledger] path``.
    """

    file: TenantFile
    root: Root
    host_path: str

    @property
    def database(self) -> str:
        """The URL of the database without the schema; empty for a file."""
        return self.host_path if self.file.database == HOST else self.file.database

    @property
    def location(self) -> str:
        """The path or URL by which a client opens the ledger.

        Raises:
            RemitError: it is in the host's database, and the host names none.
        """
        place = self.file.ledger_path(self.host_path)
        return place if self.file.database else str(self.root.path / place)

    def exists(self) -> bool:
        """Return whether the place holds anything."""
        if self.database:
            return ledgers.has_schema(self.database, self.file.ledger)
        return Path(self.location).exists()

    def make(self, mark: str) -> None:
        """Make the schema with this comment, or the file's directory."""
        if self.database:
            ledgers.make_schema(self.database, self.file.ledger, mark)
        else:
            Path(self.location).parent.mkdir(parents=True, exist_ok=True, mode=0o700)

    def open(
        self, settings: LedgerSettings, *, signing: bool = False, owner: VerifierKey | None = None
    ) -> LedgerClient:
        """Open the ledger, though the tenant is being moved or removed.

        Args:
            settings: ``[ledger]`` of the tenant.
            signing: with its private key.
            owner: whose it has to be; the key in the tenant's root when left out.

        Raises:
            LedgerKeyError: it belongs to another than this tenant.
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
        """Give the ledger another name in its directory or database."""
        if self.database:
            ledgers.rename_schema(self.database, self.file.ledger, to.file.ledger)
        else:
            ledgers.rename_ledger_file(Path(self.location), Path(to.location), timeout_s)

    def is_own(self, owner: VerifierKey) -> bool:
        """Return whether the place holds anything, once that is known to be the tenant's.

        Args:
            owner: the tenant's key, as the host has it on record.

        Raises:
            LedgerKeyError: it belongs to another, or to nobody.
        """
        if not self.exists():
            return False
        settings = default_settings().ledger.model_copy(update={"origin": self.file.origin})
        with self.open(settings, owner=owner) as log:
            if not log.checkpoints.owner():
                raise LedgerKeyError(
                    f"The owner of the ledger {log.location} is unknown.",
                    next_step="Find out which program wrote it, and move it elsewhere. Remit "
                    "does not change it.",
                )
        return True

    def remove(self, owner: VerifierKey) -> None:
        """Remove the ledger with all that is in it, where there is one.

        Raises:
            LedgerKeyError: it belongs to another than this tenant; nothing was removed.
        """
        if not self.is_own(owner):
            return
        if self.database:
            ledgers.drop_schema(self.database, self.file.ledger, None)
        else:
            ledgers.remove_ledger_file(Path(self.location), None)

    def remove_unfinished(self, mark: str, owner: VerifierKey) -> None:
        """Remove a copy that was not finished: a schema with this comment, or a file that belongs
        to the tenant or is empty."""
        if self.database:
            ledgers.drop_schema(self.database, self.file.ledger, mark)
        else:
            ledgers.remove_ledger_file(Path(self.location), owner)


@contextlib.contextmanager
def locked(path: Path, how: int, wait_s: float = 0.0) -> Iterator[bool]:
    """Hold a lock that ends with this process; yield whether it was got in time.

    Args:
        path: of its file, which is made.
        how: ``fcntl.LOCK_EX`` or ``LOCK_SH``.
        wait_s: how long to wait for others, seconds.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        end = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(handle, how | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= end:
                    yield False
                    return
                time.sleep(_LOOK_S)
            else:
                yield True
                return
    finally:
        os.close(handle)


@contextlib.contextmanager
def drained(root: Root, name: str, wait_s: float) -> Iterator[None]:
    """Keep a tenant from the servers of this machine while the block runs.

    Args:
        root: the tenant's, where a plan already keeps others from opening it.
        name: of the tenant.
        wait_s: how long to wait for the calls of servers, seconds.

    Raises:
        RemitError: a server still serves it.
    """
    with locked(root.path / ".open.lock", fcntl.LOCK_EX, wait_s) as is_free:
        if not is_free:
            raise RemitError(
                f"A server still runs calls of the tenant {name}.",
                next_step="Nothing was changed. Retry, or allow more time for running calls to "
                "end.",
            )
        yield
