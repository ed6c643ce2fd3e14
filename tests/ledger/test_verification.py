"""Tampering, one kind after the other: each is found, with its place."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.ledger import (
    LedgerClient,
    LedgerEntry,
    LedgerFormatError,
    VerificationReport,
)
from tests.support.stores import outside

ENTRIES = 12


def exchanges(target: str) -> None:
    """Write a conversation of so many exchanges."""
    with LedgerClient(target) as client:
        messages = []
        for number in range(ENTRIES):
            messages.append({"role": "user", "content": f"question {number}"})
            metadata = {"session_id": "SES-AAAAAAAA", "prompt": list(messages),
                        "response": f"answer {number}", "n": number}  # fmt: skip
            client.write(LedgerEntry("EXCHANGE", "PRC-A-001", "SUCCESS", "ok", metadata=metadata))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "ledger.db"
    exchanges(str(place))
    return place


def _tamper(path: Path, *statements: str) -> VerificationReport:
    other = sqlite3.connect(path)
    for statement in statements:
        other.execute(statement)
    other.commit()
    other.close()
    with LedgerClient(path) as client:
        return client.verify()


def test_damage_to_the_file_itself_is_a_failure_not_a_crash(path: Path) -> None:
    LedgerClient(path.with_name("fresh.db")).close()
    schema = path.with_name("fresh.db").stat().st_size
    whole = path.read_bytes()
    data = bytearray(whole)
    for offset in range(schema, len(data), 512):
        data[offset : offset + 64] = b"\xff" * 64
    path.write_bytes(data)
    with LedgerClient(path) as client:
        report = client.verify()
    assert not report.verified
    data = bytearray(whole)
    for offset in range(4096, len(data), 512):
        data[offset : offset + 64] = b"\xff" * 64
    path.write_bytes(data)
    with pytest.raises(LedgerFormatError, match="damaged"):
        LedgerClient(path)


# -- what a careful forger would try ---------------------------------------------------------


def test_an_erasure_must_be_accounted_for_by_an_erasure_entry(path: Path) -> None:
    ((mac,),) = _rows(path, "SELECT commitment FROM contents WHERE value = 'answer 8'")
    for seq in (0, 99):
        report = _tamper(
            path,
            "DELETE FROM contents WHERE value = 'answer 8'",
            "DELETE FROM erasures",
            f"INSERT INTO erasures VALUES ('{mac}', {seq})",
        )
        assert not report.verified
        assert {problem.kind for problem in report.problems} >= {"erasure", "content"}


def test_a_sound_erasure_verifies_and_one_more_value_under_it_does_not(path: Path) -> None:
    from remit.ledger import Erased, erasure_digest

    ((mac,),) = _rows(path, "SELECT commitment FROM contents WHERE value = 'answer 8'")
    with LedgerClient(path) as client:
        entry_id = client.write(
            LedgerEntry(
                "ERASURE", "SES-AAAAAAAA", "ERASED", "on request",
                metadata={"erased_count": 1, "erased_hash": erasure_digest([mac])},
            )
        )  # fmt: skip
    report = _tamper(
        path,
        "DELETE FROM contents WHERE value = 'answer 8'",
        "DELETE FROM shown_contents WHERE content_id NOT IN (SELECT content_id FROM contents)",
        f"INSERT INTO erasures VALUES ('{mac}', {ENTRIES})",
    )
    assert report.verified, report.problems
    assert report.erased == 1
    with LedgerClient(path) as client:
        assert client.read("LED-00000008").metadata["response"] == Erased(entry_id)
    ((other,),) = _rows(path, "SELECT commitment FROM contents WHERE value = 'answer 9'")
    report = _tamper(
        path,
        "DELETE FROM contents WHERE value = 'answer 9'",
        f"INSERT INTO erasures VALUES ('{other}', {ENTRIES})",
    )
    assert not report.verified


def _rewritten(path: Path, change: dict[str, object]) -> VerificationReport:
    """The last entry rewritten with a hash that fits: only its form can give it away."""

    import rfc8785

    ((record,),) = _rows(path, f"SELECT record FROM entries WHERE seq = {ENTRIES - 1}")
    forged = rfc8785.dumps({**json.loads(record), **change}).decode()  # type: ignore[dict-item]
    other = sqlite3.connect(path)
    other.execute(
        "UPDATE entries SET record = ?, entry_hash = ? WHERE seq = ?",
        (forged, hashlib.sha256(forged.encode()).hexdigest(), ENTRIES - 1),
    )
    other.commit()
    other.close()
    with LedgerClient(path) as client:
        return client.verify()


@pytest.mark.parametrize(
    "change",
    [
        {"prompts_used": 5},
        {"prompts_used": [1]},
        {"decision": {}},
        {"reason": ["x"]},
        {"metadata": {"$foo": 1}},
        {"metadata": {"prompt": {"$messages": "ab", "count": None}}},
        {"metadata": {"prompt": {"$messages": ["x"], "count": None}}},
        {"metadata": {"prompt": {"$content": "hmac-sha256:zz", "bytes": 1}}},
        {"metadata": [1]},
        {"extra": 1},
        {"seq": True},
    ],
)
def test_a_record_of_another_form_does_not_verify(path: Path, change: dict[str, object]) -> None:
    report = _rewritten(path, change)
    assert report.first_bad_seq == ENTRIES - 1
    with LedgerClient(path) as client, pytest.raises(LedgerFormatError):
        client.read_all()


def _rows(path: Path, sql: str) -> list[tuple[str, ...]]:
    other = sqlite3.connect(path)
    rows = other.execute(sql).fetchall()
    other.close()
    return rows


_NUMBERS = (0.000138, 9.2e-05, 1e-06, 1.5e-07, 5e-324, 0.0, -0.0, 1.5, 2.0, 1e14, 1e21, -3.25e-05)


def test_numbers_in_their_canonical_text_verify_and_in_another_do_not(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with LedgerClient(path) as client:
        for number in _NUMBERS:
            deep = {"list": [number, {"in": number}]}
            client.write(LedgerEntry("N", "S", "D", "r", metadata={"usd": number, "n": 1}))
            client.write(LedgerEntry("N", "S", "D", "r", metadata={"usd": number, **deep}))
        client.write(LedgerEntry("N", "S", "D", "r", metadata={"usd": 9.2e-05, "kéy": 1}))
        assert client.verify().verified
        for seq, right, wrong in ((2, "0.000092", "9.2e-5"), (3, "0.000092", "9.2e-5"),
                                  (16, "2}", "2.0}"), (0, "0.000138", "0.0001380")):  # fmt: skip
            outside(str(path), f"UPDATE entries SET record = replace(record, '\"usd\":{right}', "
                    f"'\"usd\":{wrong}') WHERE seq = {seq}")  # fmt: skip
    with LedgerClient(path) as client:
        problems = [
            problem.seq for problem in client.verify().problems if "canonical" in problem.message
        ]
    assert problems == [0, 2, 3, 16]


def test_what_others_keep_in_the_database_is_checked_too(path: Path) -> None:
    asked: list[bool] = []

    def check(ledger: LedgerClient, since_mark: bool) -> Iterator[tuple[int | None, str]]:
        asked.append(since_mark)
        yield ledger.count() - 1, "the row says otherwise"
        yield None, "a row has no entry"

    def broken(ledger: LedgerClient, since_mark: bool) -> Iterator[tuple[int | None, str]]:
        yield from ledger.select("SELECT seq, reason FROM no_such_table")

    with LedgerClient(path, checks=(check, broken)) as client:
        report = client.verify(since_mark=True)
    assert asked == [True]
    assert [(found.seq, found.kind) for found in report.problems] == [
        (None, "state"), (None, "unreadable"), (ENTRIES - 1, "state"),
    ]  # fmt: skip
    assert report.first_bad_seq == ENTRIES - 1
