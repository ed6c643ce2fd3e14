"""Keys that sign packages: Ed25519, the private half in a file, the public half as one word."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from securesystemslib.signer import CryptoSigner, SSlibKey

from remit.kernel.canonical import canonical_json, sha256_hex
from remit.kernel.durable_files import write_new
from remit.packages.errors import PackageError

_PUBLIC = re.compile(r"ed25519:([0-9a-f]{64})")
_LABEL = "Remit package key: "  # RFC 7468 permits text before a key.
_NAME_CHARS = 100
_TYPE = "ed25519"


@dataclass(frozen=True, slots=True)
class PackageKey:
    """A key pair that signs packages, in memory; made by :meth:`create` or :meth:`load`.

    Attributes:
        name: a name for people, stored in the file above the key; empty if the file has none.
        signer: signs with the private key.
    """

    name: str
    signer: CryptoSigner

    @classmethod
    def create(cls, path: Path, name: str) -> Self:
        """Create a key pair, and write the private key to a new file.

        The file is PKCS#8 in PEM, not encrypted, mode 0600. The file appears complete or not at
        all. A missing folder of the file is created with mode 0700; missing folders above that have
        the umask's mode.

        Args:
            path: the file, which must not exist.
            name: one line of at most 100 characters.

        Raises:
            PackageError: ``bad_key_name``: the name is empty, too long or contains an invisible
                character; ``key_exists``: the file exists; ``key_unwritable``: the file cannot be
                written.
        """
        if problem := key_name_problem(name):
            raise PackageError(
                "bad_key_name", f"The key's name {problem}.", next_step="Give it another name."
            )
        made = cls(name, CryptoSigner.generate_ed25519())
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_new(path, f"{_LABEL}{name}\n".encode() + made.signer.private_bytes, 0o600)
        except OSError as error:
            if os.path.lexists(path):
                raise PackageError(
                    "key_exists",
                    f"The file {path} already exists.",
                    next_step="Choose another file. A replaced key would be lost.",
                ) from error
            raise PackageError(
                "key_unwritable",
                f"The key cannot be written to {path}: {error.strerror or error}.",
                next_step="Check that its folder can be written.",
            ) from error
        return made

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the key pair of the private key in a file.

        The name is read from the file's first line; an unusable one becomes empty.

        Args:
            path: the file, with mode 0600 or less.

        Raises:
            PackageError: ``key_missing``: the file does not exist; ``key_open``: its mode gives the
                group or others any permission; ``bad_key``: the file cannot be read, or is not an
                unencrypted Ed25519 key in PEM.
        """
        try:
            with path.open("rb") as file:
                mode, data = os.fstat(file.fileno()).st_mode, file.read()
        except OSError as error:
            raise PackageError(
                "key_missing" if isinstance(error, FileNotFoundError) else "bad_key",
                f"The key {path} cannot be read: {error.strerror or error}.",
                next_step="Check the path and its permissions. `remit package key new --out FILE "
                "--name NAME` makes a key.",
            ) from error
        if mode & 0o077:
            raise PackageError(
                "key_open",
                f"The private key {path} can be read by others.",
                next_step=f"chmod 600 {path}",
            )
        try:
            private = load_pem_private_key(data, None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            private = None
        if not isinstance(private, Ed25519PrivateKey):
            raise PackageError(
                "bad_key",
                f"{path} is not an unencrypted Ed25519 private key in PEM.",
                next_step="Give the file that `remit package key new` created, or a copy of it.",
            )
        first = data.partition(b"\n")[0].decode(errors="replace")
        name = first.removeprefix(_LABEL) if first.startswith(_LABEL) else ""
        return cls("" if key_name_problem(name) else name, CryptoSigner(private))

    @property
    def key_id(self) -> str:
        """The id of the key in signatures: 64 hex digits, the SHA-256 of the public key's canonical
        description.
        """
        return self.signer.public_key.keyid

    @property
    def public(self) -> str:
        """The public key to give to others: ``ed25519:`` and 64 hex digits."""
        return f"{_TYPE}:{self.signer.public_key.keyval['public']}"


def public_key(text: str) -> SSlibKey:
    """Return the public key, with its id, that a text states.

    Args:
        text: ``ed25519:`` and 64 lower-case hex digits.

    Raises:
        PackageError: ``bad_key``: the text has another form.
    """
    found = _PUBLIC.fullmatch(text)
    if found is None:
        raise PackageError(
            "bad_key",
            "A public key is written as ed25519: and 64 hex digits; the given text is not.",
            next_step="`remit package key show FILE` prints the public key of a private key file.",
        )
    keyval = {"public": found[1]}
    described = {"keytype": _TYPE, "scheme": _TYPE, "keyval": keyval}
    return SSlibKey(sha256_hex(canonical_json(described)), _TYPE, _TYPE, keyval)


def key_name_problem(name: str) -> str:
    """Return the reason why ``name`` cannot be a key's name; empty if it can.

    The reason continues a sentence that begins with the key's name.

    Args:
        name: the candidate; white space alone counts as empty.
    """
    if not name.strip():
        return "is empty"
    if len(name) > _NAME_CHARS:
        return f"is longer than {_NAME_CHARS} characters"
    return "" if name.isprintable() else "contains an invisible character"
