"""What runs until its power fails: ``python -m tests.power.victims NAME ARGUMENTS``.

Each prints a line for whatever it may acknowledge: what is printed must survive.
"""

from __future__ import annotations

import sys
from pathlib import Path

from remit.ledger import LedgerClient, LedgerEntry
from remit.ledger.tlog import Signer
from remit.packages import IncomingArchive
from tests.ledger.segments.faults import archive_all
from tests.packages.install.world import managing, opened
from tests.support.stores import SIGNER

_ENDLESS = 100_000


def write(target: str) -> None:
    """Write entries, and print the id of each."""
    _write(LedgerClient(target))


def write_signed(root: str) -> None:
    """Write entries into the ledger of a root, and sign its head after every third."""
    with opened(Path(root)) as ledger:
        _write(ledger, checkpoint_every=3)


def _write(ledger: LedgerClient, checkpoint_every: int = _ENDLESS) -> None:
    for number in range(1, _ENDLESS):
        shown = {"session_id": "SES-1", "n": number, "prompt": f"{number} " * 900}
        print(ledger.write(LedgerEntry("LOAD", "S", "DONE", "load", metadata=shown)), flush=True)
        if number % checkpoint_every == 0:
            ledger.checkpoints.sign()


def archive(target: str, key: str, directory: str) -> None:
    """Archive all that can leave, and print the id of the entry that says so."""
    signer = Signer.from_pem(SIGNER.verifier_key.name, Path(key).read_bytes())
    with LedgerClient(target, signer=signer) as client:
        print(archive_all(client, Path(directory)).archived_id, flush=True)


def upgrade(root: str, package: str) -> None:
    """Upgrade a package."""
    incoming = IncomingArchive(Path(package).read_bytes())
    with managing(Path(root)) as manager:
        manager.install([incoming], dev=True, only_upgrade=True)
    print("upgraded", flush=True)


if __name__ == "__main__":
    {one.__name__: one for one in (write, write_signed, archive, upgrade)}[sys.argv[1]](
        *sys.argv[2:]
    )
