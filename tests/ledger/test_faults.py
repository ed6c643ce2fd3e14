"""Disks that are full, servers that die: an error that says so, and nothing acknowledged lost."""

from __future__ import annotations

import errno
import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from remit.kernel.settings import LedgerSettings, default_settings
from remit.ledger import (
    LedgerClient,
    LedgerConnectionError,
    LedgerEntry,
    LedgerError,
    LedgerWriteError,
)
from remit.ledger.imports import Import
from remit.ledger.postgres import store, transaction
from tests.support.postgres import PostgresServer
from tests.support.processes import Program
from tests.support.stores import conversation


def _settings(**changes: object) -> LedgerSettings:
    return default_settings().ledger.model_copy(update=changes)


def _entry(number: int, size: int = 100) -> LedgerEntry:
    return LedgerEntry(
        "E", "S", "D", "r",
        metadata={"session_id": f"SES-{number % 3}", "n": number, "prompt": os.urandom(size).hex()},
    )  # fmt: skip


# -- the disk ------------------------------------------------------------------------------------


def test_a_write_that_fails_anywhere_in_the_file_loses_nothing(tmp_path: Path) -> None:
    """The file size limit makes the next write past it fail, wherever in a commit it is."""
    path = tmp_path / "ledger.db"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    acknowledged: list[str] = []
    refused = 0
    with LedgerClient(path) as client:
        conversation(client, "SES-A", 3)
        for step in range(120):
            limit = max(
                os.path.getsize(path), os.path.getsize(f"{path}-wal")
            ) + 1 + step * 257 % 9001  # fmt: skip
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
            try:
                for number in range(6):
                    acknowledged.append(client.write(_entry(number)))
            except LedgerWriteError as error:
                refused += 1
                assert "refused the write" in error.message
                assert "free space" in error.next_step
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            acknowledged.append(client.write(_entry(step)))  # the next one works
        assert refused > 60
        assert [entry.id for entry in client.query(after=2, with_content=False)] == acknowledged
        report = client.verify()
        assert report.verified, report.problems
    with LedgerClient(path) as again:
        assert again.count() == len(acknowledged) + 3


def test_an_export_takes_the_place_of_another_only_when_it_is_on_disk(tmp_path: Path) -> None:
    place = tmp_path / "export"
    with LedgerClient(tmp_path / "ledger.db") as client:
        for text in ("old", "new"):
            client.write(LedgerEntry("NOTE", "S", "D", text))
            if text == "old":
                client.export(place)
        before = place.read_bytes()
        lost = OSError(errno.EIO, "Input/output error")
        with (
            mock.patch.object(os, "fsync", side_effect=lost),
            pytest.raises(LedgerError, match="cannot be written"),
        ):
            client.export(place)
        assert place.read_bytes() == before
        assert not (tmp_path / ".export.new").exists()


# -- the server ----------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PostgresServer]:
    """A server of the test's own, to be harmed."""
    one = PostgresServer(tmp_path / "data")
    yield one
    one.stop()


def test_a_server_killed_again_and_again_under_writers(server: PostgresServer) -> None:
    url = server.database()
    acknowledged: dict[str, str] = {}
    lock = threading.Lock()
    stop = threading.Event()
    failures: list[BaseException] = []
    with LedgerClient(url) as client:

        def work(name: str) -> None:
            number = 0
            while not stop.is_set():
                try:
                    entry_id = client.write(
                        LedgerEntry("LOAD", f"{name}-{number}", "D", "r",
                                    metadata={"session_id": name, "prompt": f"{name} {number}"})
                    )  # fmt: skip
                except BaseException as error:
                    failures.append(error)
                    return
                with lock:
                    acknowledged[f"{name}-{number}"] = entry_id
                number += 1

        threads = [threading.Thread(target=work, args=(f"T{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            time.sleep(0.7)
            server.kill()
            server.start()
        time.sleep(0.5)
        stop.set()
        for thread in threads:
            thread.join()
        assert failures == []  # the outage was shorter than the patience
        report = client.verify()
        assert report.verified, report.problems
        there: dict[str, list[str]] = {}
        for entry in client.query(event_type="LOAD", with_content=False):
            there.setdefault(entry.submission_id, []).append(entry.id)
        assert len(acknowledged) > 100
        for name, entry_id in acknowledged.items():
            assert there[name] == [entry_id]  # there, and once only
        assert len(there) == len(acknowledged)


def test_a_server_that_stays_away_is_an_error_in_time(server: PostgresServer) -> None:
    url = server.database()
    client = LedgerClient(url, settings=_settings(lock_timeout_s=1.0))
    client.write(_entry(0))
    server.kill()
    started = time.monotonic()
    with pytest.raises(LedgerConnectionError, match=r"cannot be reached|not known|broke") as caught:
        client.write(_entry(1))
    assert time.monotonic() - started < 60
    assert caught.value.next_step
    with pytest.raises(LedgerConnectionError, match="cannot be reached"):
        client.count()
    server.start()
    client.write(_entry(2))
    assert client.count() == 2
    client.close()
    assert "@" not in client.location.replace("postgres@", "")


def test_a_frozen_writer_loses_the_ledger(postgres: PostgresServer, tmp_path: Path) -> None:
    """As shipped, a process stopped inside a batch loses its place long before others give up."""
    url = postgres.database()
    # Where the frozen one had the 30 s of its lock timeout, this one would give up before.
    with LedgerClient(url, settings=_settings(lock_timeout_s=20.0)) as client:
        client.write(_entry(0))
        script = (
            "import sys, time\n"
            "from remit.ledger import LedgerClient\n"
            "c = LedgerClient(sys.argv[1])\n"
            "def call(tx):\n"
            "    print('held', flush=True); time.sleep(60)\n"
            "c.transact(call)\n"
        )
        with Program("-c", script, url, environment=os.environ) as frozen:
            assert frozen.stdout.readline() == "held\n"
            frozen.send_signal(signal.SIGSTOP)
            client.write(_entry(1))
            frozen.kill()


def test_a_server_that_is_not_there_is_named_without_the_password() -> None:
    for host in ("no-such-host.invalid", "127.0.0.1:99999"):
        with pytest.raises(Exception, match="cannot be opened") as caught:
            LedgerClient(
                f"postgresql://user:s3cret@{host}/none", settings=_settings(lock_timeout_s=0.5)
            )
        assert "s3cret" not in str(caught.value)


def test_an_import_outlasts_the_limit_for_frozen_writers(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LedgerClient(tmp_path / "ledger.db") as source:
        for number in range(10):
            source.write(LedgerEntry("E", "S", "D", "r", metadata={"n": number}))
        source.export(tmp_path / "all.jsonl")
    line = Import._line

    def slow(self: Import, value: dict[str, object]) -> None:
        time.sleep(0.07)
        line(self, value)

    monkeypatch.setattr(Import, "_line", slow)
    monkeypatch.setattr(store, "FROZEN_S", 0.4)
    monkeypatch.setattr(transaction, "_SILENT_NS", 50_000_000)
    with LedgerClient(postgres.database()) as target:
        assert target.import_jsonl(tmp_path / "all.jsonl").entries == 10
