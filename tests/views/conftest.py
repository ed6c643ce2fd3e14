"""Ledgers and stories that the tests of views share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.ledger import LedgerClient
from remit.ledger.tlog import Signer
from tests.views.story import Story, tell


@pytest.fixture
def signer() -> Signer:
    return Signer.generate("example.com/log")


@pytest.fixture
def client(tmp_path: Path, signer: Signer) -> Iterator[LedgerClient]:
    """A new ledger on SQLite that signs."""
    with LedgerClient(tmp_path / "ledger.db", signer=signer) as client:
        yield client


@pytest.fixture
def story(client: LedgerClient) -> Story:
    """A session in which everything happens once."""
    story = Story(client)
    tell(story)
    return story
