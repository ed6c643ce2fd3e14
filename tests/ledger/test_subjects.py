"""Whom content speaks of: the record vouches for it, and does not show it."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from remit.kernel.errors import InvalidInputError
from remit.ledger import Erased, ExportFormatError, LedgerClient, LedgerEntry, content
from tests.support.standalone import standalone
from tests.support.stores import conversation


def people(target: str) -> None:
    """Write what speaks of two people, and of none."""
    with LedgerClient(target) as client:
        conversation(client, "SES-A", 3, subject="person-1")
        conversation(client, "SES-B", 2, subject="person-2")
        conversation(client, "SES-C", 2)
        client.write(
            LedgerEntry("E", "S", "D", "r", metadata={"n": content("person-1"), "x": content("y")}),
            subject_id="person-1",
        )


def test_the_record_names_nobody_and_reading_does(target: str) -> None:
    people(target)
    with LedgerClient(target) as client:
        assert client.verify().problems == []
        first, *_ = client.read_all()
        assert first.metadata["subject_id"] == "person-1"
        assert b"person" not in b"".join(client.read_record(e.id) for e in client.query())
        # One person's entries have no commitment in common.
        rows = client.select(
            "SELECT count(DISTINCT c.commitment), count(*) FROM content_subjects AS p "
            "JOIN contents AS c ON c.content_id = p.content_id"
        )
        assert rows == [(6, 6)]


def test_erasure_takes_all_that_names_a_person_and_the_name(target: str) -> None:
    people(target)
    with LedgerClient(target) as client:
        client.erase(subject_id="person-1", reason="asked")
        assert client.verify().problems == []
        entries = client.read_all()
        assert all(isinstance(entries[n].metadata["response"], Erased) for n in range(3))
        assert isinstance(entries[0].metadata["subject_id"], Erased)
        assert isinstance(entries[7].metadata["x"], Erased)
        assert entries[3].metadata["response"] == "answer 0 of SES-B"
        assert client.select("SELECT DISTINCT subject_id FROM content_subjects") == [("person-2",)]
        # By session too, and by entry what only that entry named.
        client.erase(session_id="SES-B", reason="asked")
        assert client.select("SELECT * FROM content_subjects") == []
        assert client.select("SELECT count(*) FROM contents WHERE scope <> 's:SES-C'") == [(0,)]
        assert client.verify().problems == []


def test_what_later_entries_say_of_a_person_outlives_an_erasure(ledger: LedgerClient) -> None:
    ids = conversation(ledger, "SES-A", 1, subject="person-1")
    ledger.write(
        LedgerEntry("E", "S", "D", "r", metadata={"session_id": "SES-A", "x": content("y")}),
        subject_id="person-1",
    )
    ledger.erase(ids[0], reason="asked")
    assert ledger.select("SELECT count(*) FROM content_subjects") == [(1,)]
    report = ledger.erase(subject_id="person-1", reason="asked")
    assert report.values == 2  # what it says, and the name
    assert ledger.verify().problems == []


def test_an_export_brings_people_along(target: str, tmp_path: Path) -> None:
    people(target)
    with LedgerClient(target) as client, LedgerClient(tmp_path / "copy.db") as copy:
        file = io.BytesIO()
        client.export(file)
        copy.import_jsonl(io.BytesIO(file.getvalue()))
        assert copy.verify().problems == []
        copy.erase(subject_id="person-1", reason="asked")
        assert copy.verify().problems == []


def test_the_place_of_the_commitment_is_the_ledgers(tmp_path: Path) -> None:
    with LedgerClient(tmp_path / "ledger.db") as client:
        taken = LedgerEntry("E", "S", "D", "r", metadata={"subject_id": content("x")})
        with pytest.raises(InvalidInputError, match="subject_id"):
            client.write(taken)
        client.write(LedgerEntry("E", "S", "D", "r", metadata={"subject_id": "plain"}))
        assert client.verify().problems == []


def test_an_export_whose_people_were_changed_is_refused(tmp_path: Path) -> None:
    people(str(tmp_path / "ledger.db"))
    with LedgerClient(tmp_path / "ledger.db") as client, LedgerClient(tmp_path / "copy.db") as copy:
        file = io.BytesIO()
        client.export(file)
        for changed in (
            file.getvalue().replace(b'"subjects":["person-1"]', b'"subjects":["person-9"]', 1),
            file.getvalue().replace(b',"subjects":["person-1"]', b"", 1),
            re.sub(
                rb'("jcs":"(?:[^"\\]|\\.)*")}',
                rb'\1,"subjects":["person-9"]}',
                file.getvalue(),
                count=1,
            ),
        ):
            assert changed != file.getvalue()
            with pytest.raises(ExportFormatError, match="subject"):
                copy.import_jsonl(io.BytesIO(changed))
            (tmp_path / "changed.jsonl").write_bytes(changed)
            done = standalone(tmp_path / "changed.jsonl")
            assert "a subject is not the record's" in done.stderr, done
