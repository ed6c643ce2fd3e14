"""A check that goes on from the last one: what it reads, leaves out and believes."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remit.ledger import TABLES, LedgerClient, LedgerEntry, LedgerKey, Marks, VerificationReport
from tests.support.soak import sample
from tests.support.stores import conversation, outside

_VERIFIED = (
    "entries", "contents", "message_steps", "shown_contents", "shown_lists", "tree_hashes",
    "erasures",
)  # fmt: skip


class Home:
    """A directory with a ledger, its key and its marks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.target = str(path / "ledger.db")
        self.key = LedgerKey(path / "keys")
        self.mark = path / "marks" / "verification.mark"

    def open(self) -> LedgerClient:
        marks = Marks(self.path / "marks", self.key, "ledger.db")
        return LedgerClient(self.target, signer=self.key.signer(), marks=marks)

    def verify(self, *, since_mark: bool = True, **more: Any) -> VerificationReport:
        with self.open() as client:
            return client.verify(since_mark=since_mark, **more)


def _make(path: Path, sessions: int = 60) -> Home:
    home = Home(path)
    home.key.create()
    with home.open() as client:
        for number in range(sessions):
            conversation(client, f"SES-{number}", 5)
        client.erase("LED-00000003", reason="r")
        client.checkpoint()
        assert client.verify().verified
    return home


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return _make(tmp_path_factory.mktemp("made") / "home")


@pytest.fixture
def home(made: Home, tmp_path: Path) -> Home:
    return Home(Path(shutil.copytree(made.path, tmp_path / "home")))


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.ledger.verification.verifier._RANGE", 256)


@pytest.fixture
def nothing_again(small_ranges: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remit.ledger.verification.verifier._SAMPLE", 0)


def test_what_was_verified_is_not_read_again(home: Home, nothing_again: None) -> None:
    home.verify()
    report = home.verify()
    assert report.verified
    assert report.unread == report.entries == 301
    assert report.contents == home.verify(since_mark=False).contents
    assert (report.erased, report.checkpoint, report.checkpoint_size) == (12, "stored", 301)


def test_what_comes_later_is_checked_and_the_time_of_the_whole_check_stays(
    made: Home, tmp_path: Path, nothing_again: None
) -> None:
    home = _make(tmp_path / "own")
    first = home.verify().last_full
    with home.open() as client:
        conversation(client, "SES-NEW", 5)
    report = home.verify()
    assert (report.verified, report.unread, report.entries) == (True, 256, 306)
    report = home.verify()
    assert (report.unread, report.last_full) == (306, first)
    assert home.verify(since_mark=False).last_full == ""
    with home.open() as client:
        client.erase(session_id="SES-1", reason="asked for")
    report = home.verify()
    assert (report.verified, report.unread) == (True, 256)  # those whose content is gone too


def test_what_is_not_read_is_counted_and_its_tree_compared(home: Home, nothing_again: None) -> None:
    assert home.verify().unread == 301
    for change in (
        "DELETE FROM entries WHERE seq = 5",
        "DELETE FROM contents WHERE content_id = 100",
        "DELETE FROM shown_contents WHERE content_id = 100",
        "DELETE FROM message_steps WHERE step_id = 5",
        "UPDATE tree_hashes SET hash = zeroblob(32) WHERE level = 1 AND idx = 0",
        "INSERT INTO erasures VALUES ('0', 12)",
    ):
        shutil.copy(home.target, home.path / "sound.db")
        outside(home.target, change)
        report = home.verify()
        assert (report.verified, report.unread) == (False, 0)  # all was read then, to say where
        shutil.copy(home.path / "sound.db", home.target)
    assert home.verify().unread == 301


def test_some_of_what_was_verified_is_read_again_each_time(
    home: Home, small_ranges: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remit.ledger.verification.verifier._SAMPLE", 1)
    assert home.verify().verified
    outside(home.target, "UPDATE contents SET value = 'forged' WHERE content_id = 100")
    found = 0
    for _ in range(30):  # one of three ranges of contents each time
        found += not home.verify().verified
    assert 0 < found < 30


def _changes() -> Iterator[tuple[str, str]]:
    for table in _VERIFIED:
        yield table, f"DELETE FROM {table} WHERE rowid = (SELECT rowid FROM {table} LIMIT 1)"
        for column in TABLES[table]:
            new = {"bigint": f"coalesce({column.name}, 0) + 1", "bytea": "randomblob(32)"}.get(
                column.postgres_type, f"coalesce({column.name}, '') || 'x'"
            )
            yield table, f"UPDATE {table} SET {column.name} = {new} WHERE {{row}}"


_PLACED = [(*change, place) for place in ("first", "last") for change in _changes()]


@pytest.mark.soak
@pytest.mark.parametrize(("table", "change", "place"), sample(_PLACED, 8))
def test_any_change_of_the_record_is_found_by_both(
    home: Home, table: str, change: str, place: str
) -> None:
    order = "" if place == "first" else "DESC"
    with sqlite3.connect(home.target) as connection:
        keys = [row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[5]]
        names, sort = ", ".join(keys), ", ".join(f"{key} {order}" for key in keys)
        row = f"({names}) = (SELECT {names} FROM {table} ORDER BY {sort} LIMIT 1)"
        sql = change.format(row=row) if "{row}" in change else f"DELETE FROM {table} WHERE {row}"
        before = connection.execute(f"SELECT count(*) FROM {table} WHERE {row}").fetchall()
        try:
            connection.execute(sql)
        except sqlite3.IntegrityError:
            pytest.skip("the engine itself refuses it")
        assert before == [(1,)]
    quick, whole = home.verify(), home.verify(since_mark=False)
    assert not whole.verified
    assert quick.problems == whole.problems


def test_a_mark_that_was_edited_is_not_believed(home: Home) -> None:
    sound = home.mark.read_bytes()
    outside(home.target, "UPDATE contents SET value = 'forged' WHERE content_id = 100")
    for place in (0, 40, 70, len(sound) // 2, len(sound) - 1):
        home.mark.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
        assert not home.verify().verified
    for forged in (b"", b"\n", b"{}", sound[:-1], sound.partition(b"\n")[2]):
        home.mark.write_bytes(forged)
        assert not home.verify().verified


def test_a_mark_of_another_root_or_check_is_not_believed(home: Home, tmp_path: Path) -> None:
    other = _make(tmp_path / "other", 1)
    shutil.copy(home.mark, other.mark)
    assert other.verify().last_full == ""
    shutil.copy(other.mark.with_name("verification.mark"), other.mark.with_name("budgets.mark"))
    marks = Marks(other.mark.parent, other.key, "ledger.db")
    assert (marks.read("budgets"), bool(marks.read("verification"))) == ({}, True)
    assert Marks(other.mark.parent, other.key, "another.db").read("verification") == {}


def test_an_older_copy_of_the_ledger_under_a_newer_mark(home: Home) -> None:
    older = Path(shutil.copy(home.target, home.path / "older.db"))
    with home.open() as client:
        conversation(client, "SES-NEW", 2)
    assert home.verify().verified
    shutil.copy(older, home.target)
    for since_mark in (True, False):
        report = home.verify(since_mark=since_mark)
        assert ["older copy" in problem.message for problem in report.problems] == [True]
    with home.open() as client:  # it has as many entries again, and others
        conversation(client, "SES-ELSE", 2)
    report = home.verify()
    assert ["rewritten" in problem.message for problem in report.problems] == [True]
    home.mark.unlink()
    assert home.verify().verified


def test_an_older_mark_hides_nothing(home: Home) -> None:
    older = home.mark.read_bytes()
    with home.open() as client:
        conversation(client, "SES-NEW", 2)
    assert home.verify().verified
    outside(home.target, "UPDATE entries SET submission_id = 'x' WHERE seq = 302")
    home.mark.write_bytes(older)
    assert not home.verify().verified


def test_a_check_that_fails_or_is_interrupted_leaves_the_mark(home: Home) -> None:
    before = home.mark.read_bytes()

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        home.verify(progress=stop)
    outside(home.target, "UPDATE contents SET value = 'forged' WHERE content_id = 100")
    assert not home.verify().verified
    assert home.mark.read_bytes() == before


def test_without_the_private_key_there_are_no_marks(home: Home) -> None:
    private = home.key.private.rename(home.path / "elsewhere")
    marks = Marks(home.mark.parent, home.key, "ledger.db")
    with LedgerClient(home.target, verifier_key=home.key.verifier_key(), marks=marks) as client:
        assert client.verify(since_mark=True).last_full == ""
        client.write(LedgerEntry("N", "S", "D", "r"))
    before = home.mark.read_bytes()
    private.rename(home.key.private)
    assert home.mark.read_bytes() == before
    assert home.verify().verified


def test_marks_hold_on_both_stores(target: str, tmp_path: Path, nothing_again: None) -> None:
    key = LedgerKey(tmp_path / "keys")
    key.create()
    marks = Marks(tmp_path / "marks", key, target)
    with LedgerClient(target, signer=key.signer(), marks=marks) as client:
        for number in range(60):
            conversation(client, f"SES-{number}", 5)
        client.checkpoint()
        assert client.verify().verified
        assert client.verify(since_mark=True).unread == 300
        client.erase(session_id="SES-3", reason="asked for")
        report = client.verify(since_mark=True)
        assert (report.verified, report.unread, report.entries) == (True, 256, 301)
        outside(target, "DELETE FROM shown_lists WHERE seq = 5")
        report = client.verify(since_mark=True)
        assert (report.verified, report.unread, report.first_bad_seq) == (False, 0, 5)
