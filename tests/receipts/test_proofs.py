"""Receipts in Remit's own form: extracts, which prove an action and its place in the run."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime
from remit.ledger import LedgerFormatError, entry_id, make_extract, read_extract
from remit.testing import ScriptedModel, ToolUse
from remit.views import read_receipts
from tests.receipts.runs import TOOLS, extract_of, playing
from tests.support.commands import run_remit
from tests.support.secrets import KEYS
from tests.support.soak import SEED, is_soak
from tests.support.standalone import load_standalone, standalone
from tests.support.stores import SIGNER

SESSIONS = 112 if is_soak() else 2


def edited(receipt: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """Return a copy with one changed character, or without one record or hash."""
    copy = json.loads(json.dumps(receipt))
    name = chance.choice(["records", "records", "hashes", "checkpoint", "verifier_key"])
    value = copy[name]
    if isinstance(value, list) and chance.random() < 0.2:
        value.pop(chance.randrange(len(value)))
        return copy  # type: ignore[no-any-return]
    at = chance.randrange(len(value)) if isinstance(value, list) else None
    text = value if at is None else value[at]
    place = chance.randrange(len(text))
    changed = text[:place] + chance.choice("0a+Z9".replace(text[place], "")) + text[place + 1 :]
    if at is None:
        copy[name] = changed
    else:
        value[at] = changed
    return copy  # type: ignore[no-any-return]


@pytest.mark.soak
def test_every_receipt_verifies_and_no_edited_one(tmp_path: Path) -> None:
    script, chance, count = load_standalone(), random.Random(SEED), 0
    with playing(tmp_path / "root", SESSIONS) as (runtime, sessions):
        ledger = runtime.ledger
        key = ledger.verifier_key
        for session in sessions:
            of_run = read_receipts(extract_of(ledger, session_id=session))
            assert [one.number for one in of_run] == [*range(1, of_run[0].count + 1)]
            for receipt in of_run:
                whole = make_extract(ledger, {"entry": receipt.entry_id})
                assert read_receipts(read_extract(json.dumps(whole), key)) == [receipt]
                assert script.check_extract(whole, str(key)).startswith("complete: ")
                wrong = edited(whole, chance)
                with pytest.raises(LedgerFormatError):
                    read_extract(json.dumps(wrong), key)
                with pytest.raises(ValueError, match=r"\(.+\)$|point|base64"):
                    script.check_extract(wrong, str(key))
                count += 1
            previous = [one.previous for one in of_run]
            assert previous == ["", *(one.entry_id for one in of_run[:-1])]
    assert count == 9 * SESSIONS
    print(f"{count} receipts verified, {count} edited ones refused, by both verifiers")


def test_a_receipt_of_another_log_is_refused(tmp_path: Path) -> None:
    with playing(tmp_path / "root", 1) as (runtime, (session,)):
        receipt = json.dumps(make_extract(runtime.ledger, {"session_id": session}))
        with pytest.raises(LedgerFormatError, match="another verifier key"):
            read_extract(receipt, SIGNER.verifier_key)


def test_an_operator_hands_out_a_refund_and_an_auditor_checks_it(tmp_path: Path) -> None:
    root, file = tmp_path / "root", tmp_path / "refund.json"
    with playing(root, 1) as (runtime, (session,)):
        refund = [one.id for one in runtime.ledger.query(event_type="TOOL_CALL")][1]
    operator = run_remit("receipt", refund, "--out", file, "--root", root, cwd=tmp_path)
    assert operator.returncode == 0, operator.stderr
    key = run_remit("ledger", "key", "--root", root, cwd=tmp_path).stdout.strip()
    alone = standalone(file, "--key", key)
    assert alone.returncode == 0, alone.stderr
    assert "action 4 of 9" in alone.stdout
    assert '"decided_by": "Ada"' in alone.stdout
    assert alone.stdout.endswith("VERIFIED\n")
    with_remit = run_remit("ledger", "verify", "--file", file, "--key", key, cwd=tmp_path)
    assert with_remit.returncode == 0, with_remit.stderr
    for said in ("action 4 of 9", "tool: 'refund'", "decision: require-approval", "by: 'Ada'",
                 "outcome: success"):  # fmt: skip
        assert said in with_remit.stdout
    as_json = run_remit("ledger", "verify", "--file", file, "--key", key, "--json", cwd=tmp_path)
    (receipt,) = json.loads(as_json.stdout)["receipts"]
    assert (receipt["tool"], receipt["outcome"], receipt["number"]) == ("refund", "success", 4)
    assert receipt["run"] == {"session_id": session}
    file.write_text(file.read_text().replace("Ada", "Bob"))
    assert standalone(file, "--key", key).returncode == 1
    assert run_remit("ledger", "verify", "--file", file, cwd=tmp_path).returncode == 1


def test_no_name_fakes_a_fact(tmp_path: Path) -> None:
    root, file = tmp_path / "root", tmp_path / "refund.json"
    forged = "Bob, expires: never\noutcome: failure\x1b[2J\u202e"
    with playing(root, 1, forged) as (runtime, _):
        calls = [one.id for one in runtime.ledger.query(event_type="TOOL_CALL")]
    run_remit("receipt", calls[1], "--out", file, "--root", root, cwd=tmp_path)
    found = run_remit("ledger", "verify", "--file", file, cwd=tmp_path).stdout
    assert f"by: {forged!r}, at: " in found
    for text in (found, standalone(file).stdout):
        assert "failure" not in [line.split(" ")[1] for line in text.splitlines()]
        assert text.replace("\n", "").isprintable()


def test_a_tool_that_a_model_names_like_a_key_is_in_no_record(tmp_path: Path) -> None:
    root = tmp_path / "root"
    key = next(one for one in KEYS if one.startswith("sk-live"))
    model = ScriptedModel(ToolUse(key, {}), ToolUse("look", {key: 1}), "Done.")
    with Runtime.open(root, create=True, providers={"scripted": model}) as runtime:
        agent = runtime.agent("desk", instructions="Look.", tools=list(TOOLS))
        session = str(agent.session(user="u1").turn("Go on.").session_id)
        refused, _ = runtime.ledger.query(event_type="TOOL_CALL")
        for seq in range(runtime.ledger.count()):
            assert key.encode() not in runtime.ledger.read_record(entry_id(seq))
    assert refused.metadata["tool_id"] == "unknown"
    assert key in refused.metadata["tool_error"]  # content, which can be erased
    for kind in ("remit", "agentboundary", "agentboundary-0.2", "capsule"):
        done = run_remit("receipt", session, "--format", kind, "--root", root, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert key not in done.stdout
    done = run_remit("ledger", "export", "--cursor", "c", "--content", "--out", "lines", "--root",
                     root, cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert key not in (tmp_path / "lines").read_text()


def test_the_command_writes_each_format(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with playing(root, 1) as (runtime, (session,)):
        calls = [one.id for one in runtime.ledger.query(event_type="TOOL_CALL")]
        start = next(iter(runtime.ledger.query(event_type="SESSION_START"))).id
    for kind in ("agentboundary", "agentboundary-0.2", "capsule"):
        run = run_remit("receipt", session, "--format", kind, "--root", root, cwd=tmp_path)
        every = json.loads(run.stdout)
        assert len(every) == 9
        one = run_remit("receipt", calls[1], "--format", kind, "--root", root, cwd=tmp_path)
        assert json.loads(one.stdout) == every[3]
    whole = json.loads(run_remit("receipt", session, "--root", root, cwd=tmp_path).stdout)
    assert whole["of"] == {"session_id": session}
    for name, said in (("LED-0fffffff", "no entry"), ("SES-NONE", "no entry of 'SES-NONE'"),
                       (start, "ends no tool action or model call")):  # fmt: skip
        refused = run_remit("receipt", name, "--root", root, cwd=tmp_path)
        assert refused.returncode != 0
        assert said in refused.stderr, refused.stderr
