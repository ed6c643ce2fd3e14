"""``remit ledger export --cursor``: nothing is lost, whatever is killed, refused or erased."""

from __future__ import annotations

import functools
import json
import os
import random
import re
import shutil
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
from tests.support.standalone import load_standalone, standalone
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
        assert f"verified: all entries from 0 to {expected - 1} ({expected})," in done.stdout
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


def _refused(exporting: Exporting, lines: list[bytes], said: str) -> None:
    changed = exporting.place / "changed.jsonl"
    changed.write_bytes(b"".join(lines))
    with pytest.raises(LedgerFormatError, match=said):
        read_batches(lines, VerifierKey.parse(exporting.key))
    with pytest.raises(ValueError, match=said):
        load_standalone().check_batches(str(changed), exporting.key)


def test_a_changed_copy_of_a_proven_line_is_refused(exporting: Exporting) -> None:
    for _ in range(2):
        exporting.write(1)
        assert exporting.run("--content").returncode == 0
    lines = exporting.lines()
    first = next(at for at, line in enumerate(lines) if b'"format"' in line)
    for at in range(first + 1, len(lines) - 1):  # lines of the last batch may come again
        exporting.file.write_bytes(b"".join([*lines, *lines[first + 1 : at + 1]]))
        exporting.proven()
        forged = re.sub(rb'(decision\\*":\\*")', rb"\1X", lines[at])
        _refused(exporting, [*lines, *lines[first + 1 : at], forged], "record-link")
    for line in lines[:first]:
        _refused(exporting, [*lines, line], "extract-order")


def _copied(exporting: Exporting, place: Path) -> Exporting:
    """Return a copy of a root with its key, whose owner may write another history."""
    copy = Exporting.__new__(Exporting)
    copy.place, copy.root, copy.file = place, place / "root", place / "lines.jsonl"
    shutil.copytree(exporting.root, copy.root)
    return copy


def test_a_batch_that_contradicts_earlier_lines_is_refused(
    exporting: Exporting, tmp_path: Path
) -> None:
    """The owner of the key signs another history of entries that a file has proven already."""
    exporting.write(1)
    forged = _copied(exporting, tmp_path / "forged")
    for _ in range(2):
        exporting.write(2)
        assert exporting.run().returncode == 0
    forged.write(1)
    assert forged.run().returncode == 0
    exporting.proven()
    forged.proven()
    assert len(forged.lines()) < len(exporting.lines())
    _refused(exporting, [*exporting.lines(), *forged.lines()], "two records")
    (exporting.place / "cursor").unlink()
    assert exporting.run().returncode == 0  # all entries again, which contradicts nothing
    exporting.proven()


def _verified(exporting: Exporting, file: Path, kept: Path) -> str:
    """Return what both verifiers say of a file and a checkpoint; empty if both accept them."""
    done = run_remit("ledger", "verify", "--file", file, "--key", exporting.key,
                     "--checkpoint", kept)  # fmt: skip
    alone = standalone(file, "--key", exporting.key, "--checkpoint", kept)
    assert done.returncode == alone.returncode, (done, alone)
    return (done.stdout + done.stderr + alone.stderr) if done.returncode else ""


def test_a_kept_checkpoint_is_compared_or_the_file_refused(
    exporting: Exporting, tmp_path: Path
) -> None:
    """Both verifiers agree, whether a file can show that it continues the checkpoint or not."""
    exporting.write(1)
    assert exporting.run().returncode == 0
    forged = _copied(exporting, tmp_path / "forged")
    first, heads = exporting.lines(), [tmp_path / f"head{number}" for number in range(2)]
    for head in heads:
        exporting.write(2)
        with exporting.open() as client:
            head.write_text(client.checkpoint())
    assert exporting.run().returncode == 0
    forged.write(4)
    assert forged.run(cursor="own").returncode == 0
    with forged.open() as client:
        call = client.write(LedgerEntry("TOOL_CALL", "S", "D", "r", metadata={"session_id": "S"}))
    receipt, old, rest = tmp_path / "receipt", tmp_path / "old", tmp_path / "rest"
    assert run_remit("receipt", call, "--root", forged.root, "--out", receipt).returncode == 0
    old.write_bytes(b"".join(first))
    rest.write_bytes(b"".join(exporting.lines()[len(first) :]))
    for head in heads:
        assert _verified(exporting, exporting.file, head) == ""
        assert _verified(exporting, rest, head) == ""
        assert "tree-root" in _verified(exporting, forged.file, head)
        assert "does not show" in _verified(exporting, old, head)
        assert "does not show" in _verified(exporting, receipt, head)
    for text in (None, "junk"):
        kept = tmp_path / "kept"
        if text:
            kept.write_text(text)
        assert re.search("cannot be read|note", _verified(exporting, exporting.file, kept))


def _with(proof: bytes, **members: Any) -> bytes:
    return json.dumps({**json.loads(proof), **members}).encode() + b"\n"


def test_a_line_or_proof_of_another_form_is_refused_with_the_reason(exporting: Exporting) -> None:
    exporting.write(1)
    assert exporting.run().returncode == 0
    good = exporting.lines()
    *entries, proof = good
    record = json.loads(entries[-1])
    later = {**record, "seq": 77, "id": entry_id(77)}
    for line, said in (
        (b'{"seq":99999,"note":"Ada approved"}', "ten members|no member"),
        (b'{"record":"{\\"seq\\":77}"}', "ten members|no member"),
        (b'{"record":null}', "record.*no[t a]* text"), (b"[]", "object"), (b"5", "object"),
        (json.dumps({**later, "reason": 5}).encode(), "reason"),
        (json.dumps({**later, "id": "LED-00000001"}).encode(), r"record-(text|place)"),
        (json.dumps(later).encode(), "canonical"),
    ):  # fmt: skip
        _refused(exporting, [*good, line + b"\n"], said)
    for edited, name in (
        *((_with(proof, **{name: None}), name) for name in ("of", "checkpoint", "hashes")),
        (_with(proof, of={"first": 0}), "end"), (_with(proof, of={"first": 0, "end": "5"}), "end"),
        (_with(proof, more=1), "more"),
    ):  # fmt: skip
        _refused(exporting, [*entries, edited], rf"{name}.*\(extract-members\)")


def test_a_line_that_a_kill_cut_off_before_a_rotation_is_passed_over(exporting: Exporting) -> None:
    """A kill cuts a batch at any byte, the file is rotated, and ``cat`` joins the files."""
    exporting.write(1)
    assert exporting.run("--content").returncode == 0
    old = exporting.file.read_bytes()
    count, before = exporting.write(1), (exporting.place / "cursor").read_bytes()
    assert exporting.run("--content").returncode == 0
    batch = exporting.file.read_bytes().removeprefix(old)
    (exporting.place / "cursor").write_bytes(before)
    exporting.file.unlink()
    count = exporting.write(1)
    assert exporting.run("--content").returncode == 0
    new = exporting.file.read_bytes()
    for cut in sample(range(0, len(batch), 7), 12):
        exporting.file.write_bytes(old + batch[:cut])
        assert exporting.proven()[1] < count
        for between in (b"", b"\n"):
            exporting.file.write_bytes(old + batch[:cut] + between + new)
            assert exporting.proven() == (0, count)
    half = batch.splitlines()[0][:-9]
    for cut, said in (
        (b'{"x', "record-link"),
        (b'{"x\n', "not JSON"),
        (half.replace(b'decision":"', b'decision":"X'), "record-link"),
        (half.replace(b'decision":"', b'decision":"X') + b"\n", "record-link"),
    ):
        _refused(exporting, (old + cut + new).splitlines(keepends=True), said)


def test_lines_of_another_ledger_are_refused(exporting: Exporting, tmp_path: Path) -> None:
    exporting.write()
    assert exporting.run().returncode == 0
    (tmp_path / "other").mkdir()
    other = Exporting(tmp_path / "other")
    other.write(8)
    (other.place / "cursor").write_bytes((tmp_path / "cursor").read_bytes())
    require_said(other.run(), "the cursor is of another ledger")
    assert other.run(cursor="own").returncode == 0
    for lines in ([*exporting.lines(), *other.lines()], [*other.lines(), *exporting.lines()]):
        for key in (VerifierKey.parse(exporting.key), None):
            with pytest.raises(LedgerFormatError):
                read_batches(lines, key)


def test_a_file_across_a_fork_is_refused_with_the_reason(exporting: Exporting) -> None:
    exporting.write()
    assert exporting.run().returncode == 0
    before, key, ledger = exporting.lines(), exporting.key, exporting.root / "ledger.db"
    older = ledger.read_bytes()
    exporting.write(1)
    with exporting.open() as client:
        client.checkpoint()
    for path in exporting.root.glob("ledger.db*"):
        path.unlink()
    ledger.write_bytes(older)
    done = run_remit("ledger", "fork", "--root", exporting.root, "--reason", "lost", "--yes")
    assert done.returncode == 0, done.stderr
    del exporting.key  # The log after a fork has another name.
    require_said(exporting.run(), "The ledger was forked", code=0)
    changed = exporting.place / "changed.jsonl"
    changed.write_bytes(b"".join(exporting.lines()))
    for known in (key, None):
        with pytest.raises(LedgerFormatError, match=r"the log was forked.*verify its lines alone"):
            read_batches(exporting.lines(), VerifierKey.parse(known) if known else None)
        with pytest.raises(ValueError, match=r"the log was forked.*verify its lines alone"):
            load_standalone().check_batches(str(changed), known)
    assert read_batches(before, VerifierKey.parse(key)).first == 0
    exporting.file.write_bytes(b"".join(exporting.lines()[len(before) :]))
    assert exporting.proven()[0] == len(before) - 1


def test_what_is_no_cursor_of_this_ledger_is_refused(exporting: Exporting) -> None:
    exporting.write(1)
    cursor = exporting.place / "cursor"
    missing = exporting.run(target=exporting.place / "missing" / "lines.jsonl")
    require_said(missing, "cannot be written")
    assert not cursor.exists()
    cursor.write_text('{"next":5000,"entry_hash":"aa"}')
    require_said(exporting.run(), "entries were lost")
    for text in (
        '{"next":"5"}', '{"next":-1,"entry_hash":""}', '{"next":0,"entry_hash":"aa"}',
        '{"next":5,"entry_hash":""}', '{"next":5,"entry_hash":"aa","next":6}', "", "[]",
    ):  # fmt: skip
        cursor.write_text(text)
        assert "is not a cursor" in exporting.run().stderr, text
    os.mkfifo(exporting.place / "pipe")
    for place in ("/dev/full", exporting.place / "pipe"):
        done = exporting.run(cursor=str(place))
        assert f"{place} is not a cursor of an export" in done.stderr
    assert not Path("/dev/.full.lock").exists()


def test_a_cursor_of_another_ledger_is_refused_if_nothing_is_new(exporting: Exporting) -> None:
    count, cursor = exporting.write(), exporting.place / "cursor"
    assert exporting.run().returncode == 0
    own = cursor.read_text()
    cursor.write_text(own.replace(own[-9:-3], "a" * 6))
    require_said(
        exporting.run(), f"{entry_id(count)} does not follow the entry that the cursor names"
    )
    cursor.write_text(own)
    assert exporting.run().returncode == 0


def test_a_file_that_was_cut_in_a_line_is_continued(exporting: Exporting) -> None:
    exporting.write()
    assert exporting.run().returncode == 0
    cut = b"".join(exporting.lines()[:-2]) + exporting.lines()[-2][:17]
    exporting.file.write_bytes(cut)
    (exporting.place / "cursor").unlink()  # the cursor had not moved yet
    assert exporting.run().returncode == 0
    assert exporting.proven() == (0, exporting.write(0))


def test_a_file_with_other_content_is_refused_and_stays(exporting: Exporting) -> None:
    exporting.write(1)
    assert exporting.run(cursor="other").returncode == 0
    whole = exporting.file.read_bytes()
    export = run_remit("ledger", "export", "--root", exporting.root, "--out", "-").stdout.encode()
    extract = run_remit("ledger", "export", "--root", exporting.root, "--range", "0", "1",
                        "--out", "-").stdout.encode()  # fmt: skip
    for content in (b"notes", b"notes\n", b'{"next":0}', whole + b"notes", whole + b"notes\n",
                    b"\n", b'{"format":1}\n', export, extract,
                    (exporting.place / "other").read_bytes()):  # fmt: skip
        exporting.file.write_bytes(content)
        done = exporting.run()
        assert done.returncode == 2, content
        assert f"{exporting.file} has other content" in done.stderr
        assert exporting.file.read_bytes() == content
        assert not (exporting.place / "cursor").exists()
    exporting.file.write_bytes(whole + bytes(5000))
    assert exporting.run().returncode == 0


def test_a_file_of_the_ledger_is_refused(exporting: Exporting) -> None:
    exporting.write(1)
    for name in ("ledger.db", "ledger.db-wal", "ledger.db-shm", "ledger.db-journal"):
        for done in (exporting.run(target=exporting.root / name),
                     exporting.run(cursor=f"root/{name}")):  # fmt: skip
            assert f"{name} is a file of the ledger" in done.stderr
    with exporting.open() as client:
        assert client.verify().verified


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
