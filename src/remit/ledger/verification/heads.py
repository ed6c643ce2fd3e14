"""Signed tree heads against the records: those stored, and one held outside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from remit.ledger.report import VerificationReport
from remit.ledger.tlog import (
    EMPTY_ROOT,
    TILE_WIDTH,
    NoteError,
    SignedCheckpoint,
    TlogError,
    VerifierKey,
    node_hash,
)


@dataclass(frozen=True, slots=True)
class TreeHead:
    """A signed tree head; ``outside`` when the caller gave it."""

    signed: SignedCheckpoint
    outside: bool

    @property
    def size(self) -> int:
        """Entries that it covers."""
        return self.signed.checkpoint.size


def read_heads(
    report: VerificationReport,
    notes: list[tuple[int, str]],
    outside: str | bytes | SignedCheckpoint | None,
    key: VerifierKey | None,
) -> list[TreeHead]:
    """The tree heads, greatest last; malformed and forged ones go into ``report``.

    Args:
        report: of the verification.
        notes: size and note of those stored.
        outside: the one that the caller gave.
        key: the ledger's; without it signatures are not checked.
    """
    heads = []
    given: list[tuple[int | None, str | bytes | SignedCheckpoint]] = [*notes]
    if outside is not None:
        given.append((None, outside))
    for column, note in given:
        try:
            signed = note if isinstance(note, SignedCheckpoint) else SignedCheckpoint.parse(note)
            if key is not None:
                signed.verify(key)
            if column not in (None, signed.checkpoint.size):
                raise NoteError("Its size is not that of its row.")
        except TlogError as error:
            which = f"stored checkpoint of {column}" if column is not None else "given one"
            report.add(None, "checkpoint", f"the {which}: {error.message}")
            report.checkpoint = "failed"
        else:
            heads.append(TreeHead(signed, column is None))
    return sorted(heads, key=lambda head: (head.size, head.outside))


def check_heads(
    report: VerificationReport,
    heads: list[TreeHead],
    roots: list[bytes],
    partials: dict[int, bytes],
    start: int,
    size: int,
    *,
    is_signed: bool,
    witnesses: Sequence[VerifierKey],
) -> None:
    """Compare the records with the tree heads, and report how far these vouch for them.

    Args:
        report: of the verification.
        heads: by growing size.
        roots: of the complete subtrees of 256 leaves.
        partials: by tree size, the root over the leaves after those.
        start: the first entry that was read.
        size: entries in the ledger.
        is_signed: whether the signatures of ``heads`` were checked.
        witnesses: keys whose cosignatures are looked for.
    """
    peaks = _Peaks()
    failed = report.checkpoint == "failed"
    best: TreeHead | None = None
    for head in heads:
        where = "the given checkpoint" if head.outside else "a stored checkpoint"
        if head.size > size:
            report.add(
                size,
                "checkpoint",
                f"{where} covers {head.size} entries, but there are {size}: the ledger was cut off",
            )
            failed = True
            continue
        if head.size < start:
            continue  # its leaves were left out on request
        index = head.size // TILE_WIDTH
        peaks.extend(roots[peaks.count : index])
        root = peaks.root(partials.get(head.size, b""))
        if peaks.count != index or root != head.signed.checkpoint.root:
            report.add(
                None,
                "checkpoint",
                f"{where} of {head.size} entries has another root than the records: history "
                "before it was rewritten",
            )
            failed = True
        elif best is None or head.outside or not best.outside:
            best = head
    if failed:
        report.checkpoint = "failed"
    elif best is not None:
        report.checkpoint = "outside" if best.outside else "stored"
        if not is_signed:
            report.checkpoint = "unchecked"
        report.checkpoint_size = best.size
        try:
            report.witnesses = [item.key.name for item in best.signed.cosignatures(witnesses)]
        except TlogError as error:
            report.add(None, "checkpoint", error.message)


class _Peaks:
    """The roots of a growing tree's complete subtrees, greatest first."""

    def __init__(self) -> None:
        self.count = 0
        self._peaks: list[tuple[int, bytes]] = []

    def extend(self, roots: Iterable[bytes]) -> None:
        for root in roots:
            node, height = root, 0
            while self._peaks and self._peaks[-1][0] == height:
                node = node_hash(self._peaks.pop()[1], node)
                height += 1
            self._peaks.append((height, node))
            self.count += 1

    def root(self, partial: bytes) -> bytes:
        hashes = [item for _, item in self._peaks]
        if partial:
            hashes.append(partial)
        if not hashes:
            return EMPTY_ROOT
        node = hashes[-1]
        for left in reversed(hashes[:-1]):
            node = node_hash(left, node)
        return node
