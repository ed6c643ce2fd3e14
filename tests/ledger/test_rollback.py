"""Never two histories: an older copy under one key is found, at rest and running, on both."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from remit.kernel.errors import InvalidInputError
from remit.kernel.settings import default_settings
from remit.ledger import (
    KeptHead,
    LedgerClient,
    LedgerEntry,
    LedgerError,
    LedgerKey,
    LedgerKeyError,
    LedgerRollbackError,
    LedgerWriteError,
    fork,
)
from remit.ledger.tlog import SignedCheckpoint
from tests.support.postgres import PostgresServer
from tests.support.processes import run_program
from tests.support.stores import empty, outside


class Place:
    """A ledger with a key, whose database can be put aside and put back.

    Attributes:
        notes: every checkpoint that was ever given out.
    """

    def __init__(self, target: str, keys: Path, server: PostgresServer | None) -> None:
        self.target = target
        self.key = LedgerKey(keys)
        self.key.create()
        self.kept = KeptHead(self.key)
        self.notes: list[SignedCheckpoint] = []
        self._server = server
        self._copies: list[str] = []

    def open(self, *, every: int = 1000) -> LedgerClient:
        settings_ = default_settings().ledger.model_copy(
            update={"checkpoint_every_entries": every, "checkpoint_every_s": 3600.0}
        )
        return LedgerClient(
            self.target, settings=settings_, signer=self.key.signer(), kept=KeptHead(self.key)
        )

    def append(self, number: int = 1, text: str = "x") -> None:
        with self.open() as client:
            client.write_many([_entry(text) for _ in range(number)])

    def sign(self) -> str:
        with self.open() as client:
            note = client.checkpoint()
        self.notes.append(SignedCheckpoint.parse(note))
        return note

    def copy(self) -> str:
        """A copy of the database, which nobody has open."""
        if self._server is not None:
            copy = self._server.database(self.target)
        else:
            copy = f"{self.target}.copy{len(self._copies)}"
            shutil.copy(self.target, copy)
        self._copies.append(copy)
        return copy

    def put_back(self, copy: str) -> None:
        """The database as it was when it was copied; nobody has it open."""
        if self._server is not None:
            self._server.drop(self.target)
            name, template = urlsplit(self.target).path[1:], urlsplit(copy).path[1:]
            self._server.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        else:
            empty(self.target)
            shutil.copy(copy, self.target)

    def close(self) -> None:
        for copy in self._copies if self._server is not None else []:
            self._server.drop(copy)  # type: ignore[union-attr]


@pytest.fixture
def place(target: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    is_server = target.startswith("postgresql://")
    server = request.getfixturevalue("postgres") if is_server else None
    made = Place(target, tmp_path / "keys", server)
    yield made
    made.close()


def _fail_once_kept(broken: pytest.MonkeyPatch) -> None:
    """Let the power fail between the write of the kept head and that of the database."""
    write = KeptHead.write

    def fail(*_: object) -> None:
        raise LedgerError("the power failed")

    def last_write(kept: KeptHead, signed: SignedCheckpoint) -> None:
        write(kept, signed)
        broken.setattr(KeptHead, "read", fail)  # nothing more is signed as the client closes
        fail()

    broken.setattr(KeptHead, "write", last_write)


def _entry(text: str = "x") -> LedgerEntry:
    return LedgerEntry("NOTE", "S", "OK", text)


def test_an_older_copy_is_refused_until_the_newer_one_is_back(place: Place) -> None:
    place.append(300)
    place.sign()
    older = place.copy()
    place.append(20)
    place.sign()
    newer = place.copy()
    place.put_back(older)
    with place.open() as client:
        assert client.count() == 300  # it is read
        with pytest.raises(LedgerRollbackError) as refused:
            client.write(_entry())
        said = refused.value.message
        assert "was cut off, or is an older copy: it has 300 entries, and this root's key " in said
        assert said.endswith("signed 320; LED-0000012c to LED-0000013f are missing.")
        assert "remit ledger fork --reason" in refused.value.next_step
        for attempt in (client.checkpoint, client.flush, client.require_whole):
            with pytest.raises(LedgerRollbackError, match="LED-0000012c to LED-0000013f"):
                attempt()
        report = client.verify()
        assert [problem.message for problem in report.problems] == [said]
        assert not report.verified
        assert report.checkpoint == "failed"
        assert client.count() == 300
        latest = client.checkpoints.latest()
        assert latest is not None
        assert latest.checkpoint.size == 300
    place.put_back(newer)
    place.append()
    place.sign()
    with place.open() as client:
        assert client.verify().verified


def test_another_history_of_the_same_length_is_refused(place: Place) -> None:
    place.append(3)
    older = place.copy()
    place.append(5, "one")
    place.sign()
    place.put_back(older)
    with LedgerClient(place.target) as bare:  # which knows of no head
        bare.write_many([_entry("two") for _ in range(9)])
    with place.open() as client:
        said = "history that this root's key signed: its first 8 entries differ"
        with pytest.raises(LedgerRollbackError, match=said):
            client.write(_entry())
        with pytest.raises(LedgerRollbackError, match=said):
            client.checkpoint()
        assert [said in problem.message for problem in client.verify().problems] == [True]
        assert client.count() == 12


def test_a_fork_goes_on_under_a_new_origin_and_names_the_old_head(place: Place) -> None:
    place.append(3)
    place.sign()
    older = place.copy()
    place.append(5)
    lost = SignedCheckpoint.parse(place.sign())
    old_key = place.key.verifier_key()
    assert old_key is not None
    place.put_back(older)
    with place.open() as client:
        with pytest.raises(InvalidInputError, match="requires a reason"):
            fork(client, place.kept, reason=" ", by="ann")
        done = fork(client, place.kept, reason="the disk burned", by="ann")
        assert client.verify().verified
    new_key = place.key.verifier_key()
    assert new_key is not None
    assert new_key.name == f"{old_key.name}/fork-1"
    assert (done["old_origin"], done["old_size"], done["entries"]) == (old_key.name, 8, 3)
    assert done["verifier_key"] == str(new_key)
    SignedCheckpoint.parse(done["checkpoint"]).verify(new_key)
    place.append()
    place.sign()
    with place.open() as client:
        entry = client.read(done["entry_id"])
        assert (entry.reason, entry.metadata["by"]) == ("the disk burned", "ann")
        named = entry.metadata["fork"]
        assert named["old_head"] == str(lost)
        assert (named["lost_entries"], named["lost_spend"]) == (5, "unknown")
        assert client.verify().verified
        with pytest.raises(LedgerError, match="no fork is needed"):
            fork(client, place.kept, reason="again", by="ann")
    place.put_back(older)  # the same once more: the first fork is lost, too
    with place.open() as client, pytest.raises(LedgerRollbackError, match="LED-00000003 to"):
        client.write(_entry())
    with place.open() as client:
        fork(client, place.kept, reason="again", by="ann")
        assert client.verify().verified
    again = place.key.verifier_key()
    assert again is not None
    assert again.name == f"{old_key.name}/fork-2"


def test_a_fork_that_was_broken_off_is_refused_and_forked_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.append(3)
    older = place.copy()
    place.append(2)
    place.sign()
    for part in ("rename", "write"):
        place.put_back(older)
        with place.open() as client, monkeypatch.context() as broken:

            def fail(*_: object) -> None:
                raise OSError(5, "the power failed")

            broken.setattr(LedgerKey if part == "rename" else KeptHead, part, fail)
            with pytest.raises(
                LedgerWriteError, match=r"The head cannot be kept in .*power failed"
            ):
                fork(client, place.kept, reason="x", by="ann")
            broken.undo()
            with pytest.raises(LedgerRollbackError):
                client.write(_entry())
            with pytest.raises(LedgerRollbackError):
                client.checkpoint()
        with place.open() as client, pytest.raises(LedgerRollbackError):
            client.write(_entry())
    with place.open() as client:
        fork(client, place.kept, reason="x", by="ann")
        client.write(_entry())
        assert client.verify().verified


def test_a_process_from_before_a_fork_signs_nothing_more(place: Place) -> None:
    place.append(3)
    older = place.copy()
    place.append(2)
    place.sign()
    place.put_back(older)
    with place.open() as before:
        with place.open() as client:
            fork(client, place.kept, reason="x", by="ann")
        with pytest.raises(LedgerRollbackError, match=r"was forked: .*Restart this process"):
            before.checkpoint()
        with pytest.raises(LedgerRollbackError, match="was forked"):
            before.write(_entry())


def test_a_running_writer_stops_when_what_it_wrote_is_gone(place: Place) -> None:
    with place.open() as client:
        client.write_many([_entry() for _ in range(5)])
        outside(place.target, "DELETE FROM entries WHERE seq > 2")
        for attempt in (lambda: client.write(_entry()), client.checkpoint, client.require_whole):
            with pytest.raises(LedgerRollbackError) as refused:
                attempt()
            assert "it has 3 entries, and there were 5" in refused.value.message
            assert "LED-00000003 to LED-00000004 are missing" in refused.value.message
        with LedgerClient(place.target) as bare:
            bare.write_many([_entry("other") for _ in range(5)])
        with pytest.raises(LedgerRollbackError, match="LED-00000004 differs"):
            client.write(_entry())
    with place.open() as client:  # nothing of it was ever signed
        for attempt in (lambda: client.write(_entry()), client.checkpoint, client.require_whole):
            with pytest.raises(LedgerRollbackError, match="LED-00000004 differs"):
                attempt()
        assert not client.verify().verified


@pytest.mark.parametrize("how", ["renamed", "copied over", "removed", "without its log"])
def test_a_file_that_is_replaced_under_a_running_writer(tmp_path: Path, how: str) -> None:
    path = tmp_path / "ledger.db"
    place = Place(str(path), tmp_path / "keys", None)
    place.append(20)
    older = Path(place.copy())
    place.append(600)  # and closed: all of it is in the file
    newer = Path(place.copy())
    with place.open() as client:
        client.write(_entry())
        if how == "renamed":
            os.replace(older, path)
        elif how == "copied over":
            path.write_bytes(older.read_bytes())
        elif how == "removed":
            path.unlink()
        else:
            path.with_name("ledger.db-wal").unlink()
        for _ in range(2):
            with pytest.raises(LedgerRollbackError) as refused:
                client.write(_entry())
            assert "Stop all processes of this root" in refused.value.next_step
        if how != "copied over":  # which a reader alone cannot see
            with pytest.raises(LedgerRollbackError):
                client.require_whole()
    empty(str(path))
    shutil.copy(newer, path)
    with place.open() as client:  # all that was signed is there, and the last entry is not
        with pytest.raises(LedgerRollbackError, match="620 entries, and there were 621"):
            client.write(_entry())
        fork(client, place.kept, reason="it was put back", by="ann")
        client.write(_entry())
        assert client.verify().verified


def test_the_head_is_kept_before_it_is_stored_and_a_crash_between_locks_nobody_out(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.append(4)
    with monkeypatch.context() as broken:
        _fail_once_kept(broken)
        with place.open() as client:
            client.write(_entry())
            with pytest.raises(LedgerError, match="power failed"):
                client.checkpoint()
    kept = place.kept.path.read_text()
    assert SignedCheckpoint.parse(kept).checkpoint.size == 5
    assert outside(place.target, "SELECT max(size) FROM checkpoints") == [(4,)]
    assert place.sign() == kept
    place.append()
    with place.open() as client:
        assert client.verify().verified


def test_only_what_is_committed_is_signed(place: Place) -> None:
    place.append(2)
    with place.open() as client:
        entered, go_on = threading.Event(), threading.Event()

        def refused(_: object) -> None:
            entered.set()
            go_on.wait(20)
            raise ValueError("not this one")

        signed: list[str] = []
        with ThreadPoolExecutor(3) as threads:
            first = threads.submit(client.transact, refused)
            entered.wait(20)
            threads.submit(client.write, _entry())
            threads.submit(lambda: signed.append(client.checkpoint()))
            go_on.set()
        assert isinstance(first.exception(), ValueError)
        assert SignedCheckpoint.parse(signed[0]).checkpoint.size in (2, 3)
        assert client.verify(checkpoint=signed[0]).verified


def test_a_root_without_head_takes_another(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.append(3)
    note = place.sign()
    place.append(2)
    kept = place.kept.path.read_text()
    place.kept.path.unlink()  # a version before kept none
    with place.open() as client:
        client.write(_entry())
        assert "no head was kept" in caplog.text
    assert place.kept.path.read_text() != note  # closing signed what came since
    place.kept.path.write_text(kept)  # another machine's, which is behind
    with place.open() as client:
        client.flush()
        latest = client.checkpoints.latest()
    assert latest is not None
    assert place.kept.path.read_text() == str(latest)


@pytest.mark.parametrize("damage", ["", "x", "other"])
def test_a_damaged_head_is_refused(tmp_path: Path, damage: str) -> None:
    place = Place(str(tmp_path / "ledger.db"), tmp_path / "keys", None)
    place.append(3)
    place.sign()
    text = place.kept.path.read_text()
    if damage == "other":
        damage = text.replace("\n3\n", "\n2\n")
    place.kept.path.write_text(damage)
    with place.open() as client, pytest.raises(LedgerKeyError, match=r"ledger\.head is damaged"):
        client.write(_entry())
    place.kept.path.write_text(text)
    place.append()


def test_processes_that_share_a_key_only_move_its_head_forward(place: Place) -> None:
    sizes: list[int] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            if place.kept.path.exists():
                text = place.kept.path.read_text()
                sizes.append(SignedCheckpoint.parse(text).checkpoint.size)

    def work() -> None:
        with place.open() as client:
            for _ in range(8):
                client.write(_entry())
                place.notes.append(SignedCheckpoint.parse(client.checkpoint()))

    watcher = threading.Thread(target=watch)
    workers = [threading.Thread(target=work) for _ in range(3)]
    for thread in (watcher, *workers):
        thread.start()
    for worker in workers:
        worker.join()
    done.set()
    watcher.join()
    assert sizes == sorted(sizes)
    assert len(place.notes) == 24
    _assert_one_history(place)
    with place.open() as client:
        assert client.verify().verified


def _assert_one_history(place: Place) -> None:
    roots: dict[tuple[str, int], bytes] = {}
    for signed in place.notes:
        head = signed.checkpoint
        assert roots.setdefault((head.origin, head.size), head.root) == head.root


_STEPS = st.lists(
    st.sampled_from(
        ["append", "append", "append", "sign", "sign", "copy", "restore", "crash", "second", "fork"]
    ),
    min_size=4,
    max_size=14,
)


@settings(
    max_examples=15,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=_STEPS)
def test_one_history_is_signed(tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> None:
    directory = tmp_path_factory.mktemp("history")
    place = Place(str(directory / "ledger.db"), directory / "keys", None)
    _run(place, steps)


def test_no_sequence_signs_two_on_a_server(postgres: PostgresServer, tmp_path: Path) -> None:
    place = Place(postgres.database(), tmp_path / "keys", postgres)
    once = ["append", "sign", "copy", "append", "crash", "second", "restore", "append", "sign"]
    _run(place, [*once, "fork", "append", "sign", "copy", "append", "sign", *once, "fork", *once])
    place.close()


def _run(place: Place, steps: list[str]) -> None:
    copies: list[str] = []
    for number, step in enumerate(steps):
        try:
            if step == "append":
                place.append(2, f"entry of step {number}")
            elif step == "sign":
                place.sign()
            elif step == "copy":
                place.open().close()
                copies.append(place.copy())
            elif step == "restore" and copies:
                place.put_back(copies[number % len(copies)])
            elif step == "crash":
                with place.open() as client:
                    client.write(_entry(f"crash {number}"))
                    with pytest.MonkeyPatch.context() as broken:
                        _fail_once_kept(broken)
                        client.checkpoint()
            elif step == "second":
                with place.open() as one, place.open() as two:
                    one.write(_entry(f"one {number}"))
                    place.notes.append(SignedCheckpoint.parse(two.checkpoint()))
                    two.write(_entry(f"two {number}"))
                    place.notes.append(SignedCheckpoint.parse(one.checkpoint()))
            elif step == "fork":
                with place.open() as client:
                    fork(client, place.kept, reason="x", by="y")
        except LedgerError:
            pass
        if place.kept.path.exists():
            place.notes.append(SignedCheckpoint.parse(place.kept.path.read_text()))
        if outside(place.target, "SELECT 1"):
            with LedgerClient(place.target) as bare:
                place.notes += [
                    SignedCheckpoint.parse(note)
                    for (note,) in bare._store.select("SELECT note FROM checkpoints")
                ]
    _assert_one_history(place)


_WRITES = """
import os, sys
from remit.ledger import LedgerClient, LedgerEntry
ledger = LedgerClient(sys.argv[1])
for n in range(int(sys.argv[2])):
    entry = LedgerEntry("T", f"WO-{n}", "D", "r" * 900, [], {"session_id": "SES-1"})
    ledger.write_many([entry] + [LedgerEntry("T", "W", "D", "r" * 900, [], {}) for _ in range(99)])
os.kill(os.getpid(), 9)
"""


def _half_copied(path: Path) -> None:
    """Copy half of what the log has into the file, as a process killed in the midst leaves it."""
    log = Path(f"{path}-wal").read_bytes()
    size = int.from_bytes(log[8:12], "big")
    pages = {
        int.from_bytes(log[at : at + 4], "big"): log[at + 24 : at + 24 + size]
        for at in range(32, len(log) - size - 23, 24 + size)
        if log[at + 8 : at + 16] == log[16:24]
    }
    with path.open("r+b") as file:
        for number in sorted(pages)[: len(pages) // 2]:
            file.seek((number - 1) * size)
            file.write(pages[number])


def test_a_process_killed_while_the_log_is_copied_refuses_nobody(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    for number in (3, 15):
        run_program("-c", _WRITES, str(path), str(number), environment=os.environ)
    _half_copied(path)
    alone = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
    with contextlib.closing(alone), pytest.raises(sqlite3.DatabaseError):
        alone.execute("SELECT max(seq), max(entry_hash) FROM entries").fetchone()
    place = Place(str(path), tmp_path / "keys", None)
    with place.open() as ledger:
        before = ledger.count()
        for _ in range(3):
            ledger.write(LedgerEntry("T", "WO-X", "D", "r", [], {}))
        assert ledger.count() == before + 3 == 1803
        assert ledger.verify().verified
