"""Servers under attack, on both stores: what is promised is held.

The long form is ``python -m benchmarks.torture``.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from benchmarks.torture.events import SCENARIOS
from benchmarks.torture.run import Torture


@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_servers_under_attack(store: str, tmp_path: Path) -> None:
    torture = Torture(tmp_path, store, 6, SCENARIOS, seed=5, clients=8)
    with ExitStack() as stack:
        verdict = torture.run(stack)
    assert verdict.held, f"{torture.done}\n{verdict}"
