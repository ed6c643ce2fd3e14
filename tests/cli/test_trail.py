"""``remit trail``, as a process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remit.ledger import LedgerClient
from tests.cli.conftest import Run
from tests.support.commands import require_said
from tests.support.stores import outside


@pytest.fixture
def root(remit: Run, tmp_path: Path) -> Path:
    """A root with three thoughts of two tasks."""
    assert remit("init").returncode == 0
    for task, kind, text in (
        ("T1", "plan", "look at the map first"),
        ("T1", "decision", "take the road by the lake"),
        ("T2", "reflection", "that was\nthe long way \x1b[31m"),
    ):
        added = remit("trail", "add", "--task", task, "--type", kind, "--agent", "A", text)
        assert added.returncode == 0, added.stderr
        assert added.stdout.startswith("THT-")
    return tmp_path / "work" / ".remit"


def test_adding_listing_and_showing(remit: Run, root: Path) -> None:
    listed = remit("trail", "list").stdout.splitlines()
    assert len(listed) == 3
    assert listed[1].endswith("T1  decision    take the road by the lake")
    data = json.loads(remit("trail", "list", "--task", "T1", "--json").stdout)
    assert [one["content"] for one in data["thoughts"]] == [
        "look at the map first", "take the road by the lake",
    ]  # fmt: skip
    first, second = data["thoughts"]
    assert set(first) == {
        "id", "type", "task_id", "agent_id", "content", "timestamp", "prev_hash", "hash",
        "session_id", "entry_id",
    }  # fmt: skip
    assert (first["prev_hash"], second["prev_hash"]) == ("0" * 64, first["hash"])
    limited = json.loads(remit("trail", "list", "--limit", "1", "--json").stdout)
    assert limited["thoughts"] == [first]
    assert json.loads(remit("trail", "show", first["id"], "--json").stdout) == first
    shown = remit("trail", "show", second["id"]).stdout
    assert f"prev_hash: {first['hash']}" in shown
    assert "\ncontent: take the road by the lake\n" in shown
    require_said(remit("trail", "show", "nope"), "remit trail list")
    more = remit(
        "trail", "add", "--task", "T1", "--type", "analysis", "--agent", "A", "--session", "SES-1",
        "well", "--json",
    )  # fmt: skip
    told = json.loads(more.stdout)
    assert (told["prev_hash"], told["session_id"]) == (second["hash"], "SES-1")
    assert remit("trail", "list", "--limit", "0").returncode == 2
    for form in ((), ("--json",)):
        assert remit("trail", "list", "--limit", "9" * 30, *form).returncode == 0
    require_said(
        remit("trail", "add", "--task", "", "--type", "plan", "--agent", "A", "x"),
        "task_id of the thought",
        code=2,
    )


def test_verifying(remit: Run, root: Path) -> None:
    good = remit("trail", "verify")
    assert good.returncode == 0
    assert good.stdout == "verified: all 3 thoughts of 2 tasks\n"
    data = json.loads(remit("trail", "verify", "--task", "T1", "--json").stdout)
    assert data == {
        "verified": True, "records": 2, "tasks": 1, "erased": 0, "first_bad": None,
        "problem_count": 0, "problems": [],
    }  # fmt: skip
    (ledger,) = root.rglob("ledger.db")
    thought = json.loads(remit("trail", "list", "--json").stdout)["thoughts"][1]
    outside(str(ledger), "UPDATE contents SET value = 'no road' WHERE value LIKE 'take the road%'")
    bad = remit("trail", "verify")
    assert bad.returncode == 1
    head, named, *_ = bad.stdout.splitlines()
    assert head.endswith(f" of 2 tasks; the first is in {thought['id']}")
    assert (head.split(":")[0], named) == ("NOT VERIFIED", "problems:")
    told = remit("trail", "verify", "--json")
    assert told.returncode == 1
    report = json.loads(told.stdout)
    assert (report["verified"], report["first_bad"]) == (False, thought["id"])
    assert report["problems"] == [
        {
            "thought_id": thought["id"], "task_id": "T1", "place": thought["entry_id"],
            "message": "its hash is not that of its content, type, task, time and link",
        }
    ]  # fmt: skip
    assert remit("trail", "verify", "--task", "T2").returncode == 0
    unknown = remit("trail", "verify", "--task", "TYPO")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "task 'TYPO' has no thoughts" in unknown.stderr


def test_out_and_in_again(remit: Run, root: Path, tmp_path: Path) -> None:
    out = remit("trail", "export", "--out", "thoughts.jsonl")
    assert (out.returncode, out.stdout) == (0, "")
    assert "3 thoughts written" in out.stderr
    assert remit("trail", "export", "--out", "-", "--task", "T1").stdout.count("\n") == 2
    require_said(
        remit("trail", "export", "--out", "thoughts.jsonl/below-a-file"), "cannot be written"
    )
    again = remit("trail", "import", "thoughts.jsonl")
    assert (again.returncode, again.stdout) == (2, "")
    assert "Line 1: the task 'T1' already exists" in again.stderr
    assert remit("init", "other").returncode == 0
    other = ("--root", "other")
    moved = remit("trail", "import", "thoughts.jsonl", "--json", *other)
    assert (moved.returncode, json.loads(moved.stdout)) == (0, {"thoughts": 3}), moved.stderr
    assert remit("trail", "verify", *other).returncode == 0
    assert remit("init", "third").returncode == 0
    piped = remit("trail", "export", "--out", "-").stdout
    assert list(json.loads(piped.splitlines()[0])) == [
        "id", "type", "task_id", "agent_id", "content", "timestamp", "prev_hash", "hash",
        "session_id",
    ]  # fmt: skip
    from_pipe = remit("trail", "import", "-", "--root", "third", stdin=piped)
    assert (from_pipe.returncode, from_pipe.stdout) == (0, "3 thoughts\n"), from_pipe.stderr
    ours, theirs = (
        json.loads(remit("trail", "list", "--json", *where).stdout)["thoughts"]
        for where in ((), other)
    )
    assert ours == theirs
    thought = ours[0]
    assert (
        remit("ledger", "erase", thought["entry_id"], "--reason", "asked", "--yes").returncode == 0
    )
    gone = json.loads(remit("trail", "show", thought["id"], "--json").stdout)
    assert gone["content"] is None
    assert gone["erased"].startswith("LED-")
    assert "content erased under" in remit("trail", "list").stdout
    assert remit("trail", "verify").stdout == "verified: all 3 thoughts of 2 tasks, 1 erased\n"
    with LedgerClient(next(root.rglob("ledger.db")), create=False) as ledger:
        assert ledger.verify().verified
