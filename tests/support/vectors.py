"""Writes ``docs/vectors``: ``python -m tests.support.vectors``. The same bytes every time.

Records, commitments, steps and exports are computed here from the specification, without
the ledger; tree hashes, proofs and notes with ``remit.ledger.tlog``. The tests hold both sides
against each other.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from remit.ledger.tlog import (
    COSIGNATURE,
    Checkpoint,
    Signer,
    TlogProof,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    tree_root,
    unlisted_subtrees,
)

FOLDER = Path(__file__).parents[2] / "docs/vectors"
SEED = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
WITNESS_SEED = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"
ORIGIN = "example.com/vectors"
WITNESS = "example.com/witness"
HOST = "example.com/host"
COSIGNED_AT = 1_700_000_000
SIZES = [0, 1, 2, 3, 4, 5, 7, 8, 255, 256, 257, 300]
TIME = "2026-01-01T00:{:02d}:{:02d}.000000Z"
ORDER = 2**252 + 27742317777372353535851937790883648493
NO_STEP = "0" * 64


def signer(seed: str = SEED, name: str = ORIGIN, kind: int = 1) -> Signer:
    return Signer(name, Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed)), kind)


def nonce(number: int) -> bytes:
    return hashlib.sha256(f"nonce {number}".encode()).digest()


def leaf(number: int) -> bytes:
    """The rule for the records of the trees."""
    return f'{{"n":{number}}}'.encode()


def committed(number: int, encoded: bytes, **shown: Any) -> dict[str, Any]:
    mac = hmac.new(nonce(number), encoded, "sha256").hexdigest()
    hexed = {"nonce_hex": nonce(number).hex()}
    return {**hexed, **shown, "bytes": len(encoded), "commitment": mac}


def value(number: int, item: Any) -> dict[str, Any]:
    encoded = rfc8785.dumps(item)
    return committed(number, encoded, value=item, jcs=encoded.decode())


def exact(number: int, text: str) -> dict[str, Any]:
    return committed(number, text.encode(), json=text)


def single(told: dict[str, Any]) -> dict[str, Any]:
    form = {"form": "exact"} if "json" in told else {}
    return {"$content": f"hmac-sha256:{told['commitment']}", "bytes": told["bytes"], **form}


def steps(macs: list[str]) -> list[dict[str, str]]:
    found, parent = [], NO_STEP
    for mac in macs:
        step = hashlib.sha256(bytes.fromhex(parent) + bytes.fromhex(mac)).hexdigest()
        found.append({"step": step, "parent": parent, "commitment": mac})
        parent = step
    return found


def chained(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records from what their writer gives."""
    found: list[dict[str, Any]] = []
    for seq, given in enumerate(entries):
        fields = {
            "prompts_used": [],
            "submission_id": "SUB-1",
            **given,
            "seq": seq,
            "id": f"LED-{seq:08x}",
            "timestamp": TIME.format(*divmod(seq, 60)),
            "previous_hash": found[-1]["entry_hash"] if found else "",
        }
        record = rfc8785.dumps(fields)
        found.append(
            {
                "fields": fields,
                "record": record.decode(),
                "entry_hash": hashlib.sha256(record).hexdigest(),
                "leaf_hash": leaf_hash(record).hex(),
            }
        )
    return found


def entry(
    event: str, metadata: dict[str, Any], decision: str = "SUCCESS", reason: Any = "ok", **more: Any
) -> dict[str, Any]:
    """What the writer of a record gives."""
    given = {"event_type": event, "decision": decision, "reason": reason, **more}
    return {**given, "metadata": metadata}


def note(reason: Any, metadata: dict[str, Any] | None = None) -> dict[str, Any]:
    return entry("NOTE", metadata or {}, "KEPT", reason)


MESSAGES = [
    {"role": "user", "content": "What is a remit?"},
    {"role": "assistant", "content": "An area of responsibility.\n\u2028\u00e9"},
    {"role": "user", "content": "What is a remit?"},
]


def contents() -> list[dict[str, Any]]:
    items = [
        "",
        "hello",
        'a "quoted" \\ text\n\u00e9\U0001f600',
        *MESSAGES[:2],
        {"b": 1.5, "a": None},
    ]
    return [value(number, item) for number, item in enumerate(items)]


EXACT = [
    ' {"role": "user", "content": "What is a remit?"}',
    '\n{"role":"user","n":1.50e+2,"n":9007199254740993}',
    '"a lone surrogate: \\ud800, \u00e9, \\/"',
]


def exacts() -> list[dict[str, Any]]:
    return [exact(20 + number, text) for number, text in enumerate(EXACT)]


def exact_list(told: list[dict[str, Any]]) -> dict[str, Any]:
    last = steps([item["commitment"] for item in told])[-1]["step"]
    return {"$messages": last, "count": len(told), "form": "exact"}


def requests() -> list[dict[str, Any]]:
    """Requests of exchanges, by the JSON texts that the entries show."""
    parameters = '{"model":"m" ,"messages":[],"n":1e0}'
    place = parameters.index("[]")
    body = f"{parameters[:place]}[{','.join(EXACT[:2])}]{parameters[place + 2 :]}"
    texts = ["What is \u00e9?", 'Say "a".']
    chat = [{"role": "user", "content": text} for text in texts]
    cases: list[tuple[dict[str, Any], list[Any], str]] = [
        ({"parameters": parameters, "prompt": EXACT[:2]}, [["prompt", place]], body),
        ({"prompt": json.dumps(texts[0], ensure_ascii=False)}, [], texts[0]),
        (
            {"prompt": [rfc8785.dumps(one).decode() for one in chat]},
            [],
            rfc8785.dumps(chat).decode(),
        ),
    ]
    return [
        {"texts": shown, "cut": cut, "hashed": hashed,
         "context_hash": hashlib.sha256(hashed.encode()).hexdigest()}
        for shown, cut, hashed in cases
    ]  # fmt: skip


def records() -> list[dict[str, Any]]:
    told, wire = contents(), exacts()
    conversation = steps([told[3]["commitment"], told[4]["commitment"]])
    numbers = [0, -1, 2**53 - 1, 0.5, 1e-7, 1e21, 333333333.3333333]
    return chained(
        [
            note("plain"),
            entry("NOTE", {"\ufb33": 1, "\U0001f600": 2, "\u00f6": 3, "numbers": numbers}, "",
                  "line\n\u20ac \u0001", prompts_used=["PRM-1", "PRM-2"]),
            entry("EXCHANGE", {
                "session_id": "SES-1",
                "prompt": {"$messages": conversation[-1]["step"], "count": 2},
                "response": single(told[1]),
            }, reason=single(told[2])),
            entry("EXCHANGE", {"answer": single(wire[0]), "prompt": exact_list(wire[:2])},
                  reason=single(wire[2])),
        ]
    )  # fmt: skip


def trees() -> dict[str, Any]:
    hashes = [leaf_hash(leaf(number)) for number in range(SIZES[-1])]

    def part(start: int, end: int) -> bytes:
        return tree_root(hashes[start:end])

    def texts(path: list[bytes]) -> list[str]:
        return [item.hex() for item in path]

    return {
        "rule": 'leaf i is the UTF-8 text {"n":i}, for instance {"n":0}',
        "leaf_hashes": {str(number): hashes[number].hex() for number in (0, 1, 299)},
        "roots": {str(size): part(0, size).hex() for size in SIZES},
        "inclusion": [
            {"index": index, "size": size, "path": texts(inclusion_proof(index, size, part))}
            for index, size in [
                (0, 1), (0, 2), (1, 3), (2, 3), (4, 7), (255, 256), (0, 257), (256, 257),
                (299, 300), (128, 300),
            ]
        ],
        "consistency": [
            {"old": old, "new": new, "path": texts(consistency_proof(old, new, part))}
            for old, new in [
                (0, 5), (1, 2), (3, 7), (4, 7), (5, 5), (255, 256), (256, 257), (257, 300),
                (1, 300),
            ]
        ],
    }  # fmt: skip


def notes() -> dict[str, Any]:
    log, witness = signer(), signer(WITNESS_SEED, WITNESS, COSIGNATURE)
    hashes = [leaf_hash(leaf(number)) for number in range(300)]
    signed = Checkpoint(ORIGIN, 300, tree_root(hashes)).sign(log)
    cosigned = signed.with_signatures([signed.cosign(witness, COSIGNED_AT)])
    path = inclusion_proof(42, 300, lambda start, end: tree_root(hashes[start:end]))
    return {
        "log": {
            "seed_hex": SEED,
            "public_key_hex": log.verifier_key.public_key.hex(),
            "vkey": str(log.verifier_key),
        },
        "witness": {
            "seed_hex": WITNESS_SEED,
            "public_key_hex": witness.verifier_key.public_key.hex(),
            "vkey": str(witness.verifier_key),
            "timestamp": COSIGNED_AT,
        },
        "checkpoint": str(signed),
        "cosigned": str(cosigned),
        "proof": {"index": 42, "record": leaf(42).decode()},
        "proof_file": str(TlogProof(42, tuple(path), signed)),
    }


def export() -> list[dict[str, Any]]:
    """Three notes of one session and one of none; the first answer is erased. Then exact texts, and
    an entry that names its subject. Entry 1 is of before records named subjects."""
    wire = exacts()
    ask, answer, more, alone, ann = (
        value(10, {"role": "user", "content": "Where do I live?"}),
        value(11, "Main Street 1"),
        value(12, {"role": "user", "content": "Forget it, please."}),
        value(13, "a value of an entry without a session"),
        value(14, "ann"),
    )
    chain = steps([ask["commitment"], more["commitment"]])
    gone = sorted([answer["commitment"], ask["commitment"]])

    def exchange(count: int, **more: Any) -> dict[str, Any]:
        prompt = {"$messages": chain[count - 1]["step"], "count": count}
        metadata = {"session_id": "SES-1", "prompt": prompt, **more}
        return entry("EXCHANGE", metadata)

    made = chained(
        [
            exchange(1, response=single(answer)),
            exchange(2),
            note(single(alone), {"subject_id": single(ann)}),
            erasure(gone, "LED-00000000"),
            entry(
                "EXCHANGE",
                {"session_id": "SES-2", "prompt": exact_list(wire[:2]), "answer": single(wire[2])},
            ),
        ]
    )
    erased = {"erased": "LED-00000003"}
    beside: list[tuple[list[Any], list[Any]]] = [
        ([{"commitment": answer["commitment"], **erased}], [{**chain[0], **erased}]),
        ([{**told(more), "subjects": ["bob"]}], [chain[1]]),
        (by_commitment([told(alone), {**told(ann), "subjects": ["ann"]}]), []),
        ([], []),
        (by_commitment([told(item) for item in wire]),
         steps([item["commitment"] for item in wire[:2]])),
    ]  # fmt: skip
    lines = [entry_line(item, *beside[seq]) for seq, item in enumerate(made)]
    return [head(made, [[more["commitment"], "bob"]], subjects_before=2), *lines]


def erasure(commitments: list[str], erased_id: str) -> dict[str, Any]:
    metadata = {
        "target": "entry",
        "erased_entry_id": erased_id,
        "requested_by": "operator",
        "erased_count": len(commitments),
        "erased_hash": hashlib.sha256("".join(commitments).encode()).hexdigest(),
    }
    return entry("ERASURE", metadata, "ERASED", "request 17", submission_id="operator")


def told(item: dict[str, Any]) -> dict[str, Any]:
    encoded = base64.b64encode(bytes.fromhex(item["nonce_hex"])).decode()
    name = "json" if "json" in item else "jcs"
    return {"commitment": item["commitment"], "nonce": encoded, name: item[name]}


def by_commitment(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(items, key=lambda item: str(item["commitment"]))


def entry_line(
    item: dict[str, Any], contents: list[Any] | None = None, steps: list[Any] | None = None
) -> dict[str, Any]:
    return {
        "seq": item["fields"]["seq"],
        "entry_hash": item["entry_hash"],
        "record": item["record"],
        "contents": contents or [],
        "steps": steps or [],
    }


def head(made: list[dict[str, Any]], unvouched: list[list[str]], **more: Any) -> dict[str, Any]:
    """The first line; its checkpoint signs the statement."""
    found = {
        "format": "remit-ledger-export/1",
        "entries": len(made),
        "checkpoint": None,
        "verifier_key": str(signer().verifier_key),
        **more,
    }
    stated = {name: item for name, item in found.items() if name != "checkpoint"}
    text = json.dumps({**stated, "subjects": unvouched}, sort_keys=True, separators=(",", ":"))
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    root = tree_root([bytes.fromhex(item["leaf_hash"]) for item in made])
    checkpoint = Checkpoint(ORIGIN, len(made), root, (f"remit-export/1 {digest}",))
    return {**found, "checkpoint": str(checkpoint.sign(signer()))}


def archived() -> list[dict[str, Any]]:
    """An export of 259 entries, of which 254 were archived. One of these showed a value that was
    erased afterwards."""
    gone = value(30, "an answer that was erased in the archive")
    notes = [note(f"note {seq}") for seq in range(256)]
    for seq in (7, 8):
        notes[seq] = entry("EXCHANGE", {"session_id": "SES-1", "outcome": "success"})
    notes[7]["metadata"]["response"] = single(gone)
    away = [seq for seq in range(256) if seq not in (0, 9)]
    bits = sum(1 << seq for seq in away).to_bytes(32, "little")
    left = value(31, packed(bits))
    begins = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) // 900
    row = [begins, *[""] * 5, "SES-1", "", "", "", "measured", 2, *[0] * 8]
    rows = repr(sorted([repr(tuple(row))]))
    digest = hashlib.sha256(rows.encode()).hexdigest()
    carried = value(32, {"accounts": {}, "usage": {"2026-01-01T00": digest}})
    root = tree_root([bytes.fromhex(item["leaf_hash"]) for item in chained(notes)])
    stated = {
        "first": 0, "end": 256, "root": root.hex(), "entries": len(away),
        "left": single(left), "carried": single(carried), "by": "ann",
    }  # fmt: skip
    archive = entry("ARCHIVED", stated, "ARCHIVED", "Entries 0 to 255 archived")
    made = chained([*notes, archive, erasure([gone["commitment"]], "LED-00000007"), note("last")])
    lines = [
        {"seq": seq, "leaf": base64.b64encode(bytes.fromhex(item["leaf_hash"])).decode()}
        if seq in away
        else entry_line(item)
        for seq, item in enumerate(made)
    ]
    lines[256]["contents"] = by_commitment([told(left), told(carried)])
    lines[257]["erased"] = [gone["commitment"]]
    return [head(made, [], subjects_before=0, usage=[row]), *lines]


def packed(bits: bytes) -> str:
    """A zlib stream of 32 bytes in base64, as a stored block: two versions of a compressor need not
    write the same bytes."""
    stream = b"\x78\x01\x01\x20\x00\xdf\xff" + bits + zlib.adler32(bits).to_bytes(4, "big")
    return base64.b64encode(stream).decode()


def host_signer() -> Signer:
    return signer(WITNESS_SEED, HOST)


def log_proof(records: list[bytes], index: int, by: Signer) -> TlogProof:
    hashes = [leaf_hash(record) for record in records]
    size = len(hashes)
    path = inclusion_proof(index, size, lambda start, end: tree_root(hashes[start:end]))
    return TlogProof(index, tuple(path), Checkpoint(by.name, size, tree_root(hashes)).sign(by))


def tenant_proof() -> dict[str, Any]:
    """Entry 2 of the export, from a head of a host that took the head of its log."""
    records = [line["record"].encode() for line in export()[1:]]
    proof = log_proof(records, 2, signer())
    checkpoint = proof.signed.checkpoint
    metadata = {
        "tenant": "acme",
        "origin": checkpoint.origin,
        "size": checkpoint.size,
        "root": base64.b64encode(checkpoint.root).decode(),
        "checkpoint": str(proof.signed),
        "verifier_key": str(signer().verifier_key),
        "extends": 0,
        "consistency": [],
    }
    reason = "The head of the log of acme"
    taken = entry("TENANT_CHECKPOINT", metadata, "TAKEN", reason, submission_id="acme")
    host = [item["record"].encode() for item in chained([note("host"), taken, note("host")])]
    return {
        "format": "remit-tenant-proof/1",
        "record": records[2].decode(),
        "proof": str(proof),
        "head": {"record": host[1].decode(), "proof": str(log_proof(host, 1, host_signer()))},
    }


def bundle() -> dict[str, Any]:
    """What a browser is given for entry 2 of the export."""
    line = export()[3]
    proof = log_proof([item["record"].encode() for item in export()[1:]], 2, signer())
    return {
        "entry_id": "LED-00000002",
        "seq": 2,
        "entry_hash": line["entry_hash"],
        "record": line["record"],
        "size": 5,
        "proof": [base64.b64encode(item).decode() for item in proof.path],
        "checkpoint": str(proof.signed),
        "vkey": str(signer().verifier_key),
    }


def extract(without: int = -1, more: int = -1) -> dict[str, Any]:
    """All entries of the session SES-1. ``without`` leaves out a record, and ``more`` adds one; the
    tree hashes fit all the same."""
    run = {"session_id": "SES-1"}
    call = {"agent_id": "agent", "contract_id": "PRC-1", **run}
    told = [
        ("NOTE", {"session_id": "SES-2"}), ("SESSION_START", {"provenance": run}),
        ("DISPATCH", call), ("NOTE", {}),
        ("EXCHANGE", {"dispatch_entry_id": "LED-00000002", **call}),
        ("NOTE", {"scope": run}), ("NOTE", {"session_id": "SES-2"}),
        ("INDEXED", {"of": run, "entries": [1, 2, 4, 5], "actions": [[4, 1, 2]], "part": 1,
                     "parts": 1}), ("NOTE", run),
    ]  # fmt: skip
    made = chained([entry(event, metadata, "KEPT", event) for event, metadata in told])
    hashes = [bytes.fromhex(item["leaf_hash"]) for item in made]
    seqs = sorted({1, 2, 4, 5, 7, more} - {without, -1})
    between = unlisted_subtrees(seqs, 0, len(made))
    return {
        "format": "remit-extract/1",
        "of": run,
        "checkpoint": str(Checkpoint(ORIGIN, len(made), tree_root(hashes)).sign(signer())),
        "verifier_key": str(signer().verifier_key),
        "records": [made[seq]["record"] for seq in seqs],
        "hashes": [base64.b64encode(tree_root(hashes[a:b])).decode() for a, b in between],
    }


def extract_edits() -> list[Edit]:
    """Edits of an extract, some by a maker who knows the whole tree."""

    def drop(at: int) -> Callable[[Lines], object]:
        return lambda x: x[0]["records"].pop(at)

    def swap(x: Lines) -> None:
        x[0]["records"][:2] = x[0]["records"][1::-1]

    return [
        *[
            (f"extract-dropped-{seq}", "extract-missing", f"entry {seq} was left out", drop(at))
            for at, seq in enumerate((1, 2, 4, 5))
        ],
        *[
            (f"extract-left-out-{seq}", "extract-missing", "the same, and the tree hashes fit",
             lambda x, seq=seq: x.__setitem__(0, extract(without=seq)))
            for seq in (1, 2, 4, 5)
        ],
        ("extract-index-dropped", "extract-index", "the index was left out",
         lambda x: x.__setitem__(0, extract(without=7))),
        ("extract-other-run", "extract-other", "an entry of another session was added",
         lambda x: x.__setitem__(0, extract(more=6))),
        ("extract-later", "extract-other", "an entry after the index was added",
         lambda x: x.__setitem__(0, extract(more=8))),
        ("extract-reordered", "extract-order", "two records are exchanged", swap),
        ("extract-twice", "extract-order", "a record is there twice",
         lambda x: x[0]["records"].insert(0, x[0]["records"][0])),
        ("extract-edited", "extract-root", "a record has another decision",
         lambda x: x[0]["records"].__setitem__(
             3, x[0]["records"][3].replace('"KEPT"', '"LOST"'))),
        ("extract-edited-index", "extract-root", "the index and the file lack an entry",
         lambda x: x[0]["records"].__setitem__(
             4, x[0]["records"][4].replace("[1,2,4,5]", "[1,2,4]")) or x[0]["records"].pop(3)),
        ("extract-other-session", "extract-index", "the file names another session",
         lambda x: x[0].update(of={"session_id": "SES-2"})),
        ("extract-as-range", "extract-missing", "the file names a range",
         lambda x: x[0].update(of={"first": 1, "end": 6})),
        ("extract-as-action", "extract-other", "the file names one action",
         lambda x: x[0].update(of={"entry": "LED-00000004"})),
        ("extract-no-action", "extract-index", "the file names an entry that is no action",
         lambda x: x[0].update(of={"entry": "LED-00000002"})),
        ("extract-hash-dropped", "extract-root", "a tree hash is missing",
         lambda x: x[0]["hashes"].pop()),
        ("extract-hash-added", "extract-root", "a tree hash too many",
         lambda x: x[0]["hashes"].append(x[0]["hashes"][-1])),
        ("extract-note-list", "extract-members", "the note is a list",
         lambda x: x[0].update(checkpoint=[x[0]["checkpoint"]])),
        ("extract-unknown-member", "extract-members", "it has a member that the format does not",
         lambda x: x[0].update(note="x")),
        ("extract-key-twice", "json-text", "a member is there twice",
         lambda x: x.__setitem__(0, Raw('{"records":[],' + json.dumps(x[0])[1:]))),
    ]  # fmt: skip


def negative() -> list[dict[str, Any]]:
    """``kind`` says how it is fed; ``why`` why it must be refused."""
    found: list[dict[str, Any]] = []

    def changed(name: str, why: str, change: Callable[[list[dict[str, Any]]], None]) -> None:
        lines = json.loads(json.dumps(export()))
        change(lines)
        found.append({"name": name, "kind": "export", "why": why, "text": jsonl(lines)})

    def record(lines: list[dict[str, Any]], old: str, new: str) -> None:
        lines[1]["record"] = lines[1]["record"].replace(old, new)
        lines[1]["entry_hash"] = hashlib.sha256(lines[1]["record"].encode()).hexdigest()

    def swap(lines: list[dict[str, Any]]) -> None:
        lines[2], lines[3] = lines[3], lines[2]

    def forge(lines: list[dict[str, Any]]) -> None:
        item = lines[3]["contents"][0]
        lines[3]["contents"][0] = {"commitment": item["commitment"], "erased": "LED-00000003"}

    def other_nonce(lines: list[dict[str, Any]]) -> None:
        lines[3]["contents"][0]["nonce"] = base64.b64encode(bytes(32)).decode()

    for name, why, change in (
        ("record-changed", "the record's SHA-256 is not entry_hash",
         lambda lines: lines[1].update(record=lines[1]["record"].replace("SUCCESS", "FAILURE"))),
        ("record-and-hash-changed", "previous_hash of the next entry does not fit",
         lambda lines: record(lines, "SUCCESS", "FAILURE")),
        ("key-twice", "the record has the member decision twice",
         lambda lines: record(lines, '"decision"', '"decision":"FAILURE","decision"')),
        ("value-changed", "the value's HMAC is not its commitment",
         lambda lines: lines[3]["contents"][0].update(jcs='"another value"')),
        ("exact-text-changed", "the text's HMAC is not its commitment, though it means the same",
         lambda lines: next(
             item for item in lines[5]["contents"] if item["json"] == EXACT[0]
         ).update(json=EXACT[0].strip())),
        ("nonce-changed", "the value's HMAC is not its commitment", other_nonce),
        ("value-missing", "a commitment has neither value nor erasure",
         lambda lines: lines[3]["contents"].clear()),
        ("erasure-forged", "LED-00000003 does not account for it: erased_count and erased_hash",
         forge),
        ("step-changed", "the step is not SHA-256(parent || commitment)",
         lambda lines: lines[2]["steps"][0].update(step="ab" * 32)),
        ("swapped", "seq does not count up", swap),
        ("cut-off", "fewer entries than the first line says", lambda lines: lines.pop()),
    ):  # fmt: skip
        changed(name, why, change)

    made = notes()
    head_note, key = made["checkpoint"], made["log"]["vkey"]
    start, _, encoded = head_note.rstrip("\n").rpartition(" ")
    data = base64.b64decode(encoded)
    flipped = bytearray(data)
    flipped[40] ^= 1
    s = int.from_bytes(data[36:], "little") + ORDER

    def resigned(raw: bytes) -> str:
        return f"{start} {base64.b64encode(raw).decode()}\n"

    # 68 bytes end in one "=": the digit before it has two bits that no byte takes up.
    stray = resigned(data).replace(encoded, f"{encoded[:-2]}{chr(ord(encoded[-2]) + 1)}=")
    foreign = Checkpoint(ORIGIN, 300, bytes(32)).sign(signer(WITNESS_SEED))
    text = head_note.partition("\n\n")[0]
    for name, why, bad in [
        ("signature-bit", "one bit of the signature is another", resigned(bytes(flipped))),
        ("signature-s", "S is not below L (RFC 8032, 5.1.7)",
         resigned(data[:36] + s.to_bytes(32, "little"))),
        ("size-changed", "the text is not the one signed", head_note.replace("\n300\n", "\n301\n")),
        ("size-leading-zero", "the size has a leading zero",
         head_note.replace("\n300\n", "\n0300\n")),
        ("other-key", "another key of the same name signed it", str(foreign)),
        ("other-origin", "the first line is not the key's name",
         head_note.replace(f"{ORIGIN}\n", "example.com/other\n", 1)),
        ("unsigned", "there is no signature line", f"{text}\n\n"),
        ("stray-bits", "the base64 ends in bits that are not zero", stray),
    ]:  # fmt: skip
        found.append({"name": name, "kind": "checkpoint", "why": why, "vkey": key, "text": bad})

    proof, leaf42 = made["proof_file"], made["proof"]["record"]
    lines = proof.split("\n")
    for name, why, bad, of in [
        ("proof-other-record", "the record is another", proof, '{"n":43}'),
        ("proof-index", "the index is another", proof.replace("index 42", "index 43"), leaf42),
        ("proof-beyond", "the tree has no such entry", proof.replace("index 42", "index 300"),
         leaf42),
        ("proof-index-zero", "the index has a leading zero",
         proof.replace("index 42", "index 042"), leaf42),
        ("proof-short", "a hash is missing", "\n".join([*lines[:2], *lines[3:]]), leaf42),
        ("proof-long", "a hash too many", "\n".join([*lines[:3], *lines[2:]]), leaf42),
        ("proof-header", "not this format", proof.replace("@v1", "@v2"), leaf42),
    ]:  # fmt: skip
        found.append(
            {"name": name, "kind": "proof", "why": why, "vkey": key, "record": of, "text": bad}
        )
    forged = key.replace(key.split("+")[1], "00000000")
    why = "the key's hash is another"
    return [*found, {"name": "vkey-hash", "kind": "vkey", "why": why, "text": forged}]


Lines = list[Any]
Edit = tuple[str, str, str, Callable[[Lines], object]]
"""Name, condition that does not hold, why, and the edit of the parsed lines."""

FORGED = base64.b64encode(bytes(32)).decode()


def item_of(lines: Lines, number: int, text: str) -> dict[str, Any]:
    """The content item of a line that has a text."""
    found: dict[str, Any] = next(
        item for item in lines[number]["contents"] if text in item.get("jcs", item.get("json", ""))
    )
    return found


def second(lines: Lines, number: int, text: str, at: int, **forged: Any) -> None:
    """Put a second item of the same commitment before (0) or after (1) a true one."""
    true = item_of(lines, number, text)
    place = lines[number]["contents"].index(true) + at
    lines[number]["contents"].insert(place, {"commitment": true["commitment"], **forged})


def export_edits() -> list[Edit]:
    forged = {"nonce": FORGED, "jcs": '"forged"'}
    gone = {"erased": "LED-00000003"}
    alone, ask = "a value of", "Forget it"

    def contents(lines: Lines, number: int = 3) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = lines[number]["contents"]
        return found

    def twice(lines: Lines, number: int, name: str, other: str) -> None:
        member = json.dumps({name: lines[number][name]})[1:-1]
        text = json.dumps(lines[number])
        lines[number] = Raw(text.replace(member, f'"{name}": {other}, {member}'))

    return [
        ("second-item", "item-once", "a second item of the same commitment has another text",
         lambda x: second(x, 3, alone, 1, **forged)),
        ("second-item-before", "item-commitment", "the same, before the true one",
         lambda x: second(x, 3, alone, 0, **forged)),
        ("second-item-erased", "item-once", "beside a value its commitment is said to be erased",
         lambda x: second(x, 3, alone, 1, **gone)),
        ("erased-with-text", "item-once", "beside an erased item another has a text",
         lambda x: contents(x, 1).append({**contents(x, 1)[0], **forged} | {"erased": "x"})
         or contents(x, 1)[1].pop("erased")),
        ("erased-item-with-text", "item-members", "an erased item has a text",
         lambda x: contents(x, 1)[0].update(forged)),
        ("item-repeated", "item-once", "a value is there twice",
         lambda x: contents(x).append(contents(x)[0])),
        ("item-later", "item-needed", "a value is there again with another entry",
         lambda x: contents(x, 5).append(item_of(x, 3, alone))),
        ("item-foreign", "item-needed", "a true value that no commitment of the record names",
         lambda x: contents(x, 4).append({**told(value(40, "foreign"))})),
        ("items-swapped", "item-order", "items are not in the order of their commitments",
         lambda x: contents(x).reverse()),
        ("item-without-nonce", "item-members", "a value has no nonce",
         lambda x: contents(x)[0].pop("nonce")),
        ("item-unknown-member", "item-members", "an item has a member that the format does not",
         lambda x: contents(x)[0].update(kept=True)),
        ("item-nested", "item-members", "an item is a list",
         lambda x: x[3].update(contents=[contents(x)])),
        ("item-upper-case", "item-members", "a commitment has upper-case digits",
         lambda x: contents(x)[0].update(commitment=contents(x)[0]["commitment"].upper())),
        ("nonce-stray-bits", "item-nonce", "the nonce's base64 ends in bits that are not zero",
         lambda x: contents(x)[0].update(nonce=stray_bits(contents(x)[0]["nonce"]))),
        ("item-json-for-jcs", "item-form", "a canonical value is given as an exact text",
         lambda x: item_of(x, 3, alone).update(json=item_of(x, 3, alone).pop("jcs"))),
        ("item-jcs-for-json", "item-form", "an exact text is given as a canonical value",
         lambda x: item_of(x, 5, "surrogate").update(jcs=item_of(x, 5, "surrogate").pop("json"))),
        ("subject-dropped", "item-subjects", "whom the record names is missing",
         lambda x: item_of(x, 3, "ann").pop("subjects")),
        ("subject-changed", "item-subjects", "another person than the record names",
         lambda x: item_of(x, 3, "ann").update(subjects=["mallory"])),
        ("subject-added", "item-subjects", "a person whom no record names",
         lambda x: item_of(x, 3, alone).update(subjects=["mallory"])),
        ("subject-of-before", "head-statement", "a subject for which only the checkpoint vouches",
         lambda x: item_of(x, 2, ask).update(subjects=["mallory"])),
        ("erasure-of-another", "item-erased", "an erasure is named that is no later entry",
         lambda x: contents(x, 1)[0].update(erased="LED-00000000")),
        ("erased-upper-case", "item-erased", "the id of the erasure has other digits",
         lambda x: contents(x, 1)[0].update(erased="LED-0000000003")),
        ("erased-item-dropped", "item-missing", "an erased value is not named",
         lambda x: contents(x, 1).clear()),
        ("step-erased-dropped", "step-message", "a message is missing",
         lambda x: x[1]["steps"][0].pop("erased")),
        ("step-erased-added", "item-needed", "a message that is there is said to be erased",
         lambda x: x[2]["steps"][0].update(gone)),
        ("step-repeated", "step-once", "a message step is there twice",
         lambda x: x[5]["steps"].append(x[5]["steps"][-1])),
        ("steps-swapped", "step-order", "a step is before its parent",
         lambda x: x[5]["steps"].reverse()),
        ("step-foreign", "step-needed", "a true step that belongs to no list",
         lambda x: x[5]["steps"].append(
             steps([item["commitment"] for item in exacts()])[2])),
        ("step-other-session", "step-scope", "a step goes on from another session's",
         lambda x: x[5]["steps"].insert(
             0, dict(x[2]["steps"][0], parent=x[2]["steps"][0]["step"]))),
        ("line-record-and-leaf", "leaf-line", "an entry has a leaf beside its record",
         lambda x: x[3].update(leaf=FORGED)),
        ("line-for-leaf", "leaf-archived", "an entry is replaced by its leaf, and was not archived",
         lambda x: x.__setitem__(3, {"seq": 2, "leaf": base64.b64encode(
             leaf_hash(x[3]["record"].encode())).decode()})),
        ("line-unknown-member", "line-members", "a line has a member that the format does not",
         lambda x: x[4].update(note="x")),
        ("line-erased", "line-erased", "an erasure lists commitments, and nothing was archived",
         lambda x: x[4].update(erased=["ab" * 32])),
        ("line-seq-float", "line-members", "seq is written as 2.0",
         lambda x: x[3].update(seq=2.0)),
        ("line-seq-text", "line-members", "seq is a text", lambda x: x[3].update(seq="2")),
        ("line-seq-bool", "line-members", "seq is true", lambda x: x[2].update(seq=True)),
        ("line-seq-other", "line-seq", "seq is another", lambda x: x[3].update(seq=3)),
        ("line-key-twice", "json-text", "a member is there twice, the true one last",
         lambda x: twice(x, 3, "seq", "7")),
        ("line-repeated", "line-seq", "a line is there twice", lambda x: x.insert(4, x[4])),
        ("line-added", "record-place", "a line of no entry",
         lambda x: x.append(dict(x[-1], seq=5))),
        ("head-entries", "head-entries", "another number of entries",
         lambda x: x[0].update(entries=6)),
        ("head-key-null", "head-key", "the head names no key", lambda x: x[0].update(
            verifier_key=None)),
        ("head-key-other", "head-key", "the head names another key", lambda x: x[0].update(
            verifier_key=str(host_signer().verifier_key))),
        ("head-checkpoint-null", "head-checkpoint", "there is no checkpoint", lambda x: x[0].update(
            checkpoint=None)),
        ("head-subjects-before", "item-subjects", "records are said to name no subject",
         lambda x: x[0].update(subjects_before=3)),
        ("head-subjects-before-less", "head-statement", "records are said to name subjects earlier",
         lambda x: x[0].update(subjects_before=1)
         or item_of(x, 2, ask).pop("subjects")),
        ("head-subjects-before-dropped", "item-subjects", "the head lacks subjects_before",
         lambda x: x[0].pop("subjects_before")),
        ("head-unknown-member", "head-members", "the head has a member that the format does not",
         lambda x: x[0].update(origin=ORIGIN)),
        ("head-usage-added", "line-erased", "the head has usage, and nothing was archived",
         lambda x: x[0].update(usage=[])),
        ("head-signed-twice", "note-text", "the checkpoint has its signature twice",
         lambda x: x[0].update(checkpoint=x[0]["checkpoint"] + x[0]["checkpoint"].split("\n")[-2]
                               + "\n")),
    ]  # fmt: skip


def archived_edits() -> list[Edit]:
    everything = json.dumps(packed(b"\xff" * 32))
    note = next(line for line in archived() if line.get("seq") == 9)
    leaf = {"seq": 9, "leaf": base64.b64encode(leaf_hash(note["record"].encode())).decode()}
    forged = {"nonce": FORGED, "jcs": everything}
    return [
        ("second-map", "item-once", "a second item under the commitment of left",
         lambda x: second(x, 257, "eAEB", 1, **forged)),
        ("second-map-and-leaf", "item-once", "the same, and an entry is replaced by its leaf",
         lambda x: second(x, 257, "eAEB", 1, **forged) or x.__setitem__(10, leaf)),
        ("entry-for-leaf", "leaf-archived", "an entry that is not archived is replaced by its leaf",
         lambda x: x.__setitem__(10, leaf)),
        ("leaf-with-record", "leaf-line", "a leaf line has a record",
         lambda x: x[5].update(record=note["record"])),
        ("leaf-with-contents", "leaf-line", "a leaf line has contents",
         lambda x: x[5].update(contents=[])),
        ("leaf-changed", "archived-root", "a leaf is another", lambda x: x[5].update(leaf=FORGED)),
        ("leaf-stray-bits", "leaf-line", "the leaf's base64 ends in bits that are not zero",
         lambda x: x[5].update(leaf=stray_bits(x[5]["leaf"]))),
        ("leaves-swapped", "line-seq", "two leaf lines are exchanged",
         lambda x: x.__setitem__(slice(5, 7), [x[6], x[5]])),
        ("usage-changed", "head-statement", "a sum of usage is another",
         lambda x: x[0]["usage"][0].__setitem__(11, 3)),
        ("usage-dropped", "leaf-archived", "the head has no usage", lambda x: x[0].pop("usage")),
        ("usage-twice", "head-usage", "a row of usage is there twice",
         lambda x: x[0]["usage"].append(x[0]["usage"][0])),
        ("usage-column", "head-usage", "a sum of usage is a text",
         lambda x: x[0]["usage"][0].__setitem__(11, "2")),
        ("erased-dropped", "line-erased", "an erasure does not list what it erased",
         lambda x: x[258].pop("erased")),
        ("erased-other", "erasure-account", "an erasure lists another commitment",
         lambda x: x[258].update(erased=["ab" * 32])),
    ]  # fmt: skip


def object_edits(name: str) -> list[Edit]:
    """Edits of the one object of a tenant proof or a bundle."""
    members = "tenant-members" if name == "tenant" else "bundle-members"
    proof = "proof" if name == "tenant" else "checkpoint"
    edits: list[Edit] = [
        (f"{name}-record", "proof-path", "the record is another",
         lambda x: x[0].update(record=x[0]["record"].replace("KEPT", "LOST"))),
        (f"{name}-unknown-member", members, "it has a member that the format does not",
         lambda x: x[0].update(note="x")),
        (f"{name}-record-list", members, "the record is a list",
         lambda x: x[0].update(record=[x[0]["record"]])),
        (f"{name}-note-list", members, "the note is a list",
         lambda x: x[0].update({proof: [x[0][proof]]})),
        (f"{name}-key-twice", "json-text", "a member is there twice",
         lambda x: x.__setitem__(0, Raw('{"record":"{}",' + json.dumps(x[0])[1:]))),
        (f"{name}-signed-twice", "note-text", "the checkpoint has its signature twice",
         lambda x: x[0].update({proof: x[0][proof] + x[0][proof].split("\n")[-2] + "\n"})),
    ]  # fmt: skip
    if name == "tenant":
        return [
            *edits,
            ("tenant-head-dropped", members, "the host's head is missing",
             lambda x: x[0].pop("head")),
            ("tenant-head-record", "proof-path", "the host's record is another",
             lambda x: x[0]["head"].update(
                 record=x[0]["head"]["record"].replace("acme", "other"))),
            ("tenant-proofs-swapped", "checkpoint-origin", "the two proofs are exchanged",
             lambda x: x[0].update(proof=x[0]["head"]["proof"]) or x[0]["head"].update(
                 proof=tenant_proof()["proof"])),
        ]  # fmt: skip
    return [
        *edits,
        ("bundle-entry-id", members, "it is named as another entry",
         lambda x: x[0].update(entry_id="LED-00000003")),
        ("bundle-size", members, "the size is another", lambda x: x[0].update(size=6)),
        ("bundle-size-dropped", members, "the size is missing", lambda x: x[0].pop("size")),
        ("bundle-seq-text", members, "seq is a text", lambda x: x[0].update(seq="2")),
        ("bundle-seq-float", members, "seq is written as 2.0", lambda x: x[0].update(seq=2.0)),
        ("bundle-proof-object", members, "the proof is an object with a length",
         lambda x: x[0].update(proof={**dict(enumerate(x[0]["proof"])),
                                      "length": len(x[0]["proof"])})),
        ("bundle-hash-upper-case", "record-hash", "entry_hash has upper-case digits",
         lambda x: x[0].update(entry_hash=x[0]["entry_hash"].upper())),
    ]  # fmt: skip


class Raw(str):
    """A line as text."""


def stray_bits(text: str) -> str:
    """Base64 of 32 bytes with a bit after its last."""
    return f"{text[:-2]}{chr(ord(text[-2]) + 1)}="


def hostile() -> dict[str, Any]:
    """Edits that every reader of an artefact refuses: lines ``first`` to before ``end`` of the
    artefact are replaced."""
    cases = []
    for name, edits in (
        ("export.jsonl", export_edits()), ("archived.jsonl", archived_edits()),
        ("tenant-proof.json", object_edits("tenant")), ("bundle.json", object_edits("bundle")),
        ("extract.json", extract_edits()),
    ):  # fmt: skip
        true = artefacts()[name].splitlines()
        for case, condition, why, edit in edits:
            parsed = [json.loads(line) for line in true]
            edit(parsed)
            lines = [
                str(line) if isinstance(line, Raw) else json.dumps(line, separators=(",", ":"))
                for line in parsed
            ]
            first = next(
                (at for at, (one, two) in enumerate(zip(true, lines, strict=False)) if one != two),
                min(len(true), len(lines)),
            )
            tail = 0
            while tail < min(len(true), len(lines)) - first and true[-1 - tail] == lines[-1 - tail]:
                tail += 1
            assert lines != true, case
            cases.append(
                {"name": case, "artefact": name, "condition": condition, "why": why,
                 "first": first, "end": len(true) - tail, "lines": lines[first : len(lines) - tail]}
            )  # fmt: skip
    return {"format": "remit-hostile-vectors/1", "cases": cases}


def vectors() -> dict[str, Any]:
    told = contents()
    macs = [told[3]["commitment"], told[4]["commitment"], told[3]["commitment"]]
    gone = [told[1]["commitment"], told[0]["commitment"]]
    return {
        "format": "remit-ledger-vectors/1",
        "records": records(),
        "contents": told,
        "exact": exacts(),
        "messages": {"messages": MESSAGES, "steps": steps(macs)},
        "requests": requests(),
        "erasure": {
            "commitments": gone,
            "erased_count": len(gone),
            "erased_hash": hashlib.sha256("".join(sorted(gone)).encode()).hexdigest(),
        },
        "trees": trees(),
        "notes": {name: item for name, item in notes().items() if name != "proof_file"},
        "negative": negative(),
    }


def jsonl(lines: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def artefacts() -> dict[str, str]:
    """The genuine artefacts of which :func:`hostile` edits lines."""
    return {
        "export.jsonl": jsonl(export()),
        "archived.jsonl": jsonl(archived()),
        "record-42.tlog-proof": notes()["proof_file"],
        "tenant-proof.json": jsonl([tenant_proof()]),
        "bundle.json": jsonl([bundle()]),
        "extract.json": jsonl([extract()]),
    }


def files() -> dict[str, str]:
    made = notes()
    return {
        **artefacts(),
        "hostile.json": json.dumps(hostile(), indent=1) + "\n",
        "host.vkey": f"{host_signer().verifier_key}\n",
        "vectors.json": json.dumps(vectors(), indent=1) + "\n",
        "checkpoint": made["checkpoint"],
        "record-42.json": made["proof"]["record"],
        "key.vkey": made["log"]["vkey"] + "\n",
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text)
