"""Signed notes (C2SP signed-note): a text with signature lines, which name their keys."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from remit.ledger.tlog.errors import TlogError

ED25519 = 0x01
"""Signature type: Ed25519 over the note's text."""

COSIGNATURE = 0x04
"""Signature type: timestamped Ed25519 cosignature of a checkpoint (C2SP tlog-cosignature)."""

MAX_NOTE_BYTES = 1_000_000
"""A note longer than this is refused unread."""

_MAX_SIGNATURES = 100
_DASH = "— "


@dataclass(frozen=True, slots=True)
class NoteSignature:
    """A signature line of a note, which is not verified; immutable.

    Attributes:
        name: name of the key.
        key_id: id of the key, 4 bytes.
        signature: the bytes after the id.
    """

    name: str
    key_id: bytes
    signature: bytes

    def line(self) -> str:
        """Return the line in a note, with its newline."""
        encoded = base64.b64encode(self.key_id + self.signature).decode()
        return f"{_DASH}{self.name} {encoded}\n"

    @classmethod
    def parse(cls, line: str) -> NoteSignature:
        """Return the signature in a line without newline; raise TlogError if it is malformed.

        Args:
            line: an em dash, a space, the key's name, a space, and base64 of key id and signature.
        """
        name, _, encoded = line.removeprefix(_DASH).partition(" ")
        if not line.startswith(_DASH) or not _is_key_name(name):
            raise TlogError("A signature line of the note is malformed.")
        data = parse_base64(encoded)
        if data is None or len(data) < 5:
            raise TlogError(f"The signature of {name} is not base64 of a key id and a signature.")
        return cls(name, data[:4], data[4:])


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """A public key in its shared form, ``name+hash+key``, which ``str`` gives; immutable.

    Attributes:
        name: name of the key; for a log, its origin.
        public_key: 32 bytes.
        kind: :data:`ED25519` or :data:`COSIGNATURE`.

    Raises:
        TlogError: the name or the key is malformed, or ``kind`` is another number.
    """

    name: str
    public_key: bytes
    kind: int = ED25519

    def __post_init__(self) -> None:
        if not _is_key_name(self.name):
            raise TlogError(
                f"The key name {self.name!r} is empty or contains a space, a plus or a control "
                "character.",
                next_step="Use a URL without its scheme, such as example.com/log.",
            )
        if len(self.public_key) != 32 or self.kind not in (ED25519, COSIGNATURE):
            raise TlogError("The verifier key is not an Ed25519 key of 32 bytes.")

    @property
    def key_id(self) -> bytes:
        """The id of the key, 4 bytes: SHA-256(name || 0x0A || kind || key)[:4]."""
        return _key_id(self.name, self.kind, self.public_key)

    def __str__(self) -> str:
        encoded = base64.b64encode(bytes([self.kind]) + self.public_key).decode()
        return f"{self.name}+{self.key_id.hex()}+{encoded}"

    @classmethod
    def parse(cls, text: str) -> VerifierKey:
        """Return the key in ``name+hash+key``; space around the text is ignored.

        Args:
            text: the key as ``str`` gives it.

        Raises:
            TlogError: the text or name is malformed, the hash is not that of name, kind and key in
                lower-case hex, or the key is of no known kind.
        """
        name, _, rest = text.strip().partition("+")
        digits, _, encoded = rest.partition("+")
        data = parse_base64(encoded)
        if data is None or len(data) != 33:
            raise TlogError(
                "This is not a verifier key.",
                next_step="A verifier key looks like origin+1a2b3c4d+BASE64; `remit ledger key` "
                "prints it.",
            )
        key = cls(name, data[1:], data[0])
        if key.key_id.hex() != digits:
            raise TlogError(
                f"The verifier key of {name} is damaged: its hash is not {digits}.",
                next_step="Copy the whole key again.",
            )
        return key

    def verify(self, message: bytes, signature: bytes) -> bool:
        """Return True if ``signature`` (64 bytes) is this key's signature of ``message``.

        No error is raised, whatever the bytes.

        Args:
            message: the signed bytes.
            signature: the signature; of another length it is not valid.
        """
        try:
            Ed25519PublicKey.from_public_bytes(self.public_key).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


class Signer:
    """A private Ed25519 key with its name; held in memory only.

    Args:
        name: name of the key; for a log, its origin.
        private_key: the key.
        kind: kind of its signatures: :data:`ED25519` or :data:`COSIGNATURE`.

    Attributes:
        verifier_key: the public key.

    Raises:
        TlogError: the name cannot be a key's name, or the kind is unknown.
    """

    def __init__(self, name: str, private_key: Ed25519PrivateKey, kind: int = ED25519) -> None:
        self._private_key = private_key
        self.verifier_key = VerifierKey(name, private_key.public_key().public_bytes_raw(), kind)

    def __repr__(self) -> str:
        return f"Signer({self.verifier_key.name!r})"

    @property
    def name(self) -> str:
        """The name of the key, which is the origin of a log or the name of a witness."""
        return self.verifier_key.name

    @classmethod
    def generate(cls, name: str, kind: int = ED25519) -> Signer:
        """Return a new random key; nothing is written.

        Args:
            name: name of the key; for a log, its origin.
            kind: kind of its signatures: :data:`ED25519` or :data:`COSIGNATURE`.

        Raises:
            TlogError: the name cannot be a key's name, or the kind is unknown.
        """
        return cls(name, Ed25519PrivateKey.generate(), kind)

    @classmethod
    def from_pem(cls, name: str, pem: bytes, kind: int = ED25519) -> Signer:
        """Return the key in an unencrypted PKCS#8 PEM.

        Args:
            name: name of the key; for a log, its origin.
            pem: the PEM.
            kind: kind of its signatures: :data:`ED25519` or :data:`COSIGNATURE`.

        Raises:
            TlogError: the data is no such PEM, the key is not Ed25519, or the name cannot be a
                key's.
        """
        try:
            key = serialization.load_pem_private_key(pem, password=None)
        except (ValueError, TypeError) as error:
            raise TlogError("The private key is not an unencrypted PKCS#8 PEM.") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise TlogError("The private key is not an Ed25519 key.")
        return cls(name, key, kind)

    def to_pem(self) -> bytes:
        """Return the private key, without its name and kind, as unencrypted PKCS#8 PEM."""
        return self._private_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    def sign(self, message: bytes) -> bytes:
        """Return the bare Ed25519 signature of ``message``, 64 bytes."""
        return self._private_key.sign(message)

    def sign_note(self, text: str) -> NoteSignature:
        """Return a signature line for a note's text: plain Ed25519, without a time.

        Args:
            text: text of the note, which ends with a newline; that is not checked.
        """
        return NoteSignature(self.name, self.verifier_key.key_id, self.sign(text.encode()))


@dataclass(frozen=True, slots=True)
class Note:
    """A text and its signatures; not trusted before :meth:`verify`. ``str`` gives the note.

    Attributes:
        text: the text, with its final newline.
        signatures: the signatures, in order.
    """

    text: str
    signatures: tuple[NoteSignature, ...]

    def __str__(self) -> str:
        return self.text + "\n" + "".join(item.line() for item in self.signatures)

    @classmethod
    def parse(cls, data: str | bytes) -> Note:
        """Return the note in ``data``; its signatures are not verified.

        Args:
            data: the text, an empty line, and 1 to 100 signature lines; bytes are UTF-8. The text
                itself may have empty lines: the last one ends it.

        Raises:
            TlogError: the note is malformed, not UTF-8, longer than 1,000,000 bytes, or has a
                control character other than newline; or a key signed it twice.
        """
        raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
        if len(raw) > MAX_NOTE_BYTES:
            raise TlogError(f"The note is longer than {MAX_NOTE_BYTES:,} bytes.")
        try:
            content = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise TlogError("The note is not UTF-8.") from error
        if any(ord(char) < 0x20 and char != "\n" for char in content):
            raise TlogError("The note contains a control character.")
        text, separator, lines = content.rpartition("\n\n")
        if not separator or not lines.endswith("\n"):
            raise TlogError("The note has no signatures, or its last line is cut off.")
        found = lines[:-1].split("\n")
        if len(found) > _MAX_SIGNATURES:
            raise TlogError(f"The note has more than {_MAX_SIGNATURES} signatures.")
        signatures = tuple(NoteSignature.parse(line) for line in found)
        if len({(item.name, item.key_id) for item in signatures}) != len(signatures):
            raise TlogError("A key signed the note twice.")
        return cls(text + "\n", signatures)

    def verify(self, keys: Iterable[VerifierKey]) -> list[VerifierKey]:
        """Return the keys among ``keys`` that signed the text, by plain Ed25519 note signatures.

        Args:
            keys: trusted keys of logs. A line of a witness's key is no such signature.

        Returns:
            The keys in the given order.

        Raises:
            TlogError: no key signed, or a line under a key's name and id is not its signature.
        """
        signed = []
        for key in keys:
            for item in self.signatures:
                if (item.name, item.key_id) != (key.name, key.key_id):
                    continue
                if not key.verify(self.text.encode(), item.signature):
                    raise TlogError(f"The signature of {key.name} does not hold.")
                signed.append(key)
        if not signed:
            names = ", ".join(dict.fromkeys(item.name for item in self.signatures))
            raise TlogError(
                f"No trusted key signed this. It is signed by: {names}.",
                next_step="Check that it comes from this log, and that the verifier key is right.",
            )
        return signed


def _key_id(name: str, kind: int, public_key: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + bytes([kind]) + public_key).digest()[:4]


def _is_key_name(name: str) -> bool:
    return bool(name) and not any(
        char.isspace() or char == "+" or ord(char) < 0x20 or "\ud800" <= char <= "\udfff"
        for char in name
    )


def parse_base64(text: str, length: int | None = None) -> bytes | None:
    """Return the bytes of strict standard base64; ``None`` for any other text.

    Args:
        text: base64 with padding and without stray bits.
        length: required number of bytes; ``None`` for any.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    is_strict = base64.b64encode(data).decode() == text and length in (None, len(data))
    return data if is_strict else None


def parse_decimal(text: str) -> int | None:
    """Return a number from 0 to 2^63 - 1; ``None`` for a sign, leading zeroes, a greater number or
    other text.

    Args:
        text: ASCII digits.
    """
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        return None
    number = int(text)
    return number if str(number) == text and number < 1 << 63 else None
