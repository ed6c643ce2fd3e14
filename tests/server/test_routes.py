"""``model: "auto"`` and named routes over HTTP, by both dialects and the official SDKs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from remit.routing import explain, replay
from tests.server.conftest import QUICK
from tests.server.running import Served, new_session
from tests.support.commands import require_said, run_remit
from tests.support.roots import new_root
from tests.support.upstream import Upstream

TOML = (
    QUICK
    + """
failure_threshold = 1000
[routing]
model_timeout_s = 2.0
[routing.models.down]
provider = "openai"
served_as = "gpt-down@status=500"
abilities = { general = 100 }
[routing.models.up]
provider = "anthropic"
served_as = "claude-up"
abilities = { general = 90 }
[routing.models.cut]
provider = "openai"
served_as = "gpt-cut@cut=2,tokens=8"
abilities = { general = 100 }
[routing.routes.auto]
models = ["down", "up"]
[routing.models.otherway]
provider = "anthropic"
served_as = "claude-cut@cut=0,tokens=8"
abilities = { general = 100 }
[routing.models.alias]
provider = "openai"
served_as = "gpt-behind-the-alias"
[routing.routes.across]
models = ["otherway", "alias"]
[routing.routes.broken]
models = ["down"]
[routing.routes.halfway]
models = ["cut", "down"]
[routing.routes.many]
mode = "ensemble"
models = ["up", "down"]
size = 2
[routing.routes.staged]
mode = "pipeline"
models = ["up"]
stages = [
  { name = "draft" },
  { name = "critique", contract = "PRC-CRITIQUE-001", revises = false },
  { name = "revise", contract = "PRC-REVISE-001" },
]
"""
)
DIALECTS = pytest.mark.parametrize("dialect", ["openai", "anthropic"])


@pytest.fixture(scope="module")
def routed(anywhere: Served) -> Served:
    return anywhere


def _text(body: bytes, dialect: str) -> str:
    told = json.loads(body)
    if dialect == "openai":
        return str(told["choices"][0]["message"]["content"])
    return "".join(block["text"] for block in told["content"])


@DIALECTS
def test_auto_falls_back_and_names_its_decision(routed: Served, session: str, dialect: str) -> None:
    status, body, headers = routed.call(dialect, "Hello", session=session, model="auto")
    assert status == 200
    assert _text(body, dialect) == "You said: Hello"
    decision = routed.ledger.read(headers["x-remit-decision"])
    assert decision.event_type == "THOUGHT_RECORD"
    assert decision.submission_id == session
    told = explain(routed.ledger, decision.id)
    assert told["route"] == "auto"
    assert told["chosen_model_id"] == "up"
    assert told["candidates"][0]["model_id"] == "down"
    assert told["candidates"][0]["code"] == "SERVER_ERROR"
    assert replay(decision)["agrees"]
    first, second = routed.entries("EXCHANGE", session)
    assert (first.metadata["outcome"], second.metadata["outcome"]) == ("error", "success")
    assert second.metadata["retry_of"] == first.id
    assert second.metadata["attempt"] == 2
    assert second.metadata["decision_id"] == told["decision_id"]
    assert second.metadata["requested_model_id"] == "auto"
    assert second.metadata["parameters"]["model"] == "claude-up"  # what was sent
    assert second.metadata["provider_id"] == "anthropic"
    assert headers["x-remit-exchange"] == second.id


@DIALECTS
def test_a_stream_falls_back_before_a_piece(routed: Served, session: str, dialect: str) -> None:
    status, body, headers = routed.call(
        dialect, "Hello", session=session, model="auto", stream=True
    )
    assert status == 200
    assert headers["content-type"].startswith("text/event-stream")
    assert body.count(b"said") == 1
    (comment,) = [line for line in body.decode().splitlines() if line.startswith(": ")]
    told = dict(part.split("=", 1) for part in comment[2:].split())
    assert explain(routed.ledger, told["x-remit-decision"])["chosen_model_id"] == "up"


@DIALECTS
@pytest.mark.parametrize(("route", "is_said"), [("broken", False), ("halfway", True)])
def test_when_all_fail_the_last_failure_is_told_in_the_dialect(
    routed: Served, session: str, dialect: str, route: str, is_said: bool
) -> None:
    status, body, headers = routed.call(dialect, "Hello", session=session, model=route)
    assert status >= 500
    assert "error" in json.loads(body)
    assert explain(routed.ledger, headers["x-remit-decision"])["routing_mode"] == "fail"
    calls = routed.entries("EXCHANGE", session)
    assert (headers["x-remit-exchange"], len(calls)) == (calls[-1].id, 1 + is_said)
    # Clients do not repeat a route that failed on several models.
    if dialect == "openai":
        assert headers.get("x-should-retry") == ("false" if is_said else None)


@DIALECTS
@pytest.mark.parametrize("stream", [False, True])
def test_ensembles_and_pipelines_answer_in_both_dialects(
    routed: Served, session: str, dialect: str, stream: bool
) -> None:
    for route, calls in (("many", 2), ("staged", 3)):
        named = f"{session}{route.upper()}"
        status, body, _ = routed.call(dialect, "Hello", session=named, model=route, stream=stream)
        assert status == 200, body
        assert b"said" in body
        assert len(routed.entries("EXCHANGE", named)) == calls
        (decision,) = routed.entries("THOUGHT_RECORD", named)
        assert replay(decision)["agrees"]


def test_keys_are_given_only_models_that_they_name(routed: Served, session: str) -> None:
    concrete = routed.key(models=("claude-up",))
    status, _, headers = routed.call(
        "openai", "Hello", session=session, model="auto", token=concrete.key
    )
    assert status == 200
    told = explain(routed.ledger, headers["x-remit-decision"])
    assert told["candidates_considered"] == ["up"]
    by_route = routed.key(models=("auto",))
    other = new_session()
    assert routed.call("openai", "Hello", session=other, model="auto", token=by_route.key)[0] == 200
    assert routed.call("openai", "Hello", session=other, model="many", token=by_route.key)[0] == 403
    assert (
        routed.call("openai", "Hello", session=other, model="claude-up", token=by_route.key)[0]
        == 403
    )
    nothing = routed.key(models=("gpt-nobody",))
    third = new_session()
    status, _, headers = routed.call(
        "openai", "Hello", session=third, model="auto", token=nothing.key
    )
    assert status == 403
    assert "x-remit-decision" not in headers
    assert [e.event_type for e in routed.ledger.query(session_id=third)] == ["PROMPT_REJECTED"]


def test_a_route_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    root = new_root(tmp_path / "root")
    plain = (root / "remit.toml").read_text()
    table = run_remit("route", "status", "--root", root).stdout
    assert re.search(r"\nsmollm2-135m +local +- +25 +95% +(no +-|yes +closed)\n", table)
    for toml, said in (
        ('[routing.routes.x]\nmodels = ["nobody"]', "nobody"),
        ('[routing.routes.x]\noperator_preference = "best"', "best"),
        ('[routing.routes.x]\nmode = "pipeline"', "stages"),
        (
            '[routing.routes.x]\nmode = "pipeline"\n'
            'stages = [{ name = "a", contract = "PRC-NOBODY-001" }]',
            "PRC-NOBODY-001",
        ),
        ('[routing.routes."gpt-4o"]', "gpt-4o"),
        ('[routing.models.x]\nprovider = "openai"\nabilities = { code = 200 }', "abilities.code"),
        ("[routing.models.x]\nabilities = { code = 20 }", "provider"),
    ):
        (root / "remit.toml").write_text(f"{plain}\n{toml}\n")
        require_said(run_remit("route", "status", "--root", root), said)


def test_a_call_made_again(routed: Served, session: str, upstream: Upstream) -> None:
    asked: Any = {"session": session, "model": "auto", "headers": {"idempotency-key": session}}
    status, first, told = routed.call("openai", "Hello", **asked)
    assert status == 200
    before = upstream.count()
    status, again, retold = routed.call("openai", "Hello", **asked)
    assert status == 200
    assert retold["x-remit-replayed"] == "true"
    assert retold["x-remit-exchange"] == told["x-remit-exchange"]
    assert _text(again, "openai") == _text(first, "openai")
    # The one that failed is asked again; the one that answered is not.
    assert upstream.count() - before <= 1
    assert len(routed.entries("THOUGHT_RECORD", session)) == 1


def test_another_keys_chain_is_not_written_to(routed: Served, session: str) -> None:
    routed.call("openai", "Hello", session=session, model="auto")
    before = list(routed.ledger.query(submission_id=session, event_type="THOUGHT_RECORD"))
    assert len(before) == 1
    stranger = routed.key(models=("auto",))
    own = new_session()
    headers = {"x-remit-work-order": session}
    routed.call("openai", "Hi", session=own, model="auto", token=stranger.key, headers=headers)
    routed.call("openai", "Hi", session=session, model="auto", token=stranger.key)
    after = list(routed.ledger.query(submission_id=session, event_type="THOUGHT_RECORD"))
    assert [one.id for one in after] == [one.id for one in before]
