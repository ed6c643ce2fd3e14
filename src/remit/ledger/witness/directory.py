"""A witness's own directory: its key (C2SP tlog-cosignature), and its record."""

from __future__ import annotations

from pathlib import Path

from remit.ledger.keyfiles import KeyFiles
from remit.ledger.tlog import Signer, VerifierKey
from remit.ledger.tlog.note import COSIGNATURE
from remit.ledger.witness.errors import WitnessError
from remit.ledger.witness.state import create_state


class WitnessDirectory:
    """The files of a witness.

    Args:
        path: of the directory.

    Attributes:
        state: the path of the record.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = path / "witness.db"
        self._keys = KeyFiles(path, "witness", COSIGNATURE, WitnessError)

    def create(self, name: str) -> VerifierKey:
        """Make record and key; returns the public key.

        The private key comes last: where it exists, everything was made, and a missing record
        was lost and must not be replaced by an empty one.

        Args:
            name: the witness's, a URL without its scheme.

        Raises:
            WitnessError: there is a witness in this directory, or it cannot be written.
            KeyFormatError: the name cannot be a key's name.
        """
        signer = Signer.generate(name, COSIGNATURE)
        try:
            with self._keys.locked():
                if self._keys.exists:
                    raise WitnessError(
                        f"There is a witness in {self.path} already.",
                        next_step="`remit witness key` prints its key. For another witness, use "
                        "another directory.",
                    )
                self.state.unlink(missing_ok=True)
                create_state(self.state)
                self._keys.write(signer)
        except OSError as error:
            raise WitnessError(
                f"{self.path} cannot be written: {error}.",
                next_step="Check the permissions of that directory.",
            ) from error
        return signer.verifier_key

    def verifier_key(self) -> VerifierKey:
        """The public key; raises :class:`WitnessError` if it is missing or damaged."""
        key = self._keys.verifier_key()
        if key is None:
            raise WitnessError(
                f"There is no witness in {self.path}.",
                next_step="`remit witness init` makes one.",
            )
        return key

    def signer(self) -> Signer:
        """The private key.

        Raises:
            WitnessError: it is missing, damaged, readable by others, or another key's.
        """
        self.verifier_key()
        return self._keys.signer()
