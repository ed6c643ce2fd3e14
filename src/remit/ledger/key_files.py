"""Private keys in files: a ledger's key, never in its database, and a witness's."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from typing_extensions import override

from remit.kernel.durable_files import write_new, write_over
from remit.kernel.errors import RemitError
from remit.ledger.errors import LedgerKeyError
from remit.ledger.tlog import Signer, TlogError, VerifierKey
from remit.ledger.tlog.note import ED25519

_FROM_BACKUP = "Keep a copy of the file, and put the one from the key's backup in its place."
_FORK = re.compile(r"(.+)/fork-([1-9][0-9]{0,8})")


class KeyFiles:
    """The files of a private key and its verifier key, ``NAME.key`` and ``NAME.vkey``.

    Making the object reads and makes nothing, and nothing is cached.

    Args:
        directory: the directory, which :meth:`locked` makes.
        name: name of the files, without suffix.
        kind: kind of the key: ``ED25519`` or ``COSIGNATURE``.
        error: class of the errors of :meth:`verifier_key` and :meth:`signer`. The other methods
            raise OSError.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        kind: int = ED25519,
        error: type[RemitError] = LedgerKeyError,
    ) -> None:
        self.directory = directory
        self._kind = kind
        self._error = error
        self.private = directory / f"{name}.key"
        self.public = directory / f"{name}.vkey"

    @property
    def exists(self) -> bool:
        """True if the private key's file exists."""
        return self.private.exists()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Make the directory, mode 0700, and lock the directory exclusively during the block.

        Other processes and threads wait for the lock. The lock is not reentrant. An existing
        directory keeps its mode. Errors of the block are raised unchanged.

        Raises:
            OSError: the directory cannot be made or opened.
        """
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(self.directory, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def write(self, signer: Signer) -> None:
        """Write both files, the private key last, mode 0600; the caller holds :meth:`locked`.

        A public file without a private one is replaced. An existing private key is never replaced,
        but its public file is.

        Args:
            signer: the key; its kind and name are not checked.

        Raises:
            OSError: a file cannot be written, or there is a private key already.
        """
        self.public.unlink(missing_ok=True)  # Left by an attempt that wrote no private key.
        write_new(self.public, f"{signer.verifier_key}\n".encode(), 0o644)
        write_new(self.private, signer.to_pem(), 0o600)

    def verifier_key(self) -> VerifierKey | None:
        """Return the public key; ``None`` if there is none.

        Raises:
            RemitError: the file is damaged, cannot be read, or holds a key of another kind. The
                class is ``error`` of the constructor.
        """
        try:
            key = VerifierKey.parse(self.public.read_text("utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, TlogError, UnicodeDecodeError) as error:
            raise self._error(
                f"The verifier key {self.public} cannot be read: {error}",
                next_step=_FROM_BACKUP,
            ) from error
        if key.kind != self._kind:
            raise self._error(
                f"{self.public} is a {'log' if self._kind != ED25519 else 'witness'}'s key.",
                next_step=_FROM_BACKUP,
            )
        return key

    def signer(self) -> Signer:
        """Return the private key, under the name in the public file. Both files are only read.

        Raises:
            RemitError: a file is missing, damaged, unreadable or of another kind of key, the
                private key's file can be read by other users, or the two files do not belong
                together. The class is ``error`` of the constructor.
        """
        public = self.verifier_key()
        if public is None or not self.exists:
            command = "remit init" if self._kind == ED25519 else "remit witness init"
            raise self._error(
                f"There is no signing key in {self.directory}.",
                next_step=f"`{command}` creates one. If there was a key, put back its copy: a "
                "new key is a new identity and does not continue the old log.",
            )
        try:
            if self.private.stat().st_mode & 0o077:
                raise self._error(
                    f"The signing key {self.private} can be read by others.",
                    next_step=f"chmod 600 {self.private}",
                )
            signer = Signer.from_pem(public.name, self.private.read_bytes(), self._kind)
        except (OSError, TlogError) as error:
            raise self._error(
                f"The signing key {self.private} cannot be read: {error}",
                next_step=_FROM_BACKUP,
            ) from error
        if signer.verifier_key != public:
            raise self._error(
                f"{self.private} is not the private key of {self.public.name}.",
                next_step=f"{_FROM_BACKUP} Take both files from the same backup.",
            )
        return signer


class LedgerKey(KeyFiles):
    """The key files of a root: ``ledger.key`` and ``ledger.vkey``.

    Args:
        directory: directory of the files.
        origin: name of the log by the settings; empty accepts the name in the files. The files may
            name a later fork of it.
    """

    def __init__(self, directory: Path, origin: str = "") -> None:
        super().__init__(directory, "ledger")
        self._origin = origin

    def create(self) -> list[Path]:
        """Make the key if there is no private key; return the paths of the new files, or ``[]``.

        An older verifier key is then replaced. The name of a new key is the origin by the settings,
        or ``remit.local/`` and 16 random hex digits. Other processes wait meanwhile. The key, new
        or not, is then read and checked.

        Raises:
            LedgerKeyError: the files cannot be written or read, the origin cannot be a key's name,
                or an existing key does not fit, as for :meth:`signer`.
        """
        made = False
        try:
            if not self.exists:
                with self.locked():
                    made = not self.exists
                    if made:
                        self.write(
                            Signer.generate(self._origin or f"remit.local/{secrets.token_hex(8)}")
                        )
        except (OSError, TlogError) as error:
            raise LedgerKeyError(
                f"The ledger's key cannot be created in {self.directory}: {error}.",
                next_step="Check [ledger] origin and the permissions of that directory.",
            ) from error
        self.signer()
        return [self.private, self.public] if made else []

    @override
    def verifier_key(self) -> VerifierKey | None:
        """Return the public key in the directory; ``None`` if there is none.

        Raises:
            LedgerKeyError: the file is unreadable, damaged or holds another kind of key; or, if the
                settings name an origin, the key's name is neither that origin nor a later fork of
                it.
        """
        key = super().verifier_key()
        if key is not None and self._origin and known_as(key, self._origin) is None:
            raise LedgerKeyError(
                f"The ledger's key was made for the origin {key.name!r}; [ledger] origin says "
                f"{self._origin!r}.",
                next_step=f"Set origin to {key.name!r}: a log's name cannot change, because proofs "
                "that others hold name it.",
            )
        return key

    def rename(self, signer: Signer) -> None:
        """Replace the public file, which names the key's origin; the caller holds :meth:`locked`.

        The private file has no name and stays. Whether the keys are equal is not checked.

        Args:
            signer: the same key under its new name.

        Raises:
            OSError: the file cannot be written.
        """
        write_over(self.public, f"{signer.verifier_key}\n".encode(), 0o644)


def known_as(key: VerifierKey, origin: str) -> VerifierKey | None:
    """Return ``key`` under its present or an earlier origin; ``None`` for any other.

    Args:
        key: a log's key under its present origin, ``BASE`` or ``BASE/fork-N``.
        origin: the origin of a checkpoint or another key. Accepted are the same base with the same
            or a lower N.
    """
    (base, number), (other_base, other) = _parts(key.name), _parts(origin)
    return replace(key, name=origin) if base == other_base and other <= number else None


def next_origin(*names: str) -> str:
    """Return the origin of the next fork: the base and ``/fork-N+1`` of the latest of ``names``.

    Args:
        names: origins of one key, at least one.
    """
    base, number = max(map(_parts, names), key=lambda parts: parts[1])
    return f"{base}/fork-{number + 1}"


def _parts(origin: str) -> tuple[str, int]:
    """Return the original origin and the number of forks in an origin."""
    found = _FORK.fullmatch(origin)
    return (found[1], int(found[2])) if found else (origin, 0)
