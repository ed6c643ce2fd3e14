"""A run that is interrupted anywhere: each entry is in one place at least, the next run ends it.

``REMIT_SOAK=1`` interrupts at every operation, and prints how many were tried.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from remit.gateway.leases import LeaseBusyError
from remit.ledger import ErasureError, LedgerClient, LedgerEntry, LedgerError, entry_id
from remit.ledger.entry_reader import PUT_INFO
from remit.ledger.segments import finish, interrupted_copies, move, purge_all, removal
from remit.ledger.segments.copies import new_copy
from remit.ledger.tlog import TlogProof
from tests.ledger.segments.faults import DISK_FAULTS, Faults, archive_all, archive_with_fault
from tests.ledger.segments.writing import attached, problems, sessions, unguarded
from tests.support.processes import run_forked
from tests.support.soak import SEED, sample, soak_only
from tests.support.stores import SIGNER, conversation, files_hold, outside

_NAME = "000000000000-000000000256.db"

Copies = Callable[[], str]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def copies(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Copies]:
    """Make copies of one ledger of 280 entries, on both stores."""
    if request.param == "sqlite":
        place = tmp_path_factory.mktemp("ledger")
        _fill(str(place / "ledger.db"))
        count = iter(range(10**6))

        def copy() -> str:
            path = place / f"{next(count)}.db"
            shutil.copy(place / "ledger.db", path)
            return str(path)

        yield copy
        return
    server = request.getfixturevalue("postgres")
    template = server.database()
    _fill(template)
    made: list[str] = []

    def make() -> str:
        while made:
            server.drop(made.pop())
        made.append(server.database(template))
        return made[-1]

    yield make


def _fill(target: str) -> None:
    """Write 252 entries that can leave: sessions with content of persons, and many without."""
    with LedgerClient(target, signer=SIGNER) as client:
        sessions(client, 8)
        for number in range(6):
            shown = {"session_id": f"SES-PLAIN{number}"}
            client.write_many([LedgerEntry("EXCHANGE", "P", "D", "r", metadata=dict(shown))] * 34)
        client.write_many([LedgerEntry("NOTE", "S", "D", "r") for _ in range(25)])
        client.index_text()


def _hashes(client: LedgerClient, directory: Path) -> list[str]:
    """The hash of each entry, wherever it is, in the order of the ledger."""
    with contextlib.ExitStack() as stack:
        if client.archived_to and (directory / _NAME).exists():
            stack.enter_context(attached(client, directory))
        entries = [*client.query(limit=None)]
    return [one.entry_hash for one in entries if one.event_type != "ARCHIVED"]


def _require_whole(target: str, directory: Path, whole: list[str], *, done: bool) -> None:
    """Every entry is in the database or in a segment; all of it is checked once a run ended."""
    with LedgerClient(target, signer=SIGNER) as client:
        assert _hashes(client, directory) == whole
        if not done:
            return
        report = client.verify()
        assert report.problems == []
        assert (report.archived, report.notes) == (252, [])
        with attached(client, directory):
            report = client.verify()
            assert report.problems == []
            assert all("interrupted run" in note for note in report.notes)
            for seq in (3, 200):
                proof = TlogProof.parse(client.prove(entry_id(seq)))
                proof.verify(client.read_record(entry_id(seq)), SIGNER.verifier_key)
        assert client.export(directory.with_name("export.jsonl")) == client.count()
        assert finish(client, [], guard=unguarded) == (0, "")
        assert archive_all(client, directory).archived_id == ""


def _whole(target: str) -> list[str]:
    with LedgerClient(target, signer=SIGNER) as client:
        return [entry.entry_hash for entry in client.query(limit=None)]


def _operations(copies: Copies, directory: Path, kind: str, count: int) -> list[int]:
    """The operations of a run to interrupt it at: a sample of so many, in a soak all.

    A transaction that is interrupted is undone whole, so of its statements a sample stands for all.
    """
    with LedgerClient(copies(), signer=SIGNER) as client, Faults(directory) as faults:
        archive_all(client, directory)
    shutil.rmtree(directory)
    every = range(faults.counts[kind])
    if kind == "statement":
        every = sorted(random.Random(SEED).sample(every, min(len(every), 40)))
    return sample(every, count)


_ERRORS = [
    *(("file", fault) for fault in DISK_FAULTS), ("statement", "full"), ("commit", "full"),
]  # fmt: skip


@pytest.mark.soak
@pytest.mark.parametrize(("kind", "fault"), sample(_ERRORS, 2))
def test_an_error_of_any_operation_loses_nothing(
    copies: Copies, tmp_path: Path, kind: str, fault: str
) -> None:
    directory = tmp_path / "out" / "archive"
    whole, tried = _whole(copies()), 0
    for at in _operations(copies, directory, kind, 1):
        target = copies()
        with LedgerClient(target, signer=SIGNER) as client:
            faults = Faults(directory, kind, fault, at)
            try:
                with faults:
                    archive_all(client, directory)
            except LedgerError as error:
                # Without the lease no run began.
                assert _says_where_entries_are(error) or not directory.exists(), error
        tried += bool(faults.failed)
        _require_whole(target, directory, whole, done=False)
        outside(
            target, "DELETE FROM leases"
        )  # it could not be released; a process would have ended
        with LedgerClient(target, signer=SIGNER) as client:
            archive_all(client, directory)
        _require_whole(target, directory, whole, done=True)
        shutil.rmtree(directory)
    print(f"{fault} at {tried} operations ({kind}): entries missing 0")


def _says_where_entries_are(error: LedgerError) -> bool:
    places = ("in the database", "nothing is archived", "did not take")
    return any(place in error.message for place in places) and bool(error.next_step)


@pytest.mark.soak
@pytest.mark.parametrize("kind", sample(["file", "statement", "commit"], 1))
def test_killed_anywhere_the_next_run_ends_it(copies: Copies, tmp_path: Path, kind: str) -> None:
    directory = tmp_path / "out" / "archive"
    whole, killed = _whole(copies()), 0
    for at in _operations(copies, directory, kind, 1):
        target = copies()
        given = (target, SIGNER.to_pem(), str(directory), kind, "kill", at)
        ended = run_forked(archive_with_fault, *given, environment=os.environ)
        assert ended.returncode in (-signal.SIGKILL, 0), ended.stderr
        killed += ended.returncode != 0
        _require_whole(target, directory, whole, done=False)
        with LedgerClient(target, signer=SIGNER) as client:
            archive_all(client, directory)
        _require_whole(target, directory, whole, done=True)
        shutil.rmtree(directory, ignore_errors=True)
    print(f"killed at {killed} operations ({kind}): entries missing 0")


def test_an_erasure_removes_the_copies_of_killed_runs(copies: Copies, tmp_path: Path) -> None:
    directory, found = tmp_path / "archive", 0
    for at in _operations(copies, directory, "file", 6):
        target = copies()
        given = (target, SIGNER.to_pem(), str(directory), "file", "kill", at)
        run_forked(archive_with_fault, *given, environment=os.environ)
        with LedgerClient(target, signer=SIGNER) as client:
            if not client.archived_to:
                found += len(interrupted_copies(directory))
                assert client.erase(session_id="SES-6", reason="asked").remainder == ""
                assert files_hold(directory, "of SES-6") == interrupted_copies(directory) == []
            assert archive_all(client, directory).archived_id or client.archived_to
            assert interrupted_copies(directory) == []
            assert client.select("SELECT * FROM ledger_info WHERE name LIKE 'segment_copy%'") == []
            assert client.verify().problems == []
        shutil.rmtree(directory)
    assert found


class _Acts(Faults):
    """Calls ``act`` at each operation on a file."""

    def __init__(self, directory: Path, act: Callable[[int], None]) -> None:
        super().__init__(directory)
        self._act = act

    def reach(self, kind: str, operation: str, *more: Any, **named: Any) -> None:
        super().reach(kind, operation, *more, **named)
        if kind == "file" and self._act:
            act, self._act = self._act, None  # The act itself is not interrupted.
            act(self.counts[kind] - 1)
            self._act = act


def test_no_copy_with_content_lacks_its_row(copies: Copies, tmp_path: Path) -> None:
    """An erasure while a run makes its copy leaves no copy that a later erasure does not find."""
    directory, refused = tmp_path / "archive", 0
    for at in range(5):
        target = copies()

        def act(count: int, at: int = at, target: str = target) -> None:
            if count == at:
                with LedgerClient(target) as other:
                    other.compact()
            rows = outside(target, "SELECT name FROM ledger_info")
            named = {Path(name.removeprefix("segment_copy ")).name for (name,) in rows}
            held = {name.removesuffix("-wal") for name in files_hold(directory, "of SES-6")}
            assert held <= {*named, _NAME}

        with LedgerClient(target, signer=SIGNER) as client:
            try:
                with _Acts(directory, act):
                    archive_all(client, directory)
            except LedgerError:
                refused += 1
            archive_all(client, directory)
            assert client.select("SELECT * FROM ledger_info WHERE name LIKE 'segment_copy%'") == []
        shutil.rmtree(directory)
    assert refused


def test_a_copy_elsewhere_is_named_and_no_other_file_is_removed(
    copies: Copies, tmp_path: Path
) -> None:
    other = tmp_path / "letter.txt"
    other.write_text("of another")
    with LedgerClient(copies(), signer=SIGNER) as client:
        away = tmp_path / "missing" / f"{_NAME.removesuffix('.db')}.new-00000000"
        for path in (other, away):
            row = (f"segment_copy {path}", "that-machine")
            client.transact(lambda tx, row=row: tx.execute(PUT_INFO, row))
        done = client.erase(session_id="SES-6", reason="asked")
        assert f"{away} on that-machine" in done.remainder
    assert other.read_text() == "of another"


def test_a_copy_on_an_unmounted_disk_is_named_until_it_is_removed(
    copies: Copies, tmp_path: Path
) -> None:
    directory, mounted = tmp_path / "archive", tmp_path / "mounted"
    directory.mkdir()
    with LedgerClient(copies(), signer=SIGNER) as client:
        copy = new_copy(client, directory / _NAME)
        copy.write_text("of SES-6")
        directory.rename(mounted)
        directory.mkdir()  # the mount point
        for _ in range(2):
            assert str(copy) in client.compact()
        directory.rmdir()
        mounted.rename(directory)
        assert (client.compact(), copy.exists(), client.compact()) == ("", False, "")


def test_a_run_does_not_forget_the_copy_of_another_machine(copies: Copies, tmp_path: Path) -> None:
    (directory := tmp_path / "archive").mkdir()
    with LedgerClient(copies(), signer=SIGNER) as client:
        with mock.patch("socket.gethostname", return_value="that-machine"):
            copy = new_copy(client, directory / _NAME)
        copy.unlink()  # That machine has the file.
        archive_all(client, directory)
        assert f"{copy} on that-machine" in client.compact()


def test_a_clone_of_the_database_leaves_the_copy_of_the_original(tmp_path: Path) -> None:
    original, clone = tmp_path / "ledger.db", tmp_path / "clone.db"
    with LedgerClient(original, signer=SIGNER) as client:
        copy = new_copy(client, tmp_path / _NAME)
        copy.touch()
    shutil.copy(original, clone)
    with LedgerClient(clone, signer=SIGNER) as client:
        assert f"{copy} of {original} on " in client.compact()
        assert copy.exists()
    with LedgerClient(original, signer=SIGNER) as client:
        assert (client.compact(), copy.exists()) == ("", False)
    with LedgerClient(clone, signer=SIGNER) as client:
        assert client.compact() == ""


# -- another run -------------------------------------------------------------------------------

_PHASES = (
    (move, "write_segment"), (move, "require_sound"), (move._Run, "_keep_leaves"),
    (move._Run, "_record"), (move, "publish_copy"), (move, "purge"), (move, "remove"),
)  # fmt: skip


@contextlib.contextmanager
def _after(owner: Any, name: str, act: Callable[[], None]) -> Iterator[None]:
    """Call ``act`` once, after the first call of a function."""
    plain, acts = getattr(owner, name), [act]

    def wrapped(*given: Any, **named: Any) -> Any:
        done = plain(*given, **named)
        while acts:
            acts.pop()()
        return done

    with mock.patch.object(owner, name, wrapped):
        yield


def test_a_second_run_is_refused_in_each_phase_of_the_first(copies: Copies, tmp_path: Path) -> None:
    refused: list[str] = []
    for owner, name in sample(_PHASES, 1):
        directory, target = tmp_path / name / "archive", copies()
        whole = _whole(target)

        def start(target: str = target, directory: Path = directory) -> None:
            with LedgerClient(target, signer=SIGNER) as second:
                with pytest.raises(LeaseBusyError) as raised:
                    archive_all(second, directory)
                refused.append(raised.value.message)

        with LedgerClient(target, signer=SIGNER) as first, _after(owner, name, start):
            archive_all(first, directory)
        assert f"process {os.getpid()} on " in refused[-1]
        assert re.search(r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", refused[-1])
        _require_whole(target, directory, whole, done=True)
        assert [path.name for path in directory.iterdir()] == [_NAME]
    print(f"a second run after {len(refused)} phases: refused each time")


def test_a_run_that_lost_its_lease_changes_nothing_more(copies: Copies, tmp_path: Path) -> None:
    """As a process that was suspended for long: another may have taken over."""
    for owner, name in sample(_PHASES[:-1], 1):
        directory, target = tmp_path / name / "archive", copies()
        whole = _whole(target)
        lose = "UPDATE leases SET owner = 'other' WHERE name = 'archive'"
        with LedgerClient(target, signer=SIGNER) as client:
            with (
                _after(owner, name, functools.partial(outside, target, lose)),
                pytest.raises(LedgerError, match="another process took it") as raised,
            ):
                archive_all(client, directory)
            assert _says_where_entries_are(raised.value)
            assert client.count() - len(client.select("SELECT seq FROM entries")) == 0
        outside(target, "DELETE FROM leases")
        _require_whole(target, directory, whole, done=False)
        with LedgerClient(target, signer=SIGNER) as client:
            archive_all(client, directory)
        _require_whole(target, directory, whole, done=True)


@soak_only
def test_two_processes_at_once_fifty_times(copies: Copies, tmp_path: Path) -> None:
    chance, codes = random.Random(SEED), Counter[tuple[int, ...]]()
    for number in range(50):
        directory, target = tmp_path / str(number) / "archive", copies()
        whole = _whole(target)
        pauses = (0.0, chance.random() * 0.5)

        def run(pause: float, target: str = target, directory: Path = directory) -> int:
            time.sleep(pause)
            given = (target, SIGNER.to_pem(), str(directory), "jsonl", "", -1)
            ended = run_forked(archive_with_fault, *given, environment=os.environ)
            assert ended.returncode == 0 or "Another process is working on archive" in ended.stderr
            return ended.returncode

        with ThreadPoolExecutor(2) as pool:
            codes[tuple(sorted(pool.map(move, pauses)))] += 1
        _require_whole(target, directory, whole, done=True)
    assert all(0 in pair for pair in codes)
    print(f"two processes at once, exit codes: {dict(codes)}; entries missing 0")


# -- the segment between two runs -----------------------------------------------------


def _interrupt(target: str, directory: Path, batches: int) -> None:
    """Archive, and stop after so many transactions of the removal."""
    plain, done = removal._remove_batch, itertools.count()

    def remove_batch(*given: Any) -> None:
        if next(done) == batches:
            raise LedgerError("stopped")
        plain(*given)

    with LedgerClient(target, signer=SIGNER) as client:
        with (
            mock.patch.object(removal, "_remove_batch", remove_batch),
            pytest.raises(LedgerError) as raised,
        ):
            archive_all(client, directory)
        assert str(directory / _NAME) in raised.value.message
        assert "--finish --archive DIR" in raised.value.next_step


def _finish(target: str, *directories: Path) -> int:
    with LedgerClient(target, signer=SIGNER) as client:
        return finish(client, directories, guard=unguarded)[0]


def _here(target: str) -> list[Any]:
    return outside(target, "SELECT seq FROM entries ORDER BY seq")


_EDITS: dict[str, Callable[[bytes, int], bytes | None]] = {
    "zero": lambda data, at: data[:at] + bytes(200) + data[at + 200 :],
    "flip": lambda data, at: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :],
    "cut": lambda data, at: data[:at],
    "empty": lambda data, at: b"",
    "remove": lambda data, at: None,
}


@pytest.mark.soak
@pytest.mark.parametrize("batches", [0, 1])
def test_an_edited_segment_takes_no_rows_away(copies: Copies, tmp_path: Path, batches: int) -> None:
    """An edit is refused, or concerns bytes that no row uses; then the run ends as usual."""
    directory, refused = tmp_path / "archive", 0
    for edit, at in sample(itertools.product(_EDITS, range(1, 10)), 3):
        target = copies()
        whole = _whole(target)
        _interrupt(target, directory, batches)
        here, file = _here(target), directory / _NAME
        data = file.read_bytes()
        changed = _EDITS[edit](data, len(data) * at // 10)
        file.unlink()
        if changed is not None:
            file.write_bytes(changed)
        try:
            _finish(target, directory)
        except LedgerError as error:
            assert "in the database" in error.message, (edit, at)
            assert _here(target) == here, (edit, at)
            refused += 1
        file.write_bytes(data)
        with contextlib.suppress(LedgerError):
            _finish(target, directory)
        _require_whole(target, directory, whole, done=True)
        shutil.rmtree(directory)
    assert refused
    print(f"{refused} edits of a segment refused, entries missing 0")


@pytest.mark.parametrize(
    "sql", ["DELETE FROM content_subjects", "DELETE FROM contents WHERE content_id = 3"]
)
def test_rows_that_the_segment_lacks_stay(copies: Copies, tmp_path: Path, sql: str) -> None:
    """Each row is compared with the segment as it is when the row is deleted."""
    directory, target = tmp_path / "archive", copies()
    here: list[Any] = []

    def edit() -> None:
        here.extend(_here(target))
        file = sqlite3.connect(directory / _NAME)
        file.execute(sql)
        file.commit()
        file.close()

    with LedgerClient(target, signer=SIGNER) as client:
        checks = itertools.count()
        plain = move.require_sound

        def require_sound(*given: Any) -> None:
            plain(*given)
            if next(checks) == 1:  # the second time, before the removal
                edit()

        with (
            mock.patch.object(move, "require_sound", require_sound),
            pytest.raises(LedgerError, match="differs between the segment and the database"),
        ):
            archive_all(client, directory)
    assert _here(target) == here


def test_a_lost_archive_is_copied_anew_unless_rows_are_gone(copies: Copies, tmp_path: Path) -> None:
    directory, target = tmp_path / "archive", copies()
    whole = _whole(target)
    _interrupt(target, directory, 0)
    shutil.rmtree(directory)
    with LedgerClient(target, signer=SIGNER) as client:
        archive_all(client, directory)
    _require_whole(target, directory, whole, done=True)
    shutil.rmtree(directory)
    target = copies()
    _interrupt(target, directory, 1)
    here = _here(target)
    directory.rename(tmp_path / "elsewhere")
    with (
        LedgerClient(target, signer=SIGNER) as client,
        pytest.raises(LedgerError, match=f"their segment {_NAME} was not given"),
    ):
        archive_all(client, directory)
    assert _here(target) == here
    assert _finish(target, tmp_path / "elsewhere") == 252 - (len(whole) + 1 - len(here))
    _require_whole(target, tmp_path / "elsewhere", whole, done=True)


def test_another_file_of_that_name_is_not_touched(copies: Copies, tmp_path: Path) -> None:
    directory = tmp_path / "archive"
    directory.mkdir()
    (other := directory / _NAME).write_text("of another ledger")
    stray = directory / f"{_NAME.removesuffix('.db')}.new-00000000"
    stray.touch()
    target = copies()
    with LedgerClient(target, signer=SIGNER) as client:
        with pytest.raises(LedgerError, match="recorded no such segment"):
            archive_all(client, directory)
        assert other.read_text() == "of another ledger"
        other.unlink()
        archive_all(client, directory)
        assert interrupted_copies(directory) == [stray]
        with attached(client, directory):
            assert any(str(stray) in note for note in client.verify().notes)


def test_what_others_do_meanwhile_is_not_undone(tmp_path: Path) -> None:
    """A session that goes on stays whole, and what is erased is not in the segment either."""
    directory = tmp_path / "archive"
    with LedgerClient(tmp_path / "ledger.db", signer=SIGNER) as client:
        sessions(client, 66)

        def meanwhile() -> None:
            conversation(client, "SES-5", 1)
            client.erase(session_id="SES-6", reason="asked")

        with _after(move._Run, "_keep_leaves", meanwhile):
            done = archive_all(client, directory)
        assert done.entries == 252 - 6
        assert [path.name for path in directory.iterdir()] == [_NAME]
        assert len([*client.query(session_id="SES-5")]) == 7
        assert files_hold(directory, "of SES-6") == []
        assert problems(client, directory) == []


def test_a_value_erased_before_its_row_leaves_the_segment(copies: Copies, tmp_path: Path) -> None:
    directory, target = tmp_path / "archive", copies()
    _interrupt(target, directory, 1)
    with LedgerClient(target, signer=SIGNER) as client:
        client.retain({"EXCHANGE": 0})
    _finish(target, directory)
    with LedgerClient(target, signer=SIGNER) as client:
        assert problems(client, directory) == []


# -- an erasure in a segment ---------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["statement", "commit"])
def test_an_interrupted_erasure_keeps_all_other_content(
    copies: Copies, tmp_path: Path, kind: str
) -> None:
    def erase(directory: Path, faults: Faults) -> str:
        target = copies()
        with LedgerClient(target, signer=SIGNER) as client:
            archive_all(client, directory)
            client.attach([directory])
            with contextlib.suppress(LedgerError, OSError), faults:
                client.erase(session_id="SES-4", reason="r")
        return target

    erase(tmp_path / "counted", counted := Faults(tmp_path / "counted"))
    for at in sample(range(counted.counts[kind]), 1):
        directory = tmp_path / str(at)
        target = erase(directory, Faults(directory, kind, "full", at))
        with LedgerClient(target, signer=SIGNER) as client:
            with attached(client, directory):
                records = [entry.entry_hash for entry in client.query()]
                assert len(records) == client.count()
                with contextlib.suppress(ErasureError):  # recorded
                    client.erase(session_id="SES-4", reason="r")
                assert [entry.entry_hash for entry in client.query()][: len(records)] == records
            purge_all(client, [directory])
            assert problems(client, directory) == []
            assert files_hold(directory, "of SES-4") == []
    print(f"an erasure failed at {counted.counts[kind]} {kind}s: content missing 0")


# -- a disk that is really full ---------------------------------------------------------------


@contextlib.contextmanager
def _small_disk(place: Path, size: int) -> Iterator[Callable[[], None]]:
    """Mount a disk of so many bytes; gives a function that makes it large."""
    place.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a file system cannot be mounted here")
    grow = ["mount", "-o", "remount,size=1g", str(place)]
    try:
        yield lambda: subprocess.run(grow, check=True) and None
    finally:
        subprocess.run(["umount", str(place)], check=True)


@soak_only
@pytest.mark.parametrize("what", ["archive", "database"])
def test_a_full_disk_takes_nothing_away(copies: Copies, tmp_path: Path, what: str) -> None:
    page = resource.getpagesize()
    full = 0
    for step in range(1, 40):
        target = copies()
        if what == "database" and "://" in target:
            pytest.skip("the server's disk is filled by injected errors")
        whole, disk = _whole(target), tmp_path / str(step)
        used = Path(target).stat().st_size if what == "database" else 0
        directory = (tmp_path / f"out{step}" if what == "database" else disk) / "archive"
        with _small_disk(disk, used + step * page * (4 if what == "database" else 2)) as grow:
            if what == "database":
                target = str(shutil.copy(target, disk / "ledger.db"))
            with contextlib.suppress(LedgerError), LedgerClient(target, signer=SIGNER) as client:
                full += 1
                archive_all(client, directory)
                full -= 1
            grow()
            outside(target, "DELETE FROM leases")  # as above
            _require_whole(target, directory, whole, done=False)
            with LedgerClient(target, signer=SIGNER) as client:
                archive_all(client, directory)
            _require_whole(target, directory, whole, done=True)
    assert full
    print(f"a full disk of the {what}, {full} sizes: entries missing 0")
