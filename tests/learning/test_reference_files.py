"""Files of right answers: what is wrong with one is said before anything is written or asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remit import Runtime
from remit.ledger import LedgerClient
from tests.learning.conftest import CONTRACT, MODEL
from tests.support.commands import run_remit
from tests.support.scripted import Scripted

BAD = (
    (b"", "cannot be read"),
    (b"{", "cannot be read"),
    (b"\xff\xfe{}", "cannot be read"),
    (b"[" * 100_000, "cannot be read"),
    (b'{"a": ' * 100_000, "cannot be read"),
    (b"[]", "does not contain an object"),
    (b"{}", "contains no reference answers"),
    (b'{"LED-00000001": "a", "LED-00000001": "b"}', "LED-00000001' twice"),
    (b'{"LED-00000001": ["42"]}', "is neither text nor a number"),
    (b'{"LED-00000001": true}', "is neither text nor a number"),
    (b'{"LED-00000001": " . "}', "is neither text nor a number"),
    (b'{"LED-00000001": "\\ud800"}', "cannot be read"),
    (b'{"LED-7fffffff": "42"}', "The ledger has no exchange with the id 'LED-7fffffff'"),
    (b'{"LED-a": "42", "\\u0000": "1", "b": "2", "c": "3"}', "and 1 more"),
    (
        b'{"LED-00000000": "42"}',
        "The ledger has no exchange",
    ),  # there is one, and it is no exchange
)


def written(root: Path) -> list[str]:
    """Events on record; opening a root writes what its settings changed to."""
    with LedgerClient(root / "ledger.db", create=False) as ledger:
        return [one.event_type for one in ledger.query() if one.event_type != "CONFIG_CHANGED"]


def commands(root: Path, references: Path) -> list[tuple[object, ...]]:
    common = ("--usd", 1, "--references", references, "--root", root)
    return [
        ("learn", "prompt", CONTRACT, *common),
        ("learn", "replay", "--contract", CONTRACT, "--change", root.parent / "change.toml",
         *common),
    ]  # fmt: skip


@pytest.mark.parametrize("command", [0, 1], ids=["prompt", "replay"])
def test_a_bad_file_changes_nothing(answered: Path, provider: Scripted, command: int) -> None:
    references = answered.parent / "right.json"
    asked = len(provider.bodies)
    before = written(answered)
    for text, message in BAD:
        references.write_bytes(text)
        done = run_remit(*commands(answered, references)[command])
        assert (done.returncode, message in done.stderr) == (2, True), (text[:60], done.stderr)
    references.unlink()
    assert run_remit(*commands(answered, references)[command]).returncode == 2
    assert (len(provider.bodies), written(answered)) == (asked, before)
    assert not (answered / "replays").exists()


def test_references_of_a_route_are_checked_before_the_first_is_graded(answered: Path) -> None:
    with Runtime.open(answered, model=MODEL) as runtime:
        known = [one.id for one in runtime.ledger.query(event_type="EXCHANGE")]
    references = answered.parent / "right.jsonl"
    good = [json.dumps({"exchange_id": one, "reference": "tea"}) for one in known]
    before = written(answered)
    for bad, message in (
        ('{"exchange_id": "LED-7fffffff", "reference": "42"}', "The ledger has no exchange"),
        (f'{{"exchange_id": "{known[0]}", "reference": "coffee"}}', "contradicts an earlier"),
        ('{"exchange_id": "LED-00000001", "reference": "."}', "Line 31"),
        ("[" * 100_000, "Line 31"),
        ('{"exchange_id": "\\ud800", "reference": "42"}', "The ledger has no exchange"),
        ("7", "Line 31"),
    ):
        references.write_text("\n".join([*good, bad]))
        done = run_remit("route", "calibrate", "--usd", 1, "--references", references,
                         "--root", answered)  # fmt: skip
        assert (done.returncode, message in done.stderr) == (2, True), (bad[:60], done.stderr)
    assert written(answered) == before
