"""``remit ledger export --cursor``: nothing is lost, whatever is killed, refused or erased."""

from __future__ import annotations

import functools
import json
import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.ledger import (
    LedgerClient,
    LedgerEntry,
    LedgerFormatError,
    entry_id,
    open_root_ledger,
    read_batches,
)
from remit.ledger.tlog import VerifierKey
from tests.server.telemetry.collector import Collector
from tests.support.commands import require_said, run_remit
from tests.support.processes import Program
from tests.support.secrets import KEYS
from tests.support.soak import SEED, is_soak, sample
from tests.support.standalone import load_standalone
from tests.support.stores import conversation

_SECRETS = ("hunter2hunter2", "sk-1f2e3d4c5b6a79880123456789", "rat1.aaaa.bbbb", *KEYS)


class Exporting:
    """A root, its ledger, and files next to it."""

    def __init__(self, place: Path) -> None:
        self.place, self.root = place, place / "root"
        assert run_remit("init", "--bare", self.root).returncode == 0
        self.file = place / "lines.jsonl"

    def open(self) -> LedgerClient:
        root = Root(self.root)
        return open_root_ledger(root, load_settings(root.config).settings.ledger)

    def write(self, sessions: int = 4) -> int:
        with self.open() as client:
            for number in range(sessions):
                conversation(client, f"SES-{client.count():08X}", 10 + number)
            return client.count()

    def run(
        self, *more: object, target: object = "", cursor: str = "cursor"
    ) -> subprocess.CompletedProcess[str]:
        return run_remit("ledger", "export", "--root", self.root, "--cursor", self.place / cursor,
                         "--out", target or self.file, *more)  # fmt: skip

    def following(self) -> Program:
        """Return an export with ``--follow`` in a process of its own."""
        line = ("-m", "remit", "ledger", "export", "--root", self.root, "--follow",
                "--cursor", self.place / "cursor", "--out", self.file)  # fmt: skip
        return Program(*map(str, line), environment=os.environ, errors=self.place / "errors")

    @functools.cached_property
    def key(self) -> str:
        return run_remit("ledger", "key", "--root", self.root).stdout.strip()

    def lines(self) -> list[bytes]:
        return self.file.read_bytes().splitlines(keepends=True)

    def proven(self) -> tuple[int, int]:
        found = read_batches(self.lines(), VerifierKey.parse(self.key))
        said = load_standalone().check_batches(str(self.file), self.key)
        assert f"entries of {found.first} to {found.end - 1}," in said
        assert said.endswith(f"{found.unproven} more lines have no proof yet") == (
            found.unproven > 0
        )
        return found.first, found.end


@pytest.fixture
def exporting(tmp_path: Path) -> Exporting:
    return Exporting(tmp_path)


def _ids(lines: list[bytes]) -> list[str]:
    return [found["id"] for line in lines if "id" in (found := json.loads(line))]


def test_each_run_adds_the_entries_since_the_last_one(exporting: Exporting) -> None:
    for sessions in (4, 20, 0):
        expected = exporting.write(sessions)
        assert (exported := exporting.run()).returncode == 0, exported.stderr
        assert exporting.proven() == (0, expected)
        done = run_remit("ledger", "verify", "--file", exporting.file, "--key", exporting.key)
        assert done.stdout.startswith(f"verified: all {expected} of entries 0 to {expected - 1},")
        assert _ids(exporting.lines()) == [entry_id(seq) for seq in range(expected)]
    assert "0 entries exported" in exported.stderr
    with exporting.open() as client:
        line = json.loads(exporting.lines()[3])
        assert client.read_record(line["id"]) == exporting.lines()[3].rstrip(b"\n")


def test_content_is_left_out_unless_requested_and_secrets_always(exporting: Exporting) -> None:
    with exporting.open() as client:
        shown = {"prompt": "my cat is ill", "response": f"keys: {' '.join(_SECRETS[1:])}",
                 "arguments": {"token": _SECRETS[0], _SECRETS[1]: "as a name"}}  # fmt: skip
        written = client.write(LedgerEntry("NOTE", "S", "KEPT", "r", metadata=shown))
    assert exporting.run().returncode == 0
    assert b"cat" not in exporting.file.read_bytes()
    assert not any(secret.encode() in exporting.file.read_bytes() for secret in _SECRETS)
    exporting.file.unlink()
    assert exporting.run("--content", cursor="second").returncode == 0
    (line,) = [one for one in map(json.loads, exporting.lines()) if one.get("id") == written]
    assert line["metadata"]["prompt"] == "my cat is ill"
    assert not any(secret.encode() in exporting.file.read_bytes() for secret in _SECRETS)
    exporting.proven()


def test_an_erasure_reaches_later_exports_and_is_exported_itself(exporting: Exporting) -> None:
    with exporting.open() as client:
        written = client.write(LedgerEntry("NOTE", "S", "KEPT", "r", metadata={"prompt": "my cat"}))
        erased = client.erase(written, reason="request 7").erasure_id
    assert exporting.run("--content").returncode == 0
    found = {one["id"]: one for one in map(json.loads, exporting.lines()) if "id" in one}
    assert found[written]["metadata"]["prompt"] == {"$erased": erased}
    assert found[erased]["event_type"] == "ERASURE"
    exporting.proven()


def _edits(lines: list[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """Yield changes of exported lines, with a text that the refusal must contain."""
    proofs = [at for at, line in enumerate(lines) if b'"format"' in line]
    for at, line in enumerate(lines):
        rest = [*lines[:at], *lines[at + 1 :]]
        if at not in proofs:
            yield json.loads(line)["id"], rest
            yield "", [*lines[:at], line.replace(b"answer", b"anSwer", 1)
                       if b"answer" in line else line.replace(b'"id"', b'"iD"', 1),
                       *lines[at + 1 :]]  # fmt: skip
        elif at != proofs[-1]:
            yield "missing", rest
    for before, after in zip([-1, *proofs[:-1]], proofs, strict=True):
        if before >= 0 and after != proofs[-1]:
            yield entry_id(json.loads(lines[before + 1])["seq"]), [
                *lines[: before + 1], *lines[after + 1 :]
            ]  # fmt: skip


@pytest.mark.soak
def test_every_change_and_omission_is_refused(exporting: Exporting) -> None:
    for _ in range(5):
        exporting.write(8)
        assert exporting.run().returncode == 0
    key, standalone = exporting.key, load_standalone()
    changed = exporting.place / "changed.jsonl"
    cases = sample(_edits(exporting.lines()), 15)
    for expected, lines in cases:
        changed.write_bytes(b"".join(lines))
        with pytest.raises(LedgerFormatError) as error:
            read_batches(lines, VerifierKey.parse(key))
        assert expected in str(error.value)
        with pytest.raises(ValueError, match=expected or "."):
            standalone.check_batches(str(changed), key)
    print(f"{len(cases)} of {len(cases)} changes refused")


def test_lines_of_another_ledger_are_refused(exporting: Exporting, tmp_path: Path) -> None:
    exporting.write()
    assert exporting.run().returncode == 0
    (tmp_path / "other").mkdir()
    other = Exporting(tmp_path / "other")
    other.write(8)
    (other.place / "cursor").write_bytes((tmp_path / "cursor").read_bytes())
    refused = other.run()
    assert refused.returncode == 1
    assert "the cursor is of another ledger" in refused.stderr
    assert other.run(cursor="own").returncode == 0
    for lines in ([*exporting.lines(), *other.lines()], [*other.lines(), *exporting.lines()]):
        for key in (VerifierKey.parse(exporting.key), None):
            with pytest.raises(LedgerFormatError):
                read_batches(lines, key)


def test_a_new_file_has_a_durable_name_before_the_cursor_moves(
    exporting: Exporting, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[tuple[int, bool]] = []
    fsync, cursor = os.fsync, exporting.place / "cursor"

    def noted(handle: int) -> None:
        flushed.append((os.fstat(handle).st_ino, cursor.exists()))
        fsync(handle)

    exporting.write(1)
    out = exporting.place / "new" / "lines.jsonl"
    out.parent.mkdir()
    monkeypatch.setattr(os, "fsync", noted)
    assert exporting.run(target=out).returncode == 0
    file, folder = ((path.stat().st_ino, False) for path in (out, out.parent))
    assert flushed.index(file) < flushed.index(folder)


def test_one_export_at_a_time_uses_a_cursor(exporting: Exporting) -> None:
    exporting.write(1)
    with exporting.following() as process:
        _grow(exporting.place / "cursor", 1)
        for more in ((), ("--follow",)):
            require_said(
                exporting.run(*more), f"Another export uses the cursor {exporting.place / 'cursor'}"
            )
        assert exporting.run(cursor="own", target=exporting.place / "own.jsonl").returncode == 0
        process.kill()
    assert exporting.run().returncode == 0
    exporting.proven()


@pytest.mark.soak
def test_a_killed_export_loses_nothing(exporting: Exporting) -> None:
    """The process is killed after a random number of exported bytes, while others write."""
    chance, kills = random.Random(SEED), 40 if is_soak() else 3
    exporting.write(1)
    for _ in range(kills):
        before = exporting.file.stat().st_size if exporting.file.exists() else 0
        exporting.write(12)
        with exporting.following() as process:
            _grow(exporting.file, before + chance.randint(1, 60_000))
            process.kill()
    count = exporting.write(1)
    done = exporting.run()
    assert done.returncode == 0, done.stderr
    assert exporting.proven() == (0, count)
    ids = _ids(exporting.lines())
    assert {*ids} == {entry_id(seq) for seq in range(count)}
    print(f"{kills} kills: {count} entries, {len(ids) - count} exported twice")


def _grow(file: Path, size: int) -> None:
    for _ in range(60_000):
        if file.exists() and file.stat().st_size >= size:
            return
        time.sleep(0.001)
    raise AssertionError("it never grew")


def _logs(collector: Collector) -> list[LogRecord]:
    return [
        record
        for path, _, message in collector.got
        if path == "/v1/logs"
        for resource in message.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]


def test_a_receiver_of_opentelemetry_logs_gets_the_same_lines(
    exporting: Exporting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=token-1")
    count = exporting.write(12)
    with Collector() as collector:
        done = exporting.run(target=collector.url)
        assert done.returncode == 0, done.stderr
        again = exporting.run(target=collector.url)
    assert "0 entries exported" in again.stderr
    records = _logs(collector)
    lines = [record.body.string_value.encode() for record in records]
    found = read_batches(lines, VerifierKey.parse(exporting.key))
    assert (found.first, found.end) == (0, count)
    assert collector.got[0][1]["authorization"] == "token-1"
    exchange = next(one for one in records if one.event_name == "remit.EXCHANGE")
    record = json.loads(exchange.body.string_value)
    named = {one.key: one.value.string_value for one in exchange.attributes}
    assert named["log.record.uid"] == record["id"]
    assert named["gen_ai.conversation.id"] == record["metadata"]["session_id"]
    microseconds = exchange.time_unix_nano // 1000 % 1_000_000
    assert record["timestamp"].endswith(f".{microseconds:06d}Z")


@pytest.mark.parametrize("rejects", [503, 400, 301, "partly", "as a page"])
def test_the_cursor_stays_until_the_receiver_accepts(
    exporting: Exporting, monkeypatch: pytest.MonkeyPatch, rejects: Any
) -> None:
    exporting.write()
    with Collector() as collector:
        collector.rejects = rejects
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")
        done = exporting.run(target=collector.url)
        assert done.returncode == 1
        assert (
            "rejected 1 records" in done.stderr
            or f"answered {rejects}" in done.stderr
            or (rejects == "as a page" and "not that of an OTLP receiver" in done.stderr)
        )
        assert not (exporting.place / "cursor").exists()
        collector.rejects = None
        monkeypatch.delenv("OTEL_EXPORTER_OTLP_TIMEOUT")
        assert exporting.run(target=collector.url).returncode == 0
    lines = [record.body.string_value.encode() for record in _logs(collector)]
    assert read_batches(lines, VerifierKey.parse(exporting.key)).first == 0
