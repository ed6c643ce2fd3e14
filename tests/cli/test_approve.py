"""``remit approve``: what is meant, changed arguments, a time, several people, delegations."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from remit.agents import ApprovalQueue
from remit.agents.tools import Tool
from remit.ledger import LedgerClient
from tests.cli.conftest import Run, parsed
from tests.support.roots import new_root

SCHEMA = {"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]}
REFUND = Tool("refund", "Pay an order back.", SCHEMA, print)
PAYOUT = Tool("payout", "Pay out.", SCHEMA, print)
POLICY = """
[approvals.tools.payout]
people = 2
approvers = ["ann", "bob"]
"""
Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return new_root(tmp_path / "root", POLICY)


@pytest.fixture
def cli(root: Path, remit: Run) -> Cli:
    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return remit("approve", *arguments, "--root", str(root), **environment)

    return run


def _ask(root: Path, *orders: int, tool: Tool = REFUND) -> list[str]:
    with LedgerClient(root / "ledger.db") as ledger:
        queue = ApprovalQueue(ledger)
        return [
            queue.request(
                tool, {"order": order}, session_id="SES-WAITWAIT", agent_id="a", requested_by="eve"
            ).request_id
            for order in orders
        ]


def test_arguments_are_changed_on_the_line_and_in_an_editor(
    root: Path, cli: Cli, tmp_path: Path
) -> None:
    first, second, third = _ask(root, 1, 2, 3)
    wrong = cli(first, "--arguments", '{"order": "x"}')
    assert (wrong.returncode, "do not fit refund" in wrong.stderr) == (2, True)
    assert cli(first, "--arguments", "[1]").returncode == 2
    changed = parsed(cli(first, "--arguments", '{"order": 11}', "--until", "2h", "--json"))
    assert (changed["state"], changed["arguments"]) == ("granted", {"order": 11})
    assert changed["requested_arguments"] == {"order": 1}
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/2/22/ "$1"\n')
    editor.chmod(0o755)
    edited = cli(second, "--edit", EDITOR=str(editor))
    assert 'instead    {"order":22}' in edited.stdout.replace(": ", ":")
    late = cli(third, "--until", "30d")
    assert (late.returncode, "[approvals] valid_s" in late.stderr) == (2, True)


def test_a_request_is_named_by_what_no_other_has(root: Path, cli: Cli) -> None:
    requests = _ask(root, 1, 2, 3)
    short = requests[0].removeprefix("LED-").lstrip("0")
    assert parsed(cli(short.upper(), "--json"))["request_id"] == requests[0]
    assert parsed(cli("last", "--deny", "--json"))["request_id"] == requests[2]
    shared = requests[1].removeprefix("LED-").lstrip("0")
    assert parsed(cli(shared, "--json"))["state"] == "granted"
    for nothing in ("last", "zzz", "LED-", ""):
        none = cli(nothing)
        assert (none.returncode, "is not an approval request" in none.stderr) == (1, True), nothing


def test_two_people_and_one_in_the_place_of_another(root: Path, cli: Cli) -> None:
    (request,) = _ask(root, 7, tool=PAYOUT)
    refused = cli(request, "--by", "cid")
    assert (refused.returncode, "may not approve" in refused.stderr) == (1, True)
    assert "requires --until" in cli("--delegate", "cid").stderr
    parsed(cli("--delegate", "cid", "--by", "ann", "--until", "1d", "--json"))
    half = cli(request, "--by", "cid")
    assert "approved by cid; 2 approvals are needed" in half.stdout
    again = cli(request, "--by", "ann")
    assert (again.returncode, "already" in again.stderr) == (1, True)
    assert parsed(cli(request, "--by", "bob", "--json"))["state"] == "granted"
