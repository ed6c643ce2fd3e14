"""Erased means gone from the files, not only from the tables."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from remit.kernel.errors import InvalidInputError
from remit.ledger import (
    Content,
    Erased,
    ErasureError,
    LedgerClient,
    LedgerEntry,
    content,
    parse_entry_id,
)
from tests.support.postgres import run_sql
from tests.support.soak import SEED, sample
from tests.support.stores import SIGNER, checkpoint, conversation, files_hold

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


def test_a_sentence_is_found_before_and_not_after(place: tuple[str, Path]) -> None:
    target, directory = place
    with LedgerClient(target) as client:
        conversation(client, "SES-BEFORE", 20)
        for how in ("entry", "session", "subject"):
            entry_id = _say(client, "SES-SECRET", SECRET)
            conversation(client, f"SES-AFTER-{how}", 20)
            assert [entry.id for entry in client.query(text=WORD)] == [entry_id]
            checkpoint(target)
            assert files_hold(directory, SECRET)
            which: dict[str, Any] = {
                "entry": {"entry_id": entry_id}, "session": {"session_id": "SES-SECRET"},
                "subject": {"subject_id": "person-7"},
            }[how]  # fmt: skip
            report = client.erase(**which, reason="request 4711")
            assert report.remainder == ""
            assert report.values == 3  # whom it speaks of too
            for gone in (SECRET, "orchid", WORD, "person-7"):
                assert files_hold(directory, gone) == [], gone
            assert files_hold(directory, f"question 19 of SES-AFTER-{how}")
            assert client.verify().verified
    assert files_hold(directory, SECRET) == []


def test_calls_in_flight_that_an_erasure_does_not_reach_are_stated(ledger: LedgerClient) -> None:
    in_flight = (
        "INSERT INTO in_flight (dispatch_entry_id, owner, lease_until_ms, session_id, "
        "work_order_id, agent_id, contract_id, reserved_tokens) VALUES (?, '', 0, ?, '', '', '', 0)"
    )
    for how, session in (("entry", "SES-SECRET"), ("session", "SES-OTHER"),
                         ("session", "SES-SECRET"), ("subject", "SES-SECRET")):  # fmt: skip
        entry_id = _say(ledger, "SES-SECRET", SECRET)
        rows = [(f"LED-{number}", session) for number in range(2)]
        ledger.transact(lambda tx: tx.execute("DELETE FROM in_flight"))
        ledger.transact(lambda tx, rows=rows: tx.execute_many(in_flight, rows))
        report = ledger.erase(
            entry_id if how == "entry" else None,
            session_id="SES-SECRET" if how == "session" else None,
            subject_id="person-7" if how == "subject" else None,
            reason="request 4711",
        )
        stated = report.remainder.startswith("Calls in flight: 2.")
        assert stated == (how != "entry" and session == "SES-SECRET")
        if stated and how == "session":  # nothing is left, but the calls may record more
            again = ledger.erase(session_id="SES-SECRET", reason="request 4711")
            assert (again.values, again.remainder) == (0, report.remainder)


@pytest.mark.parametrize("how", ["entry_id", "session_id", "subject_id"])
def test_a_repeated_erasure_completes_an_interrupted_one(place: tuple[str, Path], how: str) -> None:
    target, directory = place
    with LedgerClient(target, signer=SIGNER) as client:
        named = {"entry_id": _say(client, "SES-SECRET", SECRET), "session_id": "SES-SECRET",
                 "subject_id": "person-7"}[how]  # fmt: skip
        erase = functools.partial(client.erase, **{how: named}, reason="request")
        with (
            pytest.raises(KeyboardInterrupt),
            mock.patch.object(LedgerClient, "compact", side_effect=KeyboardInterrupt),
        ):
            erase()
        size = client.count()
        for dry_run in (True, False):
            report = erase(dry_run=dry_run)
            assert (report.values, bool(report.erasure_id)) == (0, True)
        assert client.count() == size
    assert files_hold(directory, SECRET) == []


def test_content_that_another_erasure_reached_counts_as_erased(place: tuple[str, Path]) -> None:
    """Entries, sessions and persons alike; an unknown one fails, and no file names a person."""
    target, directory = place
    with LedgerClient(target, signer=SIGNER) as client:
        ways = ("entry_id", "session_id", "subject_id")
        for first, second in itertools.permutations(ways, 2):
            entry_id = _say(client, "SES-SECRET", SECRET)
            named = dict(zip(ways, (entry_id, "SES-SECRET", "person-7"), strict=True))
            erasure_id = client.erase(**{first: named[first]}, reason="request").erasure_id
            for dry_run in (True, False):
                again = client.erase(**{second: named[second]}, reason="request", dry_run=dry_run)
                assert (again.values, again.entries, again.sessions) == (0, 0, [])
                assert parse_entry_id(again.erasure_id) is not None
            assert again.erasure_id == erasure_id or first != "entry_id"
        for unknown in ({"session_id": "SES-NONE"}, {"subject_id": "person-8"}):
            with pytest.raises(ErasureError, match="no content"):
                client.erase(**unknown, reason="request")
        assert client.verify().verified
    assert files_hold(directory, "person-7") == []
    no_content = pytest.raises(ErasureError, match="no content")
    with LedgerClient(target) as client, no_content:  # No guess is confirmed without the key.
        client.erase(subject_id="person-7", reason="request")


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


# Erases what the arguments say, and is killed before the files are compacted.
_KILLED = """
import os, signal, sys
from remit.ledger import LedgerClient
LedgerClient.compact = lambda _: os.kill(os.getpid(), signal.SIGKILL)
with LedgerClient(sys.argv[1]) as client:
    if sys.argv[2] == "withdraw":
        client.withdraw(sys.argv[3:], reason="DELETE", requested_by="caller")
    else:
        client.retain({"*": 0.0})
"""


@pytest.mark.parametrize("first", ["withdraw", "retain"])
@pytest.mark.parametrize("then", ["withdraw", "retain"])
def test_the_next_run_removes_the_bytes_that_a_killed_one_left(
    place: tuple[str, Path], first: str, then: str
) -> None:
    target, directory = place
    with LedgerClient(target, signer=SIGNER) as client:
        entry_id = _say(client, "SES-SECRET", SECRET)
        command = [sys.executable, "-c", _KILLED, target, first, entry_id]
        assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
        assert isinstance(client.read(entry_id).metadata["response"], Erased)
        assert files_hold(directory, SECRET)
        assert client.verify().problems == []
        size = client.count()
        if then == "withdraw":
            assert client.withdraw([entry_id], reason="DELETE", requested_by="c") == [] or (
                first == "retain"
            )
        else:
            assert client.retain({"*": 0.0}) == []
        assert files_hold(directory, SECRET) == []
        assert client.count() == size + (first == "retain" and then == "withdraw")
        # The files are compacted once.
        with mock.patch.object(LedgerClient, "compact", side_effect=AssertionError):
            assert client.retain({"*": 0.0}) == []


def test_the_next_retention_removes_the_bytes_that_an_interrupted_one_left(tmp_path: Path) -> None:
    from remit.kernel.settings import default_settings

    path = tmp_path / "ledger.db"
    quick = default_settings().ledger.model_copy(update={"lock_timeout_s": 0.3})
    with LedgerClient(path, settings=quick) as client:
        _say(client, "SES-SECRET", SECRET)
        reader = sqlite3.connect(path)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entries").fetchone()
        assert len(client.retain({"*": 0.0})) == 1
        assert files_hold(tmp_path, SECRET)
        reader.close()
        assert client.retain({"*": 0.0}, dry_run=True) == []
        assert files_hold(tmp_path, SECRET)
        assert client.retain({"*": 0.0}) == []
        assert files_hold(tmp_path, SECRET) == []


@pytest.mark.parametrize("value", ["LED-00000000", "LED-00000999", "x", ""])
def test_a_wrong_row_about_an_erased_person_is_named(tmp_path: Path, value: str) -> None:
    path = tmp_path / "ledger.db"
    with LedgerClient(path, signer=SIGNER) as client:
        _say(client, "SES-SECRET", SECRET)
        client.erase(subject_id="person-7", reason="request")
        assert client.verify().verified
        with contextlib.closing(sqlite3.connect(path)) as planted, planted:
            change = "UPDATE ledger_info SET value = ? WHERE name LIKE 'erased_person %'"
            assert planted.execute(change, (value,)).rowcount == 1
        assert "no erasure" in str(client.verify().problems)


@pytest.mark.parametrize("damaged", ["'abc'", "x'01'", "1.5"])
def test_an_erasure_that_a_damaged_row_hinders_says_so(tmp_path: Path, damaged: str) -> None:
    path = tmp_path / "ledger.db"
    with LedgerClient(path, signer=SIGNER) as client:
        _say(client, "SES-SECRET", SECRET)
        with contextlib.closing(sqlite3.connect(path)) as planted, planted:
            planted.execute(f"UPDATE content_subjects SET content_id = {damaged}")
        with pytest.raises(ErasureError, match="content_subjects"):
            client.erase(subject_id="person-7", reason="request")
        assert client.read_by_event_type("ERASURE") == []


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


# -- A caller's own deletion erases exactly what no other entry shows ----------------------------


SHARED = "You are the assistant of the harbour office and answer briefly."


def _message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _exchange(session: str, *texts: str, answer: str, **more: Any) -> LedgerEntry:
    metadata = {"session_id": session, "prompt": [*map(_message, texts)], "response": answer}
    return LedgerEntry("EXCHANGE", "PRC-A-001", "SUCCESS", "ok", metadata={**metadata, **more})


def _call(client: LedgerClient, session: str, *texts: str, answer: str, **more: Any) -> str:
    entry = _exchange(session, *texts, answer=answer, **more)
    return client.write(entry, subject_id="person-7")


def _texts(client: LedgerClient, entry_id: str) -> list[str]:
    entry = client.read(entry_id)
    found = [one if isinstance(one, Erased) else one["content"] for one in entry.metadata["prompt"]]
    return [str(type(one).__name__ if isinstance(one, Erased) else one)
            for one in [*found, entry.metadata["response"]]]  # fmt: skip


def test_a_text_stays_until_its_last_call_is_withdrawn(place: tuple[str, Path]) -> None:
    target, directory = place
    with LedgerClient(target) as client:
        # Another session has a copy of its own.
        own, copy = _say(client, "SES-SECRET", SECRET), _say(client, "SES-OTHER", SECRET)
        client.erase(own, reason="request")
        assert client.read(copy).metadata["prompt"][0]["content"] == SECRET
        checkpoint(target)
        assert files_hold(directory, SECRET)
        client.erase(copy, reason="request")
        assert files_hold(directory, SECRET) == []
        # Calls of one session share what they say.
        first = _call(client, "SES-A", SHARED, "question one", answer="answer one")
        second = _call(client, "SES-A", SHARED, "question two", answer=f"{SHARED} answer two")
        metadata = {"session_id": "SES-A", "reason": Content("a remark on one call")}
        client.write(LedgerEntry("FEEDBACK", first, "RECORDED", "Feedback", metadata=metadata))
        (report,) = client.withdraw([first], reason="DELETE", requested_by="caller")
        assert report.values == 4  # question, answer, its person and what was said of it
        assert _texts(client, first) == [SHARED, "Erased", "Erased"]
        assert _texts(client, second) == [SHARED, "question two", f"{SHARED} answer two"]
        for gone in ("question one", "a remark on one call"):
            assert files_hold(directory, gone) == []
        assert client.withdraw([first], reason="DELETE", requested_by="caller") == []
        (report,) = client.withdraw([second], reason="DELETE", requested_by="caller")
        assert report.values == 4
        assert files_hold(directory, SHARED) == []
        # One item of a list goes, and its entry is not withdrawn.
        items = [b'{"text":"item one"}', b'{"text":"item two"}']
        metadata = {"session_id": "SES-B", "items": Content.exact_list(items)}
        made = client.write(LedgerEntry("NOTE", "n", "d", "r", metadata=metadata))
        (report,) = client.withdraw([made], texts=items[:1], reason="DELETE", requested_by="c")
        assert report.values == 1
        assert files_hold(directory, "item one") == []
        assert client.exact(made)["items"][1] == items[1]
        other = client.write(LedgerEntry("NOTE", "n", "d", "r", metadata=metadata))
        assert client.withdraw([made], texts=items[1:], reason="DELETE", requested_by="c") == []
        assert client.exact(other)["items"] == items
        assert client.verify().verified


def test_history_that_a_later_call_sends_again_stays(target: str) -> None:
    with LedgerClient(target) as client:
        first = _call(client, "SES-A", "question one", answer="answer one")
        second = _call(client, "SES-A", "question one", "question two", answer="answer two")
        client.withdraw([first], reason="DELETE", requested_by="caller")
        assert _texts(client, first) == ["question one", "Erased"]
        assert _texts(client, second) == ["question one", "question two", "answer two"]
        client.withdraw([second], reason="DELETE", requested_by="caller")
        assert _texts(client, first) == ["Erased"] * 2
        assert _texts(client, second) == ["Erased"] * 3
        assert client.verify().verified


def test_an_entry_of_a_lower_tier_withdraws_nothing(target: str) -> None:
    with LedgerClient(target) as client:
        first = _call(client, "SES-A", SHARED, "question one", answer="answer one")
        second = _call(client, "SES-A", SHARED, "question two", answer="answer two")
        metadata = {"withdrawn": [second], "scope": {"tier": "ho2"}}
        client.write(LedgerEntry("ERASURE", "SES-A", "ERASED", "forged", metadata=metadata))
        client.withdraw([first], reason="DELETE", requested_by="caller")
        assert _texts(client, second) == [SHARED, "question two", "answer two"]


@pytest.mark.soak
@pytest.mark.parametrize("seed", sample(range(SEED, SEED + 40), 3))
def test_any_order_of_deletions_loses_nothing_of_other_calls(tmp_path: Path, seed: int) -> None:
    """Random calls share texts; after each deletion the survivors are whole, the rest is gone."""
    chance = random.Random(seed)
    pool = [f"shared text number {number}" for number in range(6)]
    with LedgerClient(tmp_path / "ledger.db") as client:
        said: dict[str, list[str]] = {}
        for number in range(12):
            texts = [chance.choice(pool) for _ in range(chance.randrange(1, 5))]
            if said and chance.random() < 0.5:
                texts = chance.choice([*said.values()])[:-1] + texts
            answer = chance.choice([f"answer {number}", *pool])
            session = chance.choice(["SES-A", "SES-B"])
            said[_call(client, session, *texts, answer=answer)] = [*texts, answer]
        left = dict(said)
        while left:
            gone = chance.sample(sorted(left), min(len(left), chance.randrange(1, 4)))
            client.withdraw(gone, reason="DELETE", requested_by="caller")
            for name in gone:
                del left[name]
            assert {name: _texts(client, name) for name in left} == left
            # Per session: a value is stored exactly as long as a remaining call shows it.
            stored = {(entry.metadata["session_id"], text)
                      for entry in client.query(event_type="EXCHANGE")
                      for text in _texts(client, entry.id) if text != "Erased"}  # fmt: skip
            assert stored == {
                (client.read(name).metadata["session_id"], text)
                for name, texts in left.items() for text in texts
            }  # fmt: skip
        assert client.verify().verified


def test_an_export_of_withdrawn_entries_is_imported_whole(tmp_path: Path) -> None:
    with LedgerClient(tmp_path / "ledger.db", signer=SIGNER) as client:
        first = _call(client, "SES-A", SHARED, "question one", answer="answer one")
        second = _call(client, "SES-A", SHARED, "question one", answer="answer one")
        for gone in (first, second):  # the first shares all but its person
            client.withdraw([gone], reason="DELETE", requested_by="caller")
        client.export(tmp_path / "all.jsonl")
        with LedgerClient(tmp_path / "copy.db", verifier_key=SIGNER.verifier_key) as copy:
            copy.import_jsonl(tmp_path / "all.jsonl", key=SIGNER.verifier_key)
            assert copy.verify().verified
            assert _texts(copy, second) == ["Erased"] * 3


def test_many_entries_are_withdrawn_in_several_erasures(tmp_path: Path) -> None:
    with LedgerClient(tmp_path / "ledger.db") as client:
        entries = [_exchange("SES-A", SHARED, answer=f"answer {number}") for number in range(2_100)]
        calls = client.write_many(entries, subject_id="person-7")
        done: list[int] = []
        reports = client.withdraw(calls, reason="DELETE", requested_by="caller",
                                  also=lambda _: done.append(1))  # fmt: skip
        assert [report.values for report in reports] == [2_000, 2_000, 201]
        assert done == [1]
        assert client.select("SELECT count(*) FROM contents") == [(0,)]
        assert client.verify().verified


# -- What is installed follows from entries whose content is never erased ------------------------


def test_what_is_installed_stays(tmp_path: Path) -> None:
    with LedgerClient(tmp_path / "ledger.db") as ledger:
        long = LedgerEntry(
            "INSTALLED", "PKG-A-001", "INSTALLED", "", [], {"manifest": content("x")}
        )
        kept = ledger.write(long)
        ledger.write(LedgerEntry("NOTE", "n", "d", "", [], {"text": content("a person's words")}))
        with pytest.raises(ErasureError, match="registries are rebuilt"):
            ledger.erase(kept, reason="asked for")
        with pytest.raises(InvalidInputError, match="INSTALLED"):
            ledger.retain({"INSTALLED": 0.0})
        (report,) = ledger.retain({"*": 0.0})
        assert report.values == 1
        assert ledger.read(kept).metadata["manifest"] == "x"
