"""Signed tree heads and the proofs that lead to them (SPEC 3.3)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

from remit.kernel.errors import RemitError
from remit.ledger.entry import utc_now
from remit.ledger.errors import LedgerError, LedgerFormatError, LedgerKeyError, NoSignerError
from remit.ledger.store import Store, Transaction, Unit
from remit.ledger.tlog import (
    Checkpoint,
    ProofError,
    SignedCheckpoint,
    Signer,
    TlogError,
    TlogProof,
    VerifierKey,
)
from remit.ledger.tree import LedgerTree

_log = logging.getLogger("remit.ledger")

_OWNER = "SELECT value FROM ledger_info WHERE name = 'verifier_key'"


class Checkpoints:
    """The checkpoints stored in a ledger's database."""

    def __init__(
        self,
        store: Store,
        transact: Callable[[Callable[[Transaction], Any]], Any],
        key: VerifierKey | None,
        signer: Signer | None,
    ) -> None:
        self._store = store
        self._transact = transact
        self.key = key
        self.signer = signer

    def latest(self) -> SignedCheckpoint | None:
        """The greatest readable one, with its cosignatures."""
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

    def sign(self) -> str:
        """Sign the tree as it is, store the checkpoint and return it.

        Raises:
            LedgerFormatError: the tree does not extend the one signed last.
            NoSignerError: there is no private key.
        """
        if self.signer is None:
            raise NoSignerError(
                "This ledger client holds no signing key, so it cannot sign a checkpoint.",
                next_step="Open the ledger through its root: `remit ledger checkpoint`, or "
                "remit.Runtime.open(root). `remit init` makes the key.",
            )
        return str(self._transact(self.sign_in))

    def sign_in(self, tx: Transaction) -> str:
        """:meth:`sign` within a transaction; the stored one of this size when there is one."""
        assert self.signer is not None
        tree = LedgerTree(tx.execute, self._store)
        size = tree.size()
        for column, note in tx.execute(
            "SELECT size, note FROM checkpoints ORDER BY size DESC LIMIT 9"
        ):
            last = _parsed(column, note, self.signer.verifier_key)
            if last is None:
                continue
            head = last.checkpoint
            if head.size > size or tree.root(head.size) != head.root:
                # A key that signs a rewritten history makes it look sound, so it signs nothing.
                raise LedgerFormatError(
                    f"The ledger no longer leads to its own checkpoint of {head.size} entries: it "
                    "was cut off or rewritten, and no checkpoint is signed.",
                    next_step="Run `remit ledger verify`; restore the ledger from a backup.",
                )
            if head.size == size:
                return str(last)
            break
        note = str(Checkpoint(self.signer.name, size, tree.root(size)).sign(self.signer))
        tx.execute(
            "INSERT INTO checkpoints VALUES (?, ?, ?) ON CONFLICT (size) DO UPDATE "
            "SET created = excluded.created, note = excluded.note",
            (size, utc_now(), note),
        )
        return note

    def add_cosignatures(self, signed: SignedCheckpoint) -> None:
        """Store the cosignatures of a checkpoint beside the log's own signature.

        Raises:
            LedgerError: this ledger has no such checkpoint.
        """
        size = signed.checkpoint.size

        def add(tx: Transaction) -> None:
            rows = tx.execute("SELECT note FROM checkpoints WHERE size = ?", (size,))
            stored = SignedCheckpoint.parse(rows[0][0]) if rows else None
            if stored is None or stored.note.text != signed.note.text:
                raise LedgerError(f"This ledger has no such checkpoint of {size} entries.")
            note = str(stored.with_signatures(signed.note.signatures))
            tx.execute("UPDATE checkpoints SET note = ? WHERE size = ?", (note, size))

        self._transact(add)

    def covering(self, seq: int) -> SignedCheckpoint | None:
        """The smallest readable one that covers an entry."""
        return self._first("size >= ? ORDER BY size", seq + 1)

    def prove(self, seq: int, signed: SignedCheckpoint | None) -> TlogProof:
        """The proof of an entry that is there, under a checkpoint that covers it, or a new one.

        Raises:
            NoSignerError: a new checkpoint is needed and there is no private key.
        """
        if signed is None:
            signed = SignedCheckpoint.parse(self.sign())
        path = LedgerTree(self._store.select, self._store).inclusion(seq, signed.checkpoint.size)
        return TlogProof(seq, tuple(path), signed)

    def prove_consistency(self, old: int, new: int) -> list[bytes]:
        """The RFC 6962 proof that the tree of ``new`` entries extends that of ``old``.

        Raises:
            ProofError: the ledger has fewer entries.
        """
        size = self._store.count()
        if new > size:
            raise ProofError(f"The ledger has {size} entries, not {new}.")
        return LedgerTree(self._store.select, self._store).consistency(old, new)

    def bind(self, key: VerifierKey) -> None:
        """Record the key that the ledger belongs to.

        Raises:
            LedgerKeyError: the ledger belongs to another key or origin.
        """

        def insert(tx: Transaction) -> list[tuple[Any, ...]]:
            tx.execute(
                "INSERT INTO ledger_info VALUES ('verifier_key', ?) ON CONFLICT (name) DO NOTHING",
                (str(key),),
            )
            return tx.execute(_OWNER)

        rows = self._store.select(_OWNER) or self._transact(insert)
        owner = str(rows[0][0])
        if owner != str(key):
            raise LedgerKeyError(
                f"The ledger {self._store.location} belongs to {owner.partition('+')[0]!r}; this "
                f"root's key is of {key.name!r}, or another key of that name.",
                next_step="Two roots cannot share one ledger. Give this root a ledger of its own, "
                "or the key of that ledger.",
            )


class CheckpointSchedule:
    """Signs checkpoints as the ledger grows, in the writer's thread."""

    def __init__(
        self, checkpoints: Checkpoints, store: Store, *, every_entries: int, every_s: float
    ) -> None:
        self._checkpoints = checkpoints
        self._store = store
        self._every_entries = every_entries
        self._every_s = every_s
        self._covered: int | None = None  # not known before the first commit
        self._deadline: float | None = None

    def wait_s(self) -> float | None:
        """Seconds until :meth:`tick` is due at the latest; ``None`` when nothing is new."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def tick(self, *, closing: bool = False) -> None:
        """Sign a checkpoint if one is due: called after each commit, on time, and at the end."""
        if not self._store.size:
            return
        if self._covered is None:
            latest = self._checkpoints.latest()
            self._covered = latest.checkpoint.size if latest else 0
        new = self._store.size - self._covered
        if new <= 0:
            return
        if self._deadline is None:
            self._deadline = time.monotonic() + self._every_s
        if new >= self._every_entries or closing or time.monotonic() >= self._deadline:
            self._deadline = None
            try:
                (result,) = self._store.run([Unit(call=self._checkpoints.sign_in)])
                if isinstance(result, BaseException):
                    raise result
            except RemitError as error:
                # The entries are on record; the next one due covers them.
                _log.warning("no checkpoint was written: %s", error)
            self._covered = self._store.size


def stored_notes(store: Store) -> Iterator[tuple[int, str]]:
    """Size column and note of each stored checkpoint, by size, however damaged."""
    last = -1
    while rows := store.select(
        "SELECT size, note FROM checkpoints WHERE size > ? ORDER BY size LIMIT 200", (last,)
    ):
        for size, note in rows:
            last = size
            yield int(size), str(note)


def _parsed(size: int, note: str, key: VerifierKey | None) -> SignedCheckpoint | None:
    """A stored row, or ``None`` where it is damaged, which verification reports."""
    try:
        signed = SignedCheckpoint.parse(note)
        if key is not None:
            signed.verify(key)
    except (TlogError, TypeError, AttributeError):
        return None
    return signed if signed.checkpoint.size == size else None
