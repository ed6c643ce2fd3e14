"""Proof files (C2SP tlog-proof): a leaf's place in a signed tree, verifiable offline."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from remit.ledger.tlog.checkpoint import Checkpoint, SignedCheckpoint
from remit.ledger.tlog.errors import ProofError
from remit.ledger.tlog.merkle import leaf_hash, verify_inclusion
from remit.ledger.tlog.note import MAX_NOTE_BYTES, VerifierKey, parse_base64, parse_decimal

_HEADER = "c2sp.org/tlog-proof@v1"
_MAX_HASHES = 63


@dataclass(frozen=True, slots=True)
class TlogProof:
    """An inclusion proof and the checkpoint it leads to.

    Attributes:
        index: of the leaf, from 0.
        path: hashes from the leaf's sibling to the root's child.
        signed: the checkpoint.
        extra: opaque bytes that nothing authenticates; ``None`` when there are none.
    """

    index: int
    path: tuple[bytes, ...]
    signed: SignedCheckpoint
    extra: bytes | None = None

    def __str__(self) -> str:
        lines = [_HEADER]
        if self.extra is not None:
            lines.append(f"extra {base64.b64encode(self.extra).decode()}")
        lines.append(f"index {self.index}")
        lines.extend(base64.b64encode(item).decode() for item in self.path)
        return "\n".join(lines) + "\n\n" + str(self.signed)

    @classmethod
    def parse(cls, data: str | bytes) -> TlogProof:
        """Read a proof file; raises :class:`ProofError` or what the checkpoint raises."""
        try:
            text = data.decode() if isinstance(data, bytes) else data
        except UnicodeDecodeError as error:
            raise ProofError("The proof is not UTF-8.") from error
        if len(text) > MAX_NOTE_BYTES:
            raise ProofError("The proof is too long.")
        head, separator, checkpoint = text.partition("\n\n")
        header, *lines = head.split("\n")
        if header != _HEADER or not separator:
            raise ProofError(
                "This is not a proof.", next_step=f"It begins with the line {_HEADER}."
            )
        extra = None
        if lines and lines[0].startswith("extra "):
            extra = parse_base64(lines.pop(0)[6:])
            if extra is None:
                raise ProofError("The proof's extra data is not base64.")
        name, _, digits = lines.pop(0).partition(" ") if lines else ("", "", "")
        index = parse_decimal(digits)
        if name != "index" or index is None:
            raise ProofError("The proof names no index.")
        if len(lines) > _MAX_HASHES:
            raise ProofError("The inclusion proof is too long.")
        hashes = [item for line in lines if (item := parse_base64(line, 32)) is not None]
        if len(hashes) != len(lines):
            raise ProofError("A hash of the proof is not base64 of 32 bytes.")
        return cls(index, tuple(hashes), SignedCheckpoint.parse(checkpoint), extra)

    def verify(self, record: bytes, key: VerifierKey) -> Checkpoint:
        """The checkpoint, once ``record`` is seen to be leaf ``index`` of the tree ``key`` signed.

        Raises:
            CheckpointError: the checkpoint is another log's or another key's.
            ProofError: the record is not in that tree at that place.
        """
        checkpoint = self.signed.verify(key)
        leaf = leaf_hash(record)
        verify_inclusion(leaf, self.index, checkpoint.size, self.path, checkpoint.root)
        return checkpoint
