"""Every code with which Remit refuses a call: its status, its text, its entry, and no charge.

``python -m tests.server.test_refusal_codes`` prints the table. A code of docs/server.md without a
row here fails.
"""

from __future__ import annotations

import json
import socket
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from remit.gateway.auth import KeyStore, NewKey
from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter
from tests.server.running import Served, new_session, serving
from tests.support.raw_provider import raw_provider, whole
from tests.support.waiting import until

_PAGE = Path(__file__).parents[2] / "docs" / "server.md"
_FIELDS = {"agent_id", "session_id", "contract_id", "error_code", "error_message"}
_STATED = {"key_id", "requested_model_id", "provider_id", "user_id", "team_id"}
_TOML = """
[gateway]
max_retries = 0
recovery_timeout_ms = 600000
[budget]
wait_ms = 100
[providers.mine]
kind = "openai"
base_url = "{url}/v1"
api_key = "k"
default_model = "m"
"""
_ANSWER = {
    "id": "c", "object": "chat.completion", "created": 1, "model": "gpt-4o-mini",
    "choices": [{"index": 0, "finish_reason": "stop",
                 "message": {"role": "assistant", "content": "hi"}}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13},
}  # fmt: skip


@dataclass
class World:
    """A running server, its provider, and one way to ask for each refusal.

    Attributes:
        held: set while a call whose text is ``hold`` may be answered.
    """

    served: Served
    held: threading.Event

    def key(
        self, *, limits: BudgetLimits | None = None, user: str = "USR-1", **more: Any
    ) -> NewKey:
        """Return a key of a person and a team; without an account if ``limits`` is left out."""
        budgeter = TokenBudgeter(self.served.ledger)

        def allocate(tx: Any, key_id: str) -> dict[str, Any]:
            if limits is not None:
                budgeter.allocate(BudgetScope(key_id=key_id), limits=limits, tx=tx)
            return {}

        with KeyStore(self.served.ledger) as keys:
            made = keys.create(
                uuid.uuid4().hex, user_id=user, team_id="TEAM-1", in_transaction=allocate, **more
            )
        until(lambda: self.served.ask("GET", "/v1/models", token=made.key)[0] == 200)
        return made

    def call(
        self, key: NewKey, session: str, *, path: str = "/v1/chat/completions", text: Any = "hi",
        headers: dict[str, str] | None = None, **more: Any,
    ) -> tuple[int, bytes]:  # fmt: skip
        """Make one call."""
        asked = {"input": text} if path.endswith("/responses") else {
            "messages": [{"role": "user", "content": text}], "max_tokens": 50,
        }  # fmt: skip
        body = {"model": "gpt-4o-mini", **asked, **more}
        named = {"x-remit-session": session, **(headers or {})}
        status, raw, _ = self.served.ask("POST", path, body, token=key.key, headers=named)
        return status, raw


Refused = tuple[NewKey, str, tuple[int, bytes]]
"""The key and session of a refused call, and its answer."""
_FREE = BudgetLimits()


def _plain(limits: BudgetLimits = _FREE, calls: int = 1, **more: Any) -> Callable[[World], Refused]:
    """Make the same call ``calls`` times; the last is refused."""

    def provoke(world: World) -> Refused:
        key, session = world.key(limits=limits), new_session()
        for _ in range(calls - 1):
            world.call(key, new_session(), **more)
        return key, session, world.call(key, session, **more)

    return provoke


def _auth_error(world: World) -> Refused:
    key, session = world.key(limits=_FREE, role="auditor"), new_session()
    return key, session, world.call(key, session)


def _model_not_allowed(world: World) -> Refused:
    key, session = world.key(limits=_FREE, models=("gpt-4o",)), new_session()
    return key, session, world.call(key, session)


def _session_not_yours(world: World) -> Refused:
    owner, other = world.key(limits=_FREE, user="USR-2"), world.key(limits=_FREE)
    session = new_session()
    assert world.call(owner, session)[0] == 200
    return other, session, world.call(other, session)


def _not_allocated(world: World) -> Refused:
    key, session = world.key(), new_session()
    return key, session, world.call(key, session)


def _file_not_found(world: World) -> Refused:
    owner, other = world.key(limits=_FREE, user="USR-2"), world.key(limits=_FREE)
    session = new_session()
    head = b"--b\r\ncontent-disposition: form-data; name="
    form = head + b'"purpose"\r\n\r\nuser_data\r\n'
    form += head + b'"file"; filename="a.txt"\r\n\r\nx\r\n--b--\r\n'
    kind = {"content-type": "multipart/form-data; boundary=b"}
    status, raw, _ = world.served.ask("POST", "/v1/files", form, token=owner.key, headers=kind)
    assert status == 200, raw
    part = {"type": "file", "file": {"file_id": json.loads(raw)["id"]}}
    return other, session, world.call(other, session, text=[part])


def _context_length(world: World) -> Refused:
    key, session = world.key(limits=_FREE), new_session()
    kept = ""
    for _ in range(2):
        more = {"previous_response_id": kept} if kept else {}
        model = "anthropic/claude-haiku-4-5"  # whose conversations Remit keeps
        text = "x" * 17_000_000
        status, raw = world.call(
            key, new_session(), path="/v1/responses", text=text, model=model, **more
        )
        assert status == 200, raw[:300]
        kept = json.loads(raw)["id"]
    answered = world.call(
        key, session, path="/v1/responses", previous_response_id=kept, model=model
    )
    return key, session, answered


def _budget_busy(world: World) -> Refused:
    key, session = world.key(limits=BudgetLimits(250)), new_session()
    with _held(world, key, new_session()):
        return key, session, world.call(key, session)


def _idempotency_conflict(world: World) -> Refused:
    key, session, used = world.key(limits=_FREE), new_session(), {"idempotency-key": new_session()}
    with _held(world, key, new_session(), headers=used):
        return key, session, world.call(key, session, text="hold", headers=used)


def _idempotency_mismatch(world: World) -> Refused:
    key, session, used = world.key(limits=_FREE), new_session(), {"idempotency-key": new_session()}
    assert world.call(key, new_session(), headers=used)[0] == 200
    return key, session, world.call(key, session, text="another", headers=used)


def _idempotency_erased(world: World) -> Refused:
    key, session, used = world.key(limits=_FREE), new_session(), {"idempotency-key": new_session()}
    erased = new_session()
    assert world.call(key, erased, headers=used)[0] == 200
    world.served.ledger.erase(session_id=erased, reason="asked to", requested_by="test")
    return key, session, world.call(key, session, headers=used)


@contextmanager
def _held(world: World, key: NewKey, session: str, **more: Any) -> Iterator[None]:
    """Have a call of the key's wait for its answer until the block ends."""
    world.held.clear()
    thread = threading.Thread(
        target=world.call, args=(key, session), kwargs={"text": "hold", **more}
    )
    thread.start()
    try:
        until(lambda: bool(world.served.entries("DISPATCH", session)))
        yield
    finally:
        world.held.set()
        thread.join()


@dataclass
class Row:
    """One code: how to be refused with it, and what the text names."""

    provoke: Callable[[World], Refused]
    status: int
    names: tuple[str, ...] = ()


_SEARCH = {"type": "code_interpreter", "container": {"type": "auto"}}
_DOLLAR = BudgetLimits(nano=10**9)
ROWS = {
    "invalid_input": Row(_plain(model="anthropic/claude-haiku-4-5", n=2), 400, ("n",)),
    "auth_error": Row(_auth_error, 403, ("auditor",)),
    "model_not_allowed": Row(_model_not_allowed, 403, ("gpt-4o-mini",)),
    "session_not_yours": Row(_session_not_yours, 403),
    "provider_not_found": Row(_plain(model="nobody/m"), 404, ("nobody",)),
    "file_not_found": Row(_file_not_found, 404, ("file-1",)),
    "previous_response_not_found": Row(
        _plain(path="/v1/responses", previous_response_id="resp_" + "0" * 48), 400, ("resp_0000",)
    ),
    "context_length": Row(_context_length, 400, ("33,554,432",)),
    "budget_exhausted": Row(_plain(BudgetLimits(5)), 402, ("gpt-4o-mini", "max_tokens")),
    "budget_busy": Row(_budget_busy, 429),
    "turn_limit": Row(_plain(BudgetLimits(turns=1), 2), 402),
    "not_allocated": Row(_not_allocated, 402),
    "unpriced": Row(_plain(_DOLLAR, model="mine/m"), 402, ("mine/m", "remit price set")),
    "unbounded": Row(
        _plain(_DOLLAR, path="/v1/responses", model="mine/gpt-4o-mini", tools=[_SEARCH]),
        402, ("tools[0]", "mine/gpt-4o-mini"),
    ),
    "rate_limited": Row(_plain(BudgetLimits(requests_per_minute=1), 2), 429),
    "circuit_open": Row(_plain(model="gpt-4.1", text="fail", calls=4), 503, ("openai/gpt-4.1",)),
    "idempotency_conflict": Row(_idempotency_conflict, 409),
    "idempotency_mismatch": Row(_idempotency_mismatch, 422),
    "idempotency_erased": Row(_idempotency_erased, 410, ("erased",)),
}  # fmt: skip


def codes_of_the_page() -> list[str]:
    """Return the codes in the table of docs/server.md of what Remit refuses."""
    section = _PAGE.read_text("utf-8").partition("### Refused by Remit")[2].partition("### ")[0]
    rows = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| `")]
    return [code.strip("`") for code in rows]


@contextmanager
def world_in(directory: Path) -> Iterator[World]:
    """Run a server in front of a provider that holds back and fails on request."""
    held = threading.Event()

    def answer(connection: socket.socket, path: str, raw: bytes) -> bool:
        if path.endswith("/files"):
            file = {"id": "file-1", "object": "file", "bytes": 1, "created_at": 1,
                    "filename": "a.txt", "purpose": "user_data"}  # fmt: skip
            connection.sendall(whole(json.dumps(file).encode()))
        elif b'"fail"' in raw:
            connection.sendall(whole(b'{"error":{"message":"no"}}', status="500 Error"))
        elif path.endswith("/messages"):
            said = {"id": "m", "type": "message", "role": "assistant", "model": "m",
                    "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn",
                    "usage": {"input_tokens": 9, "output_tokens": 4}}  # fmt: skip
            connection.sendall(whole(json.dumps(said).encode()))
        else:
            if b'"hold"' in raw:
                held.wait(60)
            connection.sendall(whole(json.dumps(_ANSWER).encode()))
        return True

    with raw_provider() as provider:
        provider.answer = answer
        toml = _TOML.format(url=provider.url)
        with serving(directory / "root", provider.url, toml=toml) as served:
            yield World(served, held)


def described(world: World, code: str) -> tuple[int, str, dict[str, Any], str]:
    """Be refused with a code; returns status, text, the entry's metadata and the key's id."""
    key, session, (status, raw) = ROWS[code].provoke(world)
    error = json.loads(raw)["error"]
    ((entry),) = world.served.entries("PROMPT_REJECTED", session)
    assert error["code"] in (code, "context_length_exceeded"), error
    assert entry.metadata["error_code"] == code.upper()
    assert entry.decision == "REJECTED"
    return status, error["message"], dict(entry.metadata), key.key_id


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_in(tmp_path_factory.mktemp("refusals")) as made:
        yield made


def test_every_code_of_the_page_has_a_row() -> None:
    assert sorted(ROWS) == sorted(codes_of_the_page())


@pytest.mark.parametrize("code", ROWS)
def test_a_refusal_states_the_call_and_costs_nothing(world: World, code: str) -> None:
    row = ROWS[code]
    status, text, stated, key_id = described(world, code)
    assert status == row.status
    for name in row.names:
        assert name in text
    assert stated.keys() >= _FIELDS | {"key_id", "user_id", "team_id", "requested_model_id"}
    assert stated.keys() <= _FIELDS | _STATED
    assert (stated["key_id"], stated["user_id"], stated["team_id"]) == (key_id, "USR-1", "TEAM-1")
    assert stated.get("provider_id") or code == "provider_not_found"
    assert not [
        entry
        for entry in world.served.entries("EXCHANGE", stated["session_id"])
        if entry.metadata.get("key_id") == key_id
    ]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch, world_in(Path(scratch)) as made:
        print("| code | status | text | stated |\n|---|---|---|---|")
        for name in ROWS:
            status, text, stated, _ = described(made, name)
            held = ", ".join(sorted(stated.keys() & _STATED))
            print(f"| `{name}` | {status} | {text} | {held} |")
