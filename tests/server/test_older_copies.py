"""An older copy of the ledger under a running server, and at its start: SQLite and PostgreSQL."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from remit.ledger.tlog import SignedCheckpoint
from tests.server.running import Served, serving
from tests.support.processes import run_program
from tests.support.upstream import Upstream


def _remit(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name[:6] != "REMIT_"}
    return run_program("-m", "remit", *arguments, "--root", str(root), environment=variables)


def _assert_refused(served: Served, missing: str) -> str:
    """No call gets through, and everybody is told the same."""
    status, answer, _ = served.call("openai", "once more")
    assert status == 503, answer
    message: str = json.loads(answer)["error"]["message"]
    assert missing in message
    assert "remit ledger fork --reason" in message
    status, answer, _ = served.ask("GET", "/readyz")
    assert status == 503
    assert json.loads(answer)["status"] == "not ready"
    assert missing in json.loads(answer)["reason"]
    return message


def test_a_file_put_back_under_a_server(upstream: Upstream, tmp_path: Path) -> None:
    root = tmp_path / "root"
    older, path = tmp_path / "older.db", root / "ledger.db"
    with serving(root, upstream.url, checked=False) as served:
        assert served.call("openai", "hello")[0] == 200
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(older)) as copy:
            source.backup(copy)
        assert served.call("openai", "this is paid")[0] == 200
        os.replace(older, path)
        for suffix in ("-wal", "-shm"):  # which belong to the newer one
            path.with_name(f"ledger.db{suffix}").unlink()
        _assert_refused(served, "while this process has it open")
        with closing(sqlite3.connect(path)) as file:
            (before,) = file.execute("SELECT count(*), max(size) FROM entries, checkpoints")
        served.process.send_signal(signal.SIGTERM)
        served.process.wait(60)
        served.killed = True
        assert "Traceback" not in served.errors.read_text()
    started = _remit(root, "serve", "--port", "0")
    assert started.returncode != 0
    said = next(line for line in started.stderr.splitlines() if "older copy" in line)
    assert "are missing" in said
    assert "Traceback" not in started.stderr
    sentence = said[said.index("The ledger ") : said.index("are missing.") + 12]
    for command in (
        ("ledger", "verify"),
        ("doctor",),
        ("gate", "check", "--gate", "G6", "--enforce"),
    ):
        found = _remit(root, *command)
        assert found.returncode == 1, (command, found)
        assert sentence in (found.stdout + found.stderr).replace("\n", " "), (command, found)
        assert "Traceback" not in found.stderr
    for command in (("ledger", "checkpoint"), ("key", "create", "--name", "x")):
        found = _remit(root, *command)
        assert found.returncode != 0
        assert sentence in found.stderr.replace("\n", " "), (command, found)
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT count(*), max(size) FROM entries, checkpoints").fetchall() == [
            before
        ]
    assert _remit(root, "ledger", "fork", "--reason", "x").returncode != 0  # nobody said yes
    old_key = _remit(root, "ledger", "key").stdout.strip()
    done = _remit(root, "ledger", "fork", "--reason", "the disk burned", "--yes", "--json")
    assert done.returncode == 0, done
    report = json.loads(done.stdout)
    new_key = _remit(root, "ledger", "key").stdout.strip()
    assert report["verifier_key"] == new_key != old_key
    assert SignedCheckpoint.parse(report["checkpoint"]).checkpoint.origin == new_key.split("+")[0]
    with serving(root, upstream.url) as served:
        assert served.call("openai", "hello again")[0] == 200
        entry = served.ledger.read(report["entry_id"])
        assert entry.reason == "the disk burned"
        assert entry.metadata["fork"]["lost_spend"] == "unknown"
