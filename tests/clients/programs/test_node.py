"""Node's clients: each script prints what its client got as JSON."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import Side

_HERE = Path(__file__).parents[1] / "node"
_NODE = Path(__file__).parents[3] / ".venv" / "clients" / "node"
_TASKS = [
    (script.stem, line.split("'")[1])
    for script in sorted(_HERE.glob("*.mjs"))
    for line in script.read_text().splitlines()
    if line.startswith("  async '")
]

pytestmark = pytest.mark.skipif(
    not (shutil.which("node") and (_NODE / "node_modules").is_dir()),
    reason="Node or its packages are not there",
)


@pytest.fixture(scope="session")
def processes() -> Iterator[dict[tuple[str, str], subprocess.Popen[str]]]:
    """One process for each script and side, started on first use."""
    running: dict[tuple[str, str], subprocess.Popen[str]] = {}
    yield running
    for process in running.values():
        process.communicate()


@pytest.mark.parametrize(("script", "task"), _TASKS, ids=map("-".join, _TASKS))
def test_node(side: Side, processes: Any, script: str, task: str) -> Any:
    process = processes.get((script, side.name))
    if process is None:
        # Packages are looked for where it runs, outside the tree.
        code = (_HERE / f"{script}.mjs").read_text()
        process = processes[script, side.name] = subprocess.Popen(
            ["node", "--input-type=module", "-e", code], cwd=_NODE, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **side.variables()},
        )  # fmt: skip
    process.stdin.write(f"{task}\n")
    process.stdin.flush()
    told = json.loads(process.stdout.readline())
    assert "got" in told, told["error"]
    return told["got"]
