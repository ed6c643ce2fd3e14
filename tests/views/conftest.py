"""Ledgers and stories that the tests of views share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.ledger import LedgerClient
from remit.ledger.tlog import Signer
from tests.support.browser import Browser
from tests.views.story import Story, tell


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser without a network: a name or an address that is asked for leads nowhere."""
    options = ("--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=127.0.0.1:9")
    with Browser(tmp_path_factory.mktemp("browser") / "profile", *options) as browser:
        yield browser


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
