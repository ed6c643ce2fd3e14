"""Who writes what: scoped handles are held to their tier's events, and readers believe no other."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remit.agents import ApprovalQueue
from remit.agents.supervisor import unfinished_turn
from remit.agents.workorders import recorded_order
from remit.gateway.auth.projection import recorded_keys
from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter, audit_budgets
from remit.ledger import (
    EVENTS,
    LedgerClient,
    LedgerEntry,
    ScopeError,
    Transaction,
    erasure_digest,
    is_authentic,
)
from remit.packages import EDITABLE_INSTALL, Registry, record_waiver, waived
from remit.packages.trust import sync_trust
from remit.routing.call_explanation import _key

_KERNEL = (
    "APPROVAL_GRANTED", "APPROVAL_DENIED", "INSTALLED", "REMOVED", "KEY_CREATED", "KEY_REVOKED",
    "BUDGET_ALLOCATED", "BUDGET_DEBIT", "GATE_PASSED", "GATE_FAILED", "ERASURE", "CONFIG_CHANGED",
    "SIGNAL_ADOPTED", "SIGNAL_CANARY", "SIGNAL_REJECTED", "SIGNAL_ROLLED_BACK", "DISPATCH",
    "EXCHANGE", "EXCHANGE_ORPHANED", "PROMPT_REJECTED",
)  # fmt: skip
_OWN = {"ho1": ("TOOL_CALL", "WO_COMPLETED"), "ho2": ("WO_PLANNED", "TURN_RECORDED")}
_WORKER = {
    "agent_id": "agent", "agent_class": "RESIDENT", "session_id": "SES-AAAAAAAA",
    "work_order_id": "WO-1",
}  # fmt: skip


def _forged(ledger: LedgerClient, event_type: str, submission_id: str, **metadata: Any) -> str:
    """What a worker would write, had it a raw client."""
    told = {"provenance": _WORKER, **metadata, "tier": "ho1"}
    entry = LedgerEntry(event_type, submission_id, event_type, "forged", metadata=told)
    assert not is_authentic(entry)
    return ledger.write(entry)


def test_each_tier_writes_its_own_events_alone(ledger: LedgerClient) -> None:
    for tier, other in (("ho1", "ho2"), ("ho2", "ho1")):
        handle = ledger.scoped(tier=tier, work_order_id="WO-1" if tier == "ho1" else None)
        for event_type in (*_KERNEL, *(name for name in _OWN[other] if name not in _OWN[tier])):
            entry = LedgerEntry(event_type, "x", "x", "x")
            for way in (handle.write, handle.prepare):
                with pytest.raises(ScopeError, match=event_type) as raised:
                    way(entry)
                assert raised.value.next_step
        for event_type in (*_OWN[tier], "A_PROGRAMS_OWN"):
            handle.write(LedgerEntry(event_type, "x", "x", "x"))
    assert ledger.count() == 6


def test_every_event_has_a_writer_whose_tier_is_known() -> None:
    lower = {"worker", "supervisor", "sessions", "trail", "approvals", "gateway"}
    kernel = {
        "budget", "packages", "gates", "ledger", "auth", "server", "mcp", "tools", "learning",
        "queue", "router", "tenants", "",
    }  # fmt: skip
    for event in EVENTS.values():
        assert set(re.split(", | or ", event.writer)) <= lower | kernel, event
        plain = LedgerEntry(event.name, "x", "x", "x", metadata={"tier": "ho1"})
        if set(re.split(", | or ", event.writer)) <= kernel:
            assert not is_authentic(plain)


def test_an_approval_by_a_worker_is_none(ledger: LedgerClient) -> None:
    asked = {"provenance": _WORKER, "scope": {"tier": "ho1"}, "tool_id": "t", "arguments": {},
             "idempotency_key": "k", "kind": "approval"}  # fmt: skip
    request = ledger.write(LedgerEntry("APPROVAL_REQUESTED", "WO-1", "x", "x", metadata=asked))
    _forged(ledger, "APPROVAL_GRANTED", request, request_id=request, decided_by="the boss")
    queue = ApprovalQueue(ledger)
    assert [found.request_id for found in queue.pending()] == [request]
    queue.decide(request, granted=False, by="ann")
    assert (queue.get(request).state, queue.get(request).decided_by) == ("denied", "ann")


def test_packages_trust_and_waivers_of_a_worker_are_none(
    ledger: LedgerClient, tmp_path: Path
) -> None:
    _forged(ledger, "INSTALLED", "PKG-EVIL-001", package_id="PKG-EVIL-001", manifest="{}")
    assert Registry.from_ledger(ledger).packages == {}
    real = record_waiver(ledger, EDITABLE_INSTALL, "tested", by="ann")
    assert waived(ledger, EDITABLE_INSTALL) == real.id
    _forged(ledger, "CONFIG_CHANGED", "waiver:other", waiver="other", by="ann")
    assert waived(ledger, "other") == ""
    _forged(ledger, "CONFIG_CHANGED", "trust.json", file="trust.json", sha256="0", policy="{}")
    assert sync_trust(tmp_path / "trust.json", ledger).keys == ()


def test_keys_limits_and_plans_of_a_worker_are_none(ledger: LedgerClient) -> None:
    budgeter = TokenBudgeter(ledger)
    scope = BudgetScope("SES-AAAAAAAA")
    budgeter.allocate(scope, limits=BudgetLimits(1000, None, None, None, None))
    assert audit_budgets(ledger).equal
    key = _forged(ledger, "KEY_CREATED", "KEY-EVIL", key_id="KEY-EVIL", models=[], name="evil",
                  role="admin")  # fmt: skip
    _forged(ledger, "BUDGET_ALLOCATED", "SES-AAAAAAAA", session_id="SES-AAAAAAAA",
            token_limit=10**9, turn_limit=None)  # fmt: skip
    _forged(ledger, "WO_PLANNED", "WO-9", wo_type="tool_call")
    assert recorded_keys(ledger.select) == {}
    assert audit_budgets(ledger).equal
    assert recorded_order(ledger, "WO-9") is None
    called = LedgerEntry("EXCHANGE", "x", "x", "x", metadata={"key_id": "KEY-EVIL"})
    assert _key(ledger, called) == {"key_id": "KEY-EVIL", "name": "", "models": None}
    assert ledger.read(key).metadata["name"] == "evil"  # it is on record all the same


def test_an_erasure_of_a_worker_accounts_for_nothing(target: str, tmp_path: Path) -> None:
    """Somebody who can write to the database and has a worker's entry of it hides what was said."""
    with LedgerClient(target) as ledger:
        said = ledger.write(
            LedgerEntry("X", "x", "x", "x", metadata={"session_id": "S", "prompt": "a long secret"})
        )
        ((content_id, mac),) = ledger.select("SELECT content_id, commitment FROM contents")
        forged = _forged(ledger, "ERASURE", "a worker", target="entry", requested_by="the boss",
                         erased_count=1, erased_hash=erasure_digest([mac]))  # fmt: skip
        seq = int(forged.removeprefix("LED-"), 16)

        def hide(tx: Transaction) -> None:
            tx.execute("INSERT INTO erasures VALUES (?, ?)", (mac, seq))
            for table in ("shown_contents", "contents"):
                tx.execute(f"DELETE FROM {table} WHERE content_id = ?", (content_id,))

        ledger.transact(hide)
        kinds = {(found.seq, found.kind) for found in ledger.verify().problems}
        assert {(0, "content"), (seq, "erasure")} <= kinds
        export = tmp_path / "export.jsonl"
        with export.open("wb") as file:
            ledger.export(file)
    done = subprocess.run(
        [sys.executable, "docs/verify_standalone.py", str(export)], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert f"{forged} does not account for its erasure" in done.stderr
    assert said == "LED-00000000"


def test_a_tier_that_is_no_text_is_no_way_around_its_handle(ledger: LedgerClient) -> None:
    handle = ledger.scoped(tier="ho1", work_order_id="WO-1")
    for place in ("provenance", "scope"):
        entry = LedgerEntry("A_PROGRAMS_OWN", "x", "x", "x", metadata={place: {"tier": ["hot"]}})
        try:
            written = handle.write(entry)
        except ScopeError:
            continue
        assert handle.read(written).metadata["scope"]["tier"] == "ho1"


def test_a_plan_of_a_worker_is_resumed_by_nobody_and_names_nobody(ledger: LedgerClient) -> None:
    session = {"provenance": {**_WORKER, "agent_id": "the boss"}, "turn_number": 1}
    forged = {**session, "wo_type": "tool_call", "step": 1, "attempt": 1, "scope": {"tier": "ho1"}}
    ledger.write(LedgerEntry("WO_PLANNED", "WO-1", "x", "x", metadata=forged))
    assert unfinished_turn(ledger, "SES-AAAAAAAA", 0) is None
    asked = {"provenance": _WORKER, "scope": {"tier": "ho1"}, "tool_id": "t", "arguments": {},
             "idempotency_key": "k", "kind": "approval"}  # fmt: skip
    request = ledger.write(LedgerEntry("APPROVAL_REQUESTED", "WO-1", "x", "x", metadata=asked))
    assert ApprovalQueue(ledger).get(request).agent_id == "agent"
