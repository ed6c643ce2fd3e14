"""A caller's own deletion erases exactly what no other entry shows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from remit.ledger import Content, Erased, LedgerClient, LedgerEntry
from tests.support.soak import SEED, sample
from tests.support.stores import SIGNER, files_hold

SHARED = "You are the assistant of the harbour office and answer briefly."


def _message(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _call(client: LedgerClient, session: str, *texts: str, answer: str, **more: Any) -> str:
    metadata = {"session_id": session, "prompt": [*map(_message, texts)], "response": answer}
    entry = LedgerEntry("EXCHANGE", "PRC-A-001", "SUCCESS", "ok", metadata={**metadata, **more})
    return client.write(entry, subject_id="person-7")


def _texts(client: LedgerClient, entry_id: str) -> list[str]:
    entry = client.read(entry_id)
    found = [one if isinstance(one, Erased) else one["content"] for one in entry.metadata["prompt"]]
    return [str(type(one).__name__ if isinstance(one, Erased) else one)
            for one in [*found, entry.metadata["response"]]]  # fmt: skip


def test_a_shared_text_stays_until_its_last_call_is_withdrawn(place: tuple[str, Path]) -> None:
    target, directory = place
    with LedgerClient(target) as client:
        first = _call(client, "SES-A", SHARED, "question one", answer="answer one")
        second = _call(client, "SES-A", SHARED, "question two", answer=f"{SHARED} answer two")
        (report,) = client.withdraw([first], reason="DELETE", requested_by="caller")
        assert report.values == 3  # question, answer, and whom the entry speaks of
        assert _texts(client, first) == [SHARED, "Erased", "Erased"]
        assert _texts(client, second) == [SHARED, "question two", f"{SHARED} answer two"]
        assert files_hold(directory, "question one") == []
        assert client.withdraw([first], reason="DELETE", requested_by="caller") == []
        (report,) = client.withdraw([second], reason="DELETE", requested_by="caller")
        assert report.values == 4
        assert files_hold(directory, SHARED) == []
        assert client.verify().verified


def test_history_that_a_later_call_sends_again_stays(place: tuple[str, Path]) -> None:
    target, _ = place
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


def test_feedback_is_withdrawn_with_its_entry(place: tuple[str, Path]) -> None:
    target, directory = place
    with LedgerClient(target) as client:
        call = _call(client, "SES-A", "question", answer="answer")
        metadata = {"session_id": "SES-A", "reason": Content("a remark on one call")}
        client.write(LedgerEntry("FEEDBACK", call, "RECORDED", "Feedback", metadata=metadata))
        client.withdraw([call], reason="DELETE", requested_by="caller")
        assert files_hold(directory, "a remark on one call") == []


def test_one_item_of_a_list_goes_and_the_entry_is_not_withdrawn(place: tuple[str, Path]) -> None:
    target, directory = place
    with LedgerClient(target) as client:
        items = [b'{"text":"item one"}', b'{"text":"item two"}']
        metadata = {"session_id": "SES-A", "items": Content.exact_list(items)}
        made = client.write(LedgerEntry("NOTE", "n", "d", "r", metadata=metadata))
        (report,) = client.withdraw([made], texts=items[:1], reason="DELETE", requested_by="c")
        assert report.values == 1
        assert files_hold(directory, "item one") == []
        assert client.exact(made)["items"][1] == items[1]
        other = client.write(LedgerEntry("NOTE", "n", "d", "r", metadata=metadata))
        assert client.withdraw([made], texts=items[1:], reason="DELETE", requested_by="c") == []
        assert client.exact(other)["items"] == items


def test_an_entry_of_a_lower_tier_withdraws_nothing(place: tuple[str, Path]) -> None:
    target, _ = place
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
        calls = [_call(client, "SES-A", SHARED, answer=f"answer {number}")
                 for number in range(2_100)]  # fmt: skip
        done: list[int] = []
        reports = client.withdraw(calls, reason="DELETE", requested_by="caller",
                                  also=lambda _: done.append(1))  # fmt: skip
        assert [report.values for report in reports] == [2_000, 2_000, 201]
        assert done == [1]
        assert client.select("SELECT count(*) FROM contents") == [(0,)]
        assert client.verify().verified
