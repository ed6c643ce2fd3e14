"""Archiving that is killed, or whose disk is full: nothing is lost, and the next run ends it."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import orjson
import pytest

from remit.ledger import LedgerClient, LedgerEntry, LedgerError
from remit.ledger.archive import (
    Archive,
    archive,
    archiving,
    check_archive,
    copying,
    finish,
    joined,
    removal,
)
from remit.ledger.tlog import Signer
from tests.ledger.archive.writing import sessions
from tests.support.processes import run_forked
from tests.support.stores import SIGNER, conversation

_END = 256
# Where it dies: before it calls this for the n-th time.
_POINTS: tuple[tuple[Any, str, int], ...] = (
    (copying.RangeCopy, "check", 1),
    (archiving, "_insert", 1),
    (archiving._Archiving, "_record", 1),
    (archiving, "remove", 1),
    (removal._Removal, "run", 3),
    (removal.TextIndex, "merge", 1),
)


def archive_all(client: LedgerClient, directory: Path) -> Any:
    return archive(client, _END, directory, by="ann", carry=lambda *_: {}, kind="jsonl")


def die_at(target: str, key: bytes, directory: str, point: int) -> None:
    """Archive, in a process of its own, and be killed on the way."""
    owner, name, calls = _POINTS[point]
    plain: Callable[..., Any] = getattr(owner, name)
    count = 0

    def dying(*given: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        if count == calls:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(*given, **named)

    with mock.patch.object(owner, name, dying), mock.patch.object(removal, "_AT_ONCE", 30):
        signer = Signer.from_pem(SIGNER.verifier_key.name, key)
        archive_all(LedgerClient(target, signer=signer), Path(directory))


def _ids(entries: Iterator[LedgerEntry]) -> list[str]:
    return [entry.entry_hash for entry in entries if entry.event_type != "ARCHIVED"]


def test_killed_anywhere_the_next_run_ends_it(target: str, tmp_path: Path) -> None:
    directory = tmp_path / "archive"
    with LedgerClient(target, signer=SIGNER) as client:
        sessions(client, 66)
        client.index_text()
        whole = _ids(client.query())
    seen = set()
    for point in range(len(_POINTS)):
        given = (target, SIGNER.to_pem(), str(directory), point)
        ended = run_forked(die_at, *given, environment=os.environ)
        # What was done in a run before is not done again: it gets by that point, and ends.
        assert ended.returncode in (-signal.SIGKILL, 0), ended.stderr
        with LedgerClient(target, signer=SIGNER) as client:
            report = client.verify()
            assert report.problems == [], _POINTS[point]
            seen.add((client.archived_to, report.archived > 0, bool(report.notes)))
            if client.archived_to:
                assert check_archive(client, [directory]).problems == []
                assert _ids(joined(client, Archive([directory]), None)) == whole
            else:
                assert _ids(client.query()) == whole
    # Before it was on record; then before, amid and after the removal.
    assert seen >= {(0, False, False), (_END, False, True), (_END, True, True)}
    with LedgerClient(target, signer=SIGNER) as client:
        finish(client)
        assert finish(client) == (0, "")
        assert archive_all(client, directory).archived_id == ""
        report = client.verify()
        assert (report.archived, report.notes, report.problems) == (252, [], [])
        assert [path.name for path in directory.iterdir()] == [f"{0:012d}-{_END:012d}"]


def test_what_others_do_meanwhile_is_not_undone(tmp_path: Path) -> None:
    """A session that goes on stays whole, and what is erased is not in the archive either."""
    directory = tmp_path / "archive"
    with LedgerClient(tmp_path / "ledger.db", signer=SIGNER) as client:
        sessions(client, 66)
        plain = archiving._Archiving._keep_leaves

        def meanwhile(*given: Any) -> None:
            plain(*given)
            conversation(client, "SES-5", 1)
            client.erase(session_id="SES-6", reason="asked")

        with mock.patch.object(archiving._Archiving, "_keep_leaves", meanwhile):
            done = archive_all(client, directory)
        assert done.entries == 252 - 6
        assert len([*client.query(session_id="SES-5")]) == 7
        assert b"of SES-6" not in b"".join(
            orjson.dumps(line.to_dict()) for line in Archive([directory]).lines()
        )
        assert client.verify().problems == []
        assert check_archive(client, [directory]).problems == []


def test_a_full_disk_takes_nothing_away(tmp_path: Path) -> None:
    with LedgerClient(tmp_path / "ledger.db", signer=SIGNER) as client:
        sessions(client, 66, size=300)
        client.checkpoint()
        whole = _ids(client.query())
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        for most in (2_000, 20_000):  # of a tile, of a part
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
            try:
                with pytest.raises(LedgerError, match=r"cannot be written|File too large"):
                    archive_all(client, tmp_path / "archive")
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            assert client.archived_to == 0
            assert _ids(client.query()) == whole
        # What does not read back is not gone by.
        with (
            mock.patch.object(copying, "bundle", lambda records: b"\0\0" * len(records)),
            pytest.raises(LedgerError, match="does not read back"),
        ):
            archive_all(client, tmp_path / "archive")
        assert client.archived_to == 0
        archive_all(client, tmp_path / "archive")
        assert _ids(joined(client, Archive([tmp_path / "archive"]), None)) == whole
        assert client.verify().problems == []
