"""Holding a ledger against signed tree heads: its own, and one held outside."""

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

__all__ = ["TreeHead", "TreeHeads"]


@dataclass(frozen=True, slots=True)
class TreeHead:
    """A signed tree head; ``outside`` when it was handed in."""

    signed: SignedCheckpoint
    size: int
    root: bytes
    outside: bool


class TreeHeads:
    """Reads tree heads and holds the records against them.

    Args:
        key: the ledger's verifier key; without it signatures cannot be checked.
        witnesses: keys whose cosignatures are looked for.
    """

    def __init__(self, key: VerifierKey | None, witnesses: Sequence[VerifierKey]) -> None:
        self._key = key
        self._witnesses = witnesses

    def read(
        self,
        report: VerificationReport,
        notes: list[tuple[int, str]],
        outside: str | bytes | SignedCheckpoint | None,
    ) -> list[TreeHead]:
        """The tree heads to hold the ledger against, greatest last; what is none is reported.

        Args:
            report: for what is none.
            notes: size and note of those stored.
            outside: the one that was handed in.
        """
        heads = []
        for column, note in notes:
            try:
                signed = SignedCheckpoint.parse(note)
                if self._key is not None:
                    signed.verify(self._key)
                if signed.checkpoint.size != column:
                    raise NoteError("Its size is not that of its row.")
            except TlogError as error:
                report.add(
                    None, "checkpoint", f"the stored checkpoint of {column}: {error.message}"
                )
                report.checkpoint = "failed"
                continue
            heads.append(TreeHead(signed, column, signed.checkpoint.root, False))
        if outside is not None:
            try:
                if not isinstance(outside, SignedCheckpoint):
                    outside = SignedCheckpoint.parse(outside)
                if self._key is not None:
                    outside.verify(self._key)
            except TlogError as error:
                report.add(None, "checkpoint", f"the one that was handed in: {error}")
                report.checkpoint = "failed"
            else:
                head = outside.checkpoint
                heads.append(TreeHead(outside, head.size, head.root, True))
        return sorted(heads, key=lambda head: (head.size, head.outside))

    def check(
        self,
        report: VerificationReport,
        heads: list[TreeHead],
        roots: list[bytes],
        partials: dict[int, bytes],
        start: int,
        size: int,
    ) -> None:
        """Hold the ledger against tree heads; says in ``report`` how far they vouch for it.

        Args:
            report: for what does not fit.
            heads: by growing size.
            roots: of the complete subtrees of 256 leaves.
            partials: by tree size, the root over the leaves after those.
            start: the first entry that was read.
            size: entries in the ledger.
        """
        peaks = _Peaks()
        failed = report.checkpoint == "failed"
        holds: TreeHead | None = None
        for head in heads:
            where = "the checkpoint that was handed in" if head.outside else "a stored checkpoint"
            if head.size > size:
                report.add(
                    size,
                    "checkpoint",
                    f"{where} covers {head.size} entries, but there are {size}: the ledger was "
                    "cut off",
                )
                failed = True
                continue
            if head.size < start:
                continue  # its leaves were left out on request
            index = head.size // TILE_WIDTH
            peaks.extend(roots[peaks.count : index])
            root = peaks.root(partials.get(head.size, b""))
            if peaks.count != index or root != head.root:
                report.add(
                    None,
                    "checkpoint",
                    f"{where} of {head.size} entries has another root than the records: history "
                    "before it was rewritten",
                )
                failed = True
                continue
            if holds is None or head.outside or not holds.outside:
                holds = head
        if failed:
            report.checkpoint = "failed"
        elif holds is not None:
            report.checkpoint = "outside" if holds.outside else "stored"
            if self._key is None:
                report.checkpoint = "unchecked"
            report.checkpoint_size = holds.size
            try:
                cosigned = holds.signed.cosignatures(self._witnesses)
            except TlogError as error:
                report.add(None, "checkpoint", error.message)
            else:
                report.witnesses = [item.key.name for item in cosigned]


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
