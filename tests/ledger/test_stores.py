"""What a ledger does, on both stores."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from remit.kernel.errors import InvalidInputError
from remit.kernel.settings import LedgerSettings, default_settings
from remit.ledger import (
    Erased,
    LedgerClient,
    LedgerEntry,
    LedgerError,
    LedgerKeyError,
    LedgerWriteError,
    NoSignerError,
    RetentionSchedule,
    Transaction,
    content,
)
from remit.ledger.tlog import Signer
from tests.support.stores import SIGNER, conversation


def _settings(**changes: object) -> LedgerSettings:
    return default_settings().ledger.model_copy(update=changes)


def _note(number: int, **metadata: object) -> LedgerEntry:
    return LedgerEntry("NOTE", "S", "D", "r", metadata={"n": number, **metadata})


def test_what_is_written_is_read_back(target: str) -> None:
    odd = 'quote " back \\ null-free é 漢字 \U0001f600 $content ? $1'
    with LedgerClient(target) as client:
        ids = conversation(client, "SES-A", 3)
        plain = client.write(
            LedgerEntry("NOTE", odd, "D", content("because " + odd),
                        metadata={"prompt": {"deep": [odd, 1.5, None, True]}, "x": odd})
        )  # fmt: skip
        entry = client.read(plain)
        assert (entry.submission_id, entry.reason) == (odd, "because " + odd)
        assert entry.metadata == {"prompt": {"deep": [odd, 1.5, None, True]}, "x": odd}
        assert client.read(ids[2]).metadata["prompt"][0]["content"] == "question 0 of SES-A"
        assert len(client.read(ids[2]).metadata["prompt"]) == 5
        assert client.verify().verified
    with LedgerClient(target) as again:
        assert [entry.id for entry in again.read_all()] == [*ids, plain]
        assert again.head() == (3, again.read(plain).entry_hash)


def test_nul_characters_and_large_values_survive(ledger: LedgerClient) -> None:
    large = "x\x00y" * 20_000
    entry_id = ledger.write(_note(1, prompt=large, response={"a": "\x00"}, tag="\u0001"))
    assert ledger.read(entry_id).metadata["prompt"] == large
    assert ledger.read(entry_id).metadata["response"] == {"a": "\x00"}
    with pytest.raises(InvalidInputError, match="NUL"):
        ledger.write(_note(1, session_id="a\x00b"))
    assert ledger.verify().verified


def test_one_units_error_undoes_that_unit_alone(ledger: LedgerClient) -> None:
    ledger.transact(lambda tx: tx.execute("CREATE TABLE state (name TEXT PRIMARY KEY)"))

    def good(tx: Transaction) -> str:
        tx.execute("INSERT INTO state VALUES (?)", ("kept",))
        return tx.append(_note(1, session_id="S", prompt="p"))

    def wrong(tx: Transaction) -> str:
        tx.append(_note(2, session_id="S", prompt="another"))
        tx.execute("INSERT INTO state VALUES (?)", ("kept",))  # there already
        return "unreachable"

    def raising(tx: Transaction) -> str:
        tx.append(_note(3, session_id="S", prompt="p"))
        raise KeyError("own error")

    ledger.transact(good)
    with pytest.raises(Exception, match=r"(?i)unique"):
        ledger.transact(wrong)
    with pytest.raises(KeyError, match="own error"):
        ledger.transact(raising)
    ledger.write(_note(4, session_id="S", prompt="another"))
    assert [entry.metadata["n"] for entry in ledger.read_all()] == [1, 4]
    assert ledger.select("SELECT name FROM state") == [("kept",)]
    ledger.transact(lambda tx: tx.execute("DROP TABLE state"))  # not a ledger's
    assert ledger.verify().verified


async def test_the_async_forms_and_a_sync_read_inside_a_running_loop(target: str) -> None:
    client = LedgerClient(target, signer=SIGNER)
    [first] = await client.submit([_note(1, prompt="p")])
    assert await client.submit([_note(2), _note(3)])
    assert await client.submit(lambda tx: tx.append(_note(4))) == "LED-00000003"
    assert client.read(first).metadata["n"] == 1
    assert client.count() == 4
    client.checkpoint()
    client.erase(first, reason="r")
    assert client.verify().verified
    client.close()


# -- queries -----------------------------------------------------------------------------------


def test_queries_by_column_cursor_order_and_time(ledger: LedgerClient) -> None:
    for number in range(30):
        ledger.write(
            LedgerEntry(
                "EXCHANGE" if number % 3 else "NOTE", f"S{number % 2}", "D", "r",
                metadata={"session_id": f"SES-{number % 5}", "n": number,
                          "scope": {"tier": "ho1"}, "provenance": {"agent_id": "a"}},
            )
        )  # fmt: skip

    def found(**query: object) -> list[int]:
        return [entry.metadata["n"] for entry in ledger.query(**query)]  # type: ignore[arg-type]

    assert found(event_type="NOTE") == list(range(0, 30, 3))
    assert found(session_id="SES-2", event_type="NOTE") == [12, 27]
    assert found(tier="ho1", agent_id="a", limit=2) == [0, 1]
    assert found(order="desc", limit=3) == [29, 28, 27]
    assert found(submission_id="S1", after="LED-0000001a", order="desc", limit=2) == [25, 23]
    middle = ledger.read("LED-0000000a").timestamp
    assert found(since=middle) == list(range(10, 30))
    assert found(until=middle) == list(range(10))
    assert found(since=middle, until=middle, event_type="NOTE") == []
    assert found(since="2999-01-01T00:00:00Z") == found(until="1999-01-01T00:00:00Z") == []
    with pytest.raises(TypeError):
        list(ledger.query(no_such_column="x"))  # type: ignore[call-arg]


def test_text_search_finds_words_and_phrases_the_same_on_both_stores(ledger: LedgerClient) -> None:
    texts = {
        "LED-00000000": "The quick brown fox; it's 3.5 metres, e-mail me@example.com",
        "LED-00000001": "brown the quick. STRASSE Straße ÉCOLE école",
        "LED-00000002": "東京タワー is tall' OR NEAR(x) \" - * : & | ! <->",
        "LED-00000003": "x" * 60 + " data",
    }
    for text in texts.values():
        ledger.write(_note(0, session_id="S", prompt=text))
    ledger.write(_note(4, session_id="T", prompt=[{"role": "user", "content": "quick hello"}]))
    ledger.write(
        _note(5, session_id="T", prompt=[{"role": "user", "content": "quick hello"},
                                         {"role": "user", "content": "second"}])
    )  # fmt: skip

    def found(text: str, **more: str) -> list[int]:
        return [int(e.id[4:], 16) for e in ledger.query(text=text, **more)]  # type: ignore[arg-type]

    assert found("quick brown") == [0, 1]
    assert found('"quick brown"') == [0]
    assert found("QUICK") == [0, 1, 4]  # of a conversation, the entry that showed it first
    assert found("strasse") == found("Straße") == [1]
    assert found("école") == [1]
    assert found("3.5") == found('"3 5"') == [0]
    assert found("me@example.com") == [0]
    assert found("京タ") == [2]
    assert found("near OR tall'") == [2]
    assert found('" - *" tall') == [2]
    assert found("data") == [3]
    assert found("quick", session_id="T") == [4]
    assert found("second") == [5]
    assert found("absent") == []
    for nothing in ("", "***", '""', "'"):
        with pytest.raises(InvalidInputError, match="no word"):
            found(nothing)
    ledger.write(_note(6, prompt="quick and late"))
    assert found("quick late") == [6]


def test_a_bounded_search_reads_the_latest_texts_with_the_word(ledger: LedgerClient) -> None:
    for number in range(9):
        ledger.write(_note(number, session_id="AB"[number % 2], prompt=f"tea number {number}"))

    def found(**more: Any) -> list[int]:
        found = ledger.query(text="tea", text_limit=3, order="desc", **more)
        return [int(entry.id[4:], 16) for entry in found]

    assert found() == [8, 7, 6]
    assert found(session_id="A") == [8, 6]  # entries of B used one of the three
    assert found(after="LED-00000006") == [5, 4, 3]
    assert found(after="LED-00000001") == [0]
    assert found(until=ledger.read("LED-00000004").timestamp) == [3, 2, 1]
    ledger.write(_note(9, session_id="A", prompt="tea number 0"))  # shows no new content
    assert found() == [8, 7, 6]
    assert found(after="LED-00000006") == [5, 4, 3]


# -- checkpoints and proofs --------------------------------------------------------------------


def test_without_a_key_no_checkpoint_and_no_proof(ledger: LedgerClient) -> None:
    entry_id = ledger.write(_note(1))
    for call in (ledger.checkpoint, lambda: ledger.prove(entry_id)):
        with pytest.raises(NoSignerError, match="no signing key"):
            call()
    assert ledger.verify().checkpoint == "none"


def test_checkpoints_come_by_count_by_time_and_at_the_end(target: str) -> None:
    quick = _settings(checkpoint_every_entries=10, checkpoint_every_s=3600.0)
    with LedgerClient(target, settings=quick, signer=SIGNER) as client:
        for number in range(25):
            client.write(_note(number))
        client.flush()
        sizes = [row[0] for row in client.select("SELECT size FROM checkpoints ORDER BY size")]
        assert sizes == [10, 20]
    with LedgerClient(target, settings=_settings(checkpoint_every_s=0.2), signer=SIGNER) as client:
        assert [row[0] for row in client.select("SELECT max(size) FROM checkpoints")] == [25]
        client.write(_note(25))
        end = time.monotonic() + 10
        while client.select("SELECT max(size) FROM checkpoints") != [(26,)]:
            assert time.monotonic() < end
            time.sleep(0.05)
        report = client.verify()
        assert (report.checkpoint, report.checkpoint_size) == ("stored", 26)


def test_a_ledger_belongs_to_one_key(target: str) -> None:
    with LedgerClient(target, signer=SIGNER) as client:
        client.write(_note(1))
    for other in (Signer.generate(SIGNER.name), Signer.generate("example.com/other")):
        with pytest.raises(LedgerKeyError, match="belongs to"):
            LedgerClient(target, signer=other)
    with LedgerClient(target) as client:  # reading needs no key
        assert client.count() == 1


# -- erasure -----------------------------------------------------------------------------------


def test_a_closed_ledger_on_a_read_only_medium_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.db"
    with LedgerClient(path) as client:
        conversation(client, "SES-A", 2)
        count = client.count()
    assert [item.name for item in tmp_path.iterdir()] == ["ledger.db"]
    # Whoever runs this may be root, who can write anywhere but on such a medium.
    monkeypatch.setattr("os.access", lambda *_: False)
    with LedgerClient(path) as client:
        assert client.verify().entries == len(client.read_all()) == count
        assert client.export(tmp_path / "all.jsonl") == count
        with pytest.raises(LedgerWriteError):
            client.write(_note(1))
        assert not list(tmp_path.glob("ledger.db-*"))


def test_a_ledger_whose_end_is_unsigned_is_exported_from_a_read_only_medium(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.db"
    with LedgerClient(path, signer=SIGNER) as client:
        conversation(client, "SES-A", 2)
        client.checkpoint()
        signed = client.count()
    with LedgerClient(path) as client:
        conversation(client, "SES-B", 2)
    with monkeypatch.context() as medium:
        medium.setattr("os.access", lambda *_: False)
        with LedgerClient(path, signer=SIGNER) as client:
            assert client.export(tmp_path / "all.jsonl") == signed < client.count()
    with LedgerClient(tmp_path / "again.db") as client:
        report = client.import_jsonl(tmp_path / "all.jsonl", key=SIGNER.verifier_key)
        assert (report.entries, report.checkpoint) == (signed, "held")


def test_retention_begins_when_the_store_answers_again(
    ledger: LedgerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = threading.Event()
    fails = iter([LedgerError("The store is away.", next_step="Wait."), KeyError("a defect")])

    def retain(self: LedgerClient) -> list[Any]:
        if error := next(fails, None):
            raise error
        began.set()
        return []

    monkeypatch.setattr(LedgerClient, "retain", retain)
    schedule = RetentionSchedule(ledger, every_s=0.01)
    assert began.wait(60)
    schedule.stop()


def test_erasing_an_entry_takes_what_it_shows_and_what_quotes_it(target: str) -> None:
    with LedgerClient(target, signer=SIGNER) as client:
        ids = conversation(client, "SES-A", 3)
        turn = client.write(
            LedgerEntry("TURN_RECORDED", "SES-A", "RECORDED", "Turn recorded",
                        metadata={"provenance": {"session_id": "SES-A"},
                                  "user_message": "question 2 of SES-A",
                                  "response": "answer 2 of SES-A"})
        )  # fmt: skip
        other = conversation(client, "SES-B", 3)
        client.write(_note(0, prompt="an entry alone"))
        proof = client.prove(ids[1])
        would = client.erase(ids[0], reason="-", dry_run=True)
        assert (would.erasure_id, client.read(ids[0]).metadata["response"]) == (
            "", "answer 0 of SES-A")  # fmt: skip
        # The second of three: its own messages go, and with them the first exchange's.
        report = client.erase(ids[1], reason="request 17", requested_by="dpo")
        assert report.sessions == ["SES-A"]
        gone = Erased(report.erasure_id)
        assert client.read(ids[1]).metadata["response"] == gone
        assert client.read(ids[1]).metadata["prompt"] == [gone] * 3
        assert client.read(ids[0]).metadata["response"] == gone
        last = client.read(ids[2]).metadata
        # The third exchange keeps what it said itself.
        assert last["response"] == "answer 2 of SES-A"
        assert last["prompt"][:4] == [gone] * 4
        assert last["prompt"][4]["content"] == "question 2 of SES-A"
        assert client.read(turn).metadata["response"] == "answer 2 of SES-A"
        assert client.read(other[1]).metadata["response"] == "answer 1 of SES-B"
        record = client.read(report.erasure_id)
        assert (record.reason, record.metadata["requested_by"]) == ("request 17", "dpo")
        result = client.verify()
        assert result.verified, result.problems
        assert result.erasures == {report.erasure_id: report.values}
        assert client.prove(ids[1]).split("\n")[:5] == proof.split("\n")[:5]
        again = client.erase(ids[1], reason="again")
        assert (again.values, again.erasure_id) == (0, report.erasure_id)
        assert client.count() == result.entries


def test_erasing_the_last_exchange_takes_the_turn_that_repeats_it(ledger: LedgerClient) -> None:
    ids = conversation(ledger, "SES-A", 2)
    turn = ledger.write(
        LedgerEntry("TURN_RECORDED", "SES-A", "RECORDED", "Turn recorded",
                    metadata={"session_id": "SES-A", "user_message": "question 1 of SES-A"})
    )  # fmt: skip
    report = ledger.erase(ids[1], reason="request")
    assert ledger.read(turn).metadata["user_message"] == Erased(report.erasure_id)
    assert ledger.verify().verified


def test_erasing_a_session_and_a_person(ledger: LedgerClient) -> None:
    conversation(ledger, "SES-A", 3, subject="person-1")
    kept = conversation(ledger, "SES-B", 3)
    mixed = conversation(ledger, "SES-C", 2, subject="person-1")
    assert ledger.erase(session_id="SES-A", reason="r").sessions == ["SES-A"]
    report = ledger.erase(subject_id="person-1", reason="r")
    assert report.sessions == ["SES-C"]
    assert ledger.read(mixed[0]).metadata["response"] == Erased(report.erasure_id)
    assert ledger.read(kept[2]).metadata["response"] == "answer 2 of SES-B"
    assert ledger.select("SELECT * FROM content_subjects") == []
    assert "person-1" not in ledger.read_record(report.erasure_id).decode()
    for unknown in ({"subject_id": "person-1"}, {"session_id": "SES-NONE"}):
        with pytest.raises(LedgerError, match="no content"):
            ledger.erase(**unknown, reason="r")
    with pytest.raises(InvalidInputError, match="Give an entry"):
        ledger.erase(reason="r")
    with pytest.raises(InvalidInputError, match="reason"):
        ledger.erase(session_id="SES-B", reason="  ")
    assert ledger.verify().verified


def test_what_was_erased_can_be_said_again_and_the_talk_goes_on(ledger: LedgerClient) -> None:
    conversation(ledger, "SES-A", 2)
    list(ledger.query(text="question"))  # indexed up to the greatest content id
    first = ledger.erase(session_id="SES-A", reason="r")
    again = conversation(ledger, "SES-A", 3)
    assert ledger.read(again[2]).metadata["prompt"][0]["content"] == "question 0 of SES-A"
    assert ledger.read("LED-00000000").metadata["response"] == Erased(first.erasure_id)
    assert [e.id for e in ledger.query(text="question 0")] == [again[0]]
    ledger.erase(again[1], reason="r")
    conversation(ledger, "SES-A", 4)
    report = ledger.verify()
    assert report.verified, report.problems
    assert len(report.erasures) == 2


def test_retention_takes_what_is_past_its_time_by_class_of_event(ledger: LedgerClient) -> None:
    old = conversation(ledger, "SES-A", 2)
    note = ledger.write(_note(1, prompt="a note that may stay"))
    time.sleep(0.02)
    days = 0.01 / 86400
    would = ledger.retain({"EXCHANGE": days}, dry_run=True)
    assert [report.erasure_id for report in would] == [""]
    (report,) = ledger.retain({"EXCHANGE": days, "THOUGHT_RECORD": days})
    assert ledger.read(old[1]).metadata["response"] == Erased(report.erasure_id)
    assert ledger.read(note).metadata["prompt"] == "a note that may stay"
    assert ledger.retain({"EXCHANGE": days}) == []
    (rest,) = ledger.retain({"EXCHANGE": 1.0, "*": days})
    assert ledger.read(note).metadata["prompt"] == Erased(rest.erasure_id)
    assert ledger.read(report.erasure_id).metadata["retention_days"] == days
    assert ledger.verify().verified


# -- moving ------------------------------------------------------------------------------------


def test_an_export_imports_into_the_other_store_and_exports_the_same(
    target: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with LedgerClient(target, signer=SIGNER) as client:
        for number in range(9):
            conversation(client, f"SES-{number}", 31, subject=f"person-{number % 3}")
        client.write(_note(1, prompt="alone", reasons=[1, 2]))
        client.erase("LED-00000011", reason="r")
        client.erase(subject_id="person-1", reason="r")
        client.export(tmp_path / "one.jsonl")
        total = client.count()
    if target.startswith("postgresql"):
        other = str(tmp_path / "other.db")
    else:
        other = request.getfixturevalue("postgres").database()
    with LedgerClient(other, signer=Signer.generate("example.com/copy")) as copy:
        report = copy.import_jsonl(tmp_path / "one.jsonl", key=SIGNER.verifier_key)
        assert (report.entries, report.checkpoint) == (total, "held")
        result = copy.verify()
        assert result.verified, result.problems
        copy.export(tmp_path / "two.jsonl")
        assert [e.id for e in copy.query(text='"question 30" ses 0')]
        conversation(copy, "SES-0", 33)
        assert copy.verify().verified
        with pytest.raises(LedgerError, match="not empty"):
            copy.import_jsonl(tmp_path / "one.jsonl")
    one, two = ((tmp_path / name).read_bytes().split(b"\n", 1)[1] for name in
                ("one.jsonl", "two.jsonl"))  # fmt: skip
    assert one == two
