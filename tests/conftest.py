"""Fixtures that every part uses. Nothing here replaces a real part by a pretended one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.ledger import LedgerClient


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and roots of whoever runs the tests are none of the tests' business."""
    for name in ("ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL", "REMIT_ROOT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _no_key(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "live" not in request.keywords:
        monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[LedgerClient]:
    with LedgerClient(tmp_path / "ledger.db") as client:
        yield client
