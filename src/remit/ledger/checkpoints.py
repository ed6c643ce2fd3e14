"""Signed tree heads, and proofs that lead to a head."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from remit.ledger.clock import utc_now
from remit.ledger.entry import LedgerEntry
from remit.ledger.entry_reader import GREATEST, pages
from remit.ledger.errors import (
    AFTER_DAMAGE,
    LedgerError,
    LedgerFormatError,
    LedgerRollbackError,
    LedgerWriteError,
    NoSignerError,
    lost,
)
from remit.ledger.last_signed_head import KeptHead, contradiction
from remit.ledger.log_identity import OWNER_SQL, not_owned, require_owner
from remit.ledger.store import Execute, Store, Transaction, may_have_left
from remit.ledger.tlog import (
    Checkpoint,
    SignedCheckpoint,
    Signer,
    TlogError,
    TlogProof,
    VerifierKey,
)
from remit.ledger.tree import LedgerTree

_log = logging.getLogger("remit.ledger")

_BIND = "INSERT INTO ledger_info VALUES ('verifier_key', ?) ON CONFLICT (name) DO"


Transact = Callable[[Callable[[Transaction], Any]], Any]
"""Runs a function in a transaction and returns its result after the commit."""


@dataclass(eq=False, repr=False)
class Checkpoints:
    """The checkpoints stored in a ledger's database, and the last head stored with its key.

    Nothing is cached: methods read the database, and the head if they need it, anew. Threads may
    share a client's object. A fork replaces :attr:`key` and :attr:`signer`.

    Args:
        store: the store of the ledger.
        transact: runs a function in a transaction.
        key: the log's key, by which checkpoints are checked; ``None`` leaves them unchecked.
        signer: the private key; ``None`` signs nothing.
        kept: the stored head; ``None`` outside a root.
    """

    _store: Store
    _transact: Transact
    key: VerifierKey | None
    signer: Signer | None
    _kept: KeptHead | None

    def latest(self) -> SignedCheckpoint | None:
        """Return the greatest stored checkpoint with its cosignatures; ``None`` if there is none.

        Checkpoints that are damaged, not signed by the key, or of more entries than there are, are
        skipped. At most the 100 greatest are tried. LedgerError is raised if the ledger cannot be
        read.
        """
        return self._first("size >= ? ORDER BY size DESC", 0)

    def _first(self, condition: str, size: int) -> SignedCheckpoint | None:
        for most in (1, 100):  # the rest only where the first is damaged
            for column, note, last in self._store.select(
                "SELECT size, note, (SELECT max(seq) FROM entries) FROM checkpoints "
                f"WHERE {condition} LIMIT {most}",
                (size,),
            ):
                signed = _parsed(column, note, self.key)
                if signed is not None and last is not None and column <= last + 1:
                    return signed
        return None

    def problem(self) -> str:
        """Return how the ledger contradicts the head stored with the key; empty if it does not.

        The first contradiction is returned, as a sentence: too few entries, another root at the
        head's size, missing entries that an earlier process noted, or another owner of the
        database. Without a stored head the latter two are still checked; outside a root there are
        none.

        Raises:
            LedgerKeyError: the head cannot be read.
            LedgerRollbackError: the ledger was forked since this client was opened.
            LedgerError: the ledger cannot be read, or stored hashes are missing.
        """
        return self._contradiction(self._read_kept(), self._store.select)

    def _contradiction(self, kept: SignedCheckpoint | None, execute: Execute) -> str:
        if self._kept is None:
            return ""
        tree, place = LedgerTree(execute, self._store), self._store.location
        size = tree.size()
        found = contradiction(kept.checkpoint, tree, size, place) if kept is not None else ""
        seq, entry_hash = self._kept.seen()
        if not found and seq >= 0:
            rows = execute("SELECT entry_hash FROM entries WHERE seq = ?", (seq,))
            if rows != [(entry_hash,)] and (rows or not may_have_left(execute, seq)):
                found = lost(place, size, seq + 1).message
        if not found and (owner := _owner(execute)) not in ("", str(self.key)):
            found = f"The ledger {place} belongs to {owner.partition('+')[0]!r}."
        return found

    def hold(self, execute: Execute) -> None:
        """Refuse a database that does not extend the stored head; then advance the head.

        The head becomes the last stored checkpoint if that is larger. A head that cannot be written
        is only logged. A missing head is written from the last checkpoint, with a warning. Without
        a key, or outside a root, nothing is done.

        Args:
            execute: runs a statement in the first transaction on the database.

        Raises:
            LedgerRollbackError: the database is an older copy, lacks an entry that a process saw,
                has another history or owner, or was forked since ``key`` was read.
            LedgerFormatError: the database does not extend its own checkpoints, or stored hashes
                are missing.
            LedgerKeyError: the stored head cannot be read.
        """
        if self.key is None or self._kept is None:
            return
        kept = self._kept.read(self.key)
        if problem := self._contradiction(kept, execute):
            raise LedgerRollbackError(problem)
        last, _ = self._tip(execute)
        if last is None or (kept is not None and kept.checkpoint.size >= last.checkpoint.size):
            return
        if kept is None:
            _log.warning(
                "no head was kept beside the ledger's key: from now on it is held against that of "
                "its own checkpoint of %d entries",
                last.checkpoint.size,
            )
        try:
            self._kept.move_to(last, self.key)
        except LedgerWriteError as error:  # The next signature is refused then.
            _log.warning("%s", error)

    def _tip(self, execute: Execute) -> tuple[SignedCheckpoint | None, Checkpoint]:
        """Return the last stored checkpoint of this key, and the present tree head."""
        assert self.key is not None
        tree = LedgerTree(execute, self._store)
        size = tree.size()
        rows = execute("SELECT size, note FROM checkpoints ORDER BY size DESC LIMIT 9", ())
        for column, note in rows:
            last = _parsed(column, note, self.key)
            if last is None:
                continue
            head = last.checkpoint
            if head.size > size or tree.root(head.size) != head.root:
                # A key that signs a rewritten history makes it look sound, so it signs nothing.
                raise LedgerFormatError(
                    f"The ledger no longer leads to its own checkpoint of {head.size} entries: it "
                    "was cut off or rewritten, and no checkpoint is signed.",
                    next_step=AFTER_DAMAGE,
                )
            break
        else:
            last = None
        return last, Checkpoint(self.key.name, size, tree.root(size))

    def sign(self) -> str:
        """Sign the present tree, store the checkpoint and return the note as text.

        The head next to the key is advanced before the checkpoint is stored. If the tree has not
        grown, the stored checkpoint of it is returned. A stored checkpoint of the same size that is
        damaged is replaced.

        Raises:
            LedgerRollbackError: the ledger does not extend the head stored with the key.
            LedgerFormatError: the tree does not extend the last stored checkpoint.
            LedgerKeyError: the head next to the key cannot be read.
            LedgerWriteError: the head or the checkpoint cannot be written.
            NoSignerError: there is no private key.
            LedgerClosedError: the client is closed.
            LedgerError: the ledger cannot be read, or the call is inside a transaction.
        """
        return self.sign_in(self._transact)

    def sign_in(self, transact: Transact, *, is_forked: bool = False) -> str:
        """Sign the present tree in the caller's transactions; return the stored note.

        If the tree has not grown, that is the earlier note. In a root, the checkpoint is written
        next to the key, then in the database. If another process replaces the head next to the key
        meanwhile, signing is repeated.

        Args:
            transact: runs a function in a transaction.
            is_forked: True to leave the stored head of the old origin behind: the ledger is not
                compared with it.

        Raises:
            NoSignerError: the client has no signing key.
            LedgerError: the head or the checkpoint is refused or not written, see :meth:`sign`.
        """
        signer = self.signer
        if signer is None:
            raise NoSignerError(
                "This ledger client has no signing key, so it cannot sign a checkpoint.",
                next_step="Open the ledger through its root: `remit ledger checkpoint`, or "
                "remit.Runtime.open(root). `remit init` creates the key.",
            )
        signed = None
        while signed is None:
            signed = self._signed(signer, transact, is_forked=is_forked)
        # Kept first: no crash lets anybody see one that is not.
        return str(transact(functools.partial(_store, signed, signer.verifier_key)))

    def _signed(
        self, signer: Signer, transact: Transact, *, is_forked: bool
    ) -> SignedCheckpoint | None:
        """Return the present head, signed and stored with the key; ``None`` after a race."""
        kept = self._read_kept()

        def look(tx: Transaction) -> tuple[SignedCheckpoint | None, Checkpoint]:
            if not is_forked and (problem := self._contradiction(kept, tx.execute)):
                raise LedgerRollbackError(problem)
            return self._tip(tx.execute)

        # Only committed entries are signed, so no crash leaves a head without its entries.
        last, head = transact(look)
        signed: SignedCheckpoint
        if last is not None and last.checkpoint == head:
            signed = last
        elif kept is not None and kept.checkpoint == head:
            signed = kept
        else:
            signed = head.sign(signer)
        if self._kept is not None and (kept is None or signed.checkpoint != kept.checkpoint):
            with self._kept.locked():
                if self._read_kept() != kept:
                    return None
                self._kept.write(signed)
        return signed

    def _read_kept(self) -> SignedCheckpoint | None:
        return None if self._kept is None or self.key is None else self._kept.read(self.key)

    def fork(self, signer: Signer, entry: LedgerEntry) -> tuple[str, str]:
        """Continue the present entries under another origin; see :func:`~remit.ledger.forks.fork`.

        The entry is appended and the ledger's key replaced in one transaction. Then the key's
        public file is rewritten, a first checkpoint is signed, and the note of missing entries is
        deleted. The object uses ``signer`` once the key's file has the new name. Also after an
        error, the next write compares the database with the head. The ledger belongs to a root.

        Args:
            signer: the key under its new name.
            entry: the entry that names the old history.

        Returns the id of ``entry``, and the first checkpoint as text.

        Raises:
            LedgerWriteError: the ledger or the key files cannot be written. The fork can be
                repeated.
            LedgerError: the first checkpoint is refused, as by :meth:`sign`.
        """
        assert self._kept is not None
        key = str(signer.verifier_key)

        def begin(tx: Transaction) -> str:
            tx.execute(f"{_BIND} UPDATE SET value = excluded.value", (key,))
            return tx.append(entry)

        self._store.guard = None
        try:
            # A crash on the way leaves a ledger that is refused as before: it is forked again.
            name = self._transact(begin)
            with self._kept.locked():
                self._kept.files.rename(signer)
            self.key, self.signer = signer.verifier_key, signer
            note = self.sign_in(self._transact, is_forked=True)
            with self._kept.locked():
                self._kept.forget_seen()
        finally:
            self._store.guard = self.hold
            self._store.doubt()
        return str(name), note

    def add_cosignature(self, signed: SignedCheckpoint, witness: VerifierKey) -> None:
        """Verify a witness's line of ``signed`` and add it to the stored checkpoint of its text.

        A valid later line of the witness stays. Other lines of ``signed`` are ignored.

        Raises:
            LedgerError: this ledger has no such checkpoint, or cannot be written.
            TlogError: the line is missing or invalid, or the stored checkpoint is malformed.
        """
        size = signed.checkpoint.size

        def add(tx: Transaction) -> None:
            rows = tx.execute("SELECT note FROM checkpoints WHERE size = ?", (size,))
            stored = SignedCheckpoint.parse(rows[0][0]) if rows else None
            if stored is None or stored.note.text != signed.note.text:
                raise LedgerError(f"This ledger has no such checkpoint of {size} entries.")
            note = str(stored.with_cosignature(signed, witness))
            tx.execute("UPDATE checkpoints SET note = ? WHERE size = ?", (note, size))

        self._transact(add)

    def covering(self, seq: int) -> SignedCheckpoint | None:
        """Return the smallest stored checkpoint that covers an entry; ``None`` if there is none.

        Checkpoints are skipped as by :meth:`latest`; at most 100 are tried. Whether the entry
        exists is not checked.

        Args:
            seq: sequence number of the entry.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return self._first("size >= ? ORDER BY size", seq + 1)

    def prove(self, seq: int, signed: SignedCheckpoint | None) -> TlogProof:
        """Return the proof of an existing entry: its number, the inclusion path and the checkpoint.

        Args:
            seq: sequence number of the entry.
            signed: a checkpoint that covers the entry, which is not verified; ``None`` signs and
                stores a new one.

        Raises:
            NoSignerError: a new checkpoint is needed and there is no private key.
            TlogError: the checkpoint does not cover the entry.
            LedgerFormatError: entries or stored hashes are missing.
            LedgerError: a new checkpoint is refused, as by :meth:`sign`, or the ledger cannot be
                read.
        """
        if signed is None:
            signed = SignedCheckpoint.parse(self.sign())
        path = LedgerTree(self._store.select, self._store).inclusion(seq, signed.checkpoint.size)
        return TlogProof(seq, tuple(path), signed)

    def inclusions(self, size: int) -> Callable[[int], list[bytes]]:
        """Return a function from a sequence number to its RFC 6962 proof in the tree of ``size``
        entries.

        The function's list runs from the leaf's sibling to the root. Memory does not grow with the
        proofs; proofs of neighbours in succession read least. The function raises
        :class:`~remit.ledger.tlog.TlogError` for an entry outside the tree, LedgerFormatError if
        entries or hashes are missing, as in a tree larger than the ledger, and LedgerError if the
        ledger cannot be read.
        """
        tree = LedgerTree(self._store.select, self._store)
        return lambda seq: tree.inclusion(seq, size)

    def multiproof(self, seqs: Sequence[int], size: int) -> Iterator[bytes]:
        """Yield the hashes that prove the records of ``seqs`` in the tree of ``size`` entries.

        The hashes are the roots of the largest subtrees without any of the entries, left to right.

        Args:
            seqs: sequence numbers below ``size``, ascending.
            size: entries in the tree.

        Raises:
            LedgerFormatError: entries or stored hashes are missing.
            LedgerError: the ledger cannot be read.
        """
        return LedgerTree(self._store.select, self._store).multiproof(seqs, size)

    def prove_consistency(self, old: int, new: int) -> list[bytes]:
        """Return the RFC 6962 proof that the tree of ``new`` entries extends that of ``old``.

        The proof is empty if ``old`` is 0 or equals ``new``.

        Raises:
            TlogError: the ledger has fewer than ``new`` entries, or ``old`` is negative or greater
                than ``new``.
            LedgerFormatError: stored hashes are missing.
            LedgerError: the ledger cannot be read.
        """
        size = self._store.count()
        if new > size:
            raise TlogError(f"The ledger has {size} entries, not {new}.")
        return LedgerTree(self._store.select, self._store).consistency(old, new)

    def lacks(self, head: Checkpoint) -> str:
        """Return how the ledger fails to extend a head, as a sentence; empty if there is no fault.

        The head's origin and signature are not checked.

        Args:
            head: an earlier tree head of this ledger.

        Raises:
            LedgerFormatError: stored hashes are missing.
            LedgerError: the ledger cannot be read.
        """
        tree = LedgerTree(self._store.select, self._store)
        return contradiction(head, tree, self._store.count(), self._store.location)

    def head(self) -> Checkpoint:
        """Return the present tree head, unsigned; without a key its origin is empty.

        Raises:
            LedgerFormatError: stored hashes are missing.
            LedgerError: the ledger cannot be read.
        """
        tree = LedgerTree(self._store.select, self._store)
        size = tree.size()
        return Checkpoint(self.key.name if self.key else "", size, tree.root(size))

    def bind(self, key: VerifierKey) -> None:
        """Store the key that the ledger belongs to in ``ledger_info``, unless a key is stored.

        Outside a root, the stored key must equal ``key``.

        Args:
            key: the log's verifier key.

        Raises:
            LedgerKeyError: the ledger belongs to another key; or, outside a root, to another
                origin.
            LedgerError: the ledger cannot be read or written. A ledger that lacks entries is no
                error here: its next write is refused.
        """
        if not (owner := self.owner()):
            try:
                self._transact(lambda tx: tx.execute(f"{_BIND} NOTHING", (str(key),)))
            except LedgerRollbackError:
                return  # All further writes are refused too.
            owner = self.owner()
        if self._kept is not None:  # under another origin it is refused like an older copy
            require_owner(key, owner, self._store.location)
        elif owner != str(key):
            raise not_owned(owner, key, self._store.location)

    def owner(self) -> str:
        """Return the verifier key that the ledger belongs to, as text; empty if it has no key yet.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return _owner(self._store.select)


def _store(signed: SignedCheckpoint, key: VerifierKey, tx: Transaction) -> str:
    """Store a checkpoint, unless an equal tree head is stored; return the stored note."""
    size = signed.checkpoint.size
    rows = tx.execute("SELECT note FROM checkpoints WHERE size = ?", (size,))
    there = _parsed(size, rows[0][0], key) if rows else None
    if there is not None and there.checkpoint == signed.checkpoint:
        return str(there)
    tx.execute(
        "INSERT INTO checkpoints VALUES (?, ?, ?) ON CONFLICT (size) DO UPDATE "
        "SET created = excluded.created, note = excluded.note",
        (size, utc_now(), str(signed)),
    )
    return str(signed)


def _owner(execute: Execute) -> str:
    rows = execute(OWNER_SQL, ())
    return str(rows[0][0]) if rows else ""


def stored_notes(store: Store) -> Iterator[tuple[int, str]]:
    """Yield size and note of each stored checkpoint by size, however damaged; in pages, lazily.

    Args:
        store: the store of the ledger.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    sql = "SELECT size, note FROM checkpoints WHERE size BETWEEN ? AND ? ORDER BY size"
    for rows in pages(store.select, sql, 0, GREATEST):
        for size, note in rows:
            yield size, str(note)


def _parsed(size: int, note: str, key: VerifierKey | None) -> SignedCheckpoint | None:
    """Return a stored checkpoint; ``None`` if it is damaged, which verification reports."""
    try:
        signed = SignedCheckpoint.parse(note)
        if key is not None:
            signed.verify(key)
    except (TlogError, TypeError, AttributeError):
        return None
    return signed if signed.checkpoint.size == size else None
