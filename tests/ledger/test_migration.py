"""Ledgers made by earlier versions, opened by this one."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest

from remit.ledger import (
    LAYOUT_VERSION,
    Content,
    Erased,
    ExportFormatError,
    LedgerClient,
    LedgerEntry,
    LedgerLayoutError,
)
from remit.ledger.tlog import VerifierKey
from tests.support.commands import run_remit
from tests.support.standalone import standalone
from tests.support.stores import SIGNER, conversation, outside

_MADE = Path(__file__).with_name("layout1.db.gz")
"""Written by version 0.1.0: two conversations, an erased answer, a reason that is content, and
300 notes."""

_LAYOUT_3 = Path(__file__).with_name("layout3.db.gz"), Path(__file__).with_name("layout3.sql.gz")
"""Of layout 3, on SQLite and as statements for PostgreSQL: a conversation of four turns, a reason
that was erased, and the owner of a session."""

_LAYOUT_4 = Path(__file__).with_name("layout4.db.gz")
"""Of layout 4: seven exchanges, three of ``person-1``; two of ``person-2`` were erased."""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.db"
    path.write_bytes(gzip.decompress(_MADE.read_bytes()))
    return path


def test_records_stay_and_everything_works(old: Path, tmp_path: Path) -> None:
    before = outside(str(old), "SELECT seq, entry_hash, record FROM entries ORDER BY seq")
    with LedgerClient(old) as client:
        report = client.verify()
        assert report.verified, report.problems
        assert (report.entries, report.erased) == (312, 1)
        assert (
            client.read("LED-00000005").metadata["prompt"][10]["content"] == "question 5 of SES-A"
        )
        assert client.read("LED-00000007").metadata["response"] == Erased("LED-0000000b")
        assert client.read("LED-0000000a").reason == "a reason that quotes"
        assert [entry.id for entry in client.query(text='"answer 3" ses a')] == [
            "LED-00000003", "LED-00000004",  # which shows it as a message
        ]  # fmt: skip
        assert client.select("SELECT level, idx FROM tree_hashes") == [(1, 0)]
        conversation(client, "SES-A", 8)  # the first six turns are there already
        assert len(client.select("SELECT 1 FROM message_steps")) == 11 + 7 + 4
        client.erase(subject_id="person-1", reason="request")
        assert client.verify().verified
        client.export(tmp_path / "all.jsonl")
    with LedgerClient(tmp_path / "copy.db") as copy:
        assert copy.import_jsonl(tmp_path / "all.jsonl").entries == 321
        assert copy.verify().verified
    after = outside(str(old), "SELECT seq, entry_hash, record FROM entries ORDER BY seq")
    assert after[: len(before)] == before
    assert [row[0] for row in outside(str(old), "SELECT version FROM migrations")] == [
        2, 3, 4, 5, 6, 7, 8, 9,
    ]  # fmt: skip


def test_a_ledger_of_layout_3_goes_on_in_this_one(target: str) -> None:
    file, statements = _LAYOUT_3
    if "://" in target:
        outside(target, *gzip.decompress(statements.read_bytes()).decode().split(";\n"))
    else:
        Path(target).write_bytes(gzip.decompress(file.read_bytes()))
    before = outside(target, "SELECT seq, entry_hash, record FROM entries ORDER BY seq")
    assert outside(target, "SELECT max(version) FROM migrations") == [(3,)]
    with LedgerClient(target) as client:
        report = client.verify()
        assert report.verified, report.problems
        assert (report.entries, report.erased) == (6, 1)
        assert client.read("LED-00000003").metadata["prompt"][1]["content"] == "answer 0 of SES-A"
        client.write(
            LedgerEntry("E", "S", "D", "r", metadata={"session_id": "SES-A",
                                                      "answer": Content.exact(b" 1.0 ")})
        )  # fmt: skip
        client.transact(
            lambda tx: tx.execute("INSERT INTO response_ids VALUES ('resp_1', 'k', 's', 'e')")
        )
        assert client.select("SELECT owner FROM session_owners") == [("key-1",)]
        assert client.verify().verified
    assert outside(target, "SELECT * FROM response_ids") == [("resp_1", "k", "s", "e")]
    after = outside(target, "SELECT seq, entry_hash, record FROM entries ORDER BY seq")
    assert after[: len(before)] == before
    assert outside(target, "SELECT max(version) FROM migrations") == [(LAYOUT_VERSION,)]


def test_people_of_layout_4_are_found_and_those_of_this_one_vouched_for(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(gzip.decompress(_LAYOUT_4.read_bytes()))
    with LedgerClient(path) as client, LedgerClient(tmp_path / "copy.db") as copy:
        assert client.verify().problems == []
        assert client.select("SELECT value FROM ledger_info WHERE name = 'subjects_before'") == [
            ("8",)
        ]
        conversation(client, "SES-D", 2, subject="person-1")
        client.export(tmp_path / "all.jsonl")
        copy.import_jsonl(tmp_path / "all.jsonl")
        for ledger in (client, copy):
            assert ledger.verify().problems == []
            ledger.erase(subject_id="person-1", reason="asked")
            assert ledger.select("SELECT * FROM content_subjects") == []
            texts = [entry.metadata.get("response") for entry in ledger.query()]
            assert [type(text) for text in texts].count(str) == 2  # of SES-B
            assert ledger.verify().problems == []
        conversation(client, "SES-E", 2, subject="person-3")
    outside(str(path), "UPDATE content_subjects SET subject_id = 'nobody' WHERE content_id = "
                       "(SELECT max(content_id) FROM content_subjects)")  # fmt: skip
    with LedgerClient(path) as client:
        assert client.verify().first_bad_seq == 12


def test_who_has_a_ledger_open_that_a_newer_version_migrates_writes_nothing_more(
    ledger: LedgerClient, target: str
) -> None:
    conversation(ledger, "SES-A", 1)
    is_server, before = "://" in target, ledger.count()
    outside(target, "INSERT INTO migrations VALUES (99, 'now')",
            *([] if is_server else ["PRAGMA user_version = 99"]))  # fmt: skip
    for write in (
        lambda: ledger.write(LedgerEntry("E", "S", "D", "r")),
        lambda: ledger.transact(lambda tx: tx.execute("DELETE FROM leases")),
    ):
        with pytest.raises(LedgerLayoutError, match=r"layout 99 now.*writes layout \d+.* Restart"):
            write()
    assert "layout 99" in ledger.outage.reason  # calls are refused, and /readyz says why
    assert ledger.count() == before
    outside(target, "DELETE FROM migrations WHERE version = 99",
            *([] if is_server else [f"PRAGMA user_version = {LAYOUT_VERSION}"]))  # fmt: skip
    ledger.write(LedgerEntry("E", "S", "D", "r"))
    assert ledger.outage.reason == ""
    assert ledger.verify().problems == []


# -- Exports that an earlier version wrote, without a statement under their checkpoint -----------


FOLDER = Path(__file__).parent
KEY = VerifierKey.parse((FOLDER / "export-9db8616.vkey").read_text())


@pytest.mark.parametrize("name", ["export-9db8616", "archived-export-9db8616"])
def test_they_verify_and_come_back(tmp_path: Path, name: str) -> None:
    data = gzip.decompress((FOLDER / f"{name}.jsonl.gz").read_bytes())
    assert b"remit-export/1" not in data
    (tmp_path / "e.jsonl").write_bytes(data)
    done = standalone(tmp_path / "e.jsonl", "--key", str(KEY))
    assert done.stdout.endswith("VERIFIED\n"), done.stderr
    with LedgerClient(tmp_path / "l.db", verifier_key=KEY) as client:
        assert client.import_jsonl(io.BytesIO(data), key=KEY).checkpoint == "held"
        assert client.verify().problems == []


def test_usage_of_archived_entries_is_held_against_the_record(tmp_path: Path) -> None:
    """Nothing signs it in such an export, but an ``ARCHIVED`` entry carries its digest."""
    data = gzip.decompress((FOLDER / "archived-export-9db8616.jsonl.gz").read_bytes())
    for old, new in ((b'"SES-3"', b'"SES-x"'), (b'"measured",6', b'"measured",5')):
        changed = data.replace(old, new, 1)
        assert changed != data
        with (
            LedgerClient(tmp_path / "l.db") as client,
            pytest.raises(ExportFormatError, match="archived-usage"),
        ):
            client.import_jsonl(io.BytesIO(changed), key=KEY)


def test_a_plain_checkpoint_in_the_place_of_the_statement_is_told(tmp_path: Path) -> None:
    """Whoever has a plain checkpoint of the size can name any person then: readers say so."""
    with LedgerClient(tmp_path / "l.db", signer=SIGNER) as client:
        conversation(client, "SES-1", 3)
        plain = client.checkpoint()
        client.export(tmp_path / "e.jsonl")
    head, *lines = map(json.loads, (tmp_path / "e.jsonl").read_bytes().splitlines())
    head["checkpoint"] = plain
    del head["subjects_before"]
    values = [item for line in lines for item in line["contents"]]
    for item in values:
        item["subjects"] = ["bob"]
    forged = tmp_path / "forged.jsonl"
    forged.write_text("".join(f"{json.dumps(line)}\n" for line in (head, *lines)))
    key = str(SIGNER.verifier_key)
    done = standalone(forged, "--key", key)
    assert "not signed, and not verified: subjects\n" in done.stdout, done.stderr
    root = tmp_path / "root"
    assert run_remit("init", "--bare", root).returncode == 0
    done = run_remit("ledger", "import", forged, "--key", key, "--root", root)
    assert f"The persons of {len(values)} values" in done.stderr, done.stderr
    with LedgerClient(tmp_path / "sound.db", verifier_key=SIGNER.verifier_key) as client:
        sound = client.import_jsonl(tmp_path / "e.jsonl", key=SIGNER.verifier_key)
        assert sound.unsigned_subjects == 0
