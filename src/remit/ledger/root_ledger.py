"""The ledger of a root: its place, its key, and its retention while a process runs."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Sequence

from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.kernel.settings import LedgerSettings
from remit.ledger.client import LedgerClient
from remit.ledger.errors import LedgerError
from remit.ledger.key_files import LedgerKey
from remit.ledger.last_signed_head import KeptHead
from remit.ledger.verification.marks import Marks
from remit.ledger.verification.report import StateCheck

_PLACE_FILE = "ledger.place"

_log = logging.getLogger("remit.ledger")


def ledger_key(root: Root, settings: LedgerSettings) -> LedgerKey:
    """Return the key files of a root's ledger, which may not exist; nothing is read or made.

    Args:
        root: the root.
        settings: settings of its ledger, for the origin.
    """
    return LedgerKey(root.keys, settings.origin)


def open_root_ledger(
    root: Root,
    settings: LedgerSettings,
    *,
    create: bool = False,
    signing: bool = True,
    checks: Sequence[StateCheck] = (),
) -> LedgerClient:
    """Open the ledger of a root; the caller closes the client.

    If the ledger is in a database, the place is noted first in the root (:func:`remember_place`). A
    ledger of an earlier layout is migrated. A signing client binds a ledger without an owner to its
    key. Without a public key, neither owner nor last signed head is compared.

    Args:
        root: the root.
        settings: ``[ledger]``.
        create: True to make the ledger if there is none; else LedgerError is raised. A key is never
            made.
        signing: True to open with the private key if it exists, so that checkpoints are signed.
        checks: as for :class:`LedgerClient`.

    Raises:
        LedgerKeyError: the key is damaged, incomplete, readable by others, or made for another
            origin than the settings name, or the ledger belongs to another key.
        LedgerFormatError: the file or database holds something else, or is of a newer version.
        LedgerError: the ledger cannot be opened, or is in a database that the settings do not name.
    """
    remember_place(root, settings)
    key = ledger_key(root, settings)
    public = key.verifier_key()
    target = settings.path if "://" in settings.path else root.path / settings.path
    return LedgerClient(
        target,
        settings=settings,
        create=create,
        signer=key.signer() if signing and key.exists else None,
        verifier_key=public,
        marks=Marks(root.marks, key, settings.path),
        checks=checks,
        kept=KeptHead(key) if public is not None else None,
    )


def remember_place(root: Root, settings: LedgerSettings) -> None:
    """Note in the root that its ledger is in PostgreSQL, or refuse settings without the database.

    The file ``ledger.place`` holds the database's name and host, without user and password; another
    database replaces it without refusal. If it cannot be written, nothing is noted. With settings
    of a file, nothing is written. Without the note, a forgotten variable would look like a lost
    ledger, and a second one would begin.

    Args:
        root: the root.
        settings: the settings of its ledger.

    Raises:
        LedgerError: the noted ledger is in a database, the settings name none, and their file does
            not exist.
    """
    file = root.path / _PLACE_FILE
    try:
        kept = file.read_text("utf-8").strip()
    except (OSError, ValueError):
        kept = ""
    if "://" in settings.path:
        from remit.ledger.postgres.connection import masked  # Loads PostgreSQL's driver.

        # An ambiguous URL is masked whole, and its place then reads "(default) at …".
        shown = masked(settings.path).partition("://")[2].partition("?")[0].rpartition("@")[2]
        address, _, database = shown.partition("/")
        if not address or address.startswith(":"):
            address = f"localhost{address}"
        place = f"the PostgreSQL database {database or '(default)'} at {address}"
        if place != kept and root.path.is_dir():
            with contextlib.suppress(OSError):  # a root that cannot be written to works as well
                file.write_text(f"{place}\n", "utf-8")
    elif kept and not (root.path / settings.path).exists():
        raise LedgerError(
            f"The ledger of this root is in {kept}, and neither REMIT_DATABASE_URL nor [ledger] "
            "path names a database.",
            next_step="Set REMIT_DATABASE_URL=postgresql://USER:PASSWORD@HOST/DATABASE and try "
            f"again. If the ledger is a file now, put the file there, and move {file} out of the "
            "root.",
        )


class RetentionSchedule:
    """Periodic retention of a ledger in a daemon thread of its own, which starts at once.

    Each run calls :meth:`LedgerClient.retain` with the settings' limits. Its reports
    and errors are logged, and no error ends the thread. If entries were archived, the first run
    that can read the ledger logs that segments are not reached. Call :meth:`stop` before the ledger
    is closed.

    Args:
        ledger: the ledger; old content is erased in it.
        every_s: seconds from the end of a run to the next; the first run is at once.
    """

    def __init__(self, ledger: LedgerClient, *, every_s: float) -> None:
        self._ledger = ledger
        self._every_s = every_s
        self._stopped = threading.Event()
        self._warned = False
        self._thread = threading.Thread(target=self._work, name="remit-retention", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; wait for a run in progress."""
        self._stopped.set()
        self._thread.join()

    def _work(self) -> None:
        while True:
            try:
                self._run()
            except RemitError as error:
                _log.warning("retention could not be applied: %s", error)
            except Exception:  # noqa: BLE001 - a later run may succeed
                _log.exception("retention could not be applied")
            if self._stopped.wait(self._every_s):
                return

    def _run(self) -> None:
        ledger = self._ledger
        if ledger.archived_to and ledger.retention_days and not self._warned:
            self._warned = True
            _log.warning(
                "retention reaches what is in the database; for segments, run `remit ledger "
                "retain --archive DIR`"
            )
        for report in ledger.retain():
            _log.info("retention erased %d values: %s", report.values, report.erasure_id)
