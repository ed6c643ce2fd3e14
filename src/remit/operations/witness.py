"""Operations on the directory of a witness, which is a separate party and has no root."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from remit.kernel.words import count
from remit.operations.operation import Caller, Note, Operation, RootPort, field


class _OfWitness(Operation):
    has_root, media_type = False, "text/plain"

    directory: Path = field("Directory of the witness.", flag="--dir", metavar="DIR",
                            place="folder")  # fmt: skip


class CreateWitness(_OfWitness):
    """Create a witness with a key and an empty state, and print the verifier key."""

    command = "witness init"

    name: str = field("Name of the witness, a URL without scheme: witness.example/w1.")

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Create the directory.

        Raises:
            WitnessError: the directory contains a witness, or cannot be written.
            TlogError: the name cannot be used.
        """
        from remit.ledger.witness import WitnessDirectory

        return {"key": str(WitnessDirectory(self.directory).create(self.name))}

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield the key, and a note on the directory."""
        yield found["key"]
        yield Note(f"{self.directory} was created. Give this key to the logs. Never restore the "
                   "directory from an older copy.")  # fmt: skip


class ShowWitnessKey(_OfWitness):
    """Print the verifier key of the witness, for the logs."""

    command, prints = "witness key", "{key}"

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Return the key.

        Raises:
            WitnessError: the directory contains no witness.
        """
        from remit.ledger.witness import WitnessDirectory

        return {"key": str(WitnessDirectory(self.directory).verifier_key())}


class ShowWitness(_OfWitness):
    """Show the cosigned size of each log, and the recorded evidence of misbehaviour."""

    command, media_type = "witness status", ""

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Return the logs.

        Raises:
            WitnessError: the directory contains no witness.
        """
        from remit.ledger.witness import FORK, UNPROVEN, WitnessDirectory, WitnessState

        place = WitnessDirectory(self.directory)
        own = place.verifier_key()
        state = WitnessState(place.state)
        try:
            seen = {item.origin: item for item in state.all_seen()}
            evidence = state.evidence_counts()
        finally:
            state.close()
        rows = [
            {
                "origin": origin,
                "size": seen[origin].size if origin in seen else 0,
                "root": seen[origin].root.hex() if origin in seen else None,
                "updated": seen[origin].updated if origin in seen else None,
                "forks": evidence.get((origin, FORK), 0),
                "unproven": evidence.get((origin, UNPROVEN), 0),
            }
            for origin in sorted({*seen, *(origin for origin, _ in evidence)})
        ]
        return {"name": own.name, "key": str(own), "logs": rows}

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield the number of logs, then a line for each."""
        yield f"{found['name']}: {count(len(found['logs']), 'log')}"
        yield from map(_log_line, found["logs"])


def _log_line(row: Mapping[str, Any]) -> str:
    line = f"  {row['origin']}  {count(row['size'], 'entry')}"
    if row["updated"]:
        line += f"  since {row['updated']}"
    if row["forks"]:
        line += f"  FORKED: {count(row['forks'], 'checkpoint')} kept as evidence"
    if row["unproven"]:
        line += f"  refused for lack of a valid proof: {count(row['unproven'], 'request')}"
    return line
