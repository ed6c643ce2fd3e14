"""Commands that look at the whole ledger: progress at once, marks, lists with limits."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.ledger import LedgerEntry, open_root_ledger
from tests.cli.conftest import Run, at_terminal
from tests.support.roots import new_root

SESSIONS = 60


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with sessions, whose ledger counts as great."""
    place = new_root(tmp_path / "root", "[gates]\nfull_entries = 0\n")
    with open_root_ledger(Root(place), load_settings(Root(place).config).settings.ledger) as ledger:
        ledger.write_many(
            [
                LedgerEntry("SESSION_START", session, "S", "r", metadata={"session_id": session})
                for session in (f"SES-{number:08d}" for number in range(SESSIONS))
            ]
        )
    return place


@pytest.mark.parametrize(
    ("label", "command"),
    [
        ("verifying", ("ledger", "verify")),
        ("verifying", ("doctor",)),
        ("adding up", ("budget", "check")),
        ("G6 ledger", ("gate", "check", "--gate", "G6")),
    ],
)
def test_progress_is_at_the_terminal_and_json_alone_on_the_output(
    root: Path, label: str, command: tuple[str, ...]
) -> None:
    printed, shown = at_terminal(*command, "--json", "--root", root, output=subprocess.PIPE)
    assert isinstance(json.loads(printed), dict)
    assert f"{label} [{'':30}]   0%" in shown
    assert f"{label} [{'#' * 30}] 100%" in shown


def test_a_second_check_goes_on_from_the_first_unless_all_is_asked_for(
    root: Path, remit: Run
) -> None:
    for again in (False, True):
        told = json.loads(remit("doctor", "--json", "--root", root).stdout)
        (message,) = [one["message"] for one in told["checks"] if one["check"] == "ledger"]
        assert ("last full check" in message) is again
    assert "last full check" not in remit("doctor", "--full", "--root", root).stdout
    found = remit("ledger", "verify", "--incremental", "--root", root)
    assert "Verified earlier and not read again: " in found.stderr
    told = json.loads(remit("ledger", "verify", "--incremental", "--json", "--root", root).stdout)
    assert told["verified"]
    assert told["last_full"]
    told = json.loads(remit("ledger", "verify", "--json", "--root", root).stdout)
    assert (told["verified"], told["unread"], told["last_full"]) == (True, 0, "")
    for options in ((), (), ("--full",), ("--repair",)):
        found = remit("budget", "check", *options, "--root", root)
        assert (found.returncode, found.stdout.partition(":")[0]) == (0, "match")


def _items(listed: str) -> int:
    """Return the number of sessions or entries in the lines of a list, without the head."""
    return sum(line.startswith(("SES-", "LED-")) for line in listed.splitlines())


def test_lists_have_a_limit_that_is_said(root: Path, remit: Run) -> None:
    for command in (
        ("session", "list"),
        ("ledger", "query", "--event-type", "SESSION_START"),
    ):
        for options, number in (((), 50), (("--limit", "7"), 7)):
            found = remit(*command, *options, "--root", root)
            assert _items(found.stdout) == number
            assert f"Only the first {number}" in found.stderr
        found = remit(*command, "--limit", str(SESSIONS), "--root", root)
        assert (_items(found.stdout), found.stderr) == (SESSIONS, "")
        for options, number in (((), SESSIONS), (("--limit", "7"), 7)):
            told = json.loads(remit(*command, "--json", *options, "--root", root).stdout)
            (listed,) = told.values()
            assert len(listed) == number
