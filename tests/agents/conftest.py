"""The fixture that most tests of agents begin with."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.support.agents import Scripted, anthropic_runtime


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """Return what opens a runtime on `tmp_path / "root"` whose model gives the scripted answers."""
    return partial(anthropic_runtime, tmp_path / "root", monkeypatch)
