"""Errors of the ledger."""

from remit.kernel.errors import InvalidInputError, RemitError


class LedgerError(RemitError):
    """Base of the errors of a ledger."""


class LedgerWriteError(LedgerError):
    """The entry is not on record: the store refused it (disk full, I/O error, lock)."""


class LedgerFormatError(LedgerError):
    """The file or database is not a ledger, or one of a newer version."""


class LedgerClosedError(LedgerError):
    """The client was closed, or belongs to the process this one was forked from."""


class RecordTooLargeError(LedgerError, InvalidInputError):
    """The canonical record would exceed 65,535 bytes."""


class EntryNotFoundError(LedgerError, KeyError):
    """No entry has that id."""


class NoSignerError(LedgerError):
    """A client without a signing key cannot sign a checkpoint or proof."""


class ScopeError(LedgerError):
    """A scoped handle was used for what its tier may not see or write."""


class LedgerKeyError(LedgerError):
    """The ledger's key is missing, damaged, or another ledger's."""


class LedgerConnectionError(LedgerWriteError):
    """The database server could not be reached, or the connection broke for good."""


class ErasureError(LedgerError):
    """Nothing could be erased, or not as requested."""


class ExportFormatError(LedgerError):
    """An export cannot be read into a ledger."""
