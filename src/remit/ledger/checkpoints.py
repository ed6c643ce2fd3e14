"""Signing the tree head: by count, by time, on demand (SPEC 3.3)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from remit.kernel.errors import RemitError
from remit.ledger.entry import utc_now
from remit.ledger.errors import LedgerError, LedgerFormatError, LedgerKeyError
from remit.ledger.store import Store, Transaction, Unit
from remit.ledger.tlog import Checkpoint, SignedCheckpoint, Signer, TlogError, VerifierKey
from remit.ledger.tree import LedgerTree

__all__ = [
    "CheckpointKeeper",
    "Checkpoints",
    "add_cosignatures",
    "bind_to_key",
    "write_checkpoint",
]

_log = logging.getLogger("remit.ledger")


class Checkpoints:
    """The signed checkpoints that lie in the ledger's database.

    Args:
        store: of the ledger.
        key: what they must be signed by; not checked without it.
    """

    def __init__(self, store: Store, key: VerifierKey | None = None) -> None:
        self._store = store
        self._key = key

    def latest(self) -> SignedCheckpoint | None:
        """The greatest one that can be read."""
        return self._first("size >= ? ORDER BY size DESC", 0)

    def at_least(self, size: int) -> SignedCheckpoint | None:
        """The smallest one of at least ``size`` entries."""
        return self._first("size >= ? ORDER BY size", size)

    def _first(self, condition: str, size: int) -> SignedCheckpoint | None:
        rows = self._store.select("SELECT seq FROM entries ORDER BY seq DESC LIMIT 1")
        entries = rows[0][0] + 1 if rows else 0
        for column, note in self._store.select(
            f"SELECT size, note FROM checkpoints WHERE {condition} LIMIT 100", (size,)
        ):
            try:
                signed = SignedCheckpoint.parse(note)
                if self._key is not None:
                    signed.verify(self._key)
            except (TlogError, TypeError, AttributeError):
                continue  # damage: verification says so
            if signed.checkpoint.size == column <= entries:
                return signed
        return None

    def notes(self) -> Iterable[tuple[int, str]]:
        """Size column and note of each, by size, however damaged."""
        last = -1
        while rows := self._store.select(
            "SELECT size, note FROM checkpoints WHERE size > ? ORDER BY size LIMIT 200", (last,)
        ):
            for size, note in rows:
                last = size
                yield int(size), str(note)


def write_checkpoint(tx: Transaction, signer: Signer, store: Store) -> str:
    """Sign the tree as the transaction sees it; the one of this size when there is one.

    Raises:
        LedgerFormatError: the tree does not extend the one signed last. A key that signs a
            rewritten history makes it look sound, so it signs nothing.
    """
    tree = LedgerTree(tx.execute, store)
    size = tree.size()
    last = _last_signed(tx, signer.verifier_key)
    if last is not None:
        head = last.checkpoint
        if head.size > size or tree.root(head.size) != head.root:
            raise LedgerFormatError(
                f"The ledger no longer leads to its own checkpoint of {head.size} entries: it was "
                "cut off or rewritten, and no checkpoint is signed.",
                next_step="Run `remit ledger verify`; restore the ledger from a backup.",
            )
        if head.size == size:
            return str(last)
    note = str(Checkpoint(signer.name, size, tree.root(size)).sign(signer))
    tx.execute(
        "INSERT INTO checkpoints VALUES (?, ?, ?) ON CONFLICT (size) DO UPDATE "
        "SET created = excluded.created, note = excluded.note",
        (size, utc_now(), note),
    )
    return note


def _last_signed(tx: Transaction, key: VerifierKey) -> SignedCheckpoint | None:
    """The greatest stored checkpoint that the key signed; rows that are none are passed over."""
    for column, note in tx.execute("SELECT size, note FROM checkpoints ORDER BY size DESC LIMIT 9"):
        try:
            signed = SignedCheckpoint.parse(str(note))
            if signed.verify(key).size == column:
                return signed
        except TlogError:
            continue
    return None


def add_cosignatures(tx: Transaction, signed: SignedCheckpoint) -> None:
    """Add the signature lines of ``signed`` to the stored checkpoint of the same tree.

    Raises:
        LedgerError: there is no such checkpoint.
    """
    size = signed.checkpoint.size
    rows = tx.execute("SELECT note FROM checkpoints WHERE size = ?", (size,))
    stored = SignedCheckpoint.parse(rows[0][0]) if rows else None
    if stored is None or stored.note.text != signed.note.text:
        raise LedgerError(f"This ledger has no such checkpoint of {size} entries.")
    note = str(stored.with_signatures(signed.note.signatures))
    tx.execute("UPDATE checkpoints SET note = ? WHERE size = ?", (note, size))


def bind_to_key(store: Store, run: Callable[[Callable[[Transaction], Any]], Any],
                key: VerifierKey) -> None:  # fmt: skip
    """Note whose ledger this is, or refuse another's.

    Raises:
        LedgerKeyError: the ledger belongs to another key or origin.
    """
    wanted = str(key)

    def bind(tx: Transaction) -> str:
        tx.execute(
            "INSERT INTO ledger_info VALUES ('verifier_key', ?) ON CONFLICT (name) DO NOTHING",
            (wanted,),
        )
        return str(tx.execute("SELECT value FROM ledger_info WHERE name = 'verifier_key'")[0][0])

    rows = store.select("SELECT value FROM ledger_info WHERE name = 'verifier_key'")
    found = str(rows[0][0]) if rows else run(bind)
    if found != wanted:
        raise LedgerKeyError(
            f"The ledger {store.location} belongs to {found.partition('+')[0]!r}; this root's key "
            f"is of {key.name!r}, or another key of that name.",
            next_step="Two roots cannot share one ledger. Give this root a ledger of its own, or "
            "the key of that ledger.",
        )


class CheckpointKeeper:
    """Says when a checkpoint is due, and writes it; lives in the writer's thread.

    Args:
        store: of the ledger.
        signer: the ledger's key.
        every_entries: a checkpoint after as many entries.
        every_s: a checkpoint of what is new after as many seconds.
    """

    def __init__(
        self,
        store: Store,
        signer: Signer,
        *,
        every_entries: int,
        every_s: float,
    ) -> None:
        self._store = store
        self._signer = signer
        self._every_entries = every_entries
        self._every_s = every_s
        self._covered: int | None = None  # unknown in the beginning
        self._deadline: float | None = None

    def wait_s(self) -> float | None:
        """Seconds until :meth:`tick` has something to do; ``None`` when nothing is new."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def tick(self, *, closing: bool = False) -> None:
        """Write a checkpoint when one is due; after each commit, on time, and at the end."""
        if not self._store.size:
            return
        if self._covered is None:  # the first commit of this process: what is covered already?
            latest = Checkpoints(self._store, self._signer.verifier_key).latest()
            self._covered = latest.checkpoint.size if latest else 0
        new = self._store.size - self._covered
        if new <= 0:
            return
        if self._deadline is None:
            self._deadline = time.monotonic() + self._every_s
        if new >= self._every_entries or closing or time.monotonic() >= self._deadline:
            self._deadline = None
            try:
                self._write()
            except RemitError as error:
                # The entries are on record; it is tried again when the next one is due.
                _log.warning("no checkpoint was written: %s", error)
            self._covered = self._store.size

    def _write(self) -> None:
        def call(tx: Transaction) -> str:
            return write_checkpoint(tx, self._signer, self._store)

        (result,) = self._store.run([Unit(call=call)])
        if isinstance(result, BaseException):
            raise result
