"""Erased means gone from the files, not only from the tables."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from remit.ledger import LedgerClient, LedgerEntry
from tests.support.postgres import run_sql
from tests.support.stores import checkpoint, conversation, files_hold

SECRET = "the orchid blooms at midnight in Valparaiso"
WORD = "valparaiso"  # as the text index knows it


def _say(client: LedgerClient, session: str, text: str) -> str:
    return client.write(
        LedgerEntry(
            "EXCHANGE", "PRC-A-001", "SUCCESS", "ok",
            metadata={"session_id": session, "response": f"I heard: {text}.",
                      "prompt": [{"role": "user", "content": text}]},
        ),
        subject_id="person-7" if session == "SES-SECRET" else None,
    )  # fmt: skip


@pytest.mark.parametrize("how", ["entry", "session", "subject"])
def test_a_sentence_is_found_before_and_not_after(place: tuple[str, Path], how: str) -> None:
    target, directory = place
    with LedgerClient(target) as client:
        conversation(client, "SES-BEFORE", 20)
        entry_id = _say(client, "SES-SECRET", SECRET)
        conversation(client, "SES-AFTER", 20)
        assert [entry.id for entry in client.query(text=WORD)] == [entry_id]
        checkpoint(target)
        assert files_hold(directory, SECRET)
        report = client.erase(
            entry_id if how == "entry" else None,
            session_id="SES-SECRET" if how == "session" else None,
            subject_id="person-7" if how == "subject" else None,
            reason="request 4711",
        )
        assert report.remainder == ""
        assert report.values == 3  # whom it speaks of too
        for gone in (SECRET, "orchid", WORD, "person-7"):
            assert files_hold(directory, gone) == [], gone
        assert files_hold(directory, "question 19 of SES-AFTER")
        assert client.verify().verified
    assert files_hold(directory, SECRET) == []


def test_other_sessions_keep_their_own_copies(place: tuple[str, Path]) -> None:
    target, directory = place
    with LedgerClient(target) as client:
        first = _say(client, "SES-SECRET", SECRET)
        second = _say(client, "SES-OTHER", SECRET)
        client.erase(first, reason="request")
        assert client.read(second).metadata["prompt"][0]["content"] == SECRET
        checkpoint(target)
        assert files_hold(directory, SECRET)
        client.erase(second, reason="request")
        assert files_hold(directory, SECRET) == []


def test_the_file_shrinks(place: tuple[str, Path]) -> None:
    target, directory = place

    def size() -> int:
        if target.startswith("postgresql"):
            return int(run_sql(target, "SELECT pg_total_relation_size('contents')")[0][0])
        return sum(path.stat().st_size for path in directory.iterdir())

    with LedgerClient(target) as client:
        conversation(client, "SES-KEPT", 3)
        small = size()
        for number in range(300):
            client.write(
                LedgerEntry("E", "S", "D", "r", metadata={"session_id": "SES-LARGE",
                                                          "prompt": f"{number:06d}" * 1000})
            )  # fmt: skip
        large = size()
        client.erase(session_id="SES-LARGE", reason="request")
        assert size() < small + (large - small) * 0.35


def test_sqlite_says_when_a_reader_keeps_the_log_from_being_cut(tmp_path: Path) -> None:
    from remit.kernel.settings import default_settings

    path = tmp_path / "ledger.db"
    quick = default_settings().ledger.model_copy(update={"lock_timeout_s": 0.3})
    with LedgerClient(path, settings=quick) as client:
        entry_id = _say(client, "SES-SECRET", SECRET)
        reader = sqlite3.connect(path)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entries").fetchone()
        report = client.erase(entry_id, reason="request")
        assert "remit ledger compact" in report.remainder
        reader.close()
        assert client.compact() == ""
        assert files_hold(tmp_path, SECRET) == []


def test_what_was_erased_under_writers_stays_erased(place: tuple[str, Path]) -> None:
    target, directory = place
    with LedgerClient(target) as client, LedgerClient(target) as other:
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                other.write(
                    LedgerEntry("E", "S", "D", "r", metadata={"session_id": "SES-BUSY",
                                                              "prompt": f"busy {number}"})
                )  # fmt: skip
                number += 1

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for number in range(5):
                entry_id = _say(client, "SES-SECRET", f"{SECRET} {number}")
                client.erase(entry_id, reason="request")
        finally:
            stop.set()
            thread.join()
        client.compact()
        assert files_hold(directory, SECRET) == []
        assert client.verify().verified
