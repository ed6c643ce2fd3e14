"""The ledger's own key: a file beside the database, never in it (SPEC 3.3)."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from remit.ledger.errors import LedgerKeyError
from remit.ledger.tlog import Signer, TlogError, VerifierKey

__all__ = ["LedgerKey"]

_PRIVATE = "ledger.key"
_PUBLIC = "ledger.vkey"


class LedgerKey:
    """The key files of a root.

    Args:
        directory: where they lie.
        origin: the log's name from the configuration; empty for the one the key was made with.
    """

    def __init__(self, directory: Path, origin: str = "") -> None:
        self._directory = directory
        self._origin = origin

    @property
    def exists(self) -> bool:
        """Whether the private key is there."""
        return (self._directory / _PRIVATE).exists()

    def create(self) -> list[Path]:
        """Make the key when there is none, mode 0600; returns the files made.

        Raises:
            LedgerKeyError: the files cannot be written, or the origin cannot be a key's name.
        """
        private, public = self._directory / _PRIVATE, self._directory / _PUBLIC
        if private.exists():
            self.signer()
            return []
        try:
            signer = Signer.generate(self._origin or f"remit.local/{secrets.token_hex(8)}")
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(signer.to_pem())
                file.flush()
                os.fsync(file.fileno())
            public.write_text(f"{signer.verifier_key}\n", "utf-8")
        except (OSError, TlogError) as error:
            raise LedgerKeyError(
                f"The ledger's key cannot be made in {self._directory}: {error}.",
                next_step="Check [ledger] origin and the permissions of that directory.",
            ) from error
        return [private, public]

    def verifier_key(self) -> VerifierKey | None:
        """The public key; ``None`` where none was made yet.

        Raises:
            LedgerKeyError: the file is damaged, or made for another origin.
        """
        path = self._directory / _PUBLIC
        try:
            key = VerifierKey.parse(path.read_text("utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, TlogError, UnicodeDecodeError) as error:
            raise LedgerKeyError(
                f"The verifier key {path} cannot be read: {error}", next_step="Restore the file."
            ) from error
        if self._origin and key.name != self._origin:
            raise LedgerKeyError(
                f"The ledger's key was made for the origin {key.name!r}; [ledger] origin says "
                f"{self._origin!r}.",
                next_step=f"Set origin to {key.name!r}: a log's name cannot change, because proofs "
                "that others hold name it.",
            )
        return key

    def signer(self) -> Signer:
        """The private key.

        Raises:
            LedgerKeyError: it is not there, damaged, readable by others, or another key's.
        """
        path = self._directory / _PRIVATE
        public = self.verifier_key()
        if public is None or not path.exists():
            raise LedgerKeyError(
                f"There is no signing key in {self._directory}.",
                next_step="`remit init` makes one. If there was one, restore it: a new key is a "
                "new identity, and checkpoints under it do not continue the old ones.",
            )
        try:
            if path.stat().st_mode & 0o077:
                raise LedgerKeyError(
                    f"The signing key {path} can be read by others.",
                    next_step=f"chmod 600 {path}",
                )
            signer = Signer.from_pem(public.name, path.read_bytes())
        except (OSError, TlogError) as error:
            raise LedgerKeyError(
                f"The signing key {path} cannot be read: {error}", next_step="Restore the file."
            ) from error
        if signer.verifier_key != public:
            raise LedgerKeyError(
                f"{path} is not the private key of {_PUBLIC}.",
                next_step="Restore both files from the same backup.",
            )
        return signer
