"""Servers under attack, on both stores: what is promised is held.

The long form is ``python -m benchmarks.torture``.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from benchmarks.torture.events import SCENARIOS
from benchmarks.torture.run import Torture

from tests.support.soak import is_soak


@pytest.mark.soak
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_servers_under_attack(store: str, tmp_path: Path) -> None:
    events, clients = (12, 8) if is_soak() else (3, 4)
    torture = Torture(tmp_path, store, events, SCENARIOS, seed=5, clients=clients)
    with ExitStack() as stack:
        verdict = torture.run(stack)
    assert verdict.held, f"{torture.done}\n{verdict}"
