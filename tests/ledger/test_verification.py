"""Tampering, one kind after the other: each is found, with its place."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import rfc8785

from remit.ledger import (
    LedgerClient,
    LedgerEntry,
    LedgerFormatError,
    VerificationReport,
)
from remit.ledger.tlog import Checkpoint, Signer
from tests.ledger.segments.faults import archive_all
from tests.support.postgres import PostgresServer
from tests.support.stores import SIGNER, conversation, outside

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


# -- What an ordinary hash chain misses, each found, on both stores -------------------------------
# Where a test needs a forger with all hashes at hand, it is one: rows are rewritten, hashes
# recomputed, links repaired.


def signed(target: str) -> None:
    """Write 450 entries, with a checkpoint of a third of them and one of all."""
    with LedgerClient(target, signer=SIGNER) as client:
        for number in range(30):
            conversation(client, f"SES-{number}", 5)
        client.checkpoint()
        for number in range(30):
            conversation(client, f"SES-{number}", 5 + 5)
        assert client.count() == 450


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A ledger with a checkpoint of half of it and one of all, never changed."""
    if request.param == "sqlite":
        url = str(tmp_path_factory.mktemp("made") / "ledger.db")
    else:
        url = request.getfixturevalue("postgres").database()
    signed(url)
    return url


@pytest.fixture
def sound(request: pytest.FixtureRequest, made: str, tmp_path: Path) -> Iterator[str]:
    """A copy of it."""
    if "://" not in made:
        yield str(shutil.copy(made, tmp_path / "ledger.db"))
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.database(made)
    yield url
    server.drop(url)


def _verify(target: str, **more: Any) -> VerificationReport:
    with LedgerClient(target, verifier_key=SIGNER.verifier_key) as client:
        return client.verify(**more)


def _checkpoint(target: str, where: str = "max") -> str:
    return str(
        outside(
            target,
            f"SELECT note FROM checkpoints WHERE size = (SELECT {where}(size) FROM checkpoints)",
        )[0][0]
    )


def test_a_sound_ledger_verifies_alone_and_against_both_checkpoints(sound: str) -> None:
    assert _verify(sound).checkpoint == "stored"
    for where in ("min", "max"):
        report = _verify(sound, checkpoint=_checkpoint(sound, where))
        assert report.verified, report.problems
        assert report.checkpoint == "outside"
    assert report.checkpoint_size == 450


# -- the table -----------------------------------------------------------------------------------


def _cut(target: str, size: int) -> None:
    """The ledger as if it had ended earlier, every trace of what came after removed."""
    outside(
        target,
        f"DELETE FROM entries WHERE seq >= {size}",
        "DELETE FROM contents WHERE content_id NOT IN (SELECT content_id FROM shown_contents "
        f"WHERE seq < {size})",
        f"DELETE FROM shown_contents WHERE seq >= {size}",
        f"DELETE FROM shown_lists WHERE seq >= {size}",
        "DELETE FROM message_steps WHERE content_id NOT IN (SELECT content_id FROM contents)",
        f"DELETE FROM tree_hashes WHERE (idx + 1) * 256 > {size}",
        f"DELETE FROM checkpoints WHERE size > {size}",
    )


def test_truncation_found_with_only_a_saved_checkpoint_in_hand(sound: str) -> None:
    saved = _checkpoint(sound)
    _cut(sound, 200)
    assert _verify(sound).verified  # by itself it looks sound: this is what a chain misses
    report = _verify(sound, checkpoint=saved)
    assert not report.verified
    assert report.first_bad_seq == 200
    assert "cut off" in report.problems[0].message


def test_truncation_found_by_the_stored_checkpoint(sound: str) -> None:
    outside(sound, "DELETE FROM entries WHERE seq >= 440")
    report = _verify(sound)
    assert any(problem.kind == "checkpoint" for problem in report.problems)
    assert report.first_bad_seq == 440


def test_truncation_to_nothing(sound: str) -> None:
    saved = _checkpoint(sound)
    for table in ("entries", "contents", "shown_contents", "shown_lists", "message_steps",
                  "tree_hashes", "checkpoints"):  # fmt: skip
        outside(sound, f"DELETE FROM {table}")
    assert _verify(sound).verified
    assert not _verify(sound, checkpoint=saved).verified


def _rewrite(
    target: str, seq: int, change: Callable[[dict[str, Any]], None], key: Signer = SIGNER
) -> None:
    """History rewritten from ``seq`` on by somebody who recomputes every hash, link, column and
    tree hash, and drops the checkpoints that no longer fit."""
    from remit.ledger.tlog import leaf_hash, tree_root

    rows = outside(target, "SELECT seq, record FROM entries ORDER BY seq")
    previous = None
    leaves = []
    statements = []
    for number, text in rows:
        record = json.loads(text)
        if number == seq:
            change(record)
        if number >= seq:
            if previous is not None:
                record["previous_hash"] = previous
            text = rfc8785.dumps(record).decode()
            previous = hashlib.sha256(text.encode()).hexdigest()
            quoted = text.replace("'", "''")
            statements.append(
                f"UPDATE entries SET record = '{quoted}', entry_hash = '{previous}' "
                f"WHERE seq = {number}"
            )
        leaves.append(leaf_hash(text.encode()))
        if number < seq:
            previous = hashlib.sha256(text.encode()).hexdigest()
    root = tree_root(leaves[:256]).hex()
    blob = f"'\\x{root}'" if target.startswith("postgresql") else f"x'{root}'"
    statements.append(f"UPDATE tree_hashes SET hash = {blob} WHERE level = 1 AND idx = 0")
    statements.append(f"DELETE FROM checkpoints WHERE size > {seq}")
    note = str(Checkpoint(key.name, len(leaves), tree_root(leaves)).sign(key))
    statements.append(f"INSERT INTO checkpoints VALUES ({len(leaves)}, 'now', '{note}')")
    outside(target, *statements)


def test_replacement_by_another_valid_chain_found_with_a_saved_checkpoint(sound: str) -> None:
    saved = _checkpoint(sound, "min")

    def change(record: dict[str, Any]) -> None:
        record["metadata"]["n"] = 7

    _rewrite(sound, 100, change)
    report = _verify(sound)
    assert report.verified, report.problems  # whoever has the key and the disk can do this …
    report = _verify(sound, checkpoint=saved)  # … but not with a checkpoint held outside
    assert not report.verified
    assert "history" in report.problems[0].message


def test_the_key_signs_no_rewritten_and_no_shortened_history(sound: str) -> None:
    outside(sound, "UPDATE entries SET record = replace(record, '\"n\":3', '\"n\":4') "
                   "WHERE seq = 443")  # fmt: skip
    with LedgerClient(sound, signer=SIGNER) as client:
        client.write(LedgerEntry("E", "S", "D", "r"))  # the record goes on
        for call in (client.checkpoint, lambda: client.prove("LED-000001c2")):
            with pytest.raises(LedgerFormatError, match="no checkpoint is signed"):
                call()
    assert outside(sound, "SELECT max(size) FROM checkpoints") == [(450,)]
    outside(sound, "DELETE FROM entries WHERE seq >= 440")
    with (
        LedgerClient(sound, signer=SIGNER) as client,
        pytest.raises(LedgerFormatError, match="cut off"),
    ):
        client.checkpoint()


# -- checkpoints that do not belong -------------------------------------------------------------


def test_a_checkpoint_by_another_key_or_origin_or_malformed(sound: str) -> None:
    other = Signer.generate(SIGNER.name)
    stranger = Signer.generate("example.com/other")
    head = Checkpoint(SIGNER.name, 1, b"\0" * 32)
    for note, said in (
        (str(head.sign(other)), "not signed by"),
        (str(Checkpoint(stranger.name, 1, b"\0" * 32).sign(stranger)), "not of"),
        (_checkpoint(sound).replace("450", "451"), "not signed by"),
        (_checkpoint(sound)[:-20], "cut off"),
        ("", "no signatures"),
        ("\0", "control character"),
    ):
        report = _verify(sound, checkpoint=note)
        assert report.checkpoint == "failed"
        assert said in str(report.problems[0]), report.problems[0]


# -- ranges, processes, increments --------------------------------------------------------------


def test_two_processes_find_the_same(sound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.ledger.verification.verifier._MIN_PARALLEL_ROWS", 1)
    monkeypatch.setattr("remit.ledger.verification.verifier._RANGE", 256)
    told: list[tuple[int, int]] = []
    report = _verify(sound, jobs=2, progress=lambda done, total: told.append((done, total)))
    assert report.verified, report.problems
    assert (report.entries, report.checkpoint_size) == (450, 450)
    assert told[-1][0] == told[-1][1]
    outside(
        sound,
        "UPDATE entries SET entry_hash = 'a' WHERE seq = 255",
        "UPDATE contents SET value = 'x' WHERE value = 'answer 3 of SES-1'",
        "DELETE FROM entries WHERE seq = 300",
    )
    one, two = _verify(sound, jobs=1), _verify(sound, jobs=2)
    assert one.problems == two.problems
    assert {problem.seq for problem in one.problems} >= {8, 255, 256, 300}


def test_an_erasure_or_a_segment_during_a_verification_is_no_damage(
    target: str, tmp_path: Path
) -> None:
    """Content is erased before each query of a verification; at last entries are archived."""
    exchanges(target)
    with (
        LedgerClient(target, signer=SIGNER) as client,
        LedgerClient(target, signer=SIGNER) as other,
    ):
        plain = client._store.select

        def queries_of(act: Callable[[], object], at: int) -> int:
            """Verify, and act before the query number ``at``; return the number of queries."""
            count = itertools.count()

            def select(*given: Any) -> Any:
                if next(count) == at:
                    act()
                return plain(*given)

            with mock.patch.object(client._store, "select", select):
                report = client.verify(deep=False)
            assert (report.problems, report.notes) == ([], []), at
            return next(count)

        def erase() -> None:
            other.erase(session_id="SES-GONE", reason="asked")

        with mock.patch.object(LedgerClient, "compact", return_value=""):
            queries = queries_of(lambda: None, 0)
            for at in range(queries):
                conversation(client, "SES-GONE", 2)
                queries_of(erase, at)
        while other.count() < 256:
            conversation(other, "SES-MANY", 40)
        queries_of(lambda: archive_all(other, tmp_path / "segments"), queries // 2)
        assert client.archived_to == 256
