"""The published vectors: they are what the generator makes, and hold for Remit and by hand.

Each is checked twice: against :mod:`remit`, and by a few lines here that know the
specification and nothing of Remit.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from remit.kernel.canonical import canonical_json, sha256_hex
from remit.kernel.errors import RemitError
from remit.kernel.json_text import load_exact
from remit.ledger import (
    Content,
    EncodedValue,
    LedgerClient,
    LedgerEntry,
    LedgerFormatError,
    entry_id,
    erasure_digest,
    read_extract,
)
from remit.ledger.contents import commit, encode_content, is_message_list, next_step
from remit.ledger.log_of_logs import TenantProof
from remit.ledger.record import inspect_record
from remit.ledger.tlog import (
    SignedCheckpoint,
    TlogError,
    TlogProof,
    VerifierKey,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    tree_root,
    verify_consistency,
    verify_inclusion,
)
from remit.views.page import script
from tests.support import vectors as generator
from tests.support.browser import Browser, needs_browser
from tests.support.standalone import load_standalone, standalone

FOLDER = Path(__file__).parents[2] / "docs/vectors"
V: dict[str, Any] = json.loads((FOLDER / "vectors.json").read_text())
TREES, NOTES = V["trees"], V["notes"]
KEY = VerifierKey.parse(NOTES["log"]["vkey"])
NEGATIVE = {item["name"]: item for item in V["negative"]}


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def naive_root(leaves: list[bytes]) -> bytes:
    """MTH as RFC 6962, 2.1 writes it down."""
    if not leaves:
        return sha256(b"")
    if len(leaves) == 1:
        return sha256(b"\0" + leaves[0])
    half = 1
    while half * 2 < len(leaves):
        half *= 2
    return sha256(b"\1" + naive_root(leaves[:half]) + naive_root(leaves[half:]))


def naive_path(index: int, leaves: list[bytes]) -> list[bytes]:
    """PATH as RFC 6962, 2.1.1 writes it down."""
    if len(leaves) == 1:
        return []
    half = 1
    while half * 2 < len(leaves):
        half *= 2
    if index < half:
        return [*naive_path(index, leaves[:half]), naive_root(leaves[half:])]
    return [*naive_path(index - half, leaves[half:]), naive_root(leaves[:half])]


def naive_proof(old: int, leaves: list[bytes], whole: bool = True) -> list[bytes]:
    """SUBPROOF as RFC 6962, 2.1.2 writes it down."""
    if old == len(leaves):
        return [] if whole else [naive_root(leaves)]
    half = 1
    while half * 2 < len(leaves):
        half *= 2
    if old <= half:
        return [*naive_proof(old, leaves[:half], whole), naive_root(leaves[half:])]
    return [*naive_proof(old - half, leaves[half:], False), naive_root(leaves[:half])]


def leaves(size: int) -> list[bytes]:
    return [b'{"n":%d}' % number for number in range(size)]


def test_the_files_are_what_the_generator_makes() -> None:
    made = generator.files()
    assert {path.name for path in FOLDER.iterdir()} == {*made, "README.md"}
    for name, text in made.items():
        assert (FOLDER / name).read_text() == text, name


def test_the_readme_explains_every_member_and_file() -> None:
    text = (FOLDER / "README.md").read_text()
    explained = set(re.findall(r"`([^`\n]+)`", text))
    names = {path.name for path in FOLDER.iterdir()} - {"README.md"}

    def members(item: Any) -> None:
        if isinstance(item, list):
            for each in item:
                members(each)
        elif isinstance(item, dict):
            for name, each in item.items():
                if not name.isdigit():
                    names.add(name)
                if name not in ("fields", "value", "messages"):
                    members(each)

    members(V)
    members(json.loads((FOLDER / "hostile.json").read_text()))
    assert names <= explained


@pytest.mark.parametrize("item", V["records"], ids=lambda item: item["fields"]["id"])
def test_records(item: dict[str, Any]) -> None:
    record = item["record"].encode()
    assert canonical_json(item["fields"]) == record
    assert inspect_record(item["fields"])[0] == ""
    assert item["fields"]["id"] == entry_id(item["fields"]["seq"])
    assert sha256_hex(record) == hashlib.sha256(record).hexdigest() == item["entry_hash"]
    assert leaf_hash(record) == sha256(b"\0" + record)
    assert leaf_hash(record).hex() == item["leaf_hash"]
    assert json.loads(record) == item["fields"]


def test_records_are_chained() -> None:
    previous = ""
    for seq, item in enumerate(V["records"]):
        assert (item["fields"]["seq"], item["fields"]["previous_hash"]) == (seq, previous)
        previous = item["entry_hash"]


@pytest.mark.parametrize("number", range(len(V["contents"])))
def test_contents(number: int) -> None:
    item = V["contents"][number]
    nonce, encoded = bytes.fromhex(item["nonce_hex"]), item["jcs"].encode()
    assert nonce == sha256(f"nonce {number}".encode())
    assert canonical_json(item["value"]) == encoded
    assert encode_content(Content(item["value"])) == (EncodedValue.of(encoded), "")
    assert len(encoded) == item["bytes"]
    mac = hmac.new(nonce, encoded, hashlib.sha256).hexdigest()
    assert commit(nonce, encoded) == mac == item["commitment"]


@pytest.mark.parametrize("number", range(len(V["exact"])))
def test_exact_texts(number: int) -> None:
    item = V["exact"][number]
    nonce, text = bytes.fromhex(item["nonce_hex"]), item["json"].encode()
    assert encode_content(Content.exact(text)) == (EncodedValue.of(text, True), "exact")
    assert json.loads(text) == load_exact(text)
    assert len(text) == item["bytes"]
    mac = hmac.new(nonce, text, hashlib.sha256).hexdigest()
    assert commit(nonce, text) == mac == item["commitment"]


def test_a_record_of_exact_texts() -> None:
    fields, told = V["records"][3]["fields"], V["exact"]
    step = bytes(32)
    for item in told[:2]:
        step = sha256(step + bytes.fromhex(item["commitment"]))
    assert fields["metadata"]["prompt"] == {
        "$messages": step.hex(), "count": 2, "form": "exact"
    }  # fmt: skip
    assert fields["reason"] == {
        "$content": f"hmac-sha256:{told[2]['commitment']}",
        "bytes": told[2]["bytes"],
        "form": "exact",
    }


def test_messages() -> None:
    told = V["messages"]
    assert is_message_list(told["messages"])
    by_jcs = {item["jcs"]: item["commitment"] for item in V["contents"]}
    parent = bytes(32)
    for message, step in zip(told["messages"], told["steps"], strict=True):
        assert step["parent"] == parent.hex()
        assert step["commitment"] == by_jcs[canonical_json(message).decode()]
        parent = sha256(parent + bytes.fromhex(step["commitment"]))
        assert step["step"] == next_step(step["parent"], step["commitment"]) == parent.hex()
    stands = V["records"][2]["fields"]["metadata"]["prompt"]
    assert stands == {"$messages": told["steps"][1]["step"], "count": 2}


@pytest.mark.parametrize("item", V["requests"])
def test_requests(item: dict[str, Any], tmp_path: Path) -> None:
    assert sha256(item["hashed"].encode()).hex() == item["context_hash"]
    metadata: dict[str, Any] = {"dispatch_entry_id": "LED-00000000", "session_id": "S"}
    for name, text in item["texts"].items():
        metadata[name] = (
            Content.exact(text.encode()) if isinstance(text, str)
            else Content.exact_list([one.encode() for one in text])
        )  # fmt: skip
    if item["cut"]:
        metadata["cut"] = item["cut"]
    with LedgerClient(tmp_path / "ledger.db") as ledger:
        entry_id = ledger.write(LedgerEntry("EXCHANGE", "S", "SUCCESS", "r", metadata=metadata))
        assert ledger.read(entry_id).metadata["context_hash"] == item["context_hash"]


def test_erasure() -> None:
    told = V["erasure"]
    assert told["erased_count"] == len(told["commitments"])
    assert told["erased_hash"] == erasure_digest(told["commitments"])
    assert told["commitments"] != sorted(told["commitments"]), "the order must matter"
    assert told["erased_hash"] == sha256("".join(sorted(told["commitments"])).encode()).hex()


@pytest.mark.parametrize(("size", "root"), TREES["roots"].items())
def test_roots(size: str, root: str) -> None:
    assert tree_root([leaf_hash(item) for item in leaves(int(size))]).hex() == root
    assert naive_root(leaves(int(size))).hex() == root


def test_leaf_hashes() -> None:
    for number, told in TREES["leaf_hashes"].items():
        assert sha256(b"\0" + leaves(300)[int(number)]).hex() == told


@pytest.mark.parametrize("item", TREES["inclusion"], ids=lambda x: f"{x['index']}-{x['size']}")
def test_inclusion(item: dict[str, Any]) -> None:
    index, size, path = item["index"], item["size"], [bytes.fromhex(x) for x in item["path"]]
    mine = leaves(size)
    assert path == naive_path(index, mine)
    assert path == inclusion_proof(index, size, lambda start, end: naive_root(mine[start:end]))
    verify_inclusion(leaf_hash(mine[index]), index, size, path, naive_root(mine))
    with pytest.raises(TlogError):
        verify_inclusion(leaf_hash(b"other"), index, size, path, naive_root(mine))
    with pytest.raises(TlogError):
        verify_inclusion(leaf_hash(mine[index]), index, size, [*path, bytes(32)], naive_root(mine))


@pytest.mark.parametrize("item", TREES["consistency"], ids=lambda x: f"{x['old']}-{x['new']}")
def test_consistency(item: dict[str, Any]) -> None:
    old, new, path = item["old"], item["new"], [bytes.fromhex(x) for x in item["path"]]
    mine = leaves(new)
    assert path == (naive_proof(old, mine) if old else [])
    assert path == consistency_proof(old, new, lambda start, end: naive_root(mine[start:end]))
    roots = naive_root(mine[:old]), naive_root(mine)
    verify_consistency(old, new, path, *roots)
    with pytest.raises(TlogError):
        verify_consistency(old, new, path, bytes(32), roots[1])
    with pytest.raises(TlogError):
        verify_consistency(old, new, [*path, bytes(32)], *roots)


@pytest.mark.parametrize(("who", "kind"), [("log", 1), ("witness", 4)])
def test_keys(who: str, kind: int) -> None:
    told = NOTES[who]
    key = VerifierKey.parse(told["vkey"])
    public = bytes.fromhex(told["public_key_hex"])
    assert (key.public_key, key.kind, str(key)) == (public, kind, told["vkey"])
    name, digits, encoded = told["vkey"].split("+", 2)
    assert base64.b64decode(encoded) == bytes([kind]) + public
    assert sha256(name.encode() + b"\n" + bytes([kind]) + public)[:4].hex() == digits


def test_the_log_key_is_that_of_rfc_8032() -> None:
    assert NOTES["log"]["public_key_hex"] == (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    )
    assert NOTES["witness"]["public_key_hex"] == (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    )


def test_the_checkpoint() -> None:
    note = NOTES["checkpoint"]
    assert (FOLDER / "checkpoint").read_text() == note
    there = SignedCheckpoint.parse(note).verify(KEY)
    assert (there.size, there.root) == (300, naive_root(leaves(300)))
    text, _, line = note.partition("\n\n")
    root = base64.b64encode(naive_root(leaves(300))).decode()
    assert text == f"example.com/vectors\n300\n{root}"
    data = base64.b64decode(line.split(" ")[2])
    assert data[:4] == KEY.key_id
    Ed25519PublicKey.from_public_bytes(KEY.public_key).verify(data[4:], f"{text}\n".encode())


def test_the_cosignature() -> None:
    witness = VerifierKey.parse(NOTES["witness"]["vkey"])
    signed = SignedCheckpoint.parse(NOTES["cosigned"])
    signed.verify(KEY)
    ((_, timestamp),) = signed.cosignatures([witness])
    assert timestamp == NOTES["witness"]["timestamp"]
    text, _, lines = NOTES["cosigned"].partition("\n\n")
    data = base64.b64decode(lines.splitlines()[1].split(" ")[2])
    assert int.from_bytes(data[4:12], "big") == timestamp
    message = f"cosignature/v1\ntime {timestamp}\n{text}\n".encode()
    Ed25519PublicKey.from_public_bytes(witness.public_key).verify(data[12:], message)


def test_the_proof_file() -> None:
    record = (FOLDER / "record-42.json").read_bytes()
    assert record == NOTES["proof"]["record"].encode() == leaves(300)[42]
    text = (FOLDER / "record-42.tlog-proof").read_text()
    proof = TlogProof.parse(text)
    assert proof.verify(record, KEY).size == 300
    path = [base64.b64encode(item).decode() for item in naive_path(42, leaves(300))]
    head = ["c2sp.org/tlog-proof@v1", f"index {NOTES['proof']['index']}", *path, ""]
    assert text == "\n".join([*head, NOTES["checkpoint"]])


def imported(path: Path, folder: Path) -> None:
    with LedgerClient(folder / "l.db") as ledger:
        ledger.import_jsonl(path, key=KEY)
        report = ledger.verify()
        if not report.verified:
            raise RemitError(str(report.problems))


def test_the_export(tmp_path: Path) -> None:
    imported(FOLDER / "export.jsonl", tmp_path)
    assert standalone(FOLDER / "export.jsonl", "--key", FOLDER / "key.vkey").returncode == 0
    with LedgerClient(tmp_path / "l.db", verifier_key=KEY) as ledger:
        assert ledger.verify().erasures == {"LED-00000003": 2}
        again = tmp_path / "again.jsonl"
        ledger.export(again)
    told = [json.loads(line) for line in (FOLDER / "export.jsonl").read_text().splitlines()]
    assert [json.loads(line) for line in again.read_text().splitlines()][1:] == told[1:]


@pytest.mark.parametrize("name", NEGATIVE)
def test_negative(name: str, tmp_path: Path) -> None:
    item = NEGATIVE[name]
    path = tmp_path / "given"
    path.write_text(item["text"])
    if item["kind"] == "export":
        with pytest.raises(RemitError):
            imported(path, tmp_path)
        assert standalone(path, "--key", str(KEY)).returncode == 1
        return
    if item["kind"] == "vkey":
        with pytest.raises(TlogError):
            VerifierKey.parse(item["text"])
        assert standalone(FOLDER / "export.jsonl", "--key", item["text"]).returncode == 1
        return
    key = VerifierKey.parse(item["vkey"])
    if item["kind"] == "checkpoint":
        with pytest.raises(TlogError):
            SignedCheckpoint.parse(item["text"]).verify(key)
        arguments = [FOLDER / "record-42.json", "--key", str(key)]
        proof = tmp_path / "proof"
        whole = (FOLDER / "record-42.tlog-proof").read_text()
        proof.write_text(whole.replace(NOTES["checkpoint"], item["text"]))
        assert standalone("--proof", proof, "--record", *arguments).returncode == 1
        return
    assert item["kind"] == "proof"
    with pytest.raises(TlogError):
        TlogProof.parse(item["text"]).verify(item["record"].encode(), key)
    record = tmp_path / "record"
    record.write_text(item["record"])
    assert standalone("--proof", path, "--record", record, "--key", str(key)).returncode == 1


HOSTILE: dict[str, Any] = json.loads((FOLDER / "hostile.json").read_text())
CASES = {item["name"]: item for item in HOSTILE["cases"]}
HOST_KEY = VerifierKey.parse((FOLDER / "host.vkey").read_text())


def edited(case: dict[str, Any]) -> str:
    lines = (FOLDER / case["artefact"]).read_text().splitlines()
    lines[case["first"] : case["end"]] = case["lines"]
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize(
    "name", [name for name in CASES if CASES[name]["artefact"] != "bundle.json"]
)
def test_hostile(name: str, tmp_path: Path) -> None:
    case, module = CASES[name], load_standalone()
    path = tmp_path / "given"
    path.write_text(edited(case))
    if case["artefact"] == "extract.json":
        with pytest.raises(LedgerFormatError):
            read_extract(path.read_bytes(), KEY)
        with pytest.raises(ValueError, match=rf"\({case['condition']}\)"):
            module.check_extract(module.read_extract(str(path)), str(KEY))
        return
    if case["artefact"] == "tenant-proof.json":
        with pytest.raises(TlogError):
            TenantProof.parse(path.read_bytes()).verify(HOST_KEY)
        with pytest.raises(ValueError, match=rf"\({case['condition']}\)"):
            module.check_tenant_proof(path.read_text(), str(HOST_KEY))
        return
    with pytest.raises(RemitError) as refused:
        imported(path, tmp_path)
    assert "Error" not in str(refused.value)
    with pytest.raises(ValueError, match=rf"\({case['condition']}\)"):
        module.check_export(str(path), str(KEY), None)


def test_the_artefacts_themselves_hold(tmp_path: Path) -> None:
    imported(FOLDER / "archived.jsonl", tmp_path)
    assert standalone(FOLDER / "archived.jsonl", "--key", str(KEY)).returncode == 0
    TenantProof.parse((FOLDER / "tenant-proof.json").read_bytes()).verify(HOST_KEY)
    extract = FOLDER / "extract.json"
    assert sorted(read_extract(extract.read_bytes(), KEY).records) == [1, 2, 4, 5]
    assert standalone(extract, "--key", str(KEY)).returncode == 0
    assert (
        standalone(
            "--tenant-proof", FOLDER / "tenant-proof.json", "--key", str(HOST_KEY)
        ).returncode
        == 0
    )
    with LedgerClient(tmp_path / "l.db", verifier_key=KEY) as ledger:
        again = tmp_path / "again.jsonl"
        ledger.export(again)
    told = (FOLDER / "archived.jsonl").read_text().splitlines()
    assert list(map(json.loads, again.read_text().splitlines()[1:])) == list(
        map(json.loads, told[1:])
    )


@needs_browser
def test_hostile_bundles(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><script>{script('verify.js')}</script>", "utf-8")
    with Browser(tmp_path / "profile") as browser:
        browser.open(page.as_uri())

        def state(text: str, verify: str) -> str:
            read = f"(async (t) => (await RemitProof.{verify}(RemitProof.read(t))).state)"
            return str(browser.run(f"{read}({json.dumps(text)}).catch(() => 'failed')"))

        for artefact, verify in (("bundle.json", "verify"), ("extract.json", "extract")):
            assert state((FOLDER / artefact).read_text(), verify) == "verified"
            for case in CASES.values():
                if case["artefact"] == artefact:
                    assert state(edited(case), verify) == "failed", case["name"]
