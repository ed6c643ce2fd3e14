"""Remit's own API, asked as a server would ask it: through ASGI, over a real root."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from remit.gateway.auth import ROLES, AuthLimits, KeyStore
from remit.ledger import LedgerEntry, read_extract
from remit.ledger.tlog import SignedCheckpoint, TlogProof, VerifierKey
from remit.runtime import Runtime
from remit.server.api import api_application
from remit.server.extensions import Authenticator
from tests.server.asgi import AsgiRequest
from tests.support.agents import CLASSIFIED, anthropic_runtime
from tests.support.roots import new_root
from tests.support.stores import conversation, outside
from tests.support.wire import message

pytestmark = pytest.mark.any_store

TOP = Path(__file__).parents[2]
LIMITS = AuthLimits(0.5, 5.0, 60.0)
JSON = (b"content-type", b"application/json")
PAGE = (TOP / "docs/api.md").read_text()
PERMISSIONS = {
    route: permission
    for permission, routes in re.findall(r"^\| `(.+?)` \| (`\w+ /api.*) \|$", PAGE, re.M)
    for route in re.findall("`(.+?)`", routes)
}
"""The permission that each operation asks of a role, as the page says."""


class Answer(AsgiRequest):
    """A request of the API and its answer."""

    @property
    def error(self) -> dict[str, str]:
        """The one shape of every refusal and failure."""
        assert self.status >= 400
        assert self.headers["content-type"] == "application/json"
        (error,) = self.json.values()
        assert set(error) <= {"code", "message", "next_step", "param"}
        assert error["code"]
        assert error["message"]
        return dict(error)


class Api:
    """A client of the application, without a socket in between."""

    def __init__(self, runtime: Runtime, keys: KeyStore, door: Authenticator | None = None) -> None:
        self.runtime = runtime
        self.keys = keys
        self.app = api_application(
            runtime, keys, door or Authenticator(keys, "PRC-PASSTHROUGH-001")
        )
        self.operator = keys.create("ops", role="operator").key

    def ask(
        self,
        operation: str,
        value: Any = None,
        *,
        key: str | None = None,
        chunks: list[bytes] | None = None,
        headers: list[tuple[bytes, bytes]] | None = None,
        **query: Any,
    ) -> Answer:
        """``METHOD /path``, as the operator when no key is given; nobody with an empty one."""
        method, path = operation.split(" ")
        key = self.operator if key is None else key
        bearer = [(b"authorization", f"Bearer {key}".encode())] if key else []
        answer = Answer([*(chunks or [b"" if value is None else json.dumps(value).encode()])])
        answer.gone.set()
        sent = [JSON, *bearer, *(headers or ())]
        asyncio.run(
            answer.to(self.app, method, path, headers=sent, query=urlencode(query, doseq=True))
        )
        return answer

    def pages(self, path: str, name: str, **query: Any) -> list[Any]:
        """A whole list, page by page."""
        found: list[Any] = []
        cursor: dict[str, str] = {}
        while True:
            page = self.ask(f"GET {path}", **query, **cursor).json
            assert len(page[name]) <= query["limit"]
            found += page[name]
            if page["next_cursor"] is None:
                return found
            cursor = {"cursor": page["next_cursor"]}


@pytest.fixture
def api(target: str, tmp_path: Path) -> Iterator[Api]:
    """A new root. The stores are compared where their queries are tested: tests/ledger."""
    database = target if target.startswith("postgresql") else ""
    root = new_root(tmp_path / "root", database=database)
    if not database:
        shutil.copy(root / "ledger.db", target)
    flags = {"ledger.path": target}
    with (
        Runtime.open(root, flags=flags) as runtime,
        KeyStore(runtime.ledger, LIMITS) as keys,
    ):
        yield Api(runtime, keys)


def operations(api: Api) -> dict[str, Any]:
    """What the OpenAPI document tells of what is under ``/api``, by ``METHOD /path``."""
    document = api.ask("GET /api/openapi.json", key="").json
    return {
        f"{method.upper()} {path}": told
        for path, methods in document["paths"].items()
        if path.startswith("/api/")
        for method, told in methods.items()
    }


@pytest.mark.any_store
def test_every_operation_asks_who_comes_and_what_they_may(api: Api) -> None:
    assert operations(api).keys() == PERMISSIONS.keys()
    keys = {role: api.keys.create(f"a {role}", role=role).key for role in ROLES}
    before = api.runtime.ledger.count()
    for operation, permission in PERMISSIONS.items():
        path = re.sub(r"{\w+}", "nobody", operation)
        for key in ("", "sk-remit-" + "x" * 43):
            refused = api.ask(path, key=key)
            assert (refused.status, refused.error["code"]) == (401, "invalid_api_key"), operation
            assert refused.headers["www-authenticate"] == "Bearer"
        for role, permissions in ROLES.items():
            answer = api.ask(path, key=keys[role])
            if permissions.intersection(permission.split(" or ")):
                assert answer.status not in (401, 403), (operation, role)
            else:
                assert (answer.status, answer.error["code"]) == (403, "forbidden"), operation
                assert role in answer.error["message"]
    assert api.runtime.ledger.count() == before  # none of these had what it takes to write


WRONG_REQUESTS: list[tuple[str, bytes, int, str, str | None]] = [
    ("GET /api", b"", 404, "not_found", None),
    ("GET /api/nothing", b"", 404, "not_found", None),
    ("GET /api/ledger/entries/", b"", 404, "not_found", None),
    ("GET /api/ledger/entries/LED-000000ff", b"", 404, "not_found", None),
    ("GET /api/ledger/entries/LED-ffffffffffffffffff/proof", b"", 404, "not_found", None),
    ("GET /api/ledger/entries/LED-000000FF/record", b"", 404, "not_found", None),
    ("GET /api/sessions/SES-NOTHERE1", b"", 404, "not_found", None),
    ("GET /api/sessions/%00", b"", 400, "invalid_input", None),
    ("GET /api/traces/WO-1", b"", 404, "not_found", None),
    ("DELETE /api/keys/nobody", b"", 404, "not_found", None),
    ("POST /api/keys/nobody/rotate", b"", 404, "not_found", None),
    ("PUT /api/budgets", b'{"key": "nobody", "usd": 1}', 404, "not_found", None),
    ("PUT /api/budgets", b'{"user": "u"}', 400, "invalid_input", None),
    ("PUT /api/budgets", b'{"user": "u", "usd": 1, "unlimited": true}', 400, "invalid_input", None),
    ("GET /api/keys/nobody", b"", 404, "not_found", None),
    ("GET /api/teams/nobody", b"", 404, "not_found", None),
    ("PUT /api/teams/nobody", b'{"name": "x"}', 404, "not_found", None),
    ("POST /api/teams", b'{"id": "x"}', 400, "invalid_input", "name"),
    ("POST /api/teams", b'{"id": "x", "name": " x"}', 400, "invalid_input", "name"),
    ("POST /api/teams", b'{"id": "x", "name": "x", "usd": -1}', 400, "invalid_input", "usd"),
    ("PUT /api/budgets", b'{"user": "u", "window": "year"}', 400, "invalid_input", "window"),
    ("PUT /api/budgets", b'{"user": "u", "time_zone": "UTC"}', 400, "invalid_input", None),
    ("PUT /api/budgets", b"", 400, "invalid_input", "body"),
    ("PUT /api/budgets", b"{", 400, "invalid_input", "body"),
    ("PUT /api/budgets", b'{"user": "\xff"}', 400, "invalid_input", None),
    ("PUT /api/budgets", b"[" * 60_000, 400, "invalid_input", None),
    (
        "PUT /api/budgets",
        b'{"user": "u", "tokens": %s}' % (b"9" * 5_000),
        400,
        "invalid_input",
        None,
    ),
    ("PUT /api/budgets", b'{"user": "u", "tokens": "5"}', 400, "invalid_input", "tokens"),
    ("PUT /api/budgets", b'{"user": "u", "tokens": -1}', 400, "invalid_input", "tokens"),
    ("PUT /api/budgets", b'{"user": "u", "usd": NaN}', 400, "invalid_input", "usd"),
    ("PUT /api/budgets", b'{"user": "u", "usd": 1e300}', 400, "invalid_input", None),
    ("PUT /api/budgets", b'{"user": "\\ud800"}', 400, "invalid_input", "user"),
    ("PUT /api/budgets", b'{"user": "a\\u0000b"}', 400, "invalid_input", "user"),
    ("PUT /api/budgets", b'{"user": "u", "session": "s"}', 400, "invalid_input", None),
    ("PUT /api/budgets", b'{"user": "u", "dollars": 5}', 400, "invalid_input", "dollars"),
    ("POST /api/keys", b'{"name": ""}', 400, "invalid_input", None),
    ("POST /api/keys", b'{"name": "k", "role": "king"}', 400, "invalid_input", "role"),
    ("POST /api/keys", b'{"name": "k", "tiers": ["up"]}', 400, "invalid_input", "tiers.0"),
    ("POST /api/keys", b'{"name": "k", "expires": "soon"}', 400, "invalid_input", None),
    ("POST /api/keys", b'{"name": "k", "expires": "2001-01-01"}', 400, "invalid_input", None),
    ("POST /api/keys", b'{"name": "k", "expires": "999999999d"}', 400, "invalid_input", None),
    ("POST /api/keys/ops/rotate", b'{"grace_s": 1e300}', 400, "invalid_input", None),
    ("POST /api/keys/ops/rotate", b'{"grace_s": -1}', 400, "invalid_input", "grace_s"),
]


WRONG_QUESTIONS: list[tuple[str, dict[str, Any], str | None]] = [
    ("/api/ledger/entries", {"agent_id": ["a", "b"]}, "agent_id"),
    ("/api/ledger/entries", {"event_typ": "EXCHANGE"}, "event_typ"),
    ("/api/ledger/entries", {"limit": "501"}, "limit"),
    ("/api/ledger/entries", {"limit": "0"}, "limit"),
    ("/api/ledger/entries", {"order": "sideways"}, "order"),
    ("/api/ledger/entries", {"content": "perhaps"}, "content"),
    ("/api/ledger/entries", {"since": "yesterday"}, None),
    ("/api/ledger/entries", {"cursor": "LED-1"}, None),
    ("/api/ledger/entries", {"agent_id": "a\0"}, None),
    ("/api/ledger/entries", {"text": " ".join(map(str, range(200)))}, None),
    ("/api/sessions", {"cursor": "x"}, None),
    ("/api/budgets", {"cursor": "user:nobody"}, None),
    ("/api/budgets", {"prefix": "\0"}, "prefix"),
    ("/api/keys", {"cursor": "KEY-0000000000000000"}, None),
]


def test_what_is_wrong_is_told_in_one_shape(api: Api) -> None:
    before = api.runtime.ledger.count()
    for operation, sent, status, code, param in WRONG_REQUESTS:
        answer = api.ask(operation, chunks=[sent])
        case = (operation, sent[:60], answer.body)
        assert (answer.status, answer.error["code"]) == (status, code), case
        assert param is None or answer.error["param"] == param, case
    for path, query, param in WRONG_QUESTIONS:
        answer = api.ask(f"GET {path}", **query)
        case = (path, query, answer.body)
        assert (answer.status, answer.error["code"]) == (400, "invalid_input"), case
        assert answer.error.get("param") == param, case
    for operation, allowed in (
        ("POST /api/budgets", "GET, PUT"),
        ("PATCH /api/ledger/checkpoint", "GET, POST"),
        ("PATCH /api/keys/a", "DELETE, GET"),
        ("DELETE /api/teams/a", "GET, PUT"),
    ):
        answer = api.ask(operation)
        assert (answer.status, answer.error["code"]) == (405, "method_not_allowed")
        assert answer.headers["allow"] == allowed
    assert api.runtime.ledger.count() == before


@pytest.mark.any_store
def test_a_body_has_an_end(api: Api) -> None:
    long = [b" " * 10_000] * 10
    told = api.ask("PUT /api/budgets", chunks=long, headers=[(b"content-length", b"100000")])
    assert (told.status, told.error["code"]) == (413, "request_too_large")
    assert len(told.chunks) == len(long)  # not read at all
    streamed = api.ask("PUT /api/budgets", chunks=long)
    assert (streamed.status, streamed.error["code"]) == (413, "request_too_large")
    assert len(streamed.chunks) == 3  # and not further than it must be
    assert streamed.headers["connection"] == "close"
    nobody = api.ask("PUT /api/budgets", chunks=long, key="")
    assert nobody.status == 401
    assert len(nobody.chunks) == len(long)
    exact = b'{"user": "u", "usd": 1}'.ljust(65_536)
    assert api.ask("PUT /api/budgets", chunks=[exact[:5], exact[5:]]).status == 200


def test_entries_come_whole_page_by_page_in_both_orders(api: Api) -> None:
    ids = conversation(api.runtime.ledger, "SES-AAAAAAAA", 7)
    conversation(api.runtime.ledger, "SES-BBBBBBBB", 2)
    for limit in (1, 3, 7, 50):
        found = api.pages(
            "/api/ledger/entries", "entries", session_id="SES-AAAAAAAA", limit=limit,
            content="true",
        )  # fmt: skip
        assert [entry["id"] for entry in found] == ids
    latest = api.pages(
        "/api/ledger/entries", "entries", session_id="SES-AAAAAAAA", limit=2, order="desc"
    )
    assert [entry["id"] for entry in latest] == ids[::-1]
    everything = api.pages("/api/ledger/entries", "entries", limit=4)
    assert len(everything) == api.runtime.ledger.count()
    expected = [entry.to_dict() for entry in api.runtime.ledger.query(with_content=False)]
    assert everything == expected


def test_every_filter_reaches_the_ledger(api: Api) -> None:
    told = {
        "session_id": "SES-AAAAAAAA", "work_order_id": "WO-1", "agent_id": "a", "tier": "ho1",
        "framework_id": "FMWK-1", "contract_id": "PRC-A-001", "model_id": "m",
        "outcome": "success",
    }  # fmt: skip
    ledger = api.runtime.ledger
    wanted = ledger.write(LedgerEntry("MINE", "mine", "d", "r", metadata=told))
    ledger.write(LedgerEntry("OTHER", "other", "d", "r"))
    for name, value in {**told, "event_type": "MINE", "submission_id": "mine"}.items():
        found = api.ask("GET /api/ledger/entries", **{name: value}).json["entries"]
        assert [entry["id"] for entry in found] == [wanted], name
    later = ledger.read(wanted).timestamp
    since = api.ask("GET /api/ledger/entries", since=later).json["entries"]
    until = api.ask("GET /api/ledger/entries", until=later).json["entries"]
    assert since[0]["id"] == wanted
    assert until[-1]["id"] < wanted


def test_content_is_there_when_it_is_asked_for_and_gone_when_erased(api: Api) -> None:
    ledger = api.runtime.ledger
    (entry_id, other) = conversation(ledger, "SES-AAAAAAAA", 2)
    path = "GET /api/ledger/entries"
    (bare, _) = api.ask(path, session_id="SES-AAAAAAAA").json["entries"]
    assert set(bare["metadata"]["response"]) == {"$content", "bytes"}
    assert "answer 0" not in json.dumps(bare)
    assert api.ask(f"{path}/{entry_id}", content="false").json == bare
    (whole,) = api.ask(path, text='"answer 0"', content="true", limit=1).json["entries"]
    assert whole["metadata"]["response"] == "answer 0 of SES-AAAAAAAA"
    assert api.ask(f"{path}/{entry_id}").json == ledger.read(entry_id).to_dict()
    report = ledger.erase(entry_id, reason="asked for")
    erased = api.ask(f"{path}/{entry_id}").json
    assert erased["metadata"]["response"] == {"$erased": report.erasure_id}
    assert api.ask(f"{path}/{other}").json["metadata"]["prompt"][0] == {
        "$erased": report.erasure_id
    }
    assert ledger.verify().verified


def test_a_stranger_can_verify_what_the_api_gives(api: Api) -> None:
    (entry_id, _) = conversation(api.runtime.ledger, "SES-AAAAAAAA", 2)
    key = VerifierKey.parse(api.ask("GET /api/ledger/key").body.decode().strip())
    signed = api.ask("POST /api/ledger/checkpoint")
    assert signed.status == 201
    checkpoint = SignedCheckpoint.parse(signed.body).verify(key)
    assert checkpoint.size == api.runtime.ledger.count()
    assert api.ask("GET /api/ledger/checkpoint").body == signed.body
    record = api.ask(f"GET /api/ledger/entries/{entry_id}/record")
    assert record.headers["content-type"] == "application/octet-stream"
    assert record.body == api.runtime.ledger.read_record(entry_id)
    proof = api.ask(f"GET /api/ledger/entries/{entry_id}/proof")
    assert proof.headers["content-type"].startswith("text/plain")
    TlogProof.parse(proof.body).verify(record.body, key)
    call = next(iter(api.runtime.ledger.query(event_type="EXCHANGE"))).id
    receipt = api.ask(f"GET /api/ledger/receipts/{call}")
    assert receipt.headers["content-type"] == "application/json"
    assert read_extract(receipt.body, key).of == {"entry": call}
    capsule = api.ask(f"GET /api/ledger/receipts/{call}", format="capsule").json
    assert capsule["action_id"] == "SES-AAAAAAAA#1"
    assert api.ask("GET /api/ledger/receipts/LED-0fffffff").status == 404
    of_session = {"session_id": "SES-AAAAAAAA"}
    ended = LedgerEntry("SESSION_END", "SES-AAAAAAAA", "SUCCESS", "end", metadata=of_session)
    of_none = next(iter(api.runtime.ledger.query(event_type="INSTALLED"))).id
    for no_action in (of_none, api.runtime.ledger.write(ended)):
        refused = api.ask(f"GET /api/ledger/receipts/{no_action}")
        assert (refused.status, refused.error["code"]) == (400, "invalid_input"), refused.error


def test_a_real_conversation_is_told_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def step(body: dict[str, Any]) -> Any:
        if body.get("output_config"):
            return message(json.dumps(CLASSIFIED))
        return message("Good day.")

    with (
        anthropic_runtime(tmp_path / "root", monkeypatch, step) as (runtime, _),
        KeyStore(runtime.ledger, LIMITS) as keys,
    ):
        api = Api(runtime, keys)
        ids = []
        for said in (["hello", "and again"], ["another"]):
            with runtime.session() as talk:
                ids.append(talk.session_id)
                for text in said:
                    talk.turn(text)
        listed = api.pages("/api/sessions", "sessions", limit=1)
        assert [one["session_id"] for one in listed] == ids[::-1]
        assert [(one["turns"], one["ended"]) for one in listed] == [(1, True), (2, True)]

        whole = api.ask(f"GET /api/sessions/{ids[0]}").json
        assert [turn["user_message"] for turn in whole["turn_list"]] == ["hello", "and again"]
        assert {turn["response"] for turn in whole["turn_list"]} == {"Good day."}
        assert len(whole["exchanges"]) == 4
        assert {one["outcome"] for one in whole["exchanges"]} == {"success"}
        exchange = whole["exchanges"][0]
        entry = api.ask(f"GET /api/ledger/entries/{exchange['entry_id']}").json
        assert entry["metadata"]["input_tokens"] == exchange["input_tokens"]
        for part in ("turn_list", "exchanges"):  # one cursor pages both
            found: list[Any] = []
            cursor: dict[str, str] = {}
            while True:
                page = api.ask(f"GET /api/sessions/{ids[0]}", limit=1, **cursor).json
                assert len(page["turn_list"]) + len(page["exchanges"]) == 1
                found += page[part]
                if page["next_cursor"] is None:
                    break
                cursor = {"cursor": page["next_cursor"]}
            assert found == whole[part]

        order = exchange["work_order_id"]
        trace = api.ask(f"GET /api/traces/{order}").json
        assert (trace["session_id"], trace["state"]) == (ids[0], "completed")
        assert [step["event_type"] for step in trace["steps"]] == [
            "WO_PLANNED", "WO_DISPATCHED", "WO_EXECUTING", "BUDGET_ALLOCATED", "EXCHANGE",
            "LLM_CALL", "WO_COMPLETED",
        ]  # fmt: skip
        assert trace["steps"][0]["wo_type"] == "classify"
        assert trace["steps"][-1]["cost"]["llm_calls"] == 1
        assert api.pages(f"/api/traces/{order}", "steps", limit=2) == trace["steps"]
        health = api.ask("GET /api/health").json
        assert health["in_flight"] == 0
        assert [one["state"] for one in health["breakers"]] == ["closed"]


def test_limits_are_set_listed_and_checked(api: Api) -> None:
    for number in range(5):
        changed = api.ask("PUT /api/budgets", {"user": f"u:{number}", "usd": number + 0.5})
        assert changed.status == 200
        entry = api.runtime.ledger.read(changed.json["entry"])
        assert entry.event_type == "BUDGET_ALLOCATED"
        assert entry.metadata["usd_limit"] == number + 0.5
        assert entry.metadata["by"].startswith("ops (KEY-")
    limits = {"team": "t", "tokens": 10, "turns": 2, "rpm": 3, "tpm": 4}
    team = api.ask("PUT /api/budgets", limits).json["scope"]
    assert team == {
        "scope": "team:t", "name": None, "token_limit": 10, "turn_limit": 2, "limit_usd": None,
        "requests_per_minute": 3, "tokens_per_minute": 4, "spent_tokens": 0,
        "reserved_tokens": 0, "spent_usd": 0.0, "reserved_usd": 0.0, "turns": 0,
        "unpriced_calls": 0, "minute": 0, "minute_requests": 0, "minute_tokens": 0,
        "on_short": "refuse", "time_zone": None, "window": None, "window_end": None,
    }  # fmt: skip
    seller = {"session": "SES-AAAAAAAA", "agent": "seller", "tokens": 10}
    told = api.ask("PUT /api/budgets", seller).json["scope"]["scope"]
    assert told == "session:SES-AAAAAAAA/agent:seller"
    assert api.ask("PUT /api/budgets", {"user": "u", "agent": "seller"}).status == 400
    users = api.pages("/api/budgets", "scopes", prefix="user:", limit=2)
    assert [(one["scope"], one["limit_usd"]) for one in users] == [
        (f"user:u%3A{number}", number + 0.5) for number in range(5)
    ]
    assert len(api.pages("/api/budgets", "scopes", limit=1)) == 7
    assert "nano" not in json.dumps(users)


def test_a_key_is_made_with_its_budget_used_and_ended(api: Api) -> None:
    wanted = {
        "name": "team a/b", "role": "auditor", "budget_usd": 2.5, "rpm": 7, "models": ["gpt-4o*"],
        "tiers": ["ho1"], "user": "u1", "expires": "1d",
    }  # fmt: skip
    made = api.ask("POST /api/keys", wanted)
    assert made.status == 201
    assert made.headers["cache-control"] == "no-store"
    key = made.json["key"]
    (budget,) = api.ask("GET /api/budgets", prefix=f"key:{made.json['id']}").json["scopes"]
    assert (budget["limit_usd"], budget["requests_per_minute"]) == (2.5, 7)
    created, allocated = api.runtime.ledger.read_all()[:-3:-1]
    assert {created.event_type, allocated.event_type} == {"KEY_CREATED", "BUDGET_ALLOCATED"}
    (entry,) = api.runtime.ledger.query(submission_id=made.json["id"], event_type="KEY_CREATED")
    assert entry.metadata["requested_by"] == api.keys.find("ops").key_id

    (shown,) = [one for one in api.ask("GET /api/keys").json["keys"] if one["name"] == "team a/b"]
    assert (shown["id"], shown["state"], shown["models"]) == (made.json["id"], "live", ["gpt-4o*"])
    assert key not in api.ask("GET /api/keys").body.decode()
    assert api.ask("GET /api/keys", key=key).status == 200

    path = "/api/keys/team%20a%2Fb"
    renewed = api.ask(f"POST {path}/rotate").json
    assert renewed["id"] == made.json["id"]
    assert api.ask("GET /api/keys", key=key).status == 401
    again = api.ask(f"POST {path}/rotate", {"grace_s": 600}).json["key"]
    assert api.ask("GET /api/keys", key=renewed["key"]).status == 200
    assert api.ask("GET /api/keys", key=again).status == 200

    ended = api.ask(f"DELETE {path}", reason="laptop lost")
    assert api.runtime.ledger.read(ended.json["entry"]).reason == "laptop lost"
    assert api.ask("GET /api/keys", key=again).status == 401
    assert api.ask(f"DELETE {path}").json == ended.json  # twice changes nothing
    assert api.ask(f"POST {path}/rotate").status == 409
    assert [one["name"] for one in api.ask("GET /api/keys").json["keys"]] == ["ops"]
    gone = api.ask("GET /api/keys", revoked="true").json["keys"][1]
    assert (gone["state"], gone["revoked_entry"]) == ("revoked", ended.json["entry"])


@pytest.mark.any_store
def test_nobody_makes_or_takes_a_key_that_may_do_more_than_theirs(api: Api) -> None:
    little = api.keys.create(
        "little", role="operator", models=["gpt-4o*", "o3", "m-?"], agents=["a"], tiers=["ho1"]
    ).key
    within = {"models": ["gpt-4o-mini"], "agents": ["a"], "tiers": ["ho1"]}
    before = api.runtime.ledger.count()
    for more in (
        {"models": []},
        {"models": ["gpt-4o-mini", "claude-sonnet-4-5"]},
        {"models": ["gpt*"]},
        {"models": ["m-*"]},  # fits m-? and reaches further
        {"agents": []},
        {"agents": ["a", "b"]},
        {"tiers": []},
        {"tiers": ["ho1", "hot"]},
    ):
        refused = api.ask("POST /api/keys", {"name": "more", **within, **more}, key=little)
        assert (refused.status, refused.error["param"]) == (403, next(iter(more))), more
    assert api.ask("POST /api/keys/ops/rotate", key=little).status == 403
    assert api.runtime.ledger.count() == before
    assert api.ask("GET /api/health").status == 200  # the other's secret still counts
    for models in (["gpt-4o-mini"], ["gpt-4o*"], ["o3", "gpt-4o"]):
        made = api.ask(
            "POST /api/keys", {"name": f"ok {models}", **within, "models": models}, key=little
        )
        assert made.status == 201
    assert api.ask("POST /api/keys/little/rotate", key=little).status == 200


OF_PERSONS = {
    name
    for name, permission in PERMISSIONS.items()
    if permission not in ("read", "verify") and name.split("/")[2] in ("keys", "users", "teams",
                                                                       "organisations")
}  # fmt: skip
"""Every operation that makes or changes a key, a user, a team or an organisation."""


@pytest.mark.any_store
def test_no_route_gives_the_permission_to_approve(api: Api) -> None:
    bob = api.keys.create("bob", role="operator", user_id="bob")
    agent = api.keys.create("agent", user_id="ann")
    secrets = {key.key_id: key.prefix for key in api.keys.list() if key.role == "operator"}
    for name in sorted(OF_PERSONS):
        for made in ("bob", "agent", "ann"):
            if name.startswith("DELETE"):
                continue
            path = re.sub(r"\{.*?\}", made, name)
            for body in (
                {"name": new_name(), "role": "operator", "user": "bob"},
                {"id": new_name(), "name": "Ann", "role": "operator"},
                {"id": new_name(), "name": "Ann", "permissions": ["approve"]},
                {"id": new_name(), "name": "Ann"}, {"name": "Ann"}, {"role": "operator"},
                {"grace_s": 5}, None,
            ):  # fmt: skip
                answer = api.ask(path, body)
                if answer.status in (200, 201):
                    assert "operator" not in answer.body.decode(), (path, body)
    assert api.ask("POST /api/keys/ops/rotate").status == 200  # it has the permission already
    found = {key.key_id: key for key in api.keys.list() if key.role == "operator"}
    assert found.keys() == secrets.keys()
    assert found[bob.key_id].prefix == secrets[bob.key_id]
    assert api.keys.find(agent.key_id).role == "agent"
    refused = api.ask("POST /api/keys", {"name": "more", "role": "operator"}, key=bob.key)
    assert (refused.status, refused.error["param"]) == (403, "role")
    assert "remit key create --role operator" in refused.error["message"]


def new_name() -> str:
    return f"n-{next(_NAMES)}"


_NAMES = itertools.count()


def test_a_damaged_ledger_is_told_without_a_trace(api: Api, target: str) -> None:
    # Past the rules that keep entries as they are, as somebody with the disk would.
    api.runtime.ledger.write(LedgerEntry("NOTE", "x", "y", "z"))
    for (name,) in outside(target, "SELECT name FROM sqlite_master WHERE type = 'trigger'"):
        outside(target, f"DROP TRIGGER {name}")
    outside(target, "UPDATE entries SET record = 'nonsense' WHERE event_type = 'NOTE'")
    answer = api.ask("GET /api/ledger/entries", event_type="NOTE")
    assert (answer.status, answer.error["code"]) == (500, "internal_error")
    assert "cannot be read" in answer.error["message"]
    assert "Traceback" not in answer.body.decode()
