"""Sessions of users: what they cost each, what they are held to, and erasure by person."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remit.agents.tools import Tool
from remit.gateway.budget import BudgetLimits, BudgetScope, audit_budgets
from remit.kernel.errors import InvalidInputError
from remit.runtime.installation import root_tools
from tests.agents.test_subagents import ask, by_agent, pair
from tests.support.agents import TEXT, Scripted, tools_only
from tests.support.commands import run_remit
from tests.support.stores import files_hold
from tests.support.wire import message, tool_use

_SECRET = "the hedgehog of Ann"


def test_a_user_is_held_to_a_limit_of_their_own_in_every_session(scripted: Scripted) -> None:
    answer = message("Hello.", input_tokens=400, output_tokens=100)
    with scripted(answer) as (runtime, server):
        scope = BudgetScope(user_id="ann")
        runtime.budgeter.allocate(scope, limits=BudgetLimits(tokens=6_000))
        agent = runtime.agent("a", max_retries=0)
        for _ in range(30):
            if agent.run("hello", user="ann").failed:
                break
        (state,) = runtime.budgeter.status(scope)
        assert 0 < state.spent_tokens <= 6_000
        assert state.spent_tokens == 500 * len(server.calls)
        before = len(server.calls)
        assert agent.run("hello", user="ann").error_code == "budget_exhausted"
        assert len(server.calls) == before
        assert agent.run("hello", user="bob").response == "Hello."
        users = [e.metadata.get("user_id") for e in runtime.ledger.query(event_type="EXCHANGE")]
        assert users == ["ann"] * before + ["bob"]
        tools = {
            one.tool_id: one for one in root_tools(runtime.root, runtime.ledger, runtime.loaded)
        }
        assert {row["name"] for row in tools["usage"](by="user")["rows"]} == {"ann", "bob"}
        audit = audit_budgets(runtime.ledger)
        assert audit.equal, audit.differences


def test_a_person_is_erased_from_all_their_sessions(scripted: Scripted, tmp_path: Path) -> None:
    script = by_agent(
        boss=[ask(f"Find {_SECRET}."), message(f"Here is {_SECRET}.")],
        helper=[message(f"I found {_SECRET}.")],
    )
    root = tmp_path / "root"
    with scripted(script) as (runtime, _):
        boss, _ = pair(runtime)
        session = boss.session(user="u-17", subject_id="ann@example.org")
        session.turn(f"Where is {_SECRET}?")
        again = boss.session(session.session_id)  # it is known from the record for whom
        again.turn(f"And {_SECRET}?")
        session.end()
        assert all(
            entry.metadata.get("user_id") == "u-17"
            for entry in runtime.ledger.query(event_type="EXCHANGE")
        )
        runtime.ledger.flush()
        done = run_remit(
            "ledger", "erase", "--subject", "ann@example.org", "--reason", "asked", "--yes",
            "--root", root,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert runtime.ledger.verify().verified
        found = [
            entry.id
            for entry in runtime.ledger.read_all()
            if _SECRET in str(entry.metadata) or _SECRET in str(entry.reason)
        ]
        assert found == []
        assert "ann@example.org" not in str([e.metadata for e in runtime.ledger.read_all()])
    assert files_hold(root, _SECRET) == []
    assert files_hold(root, "ann@example.org") == []


def test_for_whom_a_session_is_cannot_be_changed(scripted: Scripted) -> None:
    with scripted(message("Hi.")) as (runtime, _):
        agent = runtime.agent("a")
        session = agent.session(user="ann")
        with pytest.raises(InvalidInputError, match="and the user of a session"):
            agent.session(session.session_id, user="bob")
        with pytest.raises(InvalidInputError, match="and the user of a session"):
            agent.session(session.session_id, subject_id="bob")


# -- Who asked, on every entry of an agent's calls, and what of it is counted --------------------


_OF_CALLS = {"DISPATCH", "EXCHANGE", "LLM_CALL", "TOOL_INTENT", "TOOL_CALL", "WO_COMPLETED"}


def _who(metadata: dict[str, Any]) -> Any:
    return metadata.get("agent_id") or metadata["provenance"]["agent_id"]


def test_every_entry_of_a_call_names_the_agent_that_asked(scripted: Scripted) -> None:
    script = tools_only(tool_use("look", {"text": "a"})), message("Seen."), message("Hello.")
    look = Tool("look", "Look.", TEXT, lambda text: text, on_unknown="retry")
    with scripted(*script) as (runtime, _):
        runtime.agent("seller", tools=[look]).run("look")
        runtime.session().turn("hello")
        found: dict[str, set[str]] = {}
        for entry in runtime.ledger.query(with_content=False):
            if entry.event_type in _OF_CALLS:
                found.setdefault(entry.event_type, set()).add(_who(entry.metadata))
        exchanges = runtime.ledger.read_by_event_type("EXCHANGE")
        asked = list(runtime.ledger.query(agent_id="seller", event_type="EXCHANGE"))
    admin = runtime.loaded.settings.chat.agent_id
    assert set(found) == _OF_CALLS
    assert found["EXCHANGE"] == found["DISPATCH"] == {"seller", admin}
    assert found["TOOL_CALL"] == {"seller"}
    assert len(asked) == 2
    assert {entry.metadata["framework_id"] for entry in exchanges} == {"FMWK-RUNTIME-001"}


def test_a_limit_of_the_agent_stops_its_calls(scripted: Scripted) -> None:
    with scripted(message("Hi.")) as (runtime, server):
        session = runtime.agent("seller", max_retries=0).session()
        scope = BudgetScope(session.session_id, agent_id="seller")
        runtime.budgeter.allocate(scope, 10)
        result = session.turn("hello")
        assert server.calls == []
        (refused,) = runtime.ledger.read_by_event_type("PROMPT_REJECTED")
        assert refused.metadata["agent_id"] == "seller"
        assert refused.metadata["error_code"] == "BUDGET_EXHAUSTED"
        assert result.cost_summary["llm_calls"] == 0  # it was never made
        runtime.budgeter.allocate(scope, 100_000)
        assert session.turn("hello").response == "Hi."
        (spent,) = [s for s in runtime.budgeter.status(scope) if s.scope == scope.key]
    assert spent.spent_tokens == 18


_KEYS = {"api_key": "sk-of-the-config-1", "password": "pass-of-the-server"}


@pytest.mark.parametrize("how", ["raised", "returned"])
def test_configured_secrets_in_what_a_tool_says_reach_no_entry(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setenv("TOKEN_OF_SHOP", "token-of-the-shop")
    secrets = [*_KEYS.values(), "token-of-the-shop"]

    def leak(text: str) -> Any:
        if how == "raised":
            raise RuntimeError(f"401 for {', '.join(secrets)} {text}")
        return {secrets[0]: [{"said": f"{text} {secret}"} for secret in secrets]}

    flags = {
        "providers.openai.api_key": _KEYS["api_key"],
        "mcp.shop.command": "never-started",
        "mcp.shop.env": {"PASSWORD": _KEYS["password"], "TOKEN": "Bearer ${TOKEN_OF_SHOP}"},
    }
    script = tools_only(tool_use("leak", {"text": "plain"})), message("Sorry.")
    with scripted(*script, flags=flags) as (runtime, srv):
        runtime.agent("a", tools=[Tool("leak", "Leak.", TEXT, leak)]).run("go")
        (call,) = runtime.ledger.read_by_event_type("TOOL_CALL")
        everything = json.dumps([repr(entry) for entry in runtime.ledger.query()])
        sent = json.dumps(srv.calls[-1].body)
    assert "[secret]" in json.dumps(call.metadata)
    assert "plain" in json.dumps([call.metadata["result"], call.metadata["tool_error"]])
    for secret in secrets:
        assert secret not in everything
        assert secret not in sent
