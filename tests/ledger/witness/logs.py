"""A log to be witnessed: its whole tree in memory, hashed by the recursion of RFC 6962, 2.1."""

from __future__ import annotations

import base64
import functools

from remit.ledger.tlog import (
    EMPTY_ROOT,
    Checkpoint,
    SignedCheckpoint,
    Signer,
    consistency_proof,
    leaf_hash,
    node_hash,
    split_point,
)


class Log:
    """Leaves, and a key that signs whatever it is told to."""

    def __init__(self, leaves: list[bytes], signer: Signer | None = None) -> None:
        self.leaves = leaves
        self.signer = signer or Signer.generate("log.example/main")
        self._hash = functools.cache(self._range)

    @classmethod
    def of(cls, size: int, signer: Signer | None = None, tag: str = "leaf") -> Log:
        return cls([f"{tag} {number}".encode() for number in range(size)], signer)

    def changed(self, index: int) -> Log:
        """The same log with another leaf in one place, signed by the same key."""
        leaves = list(self.leaves)
        leaves[index] += b" changed"
        return Log(leaves, self.signer)

    def root(self, size: int) -> bytes:
        return self._hash(0, size) if size else EMPTY_ROOT

    def checkpoint(self, size: int) -> SignedCheckpoint:
        return Checkpoint(self.signer.name, size, self.root(size)).sign(self.signer)

    def prove(self, old: int, new: int) -> list[bytes]:
        return consistency_proof(old, new, self._hash)

    def request(self, old: int, new: int, proof: list[bytes] | None = None) -> bytes:
        if proof is None:
            proof = self.prove(old, new)
        return body(old, proof, str(self.checkpoint(new)))

    def _range(self, start: int, end: int) -> bytes:
        if end - start == 1:
            return leaf_hash(self.leaves[start])
        middle = start + split_point(end - start)
        return node_hash(self._hash(start, middle), self._hash(middle, end))


def body(old: object, proof: list[bytes], note: str) -> bytes:
    lines = "".join(base64.b64encode(item).decode() + "\n" for item in proof)
    return f"old {old}\n{lines}\n{note}".encode()
