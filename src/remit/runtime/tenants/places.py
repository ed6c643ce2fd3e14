"""Where a tenant's ledger is, was, or is to be: a file, or a schema of a PostgreSQL database."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.kernel.settings import LedgerSettings, default_settings
from remit.kernel.tenant import HOST, TenantFile
from remit.ledger import (
    KeptHead,
    LedgerClient,
    LedgerKeyError,
    ledger_key,
    remove_ledger_file,
    rename_ledger_file,
)
from remit.ledger.tlog import VerifierKey

__all__ = ["database_of", "drained", "is_own", "is_there", "location_of", "locked", "open_place",
           "remove_place", "rename_place"]  # fmt: skip

_LOOK_S = 0.05


def database_of(file: TenantFile, host_path: str) -> str:
    """The URL of the database that a tenant's ledger is in, without the schema.

    Args:
        file: what says where the ledger is.
        host_path: the host's ``[ledger] path``.
    """
    return host_path if file.database == HOST else file.database


def location_of(file: TenantFile, root: Root, host_path: str) -> str:
    """The path or URL by which a client opens a tenant's ledger.

    Raises:
        RemitError: it is in the host's database, and the host names none.
    """
    place = file.ledger_path(host_path)
    return place if file.database else str(root.path / place)


def is_there(file: TenantFile, root: Root, host_path: str) -> bool:
    """Whether a place holds anything; raises :class:`LedgerError` where it cannot be seen."""
    if file.database:
        from remit.ledger import has_schema

        return has_schema(database_of(file, host_path), file.ledger)
    return Path(location_of(file, root, host_path)).exists()


def open_place(
    file: TenantFile,
    root: Root,
    host_path: str,
    settings: LedgerSettings,
    *,
    signing: bool = False,
    owner: VerifierKey | None = None,
) -> LedgerClient:
    """Open the ledger at a place, though the tenant is being moved or removed.

    Args:
        file: the place.
        root: the tenant's.
        host_path: the host's ``[ledger] path``.
        settings: ``[ledger]`` of the tenant.
        signing: with its private key.
        owner: whose it has to be; the key in the tenant's root when left out.

    Raises:
        LedgerKeyError: it belongs to another than this tenant.
        LedgerError: it cannot be opened.
    """
    key = ledger_key(root, settings)
    return LedgerClient(
        location_of(file, root, host_path),
        settings=settings,
        create=False,
        signer=key.signer() if signing else None,
        verifier_key=owner or key.verifier_key(),
        kept=KeptHead(key),
    )


def rename_place(
    file: TenantFile, to: TenantFile, root: Root, host_path: str, timeout_s: float
) -> None:
    """Give a ledger another name in its directory or database.

    Raises:
        LedgerError: it cannot be renamed.
    """
    if file.database:
        from remit.ledger import rename_schema

        rename_schema(database_of(file, host_path), file.ledger, to.ledger)
    else:
        old, new = (Path(location_of(one, root, host_path)) for one in (file, to))
        rename_ledger_file(old, new, timeout_s)


def is_own(file: TenantFile, root: Root, host_path: str, owner: VerifierKey) -> bool:
    """Whether a place holds anything, once that is known to be the tenant's.

    Args:
        file: the place, as a file in the tenant's root says it.
        root: the tenant's.
        host_path: the host's ``[ledger] path``.
        owner: the tenant's key, as the host has it on record.

    Raises:
        LedgerKeyError: it belongs to another, or to nobody.
        LedgerError: it cannot be opened.
    """
    if not is_there(file, root, host_path):
        return False
    settings = default_settings().ledger.model_copy(update={"origin": file.origin})
    with open_place(file, root, host_path, settings, owner=owner) as log:
        if not log.checkpoints.owner():
            raise LedgerKeyError(
                f"The ledger {log.location} does not say whose it is.",
                next_step="Find out what wrote it, and move it elsewhere. Remit does not touch it.",
            )
    return True


def remove_place(file: TenantFile, root: Root, host_path: str, owner: VerifierKey) -> None:
    """Remove a ledger with all that is in it, where there is one; arguments as of :func:`is_own`.

    Raises:
        LedgerKeyError: it belongs to another than this tenant; nothing was removed.
        LedgerError: it cannot be removed.
    """
    if not is_own(file, root, host_path, owner):
        return
    if file.database:
        from remit.ledger import drop_schema

        drop_schema(database_of(file, host_path), file.ledger, None)
    else:
        remove_ledger_file(Path(location_of(file, root, host_path)), None)


@contextlib.contextmanager
def locked(path: Path, how: int, wait_s: float = 0.0) -> Iterator[bool]:
    """A lock that ends with this process; whether it was got in time.

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
    """A tenant that no server of this machine serves, while the block runs.

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
                f"A server still serves the tenant {name}, and its calls did not end.",
                next_step="Nothing was changed. Try again, or wait longer for its calls.",
            )
        yield
