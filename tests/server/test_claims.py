"""What a caller says of itself counts for nothing; what its role may not do, no door does."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from remit.agents.sessions import sessions_with_calls
from remit.gateway.auth import ROLES, Identity
from remit.operations import Operation
from remit.runtime import Runtime
from remit.runtime.operations import all_operations
from remit.server.mcp.callers import Caller
from remit.server.mcp.server import ToolRunner, all_tools
from remit.views import prompt_journey
from tests.server.console.client import Visitor, signed_in
from tests.server.running import Served, new_session
from tests.support.roots import new_root

_CLAIMED = {
    "agent_id": "the-boss", "agent_class": "OPERATOR", "key_id": "KEY-AAAAAAAAAAAAAAAA",
    "user_id": "ann", "team_id": "T", "organisation_id": "O", "tier": "hot",
    "framework_id": "FMWK-X", "session_id": "SES-BBBBBBBB", "work_order_id": "WO-9",
    "contract_id": "PRC-EVIL-001", "role": "admin", "outcome": "success", "cost_usd": -5,
    "input_tokens": -7, "charged_to": ["key:KEY-A"], "dispatch_entry_id": "LED-00000000",
    "decision_id": "LED-00000000", "provider_id": "mine", "claim": "c", "event_type": "ERASURE",
}  # fmt: skip
_BODY = {
    **_CLAIMED, "metadata": {**_CLAIMED, "user_id": "ann"}, "provenance": _CLAIMED,
    "scope": _CLAIMED, "user": "ann", "safety_identifier": "ann",
}  # fmt: skip
_HEADERS = {
    f"x-remit-{name}": value
    for name, value in {
        "tier": "hot", "key": "KEY-AAAAAAAAAAAAAAAA", "user": "ann", "team": "T", "role": "admin",
        "exchange": "LED-00000000", "dispatch": "LED-00000000", "decision": "LED-00000000",
        "cost-usd": "-1", "framework": "FMWK-X", "package": "PKG-X", "agent-class": "OPERATOR",
    }.items()
}  # fmt: skip
_SAID_BY_REMIT = ("key_id", "tier", "agent_id", "session_id", "work_order_id", "contract_id",
                  "framework_id", "provider_id", "outcome", "cost_certainty")  # fmt: skip


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_a_body_and_headers_say_nothing_of_who_calls(served: Served, dialect: str) -> None:
    plain, claiming = new_session(), new_session()
    model = "gpt-4o-mini" if dialect == "openai" else "claude-sonnet-4-5"
    assert served.call(dialect, "hi", session=plain, model=model)[0] == 200
    claims = {name: value for name, value in _BODY.items() if name != "metadata"}
    claims["metadata"] = {name: str(value) for name, value in _CLAIMED.items()}
    status, raw, _ = served.call(
        dialect, "hi", session=claiming, model=model, headers=_HEADERS, **claims
    )
    assert status == 200, raw
    honest, entry = served.exchange(plain).metadata, served.exchange(claiming).metadata
    for name in _SAID_BY_REMIT:
        said = claiming if name == "session_id" else honest.get(name)
        assert entry.get(name) == said, name
    assert set(entry) == set(honest)  # no member of a body is one of the record's
    assert entry["cost_usd"] >= 0
    assert served.ledger.select(
        "SELECT DISTINCT tier, session_id, agent_id FROM entries WHERE session_id = ? "
        "AND event_type = 'EXCHANGE'", (claiming,),
    ) == [("ho1", claiming, honest["agent_id"])]  # fmt: skip
    assert served.ledger.select("SELECT 1 FROM entries WHERE session_id = 'SES-BBBBBBBB'") == []


def test_a_foreign_call_is_not_shown_in_the_session_that_it_names(served: Served) -> None:
    owner, foreign, operator = served.key(), served.key(user="bob"), served.key(role="operator")
    session = f"SES-{owner.key_id.removeprefix('KEY-').upper()}20200101"  # reserved for the owner
    refusals: list[str] = []

    def get(path: str) -> tuple[int, Any]:
        status, raw, _ = served.ask("GET", path, token=operator.key)
        return status, json.loads(raw)

    def call_from_outside() -> None:
        status, _, headers = served.call(
            "openai", "x", session=session, token=foreign.key, model="gpt-foreign",
            headers={"x-remit-agent": "foreign-agent"},
        )  # fmt: skip
        assert status == 403
        refusals.append(headers["x-remit-exchange"])

    call_from_outside()
    status, overview = get(f"/api/sessions/{session}")
    assert (status, overview["agent_id"], overview["started_at"]) == (200, "", "")
    assert signed_in(served).get(f"/console/sessions/{session}").status == 200
    for _ in range(2):
        agent = {"x-remit-agent": "own-agent"}
        assert served.call("openai", "x", session=session, token=owner.key, headers=agent)[0] == 200
        call_from_outside()

    began = served.entries("DISPATCH", session)[0].timestamp
    overview = get(f"/api/sessions/{session}")[1]
    assert (overview["agent_id"], overview["started_at"]) == ("own-agent", began)
    listed = {one.session_id: one for one in sessions_with_calls(served.ledger, limit=None)}
    assert listed[session].started_at == began

    made = get(f"/api/ledger/receipts/{session}?format=capsule")[1]
    whole = prompt_journey(served.ledger, session_id=session)
    around = prompt_journey(served.ledger, entry_id=served.entries("EXCHANGE", session)[1].id)
    page = signed_in(served).get(f"/console/sessions/{session}").text
    assert (len(made), len(whole["turns"]), len(around["turns"])) == (2, 2, 1)
    for shown in (json.dumps(made), json.dumps(whole), json.dumps(around), page):
        assert served.entries("EXCHANGE", session)[1].id in shown
        for word in (foreign.key_id, "foreign-agent", "gpt-foreign", *refusals):
            assert word not in shown

    for refusal in refusals:  # Each refusal can still be read by its own id.
        status, refused = get(f"/api/ledger/receipts/{refusal}?format=capsule")
        assert (status, refused["error"]["code"]) == (400, "invalid_input")
        assert foreign.key_id in json.dumps(get(f"/api/ledger/receipts/{refusal}")[1])
        assert refusal in json.dumps(prompt_journey(served.ledger, entry_id=refusal))


def test_an_agents_key_speaks_as_no_other_agent(served: Served) -> None:
    made = served.key(agents=("writer",))
    session = new_session()
    ask: dict[str, Any] = {"session": session, "token": made.key}
    for headers in ({"x-remit-agent": "the-boss"}, {"x-remit-agent": "WRITER"}, {}):
        status, raw, _ = served.call("openai", "hi", headers=headers, agent_id="writer", **ask)
        assert (status, json.loads(raw)["error"]["code"]) == (403, "auth_error"), headers
    assert served.call("openai", "hi", headers={"x-remit-agent": "writer"}, **ask)[0] == 200
    assert served.exchange(session).metadata["agent_id"] == "writer"
    assert served.exchange(session).metadata["key_id"] == made.key_id


_FORMS = {"key": ("create", "rotate", "revoke"), **dict.fromkeys(
    ("user", "team", "organisation"), ("create", "rename"))}  # fmt: skip


def _may(role: str, needs: str) -> bool:
    return not ROLES[role].isdisjoint(needs.split(" or "))


def _named(command: str) -> Operation:
    return next(kind for kind in all_operations() if kind.command == command)


@pytest.mark.parametrize("role", ROLES)
def test_a_form_refuses_a_role_without_the_permission(served: Served, role: str) -> None:
    if not _may(role, "read"):
        assert Visitor(served).try_key(served.key(role=role).key).status == 403
        return
    visitor = signed_in(served, role)
    for group, verbs in _FORMS.items():
        for verb in (*verbs, "budget set"):
            command = verb if " " in verb else f"{group} {verb}"
            place = f"/console/keys/{group}" + ("" if verb == "create" else "/nobody")
            form = {"operation": command, "token": visitor.form_token()}
            answered = visitor.post(place, form, sec_fetch_site="same-origin")
            is_refused = answered.status == 403 and "lacks the permission" in answered.text
            assert is_refused is not _may(role, _named(command).needs), command


@pytest.mark.parametrize("role", ROLES)
def test_a_tool_refuses_a_role_without_the_permission(tmp_path: Path, role: str) -> None:
    with Runtime.open(new_root(tmp_path / "root")) as runtime:
        runner = ToolRunner(all_tools(runtime), runtime.loaded.settings)
        caller, before = Caller(Identity("somebody", role, key_id="KEY-1")), runtime.ledger.count()
        for tool in all_tools(runtime):
            answered = asyncio.run(runner.call(caller, tool.tool.tool_id, {"wrong": 1}))
            is_refused = f"role {role} may not use" in str(answered.content)
            assert is_refused is not _may(role, tool.needs), tool.tool.tool_id
        assert runtime.ledger.count() == before
