"""The address of a ledger, and the store it names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from remit.kernel.settings import LedgerSettings
from remit.ledger.errors import LedgerError
from remit.ledger.sqlite import SqliteStore
from remit.ledger.store import Store

_COMPRESS_ABOVE_BYTES = 8192
_POSTGRES = ("postgresql://", "postgres://")


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A path or URL, and the settings to open it with; picklable for another process.

    Attributes:
        target: a SQLite path or ``postgresql://…``.
        settings: ``[ledger]``.
    """

    target: str
    settings: LedgerSettings

    @property
    def is_server(self) -> bool:
        """Whether it is a database server's."""
        return self.target.startswith(_POSTGRES)

    def open(self, *, create: bool) -> Store:
        """Open the store.

        Raises:
            LedgerFormatError: the file or database is not a ledger.
            LedgerError: it cannot be opened or made.
        """
        settings = self.settings
        keys = frozenset(settings.content_keys)
        if self.is_server:
            try:
                from remit.ledger.postgres import PostgresStore
            except ModuleNotFoundError as error:
                raise LedgerError(
                    "The PostgreSQL driver is not installed.",
                    next_step="pip install 'remit[postgres]'",
                ) from error
            return PostgresStore(
                self.target,
                content_keys=keys,
                lock_timeout_s=settings.lock_timeout_s,
                create=create,
            )
        if "://" in self.target:
            scheme = self.target.partition("://")[0]
            raise LedgerError(
                f"A ledger cannot be kept at {scheme}://….",
                next_step="Give the path of a SQLite file, or postgresql://user@host/database.",
            )
        return SqliteStore(
            Path(self.target),
            content_keys=keys,
            compress_above=_COMPRESS_ABOVE_BYTES,
            lock_timeout_s=settings.lock_timeout_s,
            create=create,
        )
