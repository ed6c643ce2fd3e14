"""Operations on the directory of a witness, which is a separate party and has no root."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from remit.operations.operation import field, verb
from remit.operations.ports import Caller, RootPort

_DIRECTORY: Any = field("Directory of the witness.", flag="--dir", metavar="DIR", place="folder")


@verb("witness init", prints="{key}", has_root=False, media_type="text/plain")
def create_witness(
    root: RootPort, caller: Caller, *,
    name: str = field("Name of the witness, a URL without scheme: witness.example/w1."),
    directory: Path = _DIRECTORY,
) -> dict[str, Any]:  # fmt: skip
    """Create a witness with a key and an empty state, and print the verifier key.

    Returns:
        ``key``, the verifier key.

    Raises:
        WitnessError: the directory contains a witness, or cannot be written.
        TlogError: the name cannot be used.
    """
    from remit.ledger.witness import WitnessDirectory

    key = str(WitnessDirectory(directory).create(name))
    root.note(f"{directory} was created. Give this key to the logs. Never restore the directory "
              "from an older copy.")  # fmt: skip
    return {"key": key}


@verb("witness key", prints="{key}", has_root=False, media_type="text/plain")
def show_witness_key(
    root: RootPort, caller: Caller, *, directory: Path = _DIRECTORY
) -> dict[str, Any]:
    """Print the verifier key of the witness, for the logs.

    Returns:
        ``key``, the verifier key.

    Raises:
        WitnessError: the directory contains no witness, or its key is damaged.
    """
    from remit.ledger.witness import WitnessDirectory

    return {"key": str(WitnessDirectory(directory).verifier_key())}


@verb("witness status", has_root=False)
def show_witness(root: RootPort, caller: Caller, *, directory: Path = _DIRECTORY) -> dict[str, Any]:
    """Show the cosigned size of each log, and the recorded evidence of misbehaviour.

    Returns:
        ``name`` and ``key`` of the witness, and ``logs`` by origin: each with its cosigned size,
        root and time, and the numbers of forks and of unproven requests stored as evidence. A log
        with evidence alone has size 0, and no root and time. Served logs without either are absent.

    Raises:
        WitnessError: the directory contains no witness, or its record is missing or damaged.
    """
    from remit.ledger.witness import FORK, UNPROVEN, WitnessDirectory, WitnessState

    place = WitnessDirectory(directory)
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
    for row in rows:
        if row["forks"]:
            root.note(f"FORKED: {row['origin']} signed contradictory checkpoints; {row['forks']} "
                      "are kept as evidence.")  # fmt: skip
    return {"name": own.name, "key": str(own), "logs": rows}
