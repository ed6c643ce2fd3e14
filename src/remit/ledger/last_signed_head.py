"""The last head that a root's key signed, stored with the key.

The head is a signed checkpoint in a file outside the ledger's database, so a database restored from
an older copy is detected. The head only moves forward and is written before anybody sees the
checkpoint. Only committed entries are signed, so no crash leaves a head that a sound ledger does
not extend.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from remit.kernel.durable_files import write_over
from remit.ledger.errors import LedgerKeyError, LedgerRollbackError, LedgerWriteError, missing
from remit.ledger.key_files import LedgerKey, known_as
from remit.ledger.tlog import Checkpoint, SignedCheckpoint, TlogError, VerifierKey
from remit.ledger.tree import LedgerTree


class KeptHead:
    """The file ``ledger.head``, which holds the last head that the root's key signed.

    A second file, ``ledger.seen``, notes an entry that a process missed. Nothing is read before a
    method is called, and nothing is cached. Processes and threads exclude each other by
    :meth:`locked`.

    Args:
        files: the key files; the head is stored in their directory.
    """

    def __init__(self, files: LedgerKey) -> None:
        self.files = files
        self.path = files.directory / "ledger.head"
        self._seen = files.directory / "ledger.seen"

    def read(self, key: VerifierKey) -> SignedCheckpoint | None:
        """Return the head; ``None`` if none is stored yet. Only its signature is checked.

        Args:
            key: the log's key under its present origin. A head of the log before a fork is
                accepted.

        Raises:
            LedgerKeyError: the file cannot be read, is damaged, or belongs to another key.
            LedgerRollbackError: the ledger was forked since ``key`` was read.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LedgerKeyError(
                f"The head {self.path} cannot be read: {error.strerror or error}.",
                next_step="Make the file readable for the user who runs Remit.",
            ) from error
        try:
            signed = SignedCheckpoint.parse(data)
            origin = signed.checkpoint.origin
            if origin != key.name and known_as(replace(key, name=origin), key.name):
                raise LedgerRollbackError(
                    f"The ledger was forked: {key.name} has ended and continues as {origin}.",
                    next_step="Restart this process.",
                )
            signed.verify(known_as(key, origin) or key)
        except TlogError as error:
            raise LedgerKeyError(
                f"The head {self.path} is damaged: {error.message}",
                next_step="Move it out of the root, and keep that copy. Put the one from the key's "
                "backup in its place, if it is newer than any other. Without one, the ledger's own "
                "latest checkpoint counts, which cannot tell if the ledger was cut off.",
            ) from error
        return signed

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from moving the head during the block.

        The directory is made if it is missing. Another process that holds the lock is waited for.
        The lock is not reentrant.

        Raises:
            LedgerWriteError: the directory cannot be made or locked, or the block raises OSError.
        """
        try:
            with self.files.locked():
                yield
        except OSError as error:
            raise LedgerWriteError(
                f"The head cannot be kept in {self.path}: {error.strerror or error}.",
                next_step="No checkpoint was signed. Check that directory's permissions and the "
                "free space.",
            ) from error

    def write(self, signed: SignedCheckpoint) -> None:
        """Replace the file of the head durably, mode 0600; the caller holds :meth:`locked`.

        Neither the signature nor the size of the present head is compared with that of ``signed``,
        so that a larger head can be replaced.

        Raises:
            OSError: the file cannot be written.
        """
        write_over(self.path, str(signed).encode(), 0o600)

    def move_to(self, signed: SignedCheckpoint, key: VerifierKey) -> None:
        """Store ``signed`` as the head if the stored head is smaller, or if there is none.

        The directory is locked meanwhile; do not call this within :meth:`locked`.

        Args:
            signed: the new head, which is not verified.
            key: the log's key, by which the stored head is checked.

        Raises:
            LedgerKeyError: the stored head is damaged or cannot be read.
            LedgerRollbackError: the ledger was forked since ``key`` was read.
            LedgerWriteError: the head cannot be written.
        """
        with self.locked():
            kept = self.read(key)
            if kept is None or kept.checkpoint.size < signed.checkpoint.size:
                self.write(signed)

    def note_seen(self, seq: int, entry_hash: str) -> None:
        """Store the last entry that this process saw and now misses, for the next process.

        The entry goes to the file ``ledger.seen`` next to the head, unless a later entry is stored
        there.

        Args:
            seq: sequence number of the missing entry.
            entry_hash: its hash.

        Raises:
            LedgerWriteError: the file cannot be written.
        """
        with self.locked():
            if self.seen()[0] < seq:
                write_over(self._seen, f"{seq} {entry_hash}\n".encode(), 0o600)

    def seen(self) -> tuple[int, str]:
        """Return sequence number and hash of the entry that :meth:`note_seen` stored as missing.

        The result is ``(-1, "")`` without a file, or if it cannot be read or is malformed. The
        ledger is not looked at.
        """
        try:
            seq, _, entry_hash = self._seen.read_text("ascii").strip().partition(" ")
            return int(seq), entry_hash
        except (OSError, ValueError):
            return -1, ""

    def forget_seen(self) -> None:
        """Delete the note of the missing entry, if any; raise OSError if that fails."""
        self._seen.unlink(missing_ok=True)


def contradiction(head: Checkpoint, tree: LedgerTree, size: int, location: str) -> str:
    """Return how a ledger fails to extend a signed head, as a sentence; empty if there is no fault.

    Args:
        head: the head.
        tree: the ledger's tree.
        size: number of entries in the ledger.
        location: the place of the ledger, for the sentence.

    Raises:
        LedgerFormatError: the tree cannot be computed.
        LedgerError: the ledger cannot be read.
    """
    if head.size > size:
        return missing(location, size, head.size, f"this root's key signed {head.size}")
    if tree.root(head.size) != head.root:
        return (
            f"The ledger {location} does not have the history that this root's key signed: its "
            f"first {head.size} entries differ."
        )
    return ""
