"""Writers that are killed at any moment lose, double and damage nothing; nor does their database.

``REMIT_SOAK=1`` kills 120 writers on each store.
"""

from __future__ import annotations

import os
import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from remit.ledger import LedgerClient
from remit.ledger.tlog import SignedCheckpoint, verify_consistency
from tests.support.postgres import PostgresServer
from tests.support.processes import Program
from tests.support.soak import SEED, is_soak, soak_only
from tests.support.stores import SIGNER

pytestmark = pytest.mark.soak

_WRITERS = 2


def _killed(target: str, lines: list[int]) -> list[str]:
    """Return what so many writers acknowledged, the shortest time after which each was killed."""
    said = []
    with ExitStack() as stack:
        writers = [
            stack.enter_context(
                Program("-m", "tests.power.victims", "write", target, environment=os.environ)
            )
            for _ in lines
        ]
        for writer, count in zip(writers, lines, strict=True):
            said += [next(writer.stdout) for _ in range(count)]
        for writer in writers:
            writer.kill()
            said += list(writer.stdout)
    return [line.strip() for line in said if line.endswith("\n")]


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgresql", marks=soak_only)])
def test_nothing_is_lost_or_doubled(tmp_path: Path, store: str) -> None:
    chance, there, rounds = random.Random(SEED), set[str](), 60 if is_soak() else 2
    with ExitStack() as stack:
        target, server = str(tmp_path / "ledger.db"), None
        if store == "postgresql":
            server = PostgresServer(tmp_path / "server")
            stack.callback(server.stop)
            target = server.database()
        earlier = ""
        for number in range(rounds):
            there.update(_killed(target, [chance.randint(1, 40) for _ in range(_WRITERS)]))
            if server is not None and number == rounds // 2:
                server.kill()
                server.start()
            with LedgerClient(target, signer=SIGNER) as client:
                report = client.verify(checkpoint=earlier or None)
                assert report.verified, report.problems
                later = client.checkpoints.sign()
                if earlier:
                    _require_consistent(client, earlier, later)
                earlier = later
        with LedgerClient(target) as client:
            found = [
                entry.id
                for entry in client.query(event_type="LOAD", with_content=False, limit=None)
            ]
    assert len(found) == len(set(found))
    assert there <= set(found)
    print(f"{store}: {rounds * _WRITERS} kills, {len(there)} entries acknowledged: lost 0")


def _require_consistent(client: LedgerClient, earlier: str, later: str) -> None:
    old, new = (SignedCheckpoint.parse(note).checkpoint for note in (earlier, later))
    proof = client.checkpoints.prove_consistency(old.size, new.size)
    verify_consistency(old.size, new.size, proof, old.root, new.root)
