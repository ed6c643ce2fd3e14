"""Receipts in public formats: accepted by the public verifiers, and refused once edited."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rfc8785

from remit import Runtime
from remit.agents.tools import Tool
from remit.kernel.canonical import sha256_hex
from remit.learning import give_feedback
from remit.ledger import LedgerClient, LedgerWriteError, make_extract
from remit.testing import ScriptedModel, ToolUse
from remit.views import read_receipts
from tests.receipts.runs import (
    ANYTHING,
    CHECKOUT,
    FORMATS,
    TOOLS,
    answers_of,
    extract_of,
    needs_oracles,
    playing,
    receipts_of,
    verdicts,
)
from tests.support.commands import require_said, run_remit
from tests.support.soak import SEED, is_soak

SESSIONS = 112 if is_soak() else 3
"""Sessions of nine receipts each: 1,008 of them in a soak."""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Runtime, list[str]]]:
    with playing(tmp_path_factory.mktemp("receipts") / "root", SESSIONS) as found:
        yield found


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each leaf."""
    if not isinstance(value, dict | list):
        yield path
        return
    for name, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield from leaves(item, (*path, name))


def edited(receipt: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """Return a copy with one value changed, or one member left out."""
    copy = json.loads(json.dumps(receipt))
    *path, name = chance.choice([*leaves(copy)])
    place = copy
    for step in path:
        place = place[step]
    if isinstance(name, str) and chance.random() < 0.2:
        del place[name]
    elif isinstance(text := place[name], str):
        at = chance.randrange(len(text))
        place[name] = text[:at] + chance.choice("0a-Z9".replace(text[at], "")) + text[at + 1 :]
    else:
        place[name] = not text if isinstance(text, bool) else text / 2
    return copy


def ask(kind: str, receipts: list[dict[str, Any]]) -> list[list[str]]:
    """Return what the public verifier of a format finds wrong with each receipt."""
    if kind == "capsule":
        found: list[list[str]] = verdicts("capsule", receipts)
        return found
    if kind == "agentboundary-0.2" and not CHECKOUT:  # the release reads version 0.1
        receipts = [as_first_version(one) for one in receipts]
    return list(verdicts("agentboundary", [{"receipt": one} for one in receipts]))


def as_first_version(receipt: dict[str, Any]) -> dict[str, Any]:
    """Return a receipt of version 0.2 as one of version 0.1; an edit stays an edit."""
    body = {name: value for name, value in receipt.items() if name != "receipt_hash"}
    is_whole = sha256_hex(rfc8785.dumps(body)) == receipt.get("receipt_hash")
    for name in ("prior_receipt", "provenance", "completeness_score"):
        body.pop(name, None)
    if body.get("version") == "agentboundary/v0.2-alpha":
        body["version"] = "agentboundary/v0.1"
    return {**body, "receipt_hash": sha256_hex(rfc8785.dumps(body)) if is_whole else "0" * 64}


@pytest.mark.soak
@needs_oracles
@pytest.mark.parametrize("kind", FORMATS)
def test_public_verifiers_accept_receipts_and_refuse_edited_ones(
    played: tuple[Runtime, list[str]], kind: str
) -> None:
    runtime, sessions = played
    receipts = [one for name in sessions for one in receipts_of(runtime.ledger, name, kind)]
    assert len(receipts) == 9 * SESSIONS
    chance = random.Random(SEED)
    found = ask(kind, [*receipts, *(edited(one, chance) for one in receipts)])
    assert found[: len(receipts)] == [[]] * len(receipts)
    assert all(found[len(receipts) :])
    print(f"{kind}: {len(receipts)} receipts accepted, {len(receipts)} edited ones refused")


@needs_oracles
def test_a_store_of_capsules_names_the_child_of_a_missing_one(
    played: tuple[Runtime, list[str]],
) -> None:
    runtime, sessions = played
    capsules = receipts_of(runtime.ledger, sessions[0], "capsule")
    other = receipts_of(runtime.ledger, sessions[1], "capsule")
    missing = ["chain_parent_missing"]
    short = [capsules[:at] + capsules[at + 1 :] for at in range(len(capsules) - 1)]
    mixed = [*capsules[:4], other[4], *capsules[5:]]
    found = verdicts("capsule", [capsules, mixed, *short])
    assert found == [[], missing * 2, *[missing] * len(short)]
    numbers = [one["action_id"] for one in capsules]
    assert numbers == [f"{sessions[0]}#{number}" for number in range(1, 10)]


def test_each_receipt_names_the_one_before(played: tuple[Runtime, list[str]]) -> None:
    runtime, sessions = played
    found = receipts_of(runtime.ledger, sessions[0], "agentboundary-0.2")
    assert "prior_receipt" not in found[0]
    for before, after in itertools.pairwise(found):
        assert after["prior_receipt"] == {
            name: before[name] for name in ("receipt_id", "receipt_hash")
        }
    assert len({one["receipt_id"] for one in found}) == 9
    again = receipts_of(runtime.ledger, sessions[0], "agentboundary-0.2")
    assert again == found  # derived once more, with the same hashes


def test_a_receipt_says_what_happened(played: tuple[Runtime, list[str]]) -> None:
    runtime, sessions = played
    found = receipts_of(runtime.ledger, sessions[0], "agentboundary")
    tools = [one for one in found if one["tool"]["capability"] != "model.call"]
    said = [(one["tool"]["name"], one["policy"]["decision"], one["execution"]["status"])
            for one in tools]  # fmt: skip
    assert said == [
        ("look", "allow", "success"), ("refund", "require-approval", "success"),
        ("erase_all", "deny", "blocked"), ("refund", "deny", "blocked"),
    ]  # fmt: skip
    _, granted, *_ = tools
    assert granted["approval"]["approver"] == {"id": "Ada"}
    assert granted["approval"]["approved_at"] < granted["issued_at"]
    assert granted["issued_at"] < granted["execution"]["completed_at"]
    assert granted["actor"] == {"type": "agent", "id": "desk"}
    assert granted["agent"]["model"] == "scripted"
    asked = [one.arguments for one in answers_of(0)[:2]]
    hashes = [sha256_hex(rfc8785.dumps(one)) for one in asked]
    assert [one["arguments_hash"] for one in tools[:2]] == hashes
    record = runtime.ledger.read_record(granted["execution"]["result_ref"].split("?")[0][-12:])
    assert f"sha256={sha256_hex(record)}&" in granted["execution"]["result_ref"]


def test_another_definition_of_a_tool_is_another_policy(tmp_path: Path) -> None:
    changed = Tool("look", "Look again.", ANYTHING, print)
    model = ScriptedModel(*[ToolUse("look", {}), "Done."] * 2)
    with Runtime.open(tmp_path / "root", create=True, providers={"scripted": model}) as runtime:
        policies = []
        for tool in (TOOLS[1], changed):
            run = runtime.agent("desk", instructions="Look.", tools=[tool]).run("Look.")
            policies.append(
                receipts_of(runtime.ledger, run.session_id, "agentboundary")[1]["policy"]
            )
    old, new = policies
    assert old["name"] == new["name"] == "desk"
    assert old["version"] != new["version"]


def test_receipts_from_a_read_only_medium_are_those_of_the_last_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "root"
    with playing(path, 2) as (runtime, (first, second)):
        whole = extract_of(runtime.ledger, session_id=first)
        give_feedback(runtime.ledger, first, score=1.0, by="u1")  # an entry after the index
        action, other = (
            next(iter(runtime.ledger.query(session_id=one, event_type="TOOL_CALL"))).id
            for one in (first, second)
        )
    monkeypatch.setattr("os.access", lambda _, mode, **__: not mode & os.W_OK)
    with LedgerClient(path / "ledger.db") as client:
        assert extract_of(client, session_id=first).records == whole.records
        assert extract_of(client, entry=action).actions == whole.actions
        for of in ({"session_id": second}, {"entry": other}):
            with pytest.raises(LedgerWriteError, match="needs an index") as refused:
                make_extract(client, of)
            assert "Copy the root" in refused.value.next_step
    ask = ["receipt", first, "--root", path]
    later = run_remit(*ask)
    assert json.loads(later.stdout)["records"] == whole.members["records"]
    require_said(later, "The root is read-only, so 1 later entry is not covered.", code=0)
    for kind in FORMATS:
        require_said(run_remit(*ask, "--format", kind), "1 later entry", "--format remit")
        assert run_remit("receipt", action, "--root", path, "--format", kind).returncode == 0


def test_no_receipt_of_an_older_copy(tmp_path: Path) -> None:
    path = tmp_path / "root"
    with playing(path, 1) as (runtime, (session,)):
        extract_of(runtime.ledger, session_id=session)
        give_feedback(runtime.ledger, session, score=1.0, by="u1")  # an entry after the index
    older = (path / "ledger.db").read_bytes()
    for command in (["key", "create", "--name", "a"], ["ledger", "checkpoint"]):
        assert run_remit(*command, "--root", path).returncode == 0
    (path / "ledger.db").write_bytes(older)
    require_said(run_remit("receipt", session, "--root", path), "older copy")


def test_receipts_of_erased_content_verify_and_reveal_nothing(tmp_path: Path) -> None:
    with playing(tmp_path / "root", 1) as (runtime, (session,)):
        ledger = runtime.ledger
        before = {kind: receipts_of(ledger, session, kind) for kind in FORMATS}
        records = extract_of(ledger, session_id=session).members["records"]
        ledger.erase(subject_id="person-0", reason="asked", requested_by="dpo")
        facts = read_receipts(extract_of(ledger, session_id=session))
        for kind in FORMATS:
            receipts = receipts_of(ledger, session, kind)
            if kind != "agentboundary":
                assert ask(kind, receipts) == [[]] * 9
            text = json.dumps(receipts)
            name = "request_digest" if kind == "capsule" else "arguments_hash"
            for was, now, fact in zip(before[kind], receipts, facts, strict=True):
                was, now = ((one.get("effect") or {}) if kind == "capsule" else one
                            for one in (was, now))  # fmt: skip
                if was:
                    assert was[name] not in text
                    assert now[name] == fact.arguments  # the record's salted commitment
        assert extract_of(ledger, session_id=session).members["records"][:9] == records[:9]
        assert ledger.verify().verified
