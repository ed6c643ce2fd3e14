"""What a call costs, in numbers that do not depend on the machine: they may only grow on purpose.

``python -m tests.server.test_cost_of_a_call`` prints them, and the table of limits anew.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.gateways import rig

from remit.gateway.auth import KeyStore
from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter
from remit.ledger import LedgerClient
from tests.server.counting import Counts
from tests.support.roots import new_root

# To be lowered when the counts fall; with a little room, for another Python counts a few more, and
# a busy machine too: chunks of a stream that arrive together are counted as one. Of the statements
# one is room: a call that lasts long reads the circuit breakers again, which takes eight functions.
ROOM = 1.04
# One statement of each commit looks at the layout, which another version may have migrated.
# Two calls of each make the context that carries its session and person.
# One row and two objects of each are the usage that is added up with its entry.
LIMITS = {
    "call": Counts(loop=173, ledger=101, objects=194, json=7, statements=19, rows=14, commits=2),
    "call in a work order": Counts(
        loop=175, ledger=119, objects=198, json=7, statements=20, rows=14, commits=2
    ),
    "routed call": Counts(
        loop=256, ledger=201, objects=264, json=18, statements=23, rows=26, commits=2
    ),
    "stream": Counts(loop=390, ledger=113, objects=368, json=17, statements=20, rows=16, commits=2),
    "chunk of a stream": Counts(
        loop=14, ledger=4, objects=12, json=1, statements=0, rows=0, commits=0
    ),
}
MODELS = """
[routing.models."gpt-4o-mini"]
provider = "openai"
abilities = { general = 60 }

[routing.models."gpt-4.1"]
provider = "openai"
abilities = { general = 76 }
"""


def counted(directory: Path) -> dict[str, Counts]:
    """What a new root's server counts."""
    return {name: Counts(**numbers) for name, numbers in _printed(directory).items()}


def _printed(directory: Path, *more: str) -> dict[str, Any]:
    root = new_root(directory / "root", MODELS)
    with LedgerClient(str(root / "ledger.db"), create=False) as ledger, KeyStore(ledger) as keys:
        key = keys.create("counted", role="agent", models=())
        scope = BudgetScope(key_id=key.key_id)
        TokenBudgeter(ledger).allocate(scope, limits=BudgetLimits(nano=10**15))
    with rig.upstream(None) as upstream:
        done = subprocess.run(
            [sys.executable, "-m", "tests.server.counting", str(root), key.key, *more],
            env={
                **{name: value for name, value in os.environ.items() if name[:6] != "REMIT_"},
                "OPENAI_BASE_URL": f"{upstream.url}/v1",
                "OPENAI_API_KEY": "sk-upstream",
            },
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="the upstream needs epoll")
def test_a_call_does_not_do_more_than_it_did(tmp_path: Path) -> None:
    found = counted(tmp_path)
    grown = [
        f"{kind}: {field.name} {getattr(found[kind], field.name)}, at most {limit} before"
        for kind, limits in LIMITS.items()
        for field in fields(Counts)
        if getattr(found[kind], field.name) > (limit := getattr(limits, field.name))
    ]
    assert found.keys() == LIMITS.keys()
    assert min(found["call"].loop, found["call"].objects, found["call"].rows) > 0
    assert not grown


@pytest.mark.skipif(not hasattr(select, "epoll"), reason="the upstream needs epoll")
def test_no_call_reads_more_because_of_the_calls_before_it(tmp_path: Path) -> None:
    """Counted in tens of SQLite's own steps; the second commit may end after the answer came."""
    found = _printed(tmp_path, "grown")
    assert len(found) == 6
    assert not {name: both for name, both in found.items() if both[1] > 1.25 * both[0]}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        for name, counts in counted(Path(scratch)).items():
            print(name, asdict(counts))
            roomy = {
                key: round(asdict(counts)[key] * ROOM) for key in ("loop", "ledger", "objects")
            }
            print(f'    "{name}": {replace(counts, **roomy)},')
