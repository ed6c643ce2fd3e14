"""``remit trace``."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from remit.kernel.root import Root
from remit.ledger import LedgerClient
from tests.support.commands import run_remit
from tests.views.story import SESSION, Story, tell

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def told(tmp_path: Path) -> dict[str, str]:
    root = Root(tmp_path / "root")
    root.create()
    with LedgerClient(root.path / "ledger.db") as client:
        story = Story(client)
        tell(story)
        Story(client, "SES-EMPTY00001").turn(1)
        other = Story(client, "SES-FORGED0001")
        order = other.plan(1)
        other.begin(order)
        other.gate(order, trace_hash="0" * 64)
        other.record(1)
    return story.ids


@pytest.fixture
def run(tmp_path: Path, told: dict[str, str]) -> Run:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_remit("trace", *arguments, "--root", tmp_path / "root", cwd=tmp_path)

    return run


def test_a_session_a_turn_an_order_an_entry(run: Run, told: dict[str, str]) -> None:
    whole = run(SESSION)
    assert whole.returncode == 0, whole.stderr
    assert whole.stdout.count("─ turn ") == 5
    assert "\x1b" not in whole.stdout
    assert run(SESSION, "--turn", "2").stdout.count("─ turn ") == 1
    for place in (told["left"], told["tool"]):
        shown = run(place)
        assert shown.stdout.count("─ turn ") == 1
        assert f"▶ {place}" in shown.stdout
    assert "You read reports." in run(SESSION, "--full").stdout
    assert "You read reports." not in whole.stdout


def test_the_latest_session(run: Run) -> None:
    # Only the story has a SESSION_START.
    assert run("--last", "--turn", "1").stdout.startswith(SESSION)


def test_json_holds_the_same(run: Run) -> None:
    told = json.loads(run(SESSION, "--json", "--verify").stdout)
    assert [turn["turn_number"] for turn in told["turns"]] == [1, 2, 3, 4, 5]
    assert [item["agrees"] for item in told["trace_hashes"]][1:] == [True] * 4
    assert told["turns"][2]["gates"][0]["trace_hash_agrees"] is True
    assert "trace_hashes" not in json.loads(run(SESSION, "--json").stdout)


def test_verify_names_a_mismatch(run: Run) -> None:
    forged = run("SES-FORGED0001", "--verify")
    assert forged.returncode == 1
    assert "DOES NOT MATCH" in forged.stdout
    page = run("SES-FORGED0001", "--verify", "--html", "-")
    assert page.returncode == 1
    assert "1 of 1 trace hashes do not match" in page.stdout
    assert "DOES NOT MATCH" in page.stderr
    honest = run("SES-EMPTY00001", "--verify")
    assert honest.returncode == 0
    assert " agrees" in honest.stdout
    none = run(SESSION, "--turn", "5", "--verify")
    assert none.returncode == 0
    assert "This journey has no trace hashes" in none.stdout


def test_a_page_is_written(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    result = run(SESSION, "--html", str(file))
    assert result.returncode == 0
    assert result.stdout == ""
    assert str(file) in result.stderr
    text = file.read_text("utf-8")
    assert text.startswith("<!doctype html>")
    assert text == run(SESSION, "--html", "-").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (SESSION, "--last"),
        (SESSION, "--json", "--html", "-"),
        ("LED-00000002", "--turn", "1"),
        (SESSION, "--turn", "0"),
    ],
)
def test_wrong_use(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*arguments).returncode == 2


@pytest.mark.parametrize("place", ["SES-NONE", "WO-NONE", "LED-0000ffff", "LED-x"])
def test_what_there_is_not(run: Run, place: str) -> None:
    result = run(place)
    assert result.returncode == 1
    assert "has no" in result.stderr
