"""The private keys of whoever publishes an index: files beside it, never in it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from securesystemslib.signer import CryptoSigner

from remit.kernel.errors import InvalidInputError
from remit.packages.errors import PackageIndexError
from remit.packages.index.files import clear_drafts, write_whole

__all__ = ["ROLES", "PublisherKeys", "thresholds_of"]

ROLES = ("root", "targets", "snapshot", "timestamp")

_FILE = re.compile(r"(root|targets|snapshot|timestamp)(-[0-9a-f]+)?\.pem")
_SHORT = 12  # of a key's id in its file's name
_RETIRED = ".retired"


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
        write_whole(named if first.exists() else first, signer.private_bytes, mode=0o600)
        return signer

    def of(self, role: str) -> dict[str, CryptoSigner]:
        """All keys of a role that are there, by key id.

        Raises:
            PackageIndexError: ``index_key``: a file is no such key, or others can read it.
        """
        found = {}
        for file in self._files(role):
            signer = _load(file)
            found[signer.public_key.keyid] = signer
        return found

    def signers(self, role: str, keyids: Iterable[str], threshold: int) -> list[CryptoSigner]:
        """Those whose ids are named; at least ``threshold``.

        Raises:
            PackageIndexError: ``index_key``: there are fewer.
        """
        mine = self.of(role)
        found = [mine[keyid] for keyid in keyids if keyid in mine]
        if len(found) < threshold:
            raise PackageIndexError(
                "index_key",
                f"{self.directory} holds {len(found)} of the {threshold} keys that have to sign "
                f"{role} in this index.",
                next_step=f"Put {role}.pem there, as `remit package index init` or `rotate` made "
                "it.",
            )
        return found

    def retire(self, role: str, counting: Iterable[str]) -> list[Path]:
        """Sets the files of a role's keys aside that no longer count; returns their new names."""
        kept = set(counting)
        aside = []
        for file in self._files(role):
            keyid = _load(file).public_key.keyid
            if keyid not in kept:
                name = f"{role}-{keyid[:_SHORT]}.pem{_RETIRED}"
                aside.append(file.rename(file.with_name(name)))
        return aside

    def clear_drafts(self) -> None:
        """Removes what a killed process left half written; only while the index is locked."""
        clear_drafts(self.directory)

    def outside(self, served: Path) -> None:
        """Refuses a directory that whoever serves the index would give away with it.

        Raises:
            InvalidInputError: it lies in ``served``.
        """
        if self.directory.resolve().is_relative_to(served.resolve()):
            raise InvalidInputError(
                f"The keys' directory {self.directory} lies in the index {served}, which is there "
                "to be copied and served.",
                next_step="Give another one with --keys, outside of it.",
            )

    def _files(self, role: str) -> list[Path]:
        try:
            names = sorted(os.listdir(self.directory))
        except FileNotFoundError:
            return []
        wanted = (_FILE.fullmatch(name) for name in names)
        return [self.directory / one[0] for one in wanted if one is not None and one[1] == role]


def thresholds_of(given: Mapping[str, int]) -> dict[str, int]:
    """How many keys have to sign for each role; 1 where nothing is said.

    Raises:
        InvalidInputError: there is no such role, or it would need no key.
    """
    for role, threshold in given.items():
        if role not in ROLES or threshold < 1:
            raise InvalidInputError(
                f"{role}={threshold} is no threshold.",
                next_step=f"Roles are {', '.join(ROLES)}; a threshold is 1 or more.",
            )
    return {role: given.get(role, 1) for role in ROLES}


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
