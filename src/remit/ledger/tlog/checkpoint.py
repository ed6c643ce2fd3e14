"""Checkpoints, their cosignatures and proofs (C2SP tlog-checkpoint, -cosignature, -proof)."""

from __future__ import annotations

import base64
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass

from remit.ledger.tlog.errors import TlogError
from remit.ledger.tlog.merkle import leaf_hash, verify_inclusion
from remit.ledger.tlog.note import (
    COSIGNATURE,
    MAX_NOTE_BYTES,
    Note,
    NoteSignature,
    Signer,
    VerifierKey,
    parse_base64,
    parse_decimal,
)

_PROOF_HEADER = "c2sp.org/tlog-proof@v1"
_MAX_HASHES = 63


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A tree head, unsigned; immutable. Only :meth:`parse` checks its values.

    Attributes:
        origin: unique name of the log.
        size: number of leaves.
        root: root hash of the tree, 32 bytes.
        extensions: further lines of the note's text, without newlines.
    """

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The text of the note: origin, size, root in base64 and extensions, a line each with a
        newline.
        """
        lines = (
            self.origin,
            str(self.size),
            base64.b64encode(self.root).decode(),
            *self.extensions,
        )
        return "".join(f"{line}\n" for line in lines)

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """Return the checkpoint in a note's text.

        Args:
            text: origin, size, root hash in base64, and any extension lines, each with a newline.

        Raises:
            TlogError: a line is missing or empty, the size is no decimal number below 2⁶³, or the
                root is not base64 of 32 bytes.
        """
        lines = text.split("\n")
        if len(lines) < 4 or lines[-1] != "" or not all(lines[:-1]):
            raise TlogError(
                "This is not a checkpoint: a checkpoint has an origin, a size and a root hash."
            )
        origin, digits, encoded, *extensions = lines[:-1]
        size = parse_decimal(digits)
        if size is None:
            raise TlogError(f"The checkpoint's tree size {digits[:40]!r} is not a number.")
        root = parse_base64(encoded, 32)
        if root is None:
            raise TlogError("The checkpoint's root hash is not base64 of 32 bytes.")
        return cls(origin, size, root, tuple(extensions))

    def sign(self, signer: Signer) -> SignedCheckpoint:
        """Return the checkpoint signed by the log's key.

        Args:
            signer: the log's key.

        Raises:
            TlogError: the key's name is not the origin.
        """
        if signer.name != self.origin:
            raise TlogError(f"The key {signer.name} cannot sign for {self.origin}.")
        return SignedCheckpoint(self, Note(self.text, (signer.sign_note(self.text),)))


@dataclass(frozen=True, slots=True)
class SignedCheckpoint:
    """A checkpoint with its signature lines; not trusted before :meth:`verify`.

    Attributes:
        checkpoint: the tree head in the note's text.
        note: the text and its signatures; ``str`` gives the note itself.
    """

    checkpoint: Checkpoint
    note: Note

    def __str__(self) -> str:
        return str(self.note)

    @classmethod
    def parse(cls, data: str | bytes) -> SignedCheckpoint:
        """Return the checkpoint in a signed note; no signature is verified.

        Args:
            data: the note's text; bytes are UTF-8.

        Raises:
            TlogError: the note or its text is malformed or longer than 1,000,000 bytes, or a key
                signed it twice.
        """
        note = Note.parse(data)
        return cls(Checkpoint.parse(note.text), note)

    def verify(self, key: VerifierKey) -> Checkpoint:
        """Return the checkpoint if ``key`` signed it. Cosignatures are not checked.

        Args:
            key: the log's verifier key.

        Raises:
            TlogError: the checkpoint belongs to another origin, the key did not sign it, or a
                signature under the key's name does not hold.
        """
        if self.checkpoint.origin != key.name:
            raise TlogError(
                f"This checkpoint is of the log {self.checkpoint.origin!r}, not of {key.name!r}.",
                next_step="Take a checkpoint of this log, or the verifier key of that one.",
            )
        try:
            self.note.verify([key])
        except TlogError as error:
            raise TlogError(
                f"This checkpoint of {key.name} is not signed by the key {key}.",
                next_step="Check the verifier key. If it is right, the checkpoint is forged.",
            ) from error
        return self.checkpoint

    def cosign(self, signer: Signer, timestamp: int | None = None) -> NoteSignature:
        """Return a cosignature line by a witness's key; the checkpoint is not changed.

        The line's signature holds the time, in 8 bytes, and signs it with the note's text (C2SP
        tlog-cosignature).

        Args:
            signer: a witness's key.
            timestamp: seconds since 1970; ``None`` for the clock.

        Raises:
            TlogError: ``signer`` is a log's key.
        """
        if signer.verifier_key.kind != COSIGNATURE:
            raise TlogError("A log's own key cannot cosign.")
        now = int(time.time()) if timestamp is None else timestamp
        signature = struct.pack(">Q", now) + signer.sign(_cosigned(self.note.text, now))
        return NoteSignature(signer.name, signer.verifier_key.key_id, signature)

    def cosignatures(self, keys: Iterable[VerifierKey]) -> list[tuple[VerifierKey, int]]:
        """Return the valid cosignatures of witnesses, each with the witness's key and its time.

        A key without a line is left out.

        Args:
            keys: the witnesses' keys; lines of other keys are ignored.

        Returns:
            Pairs of a key, in the order of ``keys``, and the seconds since 1970 at which the
            witness had seen the tree.

        Raises:
            TlogError: a line of one of the keys is malformed or is not its signature.
        """
        found = []
        for key in keys:
            for item in self.note.signatures:
                if (item.name, item.key_id) != (key.name, key.key_id):
                    continue
                if len(item.signature) != 72:
                    raise TlogError(f"The cosignature of {key.name} is malformed.")
                (timestamp,) = struct.unpack(">Q", item.signature[:8])
                message = _cosigned(self.note.text, timestamp)
                if not key.verify(message, item.signature[8:]):
                    raise TlogError(f"The cosignature of {key.name} does not hold.")
                found.append((key, timestamp))
        return found

    def with_signatures(self, lines: Iterable[NoteSignature]) -> SignedCheckpoint:
        """Return a copy of the checkpoint with further signature lines after the present ones.

        The lines are not verified.

        Args:
            lines: signature lines. A line with the name and key id of a present line is left out;
                they are not compared with each other.
        """
        known = {(item.name, item.key_id) for item in self.note.signatures}
        new = tuple(item for item in lines if (item.name, item.key_id) not in known)
        return SignedCheckpoint(
            self.checkpoint, Note(self.note.text, (*self.note.signatures, *new))
        )

    def with_cosignature(self, other: SignedCheckpoint, witness: VerifierKey) -> SignedCheckpoint:
        """Return a copy of the checkpoint with a witness's verified line from ``other``.

        The line replaces an earlier or invalid line of the witness; after a later valid line, the
        checkpoint is returned unchanged. The other lines of the checkpoint stay.

        Args:
            other: a checkpoint of the same text, whose other lines are ignored.
            witness: the witness's key.

        Raises:
            TlogError: ``other`` has no line of the witness, or the line is not its cosignature of
                the text.
        """
        own = (witness.name, witness.key_id)
        lines = [one for one in other.note.signatures if (one.name, one.key_id) == own]
        rest = [one for one in self.note.signatures if (one.name, one.key_id) != own]
        made = SignedCheckpoint(self.checkpoint, Note(self.note.text, (*rest, *lines)))
        times = made.cosignatures([witness])
        if not times:
            raise TlogError(f"The checkpoint has no cosignature of {witness.name}.")
        try:
            return max(made, self, key=lambda one: [at for _, at in one.cosignatures([witness])])
        except TlogError:
            return made


def _cosigned(text: str, timestamp: int) -> bytes:
    return f"cosignature/v1\ntime {timestamp}\n{text}".encode()


@dataclass(frozen=True, slots=True)
class TlogProof:
    """An inclusion proof with its checkpoint; ``str`` gives the text of the file.

    Nothing is trusted before :meth:`verify`.

    Attributes:
        index: index of the leaf, from 0.
        path: hashes from the leaf's sibling to the root's child.
        signed: the checkpoint.
        extra: unauthenticated bytes; ``None`` if there are none.
    """

    index: int
    path: tuple[bytes, ...]
    signed: SignedCheckpoint
    extra: bytes | None = None

    def __str__(self) -> str:
        lines = [_PROOF_HEADER]
        if self.extra is not None:
            lines.append(f"extra {base64.b64encode(self.extra).decode()}")
        lines.append(f"index {self.index}")
        lines.extend(base64.b64encode(item).decode() for item in self.path)
        return "\n".join(lines) + "\n\n" + str(self.signed)

    @classmethod
    def parse(cls, data: str | bytes) -> TlogProof:
        """Return the proof in a file; its index, hashes and signatures are not verified.

        Args:
            data: the file's text; bytes are UTF-8.

        Raises:
            TlogError: the proof or its checkpoint is malformed or not UTF-8, a key signed the
                checkpoint twice, or there are over 63 hashes or 1,000,000 characters.
        """
        try:
            text = data.decode() if isinstance(data, bytes) else data
        except UnicodeDecodeError as error:
            raise TlogError("The proof is not UTF-8.") from error
        if len(text) > MAX_NOTE_BYTES:
            raise TlogError("The proof is too long.")
        head, separator, checkpoint = text.partition("\n\n")
        header, *lines = head.split("\n")
        if header != _PROOF_HEADER or not separator:
            raise TlogError(
                "This is not a proof.", next_step=f"A proof begins with the line {_PROOF_HEADER}."
            )
        extra = None
        if lines and lines[0].startswith("extra "):
            extra = parse_base64(lines.pop(0)[6:])
            if extra is None:
                raise TlogError("The proof's extra data is not base64.")
        name, _, digits = lines.pop(0).partition(" ") if lines else ("", "", "")
        index = parse_decimal(digits)
        if name != "index" or index is None:
            raise TlogError("The proof names no index.")
        if len(lines) > _MAX_HASHES:
            raise TlogError("The inclusion proof is too long.")
        hashes = [item for line in lines if (item := parse_base64(line, 32)) is not None]
        if len(hashes) != len(lines):
            raise TlogError("A hash of the proof is not base64 of 32 bytes.")
        return cls(index, tuple(hashes), SignedCheckpoint.parse(checkpoint), extra)

    def verify(self, record: bytes, key: VerifierKey) -> Checkpoint:
        """Return the checkpoint if ``record`` is leaf ``index`` of the tree that ``key`` signed.

        Args:
            record: bytes of the leaf.
            key: the log's verifier key.

        Raises:
            TlogError: the checkpoint is another log's or another key's, or the record is not that
                leaf.
        """
        checkpoint = self.signed.verify(key)
        leaf = leaf_hash(record)
        verify_inclusion(leaf, self.index, checkpoint.size, self.path, checkpoint.root)
        return checkpoint
