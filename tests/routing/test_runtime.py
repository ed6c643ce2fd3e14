"""The router of a root: what is wired without anybody asking."""

from __future__ import annotations

from pathlib import Path

import pytest

import remit
from remit.gateway.budget import BudgetScope
from remit.kernel.exchange import RouteOutcome
from remit.kernel.root import Root
from remit.routing import RULES_UNAVAILABLE, find_decision, replay
from remit.runtime import make_root
from tests.support.requests import prompt_request
from tests.support.roots import new_root
from tests.support.upstream import Upstream


@pytest.fixture
def root(tmp_path: Path, upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root whose OpenAI models are the upstream's."""
    monkeypatch.setenv("OPENAI_BASE_URL", f"{upstream.url}/v1")
    return new_root(tmp_path / "root")


def test_auto_is_decided_recorded_and_replayed_by_default(root: Path) -> None:
    with remit.Runtime.open(root) as runtime:
        runtime.budgeter.allocate(BudgetScope("SES-TESTTEST"), 10**6)
        response = runtime.gateway.route(prompt_request(model_id="auto"))
        assert response.outcome is RouteOutcome.SUCCESS
        told = runtime.router.explain(response.decision_entry_id)
        # Shipped models are asked at their maker's address alone; the default model always is.
        assert told["candidates_considered"] == ["gpt-4o-mini"]
        assert told["task_id"] == "WO-SES-TESTTEST-001"
        assert told["rule_version_hash"] == runtime.router.rules.version_hash
        assert replay(find_decision(runtime.ledger, told["decision_id"]))["agrees"]
        assert ("auto", "remit") in runtime.models()
    with remit.Runtime.open(root) as again:  # after a restart
        assert replay(find_decision(again.ledger, response.decision_entry_id))["agrees"]
        assert again.router.status()["rule_version_hash"] == told["rule_version_hash"]


@pytest.mark.parametrize("damage", ["missing", "not JSON", "NaN"])
def test_rules_that_cannot_be_read_route_by_the_defaults_and_say_so(
    root: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    remit.Runtime.open(root).close()
    rules = root / "HOT" / "routing" / "weights.json"
    if damage == "missing":
        rules.unlink()
    else:
        rules.write_text("{" if damage == "not JSON" else rules.read_text().replace("0.3", "NaN"))
    with remit.Runtime.open(root) as runtime:
        runtime.budgeter.allocate(BudgetScope("SES-TESTTEST"), 10**6)
        response = runtime.gateway.route(prompt_request(model_id="auto"))
        assert response.outcome is RouteOutcome.SUCCESS
        told = runtime.router.explain(response.decision_entry_id)
        assert told["rule_version_hash"] == RULES_UNAVAILABLE
        assert replay(find_decision(runtime.ledger, told["decision_id"]))["agrees"]
    assert "weights.json" in caplog.text


def test_init_puts_the_rules_back_and_changes_no_others(root: Path) -> None:
    remit.Runtime.open(root).close()
    rules = root / "HOT" / "routing" / "weights.json"
    shipped = rules.read_bytes()
    rules.unlink()
    make_root(Root(root))
    assert rules.read_bytes() == shipped
    rules.write_bytes(shipped.replace(b"0.3", b"0.4"))
    make_root(Root(root))
    assert rules.read_bytes() != shipped
