"""Errors of the ledger."""

from remit.kernel.errors import InvalidInputError, NotFoundError, RemitError
from remit.ledger.entry import entry_id

AFTER_DAMAGE = (
    "Keep a copy of the ledger as it is. `remit ledger verify` names each affected entry and row. "
    "A backup lacks every entry since it was made: compare the two before you replace anything."
)
"""The next step of an error that says that a ledger is damaged."""


class LedgerError(RemitError):
    """Base of the errors of a ledger."""


class LedgerWriteError(LedgerError):
    """The store refused an entry (full disk, I/O error, lock); the entry is not recorded.

    Attributes:
        was_sent: True if the entry is the exchange of a request that was sent to a provider;
            whoever catches and raises the error sets it. False otherwise.
    """

    was_sent = False


class LedgerRollbackError(LedgerWriteError):
    """The database is not the one that this process, or the head next to its key, has seen.

    It lacks signed or recorded entries, has others in their place, belongs to another log, or was
    forked or replaced while it was open. Nothing is written or signed as long as that lasts,
    because new entries would replace the missing ones.

    Args:
        message: the fault, as a sentence.
        next_step: advice; if empty, how to restore the newer copy or to fork.
    """

    def __init__(self, message: str, *, next_step: str = "") -> None:
        super().__init__(
            message,
            next_step=next_step
            or "Nothing is written or signed. Stop all processes of this root, put the newer copy "
            "back, and start again. If that copy is lost, `remit ledger fork --reason …` "
            "continues from the present ledger, under a new origin, and records the fork.",
        )


def missing(location: str, size: int, seen: int, how: str) -> str:
    """Return the message about a ledger of ``size`` entries that had ``seen`` entries before.

    The message names the missing entries by their ids.

    Args:
        location: place of the ledger.
        size: number of entries that the ledger has.
        seen: number of entries that it had; greater than ``size``.
        how: clause that says how that is known, such as ``there were 12``.
    """
    which = f"{entry_id(size)} to {entry_id(seen - 1)} are"
    return (
        f"The ledger {location} was cut off, or is an older copy: it has {size} entries, and "
        f"{how}; {which if seen - size > 1 else f'{entry_id(size)} is'} missing."
    )


def lost(location: str, size: int, seen: int) -> LedgerRollbackError:
    """Return the error of a ledger that lacks the last of its first ``seen`` entries, or has
    another in its place.

    Args:
        location: place of the ledger.
        size: number of entries that the ledger has.
        seen: number of entries that this process saw; the last of these is missing or differs.
    """
    if seen > size:
        return LedgerRollbackError(missing(location, size, seen, f"there were {seen}"))
    return LedgerRollbackError(
        f"The ledger {location} does not have the history that was there: {entry_id(seen - 1)} "
        "differs."
    )


class LedgerFormatError(LedgerError):
    """A file, database or export is not a ledger's, is damaged, or is of a newer version.

    Nothing was changed.
    """


class LedgerClosedError(LedgerError):
    """The client was closed, or was opened before a fork of the process.

    Args:
        message: the fault; a general one if empty.
        next_step: advice; a general one if empty.
    """

    def __init__(self, message: str = "", *, next_step: str = "") -> None:
        super().__init__(
            message or "The ledger client is closed, and so is its runtime.",
            next_step=next_step
            or "Open the runtime again, or keep the work inside its `with` block.",
        )


class RecordTooLargeError(LedgerError, InvalidInputError):
    """The canonical record would exceed 65,535 bytes.

    Nothing was recorded; large values belong into content.
    """


class EntryNotFoundError(LedgerError, NotFoundError, KeyError):
    """No entry has that id.

    A scoped handle also raises this error for an entry that its tier may not see.
    """


class EntryArchivedError(EntryNotFoundError):
    """The entry was moved from the database to a segment.

    Args:
        entry_id: id of the archived entry.
    """

    def __init__(self, entry_id: str) -> None:
        super().__init__(
            f"The entry {entry_id} was archived: it is no longer in the database.",
            next_step=f"Read it from its segment: `remit ledger show {entry_id} --archive DIR`."
            " `remit ledger prove` proves it as before.",
        )


class NoSignerError(LedgerError):
    """A client without a signing key cannot sign a checkpoint or proof."""


class LedgerKeyError(LedgerError):
    """The ledger's key is missing, damaged, or another ledger's."""


class LedgerUnavailableError(LedgerWriteError):
    """The store cannot be written at present: a full disk, an I/O error, a lock, a lost server.

    The same write may succeed later.
    """


class LedgerLayoutError(LedgerUnavailableError):
    """Another version has brought the database to another layout than this process writes.

    Args:
        location: place of the ledger.
        layout: layout of the database.
        known: layout that this process writes.
    """

    def __init__(self, location: str, layout: int, known: int) -> None:
        super().__init__(
            f"The ledger {location} has layout {layout} now, and this process writes layout "
            f"{known}: another version of Remit has opened it.",
            next_step="Nothing was written. Restart this process with that version.",
        )


class LedgerConnectionError(LedgerUnavailableError):
    """The database server could not be reached, or the connection broke for good.

    If a commit was under way, the message says that the entries may be recorded.
    """


class ErasureError(LedgerError):
    """Nothing could be erased, or not as requested."""


# Earlier names, until 1.0.
ScopeError = LedgerError
ExportFormatError = LedgerFormatError
