"""A root of every earlier layout opens, verifies, is settled, upgraded and written to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remit.ledger import LAYOUT_VERSION, Erased, LedgerClient
from tests.packages.shipped import manifests
from tests.server.running import serving
from tests.support.commands import run_remit
from tests.support.keeping import Keeper
from tests.support.soak import sample
from tests.support.stores import outside
from tests.support.waiting import until
from tests.upgrade.conftest import COMMITS, ROOTS, OldRoot
from tests.upgrade.upstream import answering

_ENTRIES = "SELECT seq, record, entry_hash FROM entries ORDER BY seq"
_VERIFIER = Path(__file__).parents[2] / "docs" / "verify_standalone.py"


class _Root:
    """An old root, and the command line of this version."""

    def __init__(self, old: OldRoot, upstream: Keeper) -> None:
        self.old = old
        self._environment = {
            "OPENAI_BASE_URL": f"{upstream.url}/v1", "OPENAI_API_KEY": "sk-openai",
            "REMIT_ROOT": str(old.path),
        }  # fmt: skip

    def run(self, *arguments: object, stdin: str = "", **more: str) -> str:
        """Run ``remit ARGUMENTS``, which succeeds; return its output."""
        environment = {**self._environment, **more}
        ran = run_remit(*arguments, stdin=stdin, environment=environment)
        assert ran.returncode == 0, (arguments, ran.stdout, ran.stderr)
        return ran.stdout

    def settle(self) -> bool:
        """Run ``remit ledger recover``; return True if no call is in flight any more.

        On another machine than the one of the old processes, a database that has just started is
        given the time of a lease first.
        """
        short = {"REMIT_GATEWAY__TIMEOUT_MS": "5000", "REMIT_GATEWAY__LEASE_MARGIN_MS": "0"}
        self.run("ledger", "recover", **short)
        batch = "SELECT dispatch_entry_id FROM batches" if self.old.layout > 3 else "SELECT ''"
        (left,) = outside(
            self.old.ledger,
            f"SELECT count(*) FROM in_flight WHERE dispatch_entry_id NOT IN ({batch})",
        )
        return left == (0,)

    def check(self) -> None:
        """Check records, budgets and gates, as ``docs/operations/upgrade.md`` says."""
        self.run("ledger", "verify")
        self.run("budget", "check")
        assert "8 of 8 gates pass" in self.run("gate", "check", "--all", "--enforce")


@pytest.mark.soak
@pytest.mark.parametrize("old", sample(ROOTS, 3), indirect=True, ids="-".join)
def test_it_verifies_is_settled_upgraded_and_written_to(old: OldRoot, tmp_path: Path) -> None:
    facts = old.facts
    checkpoint = tmp_path / "kept-outside"
    checkpoint.write_text(facts["checkpoint"])
    records = outside(old.ledger, _ENTRIES)
    assert records[-1][2] == facts["head"]
    with answering() as upstream:
        root = _Root(old, upstream)
        report = json.loads(root.run("ledger", "verify", "--json", "--checkpoint", checkpoint))
        assert (report["verified"], report["entries"]) == (True, len(records))
        root.run("budget", "check")

        until(root.settle)
        with LedgerClient(old.ledger) as ledger:
            orphans = ledger.query(event_type="EXCHANGE_ORPHANED")
            assert [one.metadata["dispatch_entry_id"] for one in orphans] == facts["in_flight"]
        root.run("ledger", "verify", "--checkpoint", checkpoint)
        root.run("budget", "check")

        root.run("init", old.path)
        listed = json.loads(root.run("package", "list", "--json"))["packages"]
        installed = {one["package_id"]: one["version"] for one in listed}
        assert installed == {name: one.version for name, one in manifests().items()}
        root.check()

        _talk(root)
        _serve(old, upstream)
        root.check()
        _hand_out(root, tmp_path)
    after = outside(old.ledger, _ENTRIES)
    assert after[: len(records)] == records
    assert outside(old.ledger, "SELECT max(version) FROM migrations") == [(LAYOUT_VERSION,)]


WITH_BATCH = [old for old in ROOTS if COMMITS[old[0]] > 3]  # the tables of layout 4
ENDS = {
    "answered": (2, "measured"),
    "half answered": (1, "measured"),
    "running beyond its expiry": (2, "upper_bound"),
    "forgotten": (2, "upper_bound"),
}
"""What became of the batch: how many of its two requests are charged, and as what."""


@pytest.mark.soak
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("old", sample(WITH_BATCH, 1), indirect=True, ids="-".join)
def test_its_open_batch_is_settled(old: OldRoot, end: str) -> None:
    batch_id, (charged, certainty) = old.facts["batch"], ENDS[end]
    first = outside(old.ledger, "SELECT max(seq) FROM entries")[0][0]
    ((made_ms,),) = outside(old.ledger, "SELECT created_ms FROM batches")
    held = "SELECT count(*) FROM batches", "SELECT count(*) FROM batch_lines"
    assert [outside(old.ledger, sql) for sql in held] == [[(1,)], [(2,)]]
    with answering() as upstream:
        if end != "forgotten":
            upstream.batches[batch_id] = {
                "id": batch_id, "object": "batch", "status": "in_progress",
                "expires_at": made_ms // 1000 + 1,
            }  # fmt: skip
            upstream.lines[batch_id] = [
                {"custom_id": f"line-{number}", "body": {"model": "gpt-4o-mini"}}
                for number in range(2)
            ]
        if end == "answered":
            upstream.finish(batch_id)
        elif end == "half answered":
            upstream.finish(batch_id, only=1, how="expired")
        root = _Root(old, upstream)
        until(root.settle)
        assert [outside(old.ledger, sql) for sql in held] == [[(0,)], [(0,)]]
        root.run("ledger", "verify")
        root.run("budget", "check")
    with LedgerClient(old.ledger) as ledger:
        found = [
            one.metadata
            for one in ledger.query(event_type="EXCHANGE", after=first)
            if one.metadata.get("batch_id") == batch_id
        ]
    paid = [one for one in found if one.get("cost_usd")]
    assert (len(found), len(paid)) == (2, charged)
    assert {one["cost_certainty"] for one in paid} == {certainty}


def _talk(root: _Root) -> None:
    """Continue a session whose turn was killed, and decide what waits for a person."""
    facts = root.old.facts
    said = root.run("chat", "--model", "openai", "--session", facts["chat"], stdin="And sencha?\n")
    assert "three minutes" in said
    with LedgerClient(root.old.ledger) as ledger:
        turns = list(ledger.query(event_type="TURN_RECORDED", session_id=facts["chat"]))
        asked = [turn.metadata["user_message"] for turn in turns]
        assert asked[:2] == ["How long does it steep?", "And sencha?"]
        assert asked[-1] == "And sencha?"
        erased = ledger.query(event_type="EXCHANGE", session_id="SES-ERASED01")
        assert all(isinstance(one.metadata["response"], Erased) for one in erased)
    waiting = json.loads(root.run("approve", "--json"))["approvals"]
    assert [one["request_id"] for one in waiting] == [facts["request"]]
    root.run("approve", facts["request"], "--yes", "--by", "Ann")
    root.run("trail", "add", "step 2", "--task", "TASK-1", "--type", "plan", "--agent", "planner")
    assert len(json.loads(root.run("trail", "list", "--task", "TASK-1", "--json"))["thoughts"]) == 3
    if order := facts.get("order"):
        assert json.loads(root.run("order", "show", order, "--json"))["state"] == "ready"


def _serve(old: OldRoot, upstream: Keeper) -> None:
    """Let the old keys call, and continue what they began."""
    facts, keys = old.facts, old.facts["keys"]
    database = old.ledger if "://" in old.ledger else ""
    with serving(old.path, upstream.url, database=database, checked=False) as served:
        session = "SES-CHAIN001"
        for name, expected in (("ann", 200), ("gone", 401)):
            status, said, _ = served.call("openai", "And now?", session=session, token=keys[name])
            assert status == expected, said
        # A session belongs to the key that began it, in every version.
        assert served.call("openai", "Mine?", session=session, token=keys["ben"])[0] == 403
        assert served.call("anthropic", "And now?", model="claude-sonnet-4-5",
                           session="SES-BEN00001", token=keys["ben"])[0] == 200  # fmt: skip
        body: dict[str, Any] = {"model": "gpt-4o-mini", "input": "More?", "store": True}
        if name := facts.get("response"):
            more = {**body, "previous_response_id": name}
            assert served.ask("POST", "/v1/responses", more, token=keys["ann"])[0] == 200
        if name := facts.get("conversation"):
            more = {**body, "conversation": name}
            assert served.ask("POST", "/v1/responses", more, token=keys["ann"])[0] == 200


def _hand_out(root: _Root, directory: Path) -> None:
    """Export, prove and import: for other people's tools, and into a new root."""
    export, proof, new = (str(directory / name) for name in ("all.jsonl", "proof", "new"))
    root.run("ledger", "export", "--out", export)
    root.run("ledger", "prove", root.old.facts["in_flight"][0], "--out", proof)
    key = root.run("ledger", "key").strip()
    verifier = [sys.executable, _VERIFIER, export, "--key", key]
    ran = subprocess.run(verifier, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for command in (
        ["init", "--bare", new],
        ["ledger", "import", export, "--root", new],
        ["init", new],
        ["gate", "check", "--gate", "G0B", "--enforce", "--root", new],
    ):
        ran = run_remit(*command, environment={"REMIT_DATABASE_URL": None})
        assert ran.returncode == 0, (command, ran.stdout, ran.stderr)
