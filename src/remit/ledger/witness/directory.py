"""A witness's own directory: its key (C2SP tlog-cosignature), and its record."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from remit.ledger.tlog import Signer, TlogError, VerifierKey
from remit.ledger.tlog.note import COSIGNATURE
from remit.ledger.witness.errors import WitnessError
from remit.ledger.witness.layout import create_state, write_new

__all__ = ["WitnessDirectory"]

_PRIVATE = "witness.key"
_PUBLIC = "witness.vkey"
_STATE = "witness.db"


class WitnessDirectory:
    """The files of a witness.

    Args:
        path: of the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def state(self) -> Path:
        """Where the record lies."""
        return self.path / _STATE

    def create(self, name: str) -> VerifierKey:
        """Make record and key; gives back the public key.

        The private key comes last: where it is, all was made, and a record that is missing was
        lost and must not be replaced by an empty one.

        Args:
            name: the witness's, a URL without its scheme.

        Raises:
            WitnessError: there is a witness in this directory, or it cannot be written.
            KeyFormatError: the name cannot be a key's name.
        """
        signer = Signer.generate(name, COSIGNATURE)
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle = os.open(self.path, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)  # two at once must not undo each other
                self._create(signer)
            finally:
                os.close(handle)
        except OSError as error:
            raise WitnessError(
                f"{self.path} cannot be written: {error}.",
                next_step="Check the permissions of that directory.",
            ) from error
        return signer.verifier_key

    def _create(self, signer: Signer) -> None:
        if (self.path / _PRIVATE).exists():
            raise WitnessError(
                f"There is a witness in {self.path} already.",
                next_step="`remit witness key` prints its key. For another witness, use another "
                "directory.",
            )
        for left_over in (_STATE, _PUBLIC):  # of an attempt that did not get to the key
            (self.path / left_over).unlink(missing_ok=True)
        create_state(self.state)
        write_new(self.path / _PUBLIC, f"{signer.verifier_key}\n".encode(), 0o644)
        write_new(self.path / _PRIVATE, signer.to_pem(), 0o600)

    def verifier_key(self) -> VerifierKey:
        """The public key.

        Raises:
            WitnessError: it is not there, or damaged.
        """
        path = self.path / _PUBLIC
        try:
            key = VerifierKey.parse(path.read_text("utf-8"))
        except FileNotFoundError as error:
            raise WitnessError(
                f"There is no witness in {self.path}.",
                next_step="`remit witness init` makes one.",
            ) from error
        except (OSError, TlogError, UnicodeDecodeError) as error:
            raise WitnessError(
                f"The verifier key {path} cannot be read: {error}", next_step="Restore the file."
            ) from error
        if key.kind != COSIGNATURE:
            raise WitnessError(
                f"{path} is a log's key, not a witness's.", next_step="Restore the file."
            )
        return key

    def signer(self) -> Signer:
        """The private key.

        Raises:
            WitnessError: it is not there, damaged, readable by others, or another key's.
        """
        path, public = self.path / _PRIVATE, self.verifier_key()
        try:
            if path.stat().st_mode & 0o077:
                raise WitnessError(
                    f"The witness's key {path} can be read by others.",
                    next_step=f"chmod 600 {path}",
                )
            signer = Signer.from_pem(public.name, path.read_bytes(), COSIGNATURE)
        except (OSError, TlogError) as error:
            raise WitnessError(
                f"The witness's key {path} cannot be read: {error}",
                next_step="Restore the file. A new key is a new witness.",
            ) from error
        if signer.verifier_key != public:
            raise WitnessError(
                f"{path} is not the private key of {_PUBLIC}.",
                next_step="Restore both files from the same backup.",
            )
        return signer
