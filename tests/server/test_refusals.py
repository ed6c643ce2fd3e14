"""Every code with which Remit refuses a call, provoked over the wire: status, text, entry, charge.

``refusals.md`` holds the outcomes. ``python -m tests.server.test_refusals`` writes it.
"""

from __future__ import annotations

import ast
import asyncio
import errno
import json
import re
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import ResponseErrorEvent

import remit
from remit.gateway import LLMGateway, RouterConfig
from remit.gateway.auth import AuthUnavailableError, Identity, KeyStore, NewKey
from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter
from remit.gateway.memory import Holding, memory
from remit.ledger import LedgerClient, LedgerConnectionError, LedgerEntry, Transaction
from remit.server.asgi import read_body, refusal
from remit.server.authentication import Authenticator
from remit.server.in_flight_limits import Share, Shares
from remit.server.refusals import REJECTED, HttpError, error_event, refusal_of, shutting_down
from remit.server.request_context import AuthenticatedRequest
from remit.server.responses.background import too_many
from remit.server.responses.conversations import Conversations
from remit.server.tenants.open_tenants import unavailable
from tests.server.running import FORM, Served, form, new_session, serving
from tests.support.requests import prompt_request
from tests.support.waiting import until
from tests.support.wire import Raw, WireServer, completion, message, serve

TABLE = Path(__file__).with_name("refusals.md")
FIELDS = {"agent_id", "session_id", "contract_id", "error_code", "error_message"}
TOML = """
[gateway]
failure_threshold = 1
recovery_timeout_ms = 3600000
max_retries = 0
[budget]
wait_ms = 1
"""
USD = 1_000_000_000
TEN_USD = BudgetLimits(None, 10 * USD, None, None, None)
Answer = tuple[int, bytes, Mapping[str, str]]
Refused = tuple[int, str]
MIB = 1024 * 1024


class Bench:
    """A server before a provider that holds, fails or answers, as the prompt says."""

    def __init__(self, served: Served, provider: WireServer, release: threading.Event) -> None:
        self.served = served
        self.provider = provider
        self.release = release

    def key(
        self, limits: BudgetLimits | None = TEN_USD,
        user_id: str = "ann", **more: Any,
    ) -> NewKey:  # fmt: skip
        """Return a new key of a person in the team ``ops``."""
        ledger = self.served.ledger

        def limit(tx: Transaction, key_id: str) -> dict[str, Any]:
            if limits is not None:
                scope = BudgetScope(key_id=key_id)
                TokenBudgeter(ledger).allocate(scope, limits=limits, tx=tx)
            return {}

        with KeyStore(ledger) as keys:
            made = keys.create(
                uuid.uuid4().hex, user_id=user_id, team_id="ops", in_transaction=limit, **more
            )
        until(lambda: self.served.ask("GET", "/v1/models", token=made.key)[0] == 200)
        return made

    def ask(self, key: NewKey, text: str = "hi", model: str = "gpt-4o-mini", **more: Any) -> Answer:
        """Make a call of Chat Completions under a key."""
        return self.served.call("openai", text, token=key.key, model=model, **more)

    @contextmanager
    def held(self, key: NewKey, **more: Any) -> Iterator[None]:
        """Hold a call at the provider until the block ends."""
        self.release.clear()
        before = len(self.provider.calls)
        calling = threading.Thread(target=self.ask, args=(key, "hold"), kwargs=more)
        calling.start()
        try:
            until(lambda: len(self.provider.calls) > before)
            yield
        finally:
            self.release.set()
            calling.join(60)


@contextmanager
def bench(place: Path) -> Iterator[Bench]:
    """Run a server and its provider until the block ends."""
    release = threading.Event()

    def step(body: dict[str, Any]) -> dict[str, Any] | Raw:
        if not body:
            return {"id": "file-anns", "object": "file", "bytes": 1, "created_at": 1,
                    "filename": "a.txt", "purpose": "user_data", "status": "processed"}  # fmt: skip
        said = json.dumps(body)
        if '"fail"' in said:
            return Raw(b'{"error": {"message": "down"}}', status=500)
        if '"hold"' in said:
            release.wait(60)
        return message("fine") if body["model"].startswith("claude") else completion("fine")

    with serve(step) as provider, serving(place / "root", provider.url, toml=TOML) as served:
        yield Bench(served, provider, release)


@dataclass(frozen=True)
class Row:
    """A refusal: how it is provoked, what its text names, and what its entry states."""

    provoke: Callable[[Bench], tuple[NewKey, Answer]]
    names: tuple[str, ...]
    model: str = "gpt-4o-mini"
    provider: str = "openai"


def _limits(**limits: int) -> BudgetLimits:
    names = ("tokens", "usd", "turns", "rpm", "tpm")
    return BudgetLimits(*(limits.get(name) for name in names))


def _plain(
    limits: BudgetLimits | None = TEN_USD,
    model: str = "gpt-4o-mini", key: Mapping[str, Any] | None = None, **more: Any,
) -> Callable[[Bench], tuple[NewKey, Answer]]:  # fmt: skip
    def provoke(made: Bench) -> tuple[NewKey, Answer]:
        asking = made.key(limits, **(key or {}))
        return asking, made.ask(asking, model=model, **more)

    return provoke


def _busy(made: Bench) -> tuple[NewKey, Answer]:
    key = made.key(_limits(tokens=1500))
    with made.held(key, max_tokens=1000):
        return key, made.ask(key, max_tokens=1000)


def _twice(made: Bench) -> tuple[NewKey, Answer]:
    key = made.key(_limits(turns=1))
    assert made.ask(key)[0] == 200
    return key, made.ask(key)


def _circuit(made: Bench) -> tuple[NewKey, Answer]:
    key = made.key()
    assert made.ask(key, "fail", model="gpt-4.1")[0] == 500
    return key, made.ask(key, model="gpt-4.1")


def _session(made: Bench) -> tuple[NewKey, Answer]:
    session = new_session()
    assert made.ask(made.key(user_id="bob"), session=session)[0] == 200
    key = made.key()
    return key, made.ask(key, session=session)


def _file(made: Bench) -> tuple[NewKey, Answer]:
    body, token = form(purpose="user_data", file=b"a"), made.key(user_id="bob").key
    status, raw, _ = made.served.ask("POST", "/v1/files", body, token=token, headers=FORM)
    assert status == 200, raw
    key = made.key()
    part = {"type": "file", "file": {"file_id": "file-anns"}}
    return key, made.ask(key, messages=[{"role": "user", "content": [part]}])


def _repeated(kind: str) -> Callable[[Bench], tuple[NewKey, Answer]]:
    def provoke(made: Bench) -> tuple[NewKey, Answer]:
        key, under = made.key(), {"idempotency-key": uuid.uuid4().hex}
        if kind == "conflict":
            with made.held(key, headers=under):
                return key, made.ask(key, "hold", headers=under)
        status, _, headers = made.ask(key, headers=under)
        assert status == 200
        if kind == "mismatch":
            return key, made.ask(key, "other", headers=under)
        made.served.ledger.withdraw(
            [headers["x-remit-exchange"]], reason="tested", requested_by="ann"
        )
        return key, made.ask(key, headers=under)

    return provoke


def _previous(made: Bench) -> tuple[NewKey, Answer]:
    key = made.key()
    body = {"model": "gpt-4o-mini", "input": "hi", "previous_response_id": "resp_" + "0" * 48}
    return key, made.served.ask("POST", "/v1/responses", body, token=key.key)


def _long_chain(made: Bench) -> tuple[NewKey, Answer]:
    key = made.key(BudgetLimits())
    body: dict[str, Any] = {"model": "anthropic/claude-sonnet-4-5", "input": "x" * 17_000_000}
    for _ in range(2):
        status, raw, _ = made.served.ask("POST", "/v1/responses", body, token=key.key)
        assert status == 200, raw[:300]
        body["previous_response_id"] = json.loads(raw)["id"]
    body["input"] = "hi"
    return key, made.served.ask("POST", "/v1/responses", body, token=key.key)


ROWS: Mapping[str, Row] = {
    "INVALID_INPUT": Row(
        _plain(model="claude-sonnet-4-5", n=2),
        ("n requests", "leave this out"), "claude-sonnet-4-5", "anthropic",
    ),
    "AUTH_ERROR": Row(
        _plain(key={"agents": ("mine",)}, headers={"x-remit-agent": "other"}),
        ("agent", "x-remit-agent"),
    ),
    "MODEL_NOT_ALLOWED": Row(
        _plain(key={"models": ("gpt-4o",)}), ("openai/gpt-4o-mini", "GET /v1/models")
    ),
    "SESSION_NOT_YOURS": Row(_session, ("session", "x-remit-session")),
    "PROVIDER_NOT_FOUND": Row(
        _plain(model="nobody/x"), ("nobody", "[providers.nobody]"), "nobody/x", "nobody"
    ),
    "FILE_NOT_FOUND": Row(_file, ("file-anns", "GET /v1/files")),
    "PREVIOUS_RESPONSE_NOT_FOUND": Row(_previous, ("resp_000", "in input")),
    "CONTEXT_LENGTH": Row(
        _long_chain, ("33,554,432", "leave out older items"),
        "anthropic/claude-sonnet-4-5", "anthropic",
    ),
    "BUDGET_EXHAUSTED": Row(
        _plain(_limits(usd=1000)), ("openai/gpt-4o-mini", "USD", "max_tokens")
    ),
    "BUDGET_BUSY": Row(_busy, ("other calls", "max_tokens")),
    "TURN_LIMIT": Row(_twice, ("1 calls", "remit budget set")),
    "NOT_ALLOCATED": Row(_plain(None), ("remit budget set",)),
    "UNPRICED": Row(
        _plain(model="gpt-nobody-knows"),
        ("openai/gpt-nobody-knows", "remit price set gpt-nobody-knows --provider openai"),
        "gpt-nobody-knows",
    ),
    "UNBOUNDED": Row(
        _plain(service_tier="nobody-knows"),
        ("openai/gpt-4o-mini", "leave out service_tier", "key without a limit"),
    ),
    "RATE_LIMITED": Row(
        _plain(_limits(tpm=1)),
        ("1 tokens left in this minute", "openai/gpt-4o-mini", "max_tokens", "remit budget set"),
    ),
    "CIRCUIT_OPEN": Row(_circuit, ("openai/gpt-4.1", "use another model"), "gpt-4.1"),
    "IDEMPOTENCY_CONFLICT": Row(
        _repeated("conflict"), ("idempotency key", "repeat the request later")
    ),
    "IDEMPOTENCY_MISMATCH": Row(_repeated("mismatch"), ("idempotency key", "send another key")),
    "IDEMPOTENCY_ERASED": Row(_repeated("erased"), ("idempotency key", "send another key")),
}  # fmt: skip


def _asked(
    method: str, path: str, body: Any = None, *, role: str = "agent",
    allowed: Mapping[str, tuple[str, ...]] = {}, **headers: str,
) -> Callable[[Bench], Refused]:  # fmt: skip
    def provoke(made: Bench) -> Refused:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        token = made.key(role=role, **allowed).key if "authorization" not in named else ""
        status, raw, _ = made.served.ask(method, path, body, token=token, headers=named)
        return status, _text_of(raw)

    return provoke


def _text_of(raw: bytes) -> str:
    return str(json.loads(raw)["error"]["message"])


def _sent(head: str, *, signed: bool = True) -> Callable[[Bench], Refused]:
    """Send a head as it is, and read an answer that may come before the body."""

    def provoke(made: Bench) -> Refused:
        token = f"authorization: Bearer {made.served.token}\r\n" if signed else ""
        raw = made.served.raw(f"{head}\r\n{token}\r\n".encode())
        status, _, text = int(raw[9:12]), *raw.partition(b"\r\n\r\n")[1:]
        return status, _text_of(text) if text.startswith(b"{") else text.decode().strip()

    return provoke


def _raised(refuse: Callable[[], object]) -> Callable[[Bench], Refused]:
    """Have the server's own function refuse what no client can bring about at will."""

    def provoke(made: Bench) -> Refused:
        try:
            error = refuse()
        except HttpError as raised:
            error = raised
        assert isinstance(error, HttpError)
        status, raw, *_ = refusal("openai", error)
        return status, _text_of(raw)

    return provoke


def _share(calls: int = 0, size: int = 0) -> None:
    """Take so many calls and bytes of one key."""
    shares = Shares(4, MIB)
    for _ in range(calls):
        Share(shares).begin("KEY-1")
    share = Share(shares)
    share.begin("KEY-1")
    share.take(size)


def _without_room() -> None:
    held = Holding(memory)
    held.resize(memory.limit)
    try:
        _share(size=MIB)
    finally:
        held.resize(0)


def _unfinished() -> None:
    """Read a body of which nothing comes."""

    async def never() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    asyncio.run(read_body(never, None, MIB, 0.0, None))


def _keys_unread() -> None:
    class Unavailable:
        def authenticate(self, token: str | None) -> Identity:
            raise AuthUnavailableError("Keys cannot be checked.", next_step="Try again.")

    asyncio.run(Authenticator(Unavailable(), "").caller({"type": "http", "headers": []}))


_POST = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json"
_CALL = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hi"}]}
_LOST = LedgerConnectionError("The database is away.")

BEFORE: Mapping[tuple[int, str], tuple[Callable[[Bench], Refused], tuple[str, ...]]] = {
    (400, "no HTTP"): (_sent("GET /healthz HTTP/1.1", signed=False), ("host header", "new")),
    (400, "invalid_json"): (_asked("POST", "/v1/chat/completions", b"{"), ("JSON",)),
    (400, "invalid_request"): (
        _asked("POST", "/v1/chat/completions", {**_CALL, "base_url": "http://x"}),
        ("base_url", "leave this out"),
    ),
    (400, "invalid_header"): (
        _asked("POST", "/v1/chat/completions", _CALL, x_remit_session="s" * 1000),
        ("x-remit-session", "shorten"),
    ),
    (401, "invalid_api_key"): (
        _asked("POST", "/v1/chat/completions", _CALL, authorization="Bearer nobody"),
        ("key", "operator"),
    ),
    (403, "forbidden"): (_asked("GET", "/metrics"), ("agent", "the permission read")),
    (403, "auth_error"): (
        _asked("GET", "/v1/files", role="auditor"), ("auditor", "a key of the role agent")
    ),
    (403, "model_not_allowed"): (
        _asked(
            "POST", "/v1/assistants", {"model": "gpt-5"},
            allowed={"models": ("gpt-4o-mini",), "pass_through": ("*",)},
        ),
        ("gpt-5", "GET /v1/models"),
    ),
    (403, "pass_through_not_allowed"): (
        _asked("POST", "/v1/vector_stores", {}), ("remit key set", "POST /vector_stores")
    ),
    (403, "path_refused"): (
        _asked("GET", "/v1/organization/users"), ("/v1/organization/users", "the operator's own")
    ),
    (404, "not_found"): (_asked("GET", "/v1/nothing"), ("/v1/chat/completions",)),
    (404, "model_not_found"): (_asked("GET", "/v1/models/none"), ("GET /v1/models",)),
    (404, "response_not_found"): (
        _asked("GET", "/v1/responses/resp_" + "0" * 48), ("response", "a call returned")
    ),
    (404, "conversation_not_found"): (
        _asked("GET", "/v1/conversations/conv_" + "0" * 48), ("POST /v1/conversations",)
    ),
    (405, "method_not_allowed"): (
        _asked("DELETE", "/v1/embeddings"), ("/v1/embeddings", "send POST")
    ),
    (408, "request_timeout"): (_raised(_unfinished), ("server.body_timeout_s",)),
    (413, "request_too_large"): (
        _sent(f"{_POST}\r\ncontent-length: 99999999999"), ("bytes", "server.max_body_bytes")
    ),
    (415, "unsupported_encoding"): (
        _sent(f"{_POST}\r\ncontent-encoding: lzw\r\ncontent-length: 9"), ("'lzw'", "send gzip")
    ),
    (429, "rate_limited"): (
        _raised(lambda: _share(calls=3)), ("3 requests", "wait for one to end")
    ),
    (429, "rate_limited bytes"): (
        _raised(lambda: _share(size=memory.limit)), ("bytes of at most", "wait for one to end")
    ),
    (429, "too_many_in_background"): (
        _raised(lambda: too_many(7)), ("7 responses", "try again")
    ),
    (431, "no HTTP"): (
        _sent(f"{_POST}\r\nx-long: {'y' * 99_000}"), ("server.max_header_bytes", "send less")
    ),
    (500, "internal_error"): (_raised(lambda: refusal_of(ValueError())), ("see the server's log",)),
    (503, "overloaded"): (_raised(_without_room), ("body of", "server.memory_bytes")),
    (503, "shutting_down"): (_raised(shutting_down), ("try again",)),
    (503, "auth_unavailable"): (_raised(_keys_unread), ("Keys", "Try again")),
    (503, "record_unavailable"): (_raised(lambda: refusal_of(_LOST)), ("database", "try again")),
    (503, "local_error"): (
        _raised(lambda: refusal_of(OSError(errno.EMFILE, "too many"))), ("descriptors", "try again")
    ),
    (503, "tenant_unavailable"): (
        _raised(lambda: unavailable(ValueError())), ("tenant", "try again")
    ),
}  # fmt: skip
"""Refusals before the gateway is reached: nothing is recorded, and nothing is sent or charged."""

OTHERS = {
    # RFC 6749 and RFC 8628 name these; see test_device_sign_in.py.
    "access_denied", "authorization_pending", "expired_token", "invalid_grant", "slow_down",
    "unsupported_grant_type",
    "answer_untranslatable", "archived", "client_closed_request", "context_length_exceeded",
    "conversation_erased", "item_not_found", "not_in_background", "not_replayed",
    "previous_response_in_progress",
    "previous_response_not_found", "provider_error", "provider_not_found", "response_in_progress",
    "restart_needed", "session_not_yours", "too_many_sessions",
    "websocket_connection_limit_reached", "websocket_unsupported",
}  # fmt: skip
"""Codes of the server that refuse no model call, or stand among those of the gateway."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench(tmp_path_factory.mktemp("refusals")) as running:
        yield running


_REFUSES = {"reject", "NoCandidateError", "BudgetRefusedError", "BatchRefusedError", "refused"}


def codes_in_source() -> set[str]:
    """Return each code with which the gateway or the router refuses, read from their source."""
    found = set()
    source = Path(remit.__file__).parent
    for path in [*(source / "gateway").rglob("*.py"), *(source / "routing").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            texts: list[ast.expr] = []
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                texts = node.args[:2] if name in _REFUSES else []
            elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "code":
                texts = [node.value] if path.name == "keeping.py" else []
            elif isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
                texts = node.value.elts[:1] if path.name == "replaying.py" else []
            values = [one.value for one in texts if isinstance(one, ast.Constant)]
            found |= {
                one for one in values if isinstance(one, str) and re.fullmatch("[A-Z_]+", one)
            }
    return found


def codes_of_the_server() -> set[str]:
    """Return each code with which the server answers by itself, read from its source."""
    found = set()
    server = Path(remit.__file__).parent / "server"
    for path in server.rglob("*.py"):
        if path.relative_to(server).parts[0] in ("api", "console"):
            continue  # They are no doors of model calls.
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "HttpError":
                code = node.args[1]
                found |= {code.value} if isinstance(code, ast.Constant) else set()
    return {str(one) for one in found}


def test_every_code_has_a_status_and_a_row() -> None:
    assert codes_in_source() <= set(REJECTED)
    # A replay records nothing, and no adapter of Remit's fails; other tests hold these refusals.
    assert set(ROWS) == set(REJECTED) - {"REPLAY_DIFFERS", "PROVIDER_ERROR"}
    assert codes_of_the_server() - OTHERS <= {code for _, code in BEFORE}
    assert {status for status, _ in BEFORE} == {
        400, 401, 403, 404, 405, 408, 413, 415, 429, 431, 500, 503
    }  # fmt: skip


@pytest.mark.parametrize("row", BEFORE, ids=lambda row: f"{row[0]}-{row[1]}")
def test_a_refusal_before_the_gateway(made: Bench, row: tuple[int, str]) -> None:
    made.served.ask("GET", "/healthz")
    before = len(made.provider.calls), made.served.ledger.query(event_type="PROMPT_REJECTED")
    provoke, names = BEFORE[row]
    status, text = provoke(made)
    assert status == row[0]
    for name in names:
        assert name in text
    assert f"| `{row[1]}` | {status} | {text} |" in TABLE.read_text("utf-8")
    after = len(made.provider.calls), made.served.ledger.query(event_type="PROMPT_REJECTED")
    assert (before[0], len(list(before[1]))) == (after[0], len(list(after[1])))


def _refusal(made: Bench, code: str) -> tuple[NewKey, int, str, LedgerEntry]:
    """Provoke a refusal: the key, the status, the text and the entry."""
    key, (status, raw, headers) = ROWS[code].provoke(made)
    error = json.loads(raw)["error"]
    assert error["code"] in (code.lower(), "context_length_exceeded"), raw
    return key, status, error["message"], made.served.ledger.read(headers["x-remit-exchange"])


@pytest.mark.parametrize("code", ROWS)
def test_a_refusal_states_the_refused_call(made: Bench, code: str) -> None:
    row = ROWS[code]
    key, status, text, entry = _refusal(made, code)
    assert status == REJECTED[code]
    for name in row.names:
        assert name in text
    assert entry.event_type == "PROMPT_REJECTED"
    assert entry.metadata["error_code"] == code
    assert entry.metadata["error_message"] == text
    stated = {name: value for name, value in entry.metadata.items() if name not in FIELDS}
    assert stated == {
        "key_id": key.key_id, "requested_model_id": row.model, "provider_id": row.provider,
        "user_id": "ann", "team_id": "ops",
    }  # fmt: skip
    debits = made.served.ledger.query(event_type="BUDGET_DEBIT")
    assert entry.id not in {one.metadata.get("exchange_entry_id") for one in debits}
    assert "cost_usd" not in entry.metadata
    assert f"| `{code.lower()}` | {status} |" in TABLE.read_text("utf-8")


def test_a_routed_call_whose_money_is_only_reserved_is_asked_to_retry(made: Bench) -> None:
    key = made.key(_limits(tokens=1500))
    with made.held(key, max_tokens=1000):
        status, _, headers = made.ask(key, model="auto", max_tokens=1000)
    assert (status, headers["retry-after"]) == (429, "1")


def test_an_error_in_a_stream_of_responses_is_an_event_of_the_api() -> None:
    event = error_event("openai.responses", 502, "SERVER_ERROR", "gone")
    kind, _, data = event.partition(b"\ndata: ")
    assert kind == b"event: error"
    read = ResponseErrorEvent.model_validate_json(data, strict=True)
    assert (read.type, read.code, read.message) == ("error", "server_error", "gone")
    assert json.loads(data)["error"]["message"] == "gone"


def test_a_refusal_without_a_key_has_five_fields(ledger: LedgerClient) -> None:
    gateway = LLMGateway(ledger, config=RouterConfig(), dev_mode=True)
    answer = gateway.route(prompt_request(model_id="nobody/x"))
    assert answer.error_code == "PROVIDER_NOT_FOUND"
    assert set(ledger.read(answer.exchange_entry_id).metadata) == FIELDS


_BEFORE = """
## Before the gateway

Nothing is recorded, sent or charged. No request is refused with 411 or 426: a body may come in
chunks, and the offer of another protocol is ignored. `no HTTP` is answered in plain text, below
the application.

| Code | Status | Text |
|---|---|---|
"""


def _write() -> None:
    head = "# Refusals\n\nWritten by `python -m tests.server.test_refusals`. Each is one "
    head += "`PROMPT_REJECTED`, and costs nothing.\n\n"
    head += "| Code | Status | Text | Entry, besides the five fields of each |\n|---|---|---|---|\n"
    lines = []
    with tempfile.TemporaryDirectory() as place, bench(Path(place)) as made:
        for code in ROWS:
            key, status, text, entry = _refusal(made, code)
            stated = {name: value for name, value in entry.metadata.items() if name not in FIELDS}
            said = ", ".join(f"`{name}` {value}" for name, value in stated.items())
            line = f"| `{code.lower()}` | {status} | {text} | {said} |\n"
            line = re.sub(r"session:[^ ]+", "session:…", line)
            lines.append(line.replace(key.key_id, "KEY-…"))
        lines.append(_BEFORE)
        for (status, code), (provoke, _) in BEFORE.items():
            lines.append(f"| `{code}` | {status} | {provoke(made)[1]} |\n")
    TABLE.write_text(head + "".join(lines), "utf-8")


if __name__ == "__main__":
    _write()


def test_a_deletion_succeeds_although_its_conversation_ends_in_an_archive() -> None:
    class Archived:
        def find(self, identity: str, owner: str) -> None:
            raise HttpError(404, "archived", f"{identity} of {owner} was archived.")

    call = LedgerEntry("EXCHANGE", "S", "D", "r", metadata={"conversation_id": "conv_1"})
    parts: Any = Archived()
    caller = AuthenticatedRequest({}, Identity("ann", "agent", key_id="KEY-1"))
    Conversations(parts, parts, parts, parts).erase_unshown(call, caller)
