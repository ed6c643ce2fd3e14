"""The stand-alone verifier; two tests run it as a stranger would: without site-packages."""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from remit.ledger import LedgerClient, LedgerEntry, LedgerError, content
from remit.ledger.tlog import (
    Checkpoint,
    SignedCheckpoint,
    Signer,
    TlogProof,
    VerifierKey,
    leaf_hash,
    tree_root,
)
from tests.support.standalone import SCRIPT, standalone as run

OLD_SIZE = 100
PROVED = "LED-00000103"
Lines = list[dict[str, Any]]


@dataclass
class Made:
    """A ledger that was exported, and what its reader holds."""

    folder: Path
    key: str
    export: Path
    by_entry: tuple[str, int]
    by_subject: tuple[str, int]
    old: str

    def lines(self) -> Lines:
        return [json.loads(line) for line in self.export.read_bytes().splitlines()]


def refused(*arguments: str | Path, saying: str) -> None:
    done = run(*arguments)
    assert done.returncode == 1, done.stdout
    assert done.stderr.startswith("NOT VERIFIED: "), done.stderr
    assert saying in done.stderr
    assert "VERIFIED" not in done.stdout


def written(path: Path, lines: Lines) -> Path:
    path.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("standalone")
    with LedgerClient(folder / "l.db", signer=Signer.generate("example.com/log")) as ledger:
        messages: dict[str, list[dict[str, Any]]] = {}
        old = ""
        for number in range(310):
            if number == OLD_SIZE:
                old = ledger.checkpoint()
            session = f"SES-{number % 7}"
            place = [
                {"session_id": session},
                {"provenance": {"session_id": session}},
                {"scope": {"session_id": session}, "provenance": "not an object: session_id"},
            ][number % 3]
            metadata: dict[str, Any] = {**place, "share": 0.25 + number, "n": number}
            if number % 4 == 0:
                said = messages.setdefault(session, [])
                said.append({"role": "user", "content": f"Frage {number}: wie spät? \u2028 😀"})
                metadata["prompt"] = list(said)
                metadata["response"] = f"answer {number}"
            elif number % 4 == 1:
                metadata["parameters"] = {"$ref": "#/free", "ünicode": [1.5, None, True]}
            elif number % 4 == 2:
                metadata = {"user_message": f"without session {number}", "prompt": [{"role": "x"}]}
            reason = content(f"because of {number}") if number % 5 == 0 else "plain"
            ledger.write(
                LedgerEntry("NOTE", "SUB-1", "KEPT", reason, ["PRM-1"], metadata),
                subject_id="bob" if number % 50 == 8 else None,
            )
        one = ledger.erase("LED-00000010", reason="request 17", requested_by="operator")
        two = ledger.erase(subject_id="bob", reason="bob's request", requested_by="operator")
        for number in range(3):  # a conversation goes on after some of it was erased
            said = messages["SES-0"]
            said.append({"role": "user", "content": f"later {number}"})
            metadata = {"session_id": "SES-0", "prompt": list(said)}
            ledger.write(LedgerEntry("NOTE", "SUB-1", "KEPT", "plain", [], metadata))
        assert ledger.verify().verified
        export = folder / "export.jsonl"
        ledger.export(export)
        (folder / "proof").write_text(ledger.prove(PROVED))
        (folder / "record").write_bytes(ledger.read_record(PROVED))
        (folder / "old").write_text(old)
        key = str(ledger.verifier_key)
    (folder / "key").write_text(f"{key}\n")
    assert one.values > 1
    assert two.values > 1
    return Made(
        folder, key, export, (one.erasure_id, one.values), (two.erasure_id, two.values), old
    )


def test_an_export_verifies_and_its_erasures_are_named(made: Made) -> None:
    done = run(made.export, "--key", made.key, script=SCRIPT)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("315 entries, ")
    told = sum("jcs" in item for line in made.lines()[1:] for item in line["contents"])
    assert lines[0].endswith(f", {told} content values")
    assert "checkpoint of 'example.com/log': 315 entries, which lead to it" in lines
    name, number = made.by_entry
    assert f"erased: {number} values under {name}: 'request 17'" in lines
    name, number = made.by_subject
    assert f'erased: {number} values under {name}: "bob\'s request"' in lines
    assert lines[-1] == "VERIFIED"


def test_the_key_may_be_a_file_and_an_older_checkpoint_is_held_against_it(made: Made) -> None:
    done = run(made.export, "--key", made.folder / "key", "--checkpoint", made.folder / "old")
    assert done.returncode == 0, done.stderr
    assert f"checkpoint of 'example.com/log': {OLD_SIZE} entries, which lead to it" in done.stdout


def test_without_a_key_it_says_that_nobody_signed(made: Made) -> None:
    done = run(made.export)
    assert done.returncode == 0
    assert done.stdout.endswith("chain and content hold; nobody's signature was checked\n")
    assert "\nVERIFIED" not in done.stdout


def test_an_edit_is_named_with_its_line(made: Made, tmp_path: Path) -> None:
    """The vectors and tests/ledger/test_hostile.py hold every kind of edit."""
    path, lines = tmp_path / "e.jsonl", made.lines()
    edited = {**lines[150], "record": lines[150]["record"].replace("KEPT", "KEPU")}
    fewer = [{**lines[0], "entries": lines[0]["entries"] - 1}, *lines[1:-1]]
    for hostile, saying in (
        ([*lines[:150], edited, *lines[151:]],
         "line 151 (seq 149): the record does not match entry_hash"),
        (lines[:-1], "cut off: 314 of 315 entries are there"),
        (fewer, "cut off: 314 entries, and a checkpoint covers 315"),
    ):  # fmt: skip
        refused(written(path, hostile), "--key", made.key, saying=saying)


def test_the_untouched_lines_written_again_verify(made: Made, tmp_path: Path) -> None:
    assert run(written(tmp_path / "e.jsonl", made.lines()), "--key", made.key).returncode == 0


def test_a_truncated_file_is_refused(made: Made, tmp_path: Path) -> None:
    for size in (0, 10, 100_000, made.export.stat().st_size - 40):
        cut = tmp_path / "cut.jsonl"
        cut.write_bytes(made.export.read_bytes()[:size])
        refused(cut, "--key", made.key, saying="line ")
    refused(tmp_path / "none.jsonl", "--key", made.key, saying="No such file")


def rewrite(lines: Lines) -> None:
    """Change an early record, then every hash and link after it."""
    previous = lines[50]["entry_hash"]
    for line in lines[51:]:
        record = json.loads(line["record"])
        record["previous_hash"] = previous
        if record["seq"] == 50:
            record["decision"] = "OTHER"
        line["record"] = json.dumps(
            record, sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )
        previous = line["entry_hash"] = hashlib.sha256(line["record"].encode()).hexdigest()


def test_rewritten_history_is_caught_by_checkpoints_alone(made: Made, tmp_path: Path) -> None:
    lines = made.lines()
    rewrite(lines)
    path = written(tmp_path / "e.jsonl", lines)
    refused(path, "--key", made.key, saying="the first 315 entries do not lead to the checkpoint")
    lines[0]["checkpoint"] = None
    written(path, lines)
    assert run(path).returncode == 0, "consistent: nothing but a checkpoint tells"
    held = made.folder / "old"
    saying = f"the first {OLD_SIZE} entries do not lead to the checkpoint"
    refused(path, "--checkpoint", held, saying=saying)
    refused(path, "--key", made.key, "--checkpoint", held, saying=saying)


def test_history_rewritten_by_the_owner_of_the_key_is_caught_by_an_old_checkpoint(
    tmp_path: Path,
) -> None:
    signer = Signer.generate("example.com/log")
    with LedgerClient(tmp_path / "l.db", signer=signer) as ledger:
        for number in range(60):
            ledger.write(LedgerEntry("NOTE", "S", "KEPT", "r", metadata={"n": number}))
        (tmp_path / "old").write_text(ledger.checkpoint())
        for number in range(60, 70):
            ledger.write(LedgerEntry("NOTE", "S", "KEPT", "r", metadata={"n": number}))
        ledger.export(tmp_path / "e.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "e.jsonl").read_bytes().splitlines()]
    rewrite(lines)
    root = tree_root([leaf_hash(line["record"].encode()) for line in lines[1:]])
    lines[0]["checkpoint"] = str(Checkpoint(signer.name, 70, root).sign(signer))
    path = written(tmp_path / "e.jsonl", lines)
    key = str(signer.verifier_key)
    assert run(path, "--key", key).returncode == 0
    refused(path, "--key", key, "--checkpoint", tmp_path / "old", saying="the first 60 entries")


def test_an_export_older_than_the_checkpoint_held_is_cut_off(tmp_path: Path) -> None:
    with LedgerClient(tmp_path / "l.db", signer=Signer.generate("example.com/log")) as ledger:
        ledger.write(LedgerEntry("NOTE", "S", "KEPT", "r"))
        ledger.export(tmp_path / "e.jsonl")
        ledger.write(LedgerEntry("NOTE", "S", "KEPT", "r"))
        (tmp_path / "new").write_text(ledger.checkpoint())
        key = str(ledger.verifier_key)
    arguments = (tmp_path / "e.jsonl", "--key", key, "--checkpoint", tmp_path / "new")
    refused(*arguments, saying="cut off: 1 entries, and a checkpoint covers 2")


def test_entries_behind_the_checkpoint_are_not_covered(made: Made, tmp_path: Path) -> None:
    lines = made.lines()
    lines[0]["checkpoint"] = made.old
    path = written(tmp_path / "e.jsonl", lines)
    refused(path, "--key", made.key, saying="the last entries are covered by no checkpoint")


def test_a_damaged_key_is_refused(made: Made, tmp_path: Path) -> None:
    name, digits, encoded = made.key.split("+", 2)
    refused(made.export, "--key", f"{name}+00000000+{encoded}", saying="a damaged key")
    refused(made.export, "--key", f"{name}+{digits}+{encoded[:-4]}", saying="malformed base64")
    refused(made.export, "--key", "nonsense", saying="not a verifier key (key-text)")
    refused(made.export, "--key", "", saying="not a verifier key (key-text)")
    (tmp_path / "empty").write_text("")
    refused(made.export, "--key", tmp_path / "empty", saying="not a verifier key (key-text)")


def test_keys_and_signatures_of_small_order_or_odd_encoding_are_refused(
    made: Made, tmp_path: Path
) -> None:
    """With the neutral element as key and as R, S = 0 would sign everything."""
    neutral = (1).to_bytes(32, "little")
    unusual = (2**255 - 18).to_bytes(32, "little")  # p + 1: the same element, not canonical
    signed = SignedCheckpoint.parse(made.lines()[0]["checkpoint"])
    for public, r in ((neutral, neutral), (unusual, neutral), (neutral, unusual)):
        key = VerifierKey("example.com/log", public)
        data = base64.b64encode(key.key_id + r + bytes(32)).decode()
        lines = made.lines()
        lines[0]["checkpoint"] = f"{signed.note.text}\n\u2014 example.com/log {data}\n"
        path = written(tmp_path / "e.jsonl", lines)
        refused(path, "--key", str(key), saying="no point, or one of small order")


def test_its_ed25519_agrees_with_the_library(tmp_path: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "standalone"}
    exec(compile(SCRIPT.read_text(), str(SCRIPT), "exec"), namespace)
    check = namespace["check_signature"]
    for number in range(10):
        signer = Signer.generate("example.com/log")
        message = bytes(range(number * 11))
        signature = signer.sign(message)
        key = signer.verifier_key.public_key
        check(key, message, signature)
        for place in range(0, 512, 97):
            wrong = bytearray(signature)
            wrong[place // 8] ^= 1 << place % 8
            with pytest.raises(ValueError):
                check(key, message, bytes(wrong))
        for bad in ((key, message + b".", signature), (key, message, signature + b"\0")):
            with pytest.raises(ValueError):
                check(*bad)


def proof_run(made: Made, proof: Path, record: Path | None = None) -> tuple[str | Path, ...]:
    return ("--proof", proof, "--record", record or made.folder / "record", "--key", made.key)


def test_a_proof_verifies(made: Made, tmp_path: Path) -> None:
    done = run(*proof_run(made, made.folder / "proof"))
    assert done.returncode == 0, done.stderr
    assert (
        "is LED-00000103 of 'example.com/log', by a checkpoint of 315 entries\nVERIFIED\n"
        in done.stdout
    )
    proof = TlogProof.parse((made.folder / "proof").read_text())
    extra = tmp_path / "extra"
    extra.write_text(str(TlogProof(proof.index, proof.path, proof.signed, b"anything")))
    assert run(*proof_run(made, extra)).returncode == 0
    unsigned = ("--proof", extra, "--record", made.folder / "record")
    refused(*unsigned, saying="there is no key")


@pytest.mark.parametrize(
    "text",
    ['{\n  "version": "agentboundary/v0.1"\n}', '[{"spec_version": "draft-mih-scitt-agent-5"}]'],
)
def test_a_receipt_in_a_public_format_is_named(text: str, tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"
    file.write_text(text)
    found = run(file, script=SCRIPT)
    assert found.returncode == 1
    assert "a public format without signature: use the package agentboundary" in found.stderr


@pytest.mark.parametrize("name", ["model", "\ud83d", "a\0b"])
def test_names_of_usage_are_those_that_a_database_can_hold(tmp_path: Path, name: str) -> None:
    row = [0, name, *[""] * 9, *[0] * 9]
    head = {"format": "remit-ledger-export/1", "entries": 0, "checkpoint": None,
            "verifier_key": None, "usage": [row]}  # fmt: skip
    export = written(tmp_path / "export.jsonl", [head])
    if name == "model":
        assert run(export).returncode == 0
        return
    refused(export, saying="a row of usage is malformed (head-usage)")
    with LedgerClient(tmp_path / "l.db") as ledger, pytest.raises(LedgerError):
        ledger.import_jsonl(export)


def test_only_content_names_a_person(tmp_path: Path) -> None:
    """An object under ``subject_id`` is no subject, whatever content is in it."""
    with LedgerClient(tmp_path / "l.db", signer=Signer.generate("example.com/log")) as ledger:
        for subject in ({}, {"a": content("deep")}, ["x"], 5, "ann"):
            ledger.write(LedgerEntry("NOTE", "S", "D", "r", metadata={"subject_id": subject}))
        assert ledger.verify().verified
        ledger.export(tmp_path / "e.jsonl")
    done = run(tmp_path / "e.jsonl")
    assert (done.returncode, done.stderr) == (0, "")
    with LedgerClient(tmp_path / "other.db") as ledger:
        assert ledger.import_jsonl(tmp_path / "e.jsonl").entries == 5


def test_an_erased_value_has_a_length_that_every_reader_can_read(tmp_path: Path) -> None:
    """The length of a value that is gone is held to nothing but the encoding of its record."""
    with LedgerClient(tmp_path / "l.db") as ledger:
        made = ledger.write(LedgerEntry("NOTE", "S", "D", "r", metadata={"prompt": "x"}))
        ledger.erase(made, reason="asked")
        ledger.export(tmp_path / "e.jsonl")
    head, first, erasure = map(json.loads, (tmp_path / "e.jsonl").read_bytes().splitlines())
    for bytes_, is_sound in ((2**53 - 1, True), (2**53, False)):
        record = json.loads(first["record"])
        record["metadata"]["prompt"]["bytes"] = bytes_
        lines, previous = [head], ""
        for line, one in ((first, record), (erasure, json.loads(erasure["record"]))):
            text = canonical_text({**one, "previous_hash": previous})
            previous = hashlib.sha256(text.encode()).hexdigest()
            lines.append({**line, "record": text, "entry_hash": previous})
        export = written(tmp_path / "changed.jsonl", lines)
        assert (run(export).returncode == 0) is is_sound
        with LedgerClient(tmp_path / f"{bytes_}.db") as other:
            if is_sound:
                assert other.import_jsonl(export).erased == 1
            else:
                with pytest.raises(LedgerError, match="commitment"):
                    other.import_jsonl(export)


def canonical_text(record: dict[str, Any]) -> str:
    return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def test_it_is_short_and_needs_nothing() -> None:
    text = SCRIPT.read_text()
    assert len(text.splitlines()) < 812
    assert max(map(len, text.splitlines())) <= 100
    for node in ast.walk(ast.parse(text, feature_version=(3, 9))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names = [node.module or ""]
        else:
            continue
        assert set(names) <= sys.stdlib_module_names
