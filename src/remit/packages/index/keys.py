"""The private keys of whoever publishes an index: files beside it, never in it."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from securesystemslib.signer import CryptoSigner

from remit.packages.errors import PackageIndexError
from remit.packages.index.files import write_file

__all__ = ["PublisherKeys"]

_SHORT = 12  # of a key's id in its file's name


class PublisherKeys:
    """A directory of Ed25519 keys: ``ROLE.pem``, more of a role as ``ROLE-KEYID.pem``.

    Which of them count, the index's root metadata says; so a key can be made before it counts
    and stay when it no longer does. A role's file may be elsewhere as long as it is not needed:
    that of ``root`` is needed for ``rotate`` and ``renew --all`` alone.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def make(self, role: str) -> CryptoSigner:
        """A new key for a role, mode 0600.

        Raises:
            OSError: it cannot be written.
        """
        signer = CryptoSigner.generate_ed25519()
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        first = self.directory / f"{role}.pem"
        named = self.directory / f"{role}-{signer.public_key.keyid[:_SHORT]}.pem"
        write_file(named if first.exists() else first, signer.private_bytes, mode=0o600)
        return signer

    def of(self, role: str, *, at_least: int = 0) -> list[CryptoSigner]:
        """All keys of a role that are there; new ones are made up to ``at_least``.

        Raises:
            PackageIndexError: ``index_key``: a file is no such key, or others can read it.
        """
        found = [_load(file) for file in self._files(role)]
        return found + [self.make(role) for _ in range(at_least - len(found))]

    def retire(self, role: str, keyids: Collection[str]) -> list[Path]:
        """Renames the files of a role's keys but for ``keyids``; returns their new names."""
        retired = []
        for file in self._files(role):
            keyid = _load(file).public_key.keyid
            if keyid not in keyids:
                name = f"{role}-{keyid[:_SHORT]}.pem.retired"
                retired.append(file.rename(file.with_name(name)))
        return retired

    def _files(self, role: str) -> list[Path]:
        name = re.compile(rf"{role}(-[0-9a-f]+)?\.pem")
        return [file for file in sorted(self.directory.glob("*")) if name.fullmatch(file.name)]


def _load(file: Path) -> CryptoSigner:
    problem = ""
    try:
        with file.open("rb") as opened:
            if os.fstat(opened.fileno()).st_mode & 0o077:
                problem = "can be read by others"
            key = load_pem_private_key(opened.read(), password=None)
        if not problem and isinstance(key, Ed25519PrivateKey):
            return CryptoSigner(key)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        problem = f"cannot be read ({type(error).__name__})"
    raise PackageIndexError(
        "index_key",
        f"The key {file} {problem or 'is not an Ed25519 key'}.",
        next_step=f"chmod 600 {file}" if "others" in problem else "Restore the file.",
    )
