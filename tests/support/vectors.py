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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from remit.ledger.tlog import (
    Checkpoint,
    Signer,
    TlogProof,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    tree_root,
)
from remit.ledger.tlog.note import COSIGNATURE

FOLDER = Path(__file__).parents[2] / "docs/vectors"
SEED = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
WITNESS_SEED = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"
ORIGIN = "example.com/vectors"
WITNESS = "example.com/witness"
COSIGNED_AT = 1_700_000_000
SIZES = [0, 1, 2, 3, 4, 5, 7, 8, 255, 256, 257, 300]
TIME = "2026-01-01T00:00:0{}.000000Z"
ORDER = 2**252 + 27742317777372353535851937790883648493
NO_STEP = "0" * 64


def signer(seed: str = SEED, name: str = ORIGIN, kind: int = 1) -> Signer:
    return Signer(name, Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed)), kind)


def nonce(number: int) -> bytes:
    return hashlib.sha256(f"nonce {number}".encode()).digest()


def leaf(number: int) -> bytes:
    """The rule for the records of the trees."""
    return f'{{"n":{number}}}'.encode()


def value(number: int, item: Any) -> dict[str, Any]:
    encoded = rfc8785.dumps(item)
    mac = hmac.new(nonce(number), encoded, "sha256").hexdigest()
    return {
        "nonce_hex": nonce(number).hex(),
        "value": item,
        "jcs": encoded.decode(),
        "bytes": len(encoded),
        "commitment": mac,
    }


def exact(number: int, text: str) -> dict[str, Any]:
    encoded = text.encode()
    mac = hmac.new(nonce(number), encoded, "sha256").hexdigest()
    return {
        "nonce_hex": nonce(number).hex(),
        "json": text,
        "bytes": len(encoded),
        "commitment": mac,
    }


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
            "timestamp": TIME.format(seq),
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


def records() -> list[dict[str, Any]]:
    told, wire = contents(), exacts()
    conversation = steps([told[3]["commitment"], told[4]["commitment"]])
    numbers = [0, -1, 2**53 - 1, 0.5, 1e-7, 1e21, 333333333.3333333]
    return chained(
        [
            {"event_type": "NOTE", "decision": "KEPT", "reason": "plain", "metadata": {}},
            {
                "event_type": "NOTE",
                "decision": "",
                "reason": "line\n\u20ac \u0001",
                "prompts_used": ["PRM-1", "PRM-2"],
                "metadata": {"\ufb33": 1, "\U0001f600": 2, "\u00f6": 3, "numbers": numbers},
            },
            {
                "event_type": "EXCHANGE",
                "decision": "SUCCESS",
                "reason": single(told[2]),
                "metadata": {
                    "session_id": "SES-1",
                    "prompt": {"$messages": conversation[-1]["step"], "count": 2},
                    "response": single(told[1]),
                },
            },
            {
                "event_type": "EXCHANGE",
                "decision": "SUCCESS",
                "reason": single(wire[2]),
                "metadata": {"answer": single(wire[0]), "prompt": exact_list(wire[:2])},
            },
        ]
    )


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
    """Three notes of one session and one of none; the first answer is erased. Then exact texts."""
    wire = exacts()
    ask, answer, more, alone = (
        value(10, {"role": "user", "content": "Where do I live?"}),
        value(11, "Main Street 1"),
        value(12, {"role": "user", "content": "Forget it, please."}),
        value(13, "a value of an entry without a session"),
    )
    chain = steps([ask["commitment"], more["commitment"]])
    gone = sorted([answer["commitment"], ask["commitment"]])

    def exchange(count: int, **more: Any) -> dict[str, Any]:
        prompt = {"$messages": chain[count - 1]["step"], "count": count}
        metadata = {"session_id": "SES-1", "prompt": prompt, **more}
        return {
            "event_type": "EXCHANGE", "decision": "SUCCESS", "reason": "ok", "metadata": metadata
        }  # fmt: skip

    made = chained(
        [
            exchange(1, response=single(answer)),
            exchange(2),
            {
                "event_type": "NOTE",
                "decision": "KEPT",
                "reason": single(alone),
                "metadata": {},
            },
            {
                "event_type": "ERASURE",
                "decision": "ERASED",
                "reason": "request 17",
                "submission_id": "operator",
                "metadata": {
                    "target": "entry",
                    "erased_entry_id": "LED-00000000",
                    "requested_by": "operator",
                    "erased_count": 2,
                    "erased_hash": hashlib.sha256("".join(gone).encode()).hexdigest(),
                },
            },
            {
                "event_type": "EXCHANGE",
                "decision": "SUCCESS",
                "reason": "ok",
                "metadata": {
                    "session_id": "SES-2",
                    "prompt": exact_list(wire[:2]),
                    "answer": single(wire[2]),
                },
            },
        ]
    )

    def told(item: dict[str, Any]) -> dict[str, Any]:
        encoded = base64.b64encode(bytes.fromhex(item["nonce_hex"])).decode()
        name = "json" if "json" in item else "jcs"
        return {"commitment": item["commitment"], "nonce": encoded, name: item[name]}

    erased = {"erased": "LED-00000003"}
    beside: list[tuple[list[Any], list[Any]]] = [
        ([{"commitment": answer["commitment"], **erased}], [{**chain[0], **erased}]),
        ([{**told(more), "subjects": ["bob"]}], [chain[1]]),
        ([told(alone)], []),
        ([], []),
        ([told(item) for item in wire], steps([item["commitment"] for item in wire[:2]])),
    ]
    root = tree_root([bytes.fromhex(item["leaf_hash"]) for item in made])
    head = {
        "format": "remit-ledger-export/1",
        "entries": len(made),
        "checkpoint": str(Checkpoint(ORIGIN, len(made), root).sign(signer())),
        "verifier_key": str(signer().verifier_key),
    }
    return [
        head,
        *(
            {
                "seq": seq,
                "entry_hash": item["entry_hash"],
                "record": item["record"],
                "contents": beside[seq][0],
                "steps": beside[seq][1],
            }
            for seq, item in enumerate(made)
        ),
    ]


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
        lines[3]["contents"] = [{"commitment": item["commitment"], "erased": "LED-00000003"}]

    def other_nonce(lines: list[dict[str, Any]]) -> None:
        lines[3]["contents"][0]["nonce"] = base64.b64encode(bytes(32)).decode()

    def cut(lines: list[dict[str, Any]]) -> None:
        lines.pop()

    changed(
        "record-changed",
        "the record's SHA-256 is not entry_hash",
        lambda lines: lines[1].update(record=lines[1]["record"].replace("SUCCESS", "FAILURE")),
    )
    changed(
        "record-and-hash-changed",
        "previous_hash of the next entry does not fit",
        lambda lines: record(lines, "SUCCESS", "FAILURE"),
    )
    changed(
        "key-twice",
        "the record has the member decision twice",
        lambda lines: record(lines, '"decision"', '"decision":"FAILURE","decision"'),
    )
    changed(
        "value-changed",
        "the value's HMAC is not its commitment",
        lambda lines: lines[3]["contents"][0].update(jcs='"another value"'),
    )
    changed(
        "exact-text-changed",
        "the text's HMAC is not its commitment, though it means the same",
        lambda lines: lines[5]["contents"][0].update(json=EXACT[0].strip()),
    )
    changed("nonce-changed", "the value's HMAC is not its commitment", other_nonce)
    changed(
        "value-missing",
        "a commitment has neither value nor erasure",
        lambda lines: lines[3]["contents"].clear(),
    )
    changed("erasure-forged", "erased_count and erased_hash of LED-00000003 do not cover it", forge)
    changed(
        "step-changed",
        "the step is not SHA-256(parent || commitment)",
        lambda lines: lines[2]["steps"][0].update(step="ab" * 32),
    )
    changed("swapped", "seq does not count up", swap)
    changed("cut-off", "fewer entries than the first line says", cut)  # fmt: skip

    made = notes()
    note, key = made["checkpoint"], made["log"]["vkey"]
    start, _, encoded = note.rstrip("\n").rpartition(" ")
    data = base64.b64decode(encoded)
    flipped = bytearray(data)
    flipped[40] ^= 1
    s = int.from_bytes(data[36:], "little") + ORDER

    def resigned(raw: bytes) -> str:
        return f"{start} {base64.b64encode(raw).decode()}\n"

    # 68 bytes end in one "=": the digit before it has two bits that no byte takes up.
    stray = resigned(data).replace(encoded, f"{encoded[:-2]}{chr(ord(encoded[-2]) + 1)}=")
    foreign = Checkpoint(ORIGIN, 300, bytes(32)).sign(signer(WITNESS_SEED))
    text = note.partition("\n\n")[0]
    for name, why, bad in [
        ("signature-bit", "one bit of the signature is another", resigned(bytes(flipped))),
        ("signature-s", "S is not below L (RFC 8032, 5.1.7)",
         resigned(data[:36] + s.to_bytes(32, "little"))),
        ("size-changed", "the text is not the one signed", note.replace("\n300\n", "\n301\n")),
        ("size-leading-zero", "the size has a leading zero", note.replace("\n300\n", "\n0300\n")),
        ("other-key", "another key of the same name signed it", str(foreign)),
        ("other-origin", "the first line is not the key's name",
         note.replace(f"{ORIGIN}\n", "example.com/other\n", 1)),
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
    found.append(
        {
            "name": "vkey-hash",
            "kind": "vkey",
            "why": "the key's hash is another",
            "text": key.replace(key.split("+")[1], "00000000"),
        }
    )
    return found


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


def files() -> dict[str, str]:
    made = notes()
    return {
        "vectors.json": json.dumps(vectors(), indent=1) + "\n",
        "export.jsonl": jsonl(export()),
        "checkpoint": made["checkpoint"],
        "record-42.json": made["proof"]["record"],
        "record-42.tlog-proof": made["proof_file"],
        "key.vkey": made["log"]["vkey"] + "\n",
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text)
