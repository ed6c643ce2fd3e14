"""``remit report`` on a root, and its file by other means than Remit's."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from remit import Runtime
from remit.gateway.budget import BudgetScope
from remit.testing import ScriptedModel
from remit.views import report_script_hash
from tests.cli.conftest import Run
from tests.support.commands import require_said
from tests.support.requests import prompt_request
from tests.support.roots import new_root
from tests.support.standalone import standalone

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def root(work: Path) -> Path:
    """A root in which a model was called, and a call was refused."""
    place = new_root(work / "root")
    model = ScriptedModel("one", "two")
    with Runtime.open(place, providers={"scripted": model}) as runtime:
        runtime.budgeter.allocate(BudgetScope("SES-TESTTEST"), 10**6)
        for _ in range(2):
            request = prompt_request(
                provider_id="scripted", model_id="scripted", work_order_id="", tier=""
            )
            assert runtime.gateway.route(request).outcome == "success"
        runtime.gateway.route(prompt_request(session_id="SES-NOBUDGET"))
    return place


def test_a_report_of_a_root(remit: Run, root: Path, work: Path) -> None:
    made = remit("key", "create", "--name", "ci", "--root", root, "--json")
    key_id = json.loads(made.stdout)["id"]
    found = remit("report", "--root", root, "--html", work / "r.html", "--json")
    assert found.returncode == 0, found.stderr
    assert re.search(r"script: sha256-\S{43}=", found.stderr)
    report = json.loads(found.stdout)
    assert report["verification"]["verified"] is True
    assert report["gates"]["passed"] is True
    rows = {row["entry_id"]: row for row in report["entries"]}
    events = [row["event_type"] for row in rows.values()]
    assert events.count("EXCHANGE") == 2
    assert events.count("PROMPT_REJECTED") == 1
    assert events.count("GATE_PASSED") == 8  # of this report, under its own checkpoint
    assert "INSTALLED" in events
    assert any(row["shown"].get("/metadata/key_id") == key_id for row in rows.values())
    assert report["log"]["size"] > max(row["seq"] for row in rows.values())
    assert not report["log"]["witnesses"]
    key = remit("ledger", "key", "--root", root).stdout.strip()
    assert report["log"]["verifier_key"] == key
    text = (work / "r.html").read_text("utf-8")
    assert set(rows) <= set(re.findall(r'<code class="id">(LED-\w+)<', text))
    found = remit("report", "--script-hash")
    assert found.stdout.strip() == f"sha256-{report_script_hash()}"
    assert found.stdout.strip() in text
    # An export leads to its checkpoint.
    (work / "checkpoint.txt").write_text(report["log"]["checkpoint"], "utf-8")
    remit("ledger", "export", "--root", root, "--out", work / "export.jsonl")
    verified = standalone(
        work / "export.jsonl", "--key", key, "--checkpoint", work / "checkpoint.txt"
    )
    assert verified.returncode == 0, verified.stderr


def test_a_report_is_checked_without_its_script(remit: Run, root: Path, work: Path) -> None:
    assert remit("report", "--root", root, "--html", work / "r.html").returncode == 0
    key = remit("ledger", "key", "--root", root).stdout.strip()
    (code,) = re.findall(r"```py\n(.*?)```", (DOCS / "report.md").read_text("utf-8"), re.DOTALL)
    (work / "check_report.py").write_text(code, "utf-8")
    shutil.copy(DOCS / "verify_standalone.py", work)

    def check() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "check_report.py", "r.html", key],
            cwd=work, capture_output=True, text=True, check=False,
        )  # fmt: skip

    found = check()
    assert found.returncode == 0, found.stderr
    text = (work / "r.html").read_text("utf-8")
    listed = text.count('<code class="id">')
    *lines, count, script = found.stdout.splitlines()
    assert len(lines) == listed > 30
    assert f"{listed} entries of " in count
    assert count.endswith("are proven, 0 of the range are missing")
    assert script == f"script: sha256-{report_script_hash()}"
    changed = re.sub(r'(\{\\"decision\\":\\")INSTALLED', r"\1INSTALLER", text, count=1)
    assert changed != text
    (work / "r.html").write_text(changed, "utf-8")
    assert check().returncode == 1


def test_a_damaged_ledger_is_reported_as_such(remit: Run, root: Path, work: Path) -> None:
    import sqlite3

    with sqlite3.connect(root / "ledger.db") as database:
        database.execute("UPDATE entries SET outcome = 'success' WHERE seq = 3")
    found = remit("report", "--root", root, "--html", work / "r.html", "--json")
    require_said(found, "The ledger does not verify", "Gate G6 failed (1 problem); the report says",
                 "next: `remit gate check --gate G6`.")  # fmt: skip
    verification = json.loads(found.stdout)["verification"]
    assert verification["verified"] is False
    assert verification["problems"][0].startswith("seq 3: column")
    assert '"verified":false' in (work / "r.html").read_text("utf-8")
