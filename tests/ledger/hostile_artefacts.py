"""Genuine artefacts with every kind of content, from which hostile ones are made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from remit.ledger import (
    Content,
    LedgerClient,
    LedgerEntry,
    content,
    entry_id,
    make_extract,
    proof_bundle,
)
from remit.ledger.log_of_logs import prove_through, take_head
from remit.ledger.tlog import SignedCheckpoint, Signer
from tests.ledger.segments.writing import cut_off, sessions
from tests.support.stores import SIGNER, conversation, outside

__all__ = ["HOST", "Artefacts", "make"]

HOST = Signer.generate("example.com/host")


class Artefacts(NamedTuple):
    """Genuine artefacts.

    Attributes:
        exports: the lines of exports, by name.
        chosen: by name, the lines that are worth an edit of each member.
        proof: a C2SP tlog-proof; ``record`` the record that it proves.
        tenant_proof: a proof through two logs, under the key of :data:`HOST`.
        bundles: what browsers are given.
        extracts: of a session, an action and a range.
    """

    exports: dict[str, list[bytes]]
    chosen: dict[str, list[int]]
    proof: str
    record: bytes
    tenant_proof: dict[str, Any]
    bundles: list[dict[str, Any]]
    extracts: list[dict[str, Any]]


def make(folder: Path) -> Artefacts:
    """Make all artefacts in a folder."""
    rich = _rich(folder)
    archived = _archived(folder)
    with LedgerClient(folder / "rich.db", signer=SIGNER) as client:
        proof, record = client.prove(entry_id(5)), client.read_record(entry_id(5))
        bundles = [proof_bundle(client, entry_id(seq)) for seq in (5, 8)]
        tenant = _tenant(folder, client)
        extracts = _extracts(client)
    kinds = [json.loads(line) for line in archived]
    special = [
        at for at, line in enumerate(kinds)
        if at == 0 or '"ARCHIVED"' in line.get("record", "") or "erased" in line
    ]  # fmt: skip
    leaves = [at for at, line in enumerate(kinds) if "leaf" in line]
    chosen = sorted({*special, leaves[0], leaves[-1], leaves[-1] + 1, len(kinds) - 1})
    return Artefacts(
        {"export": rich, "archived export": archived},
        {"export": list(range(len(rich))), "archived export": chosen},
        proof, record, tenant, bundles, extracts,
    )  # fmt: skip


def _rich(folder: Path) -> list[bytes]:
    """An export with erasures, exact texts, message lists and subjects that records vouch for, or
    do not."""
    place = str(folder / "rich.db")
    exact = b' {"role": "user", "content": "exactly"}'
    with LedgerClient(place, signer=SIGNER) as client:
        conversation(client, "SES-OLD", 2)
    contents = "SELECT content_id FROM contents ORDER BY content_id LIMIT 2"
    outside(place, f"INSERT INTO content_subjects SELECT 'bob', content_id FROM ({contents})")
    outside(place, "INSERT INTO ledger_info VALUES ('subjects_before', '2')")
    with LedgerClient(place, signer=SIGNER) as client:
        conversation(client, "SES-ANN", 2, subject="ann")
        conversation(client, "SES-GONE", 2)
        for metadata in (
            {"session_id": "SES-EXACT", "answer": Content.exact(exact),
             "prompt": Content.exact_list([exact, b'{"role":"user","n":1.50}'])},
            {"session_id": "SES-EXACT", "answer": Content.exact(b'"plain"'),
             "prompt": [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}],
             "tools": [{"role": "user", "content": "one"}, {"role": "user", "content": "three"}]},
            {"n": 1, "share": 0.5, "user_message": "without a session"},
            {"provenance": {"session_id": "SES-EXACT", "tier": "ho1"}, "result": {"a": [1, None]}},
        ):  # fmt: skip
            reason = content("a quoted reason") if "n" in metadata else "plain"
            client.write(LedgerEntry("NOTE", "S", "D", reason, ["PRM-1"], metadata))
        client.erase("LED-00000004", reason="request 1")
        conversation(client, "SES-EXACT", 1)
        assert client.verify().problems == []
        client.export(folder / "rich.jsonl")
    return (folder / "rich.jsonl").read_bytes().splitlines()


def _archived(folder: Path) -> list[bytes]:
    """The export of a ledger from which a range was moved to a segment."""
    database, directory = folder / "archived.db", folder / "archive"
    with LedgerClient(database, signer=SIGNER) as client:
        repeated = [
            LedgerEntry("EXCHANGE", "P", "SUCCESS", "done", metadata={
                "session_id": "SES-TWICE", "response": "the same",
                "prompt": [{"role": "user", "content": f"again {turn}"}],
            })
            for turn in range(2)
        ]  # fmt: skip
        client.write_many(repeated)
        sessions(client, 44, leading=2)
        assert cut_off(client, directory).entries > 200
        conversation(client, "SES-LATER", 2, subject="ann")
    with LedgerClient(database, signer=SIGNER) as client:
        client.attach([directory])
        for name in ("SES-9", "SES-TWICE"):
            client.erase(session_id=name, reason="request 3")
        assert client.verify().problems == []
    with LedgerClient(database, signer=SIGNER) as client:
        client.export(folder / "archived.jsonl")
    return (folder / "archived.jsonl").read_bytes().splitlines()


def _extracts(client: LedgerClient) -> list[dict[str, Any]]:
    run = {"session_id": "SES-EXACT"}
    call = client.write(LedgerEntry("EXCHANGE", "S", "D", "r", metadata=run))
    return [make_extract(client, of) for of in (run, {"entry": call}, {"first": 3, "end": 6})]


def _tenant(folder: Path, log: LedgerClient) -> dict[str, Any]:
    with LedgerClient(folder / "host.db", signer=HOST) as host:
        host.write(LedgerEntry("NOTE", "S", "D", "r"))
        signed = SignedCheckpoint.parse(log.checkpoint())
        take_head(host, "acme", log, signed, key=SIGNER.verifier_key)
        host.write(LedgerEntry("NOTE", "S", "D", "r"))
        found: dict[str, Any] = json.loads(str(prove_through(host, "acme", log, entry_id(5))))
        return found
