"""A witness on a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.ledger.tlog import COSIGNATURE, Signer
from remit.ledger.witness import Witness, WitnessState
from remit.ledger.witness.state import create_state
from tests.ledger.witness.logs import Log


@pytest.fixture
def log() -> Log:
    return Log.of(64)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[WitnessState]:
    create_state(tmp_path / "witness.db")
    opened = WitnessState(tmp_path / "witness.db")
    yield opened
    opened.close()


@pytest.fixture
def signer() -> Signer:
    return Signer.generate("witness.example/w1", COSIGNATURE)


@pytest.fixture
def witness(signer: Signer, log: Log, state: WitnessState) -> Witness:
    return Witness(signer, [log.signer.verifier_key], state)
