"""Streams: relayed as they come, on record however they end."""

from __future__ import annotations

import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from remit.ledger import LedgerClient, LedgerEntry
from tests.server.conftest import QUICK, Serve
from tests.server.running import (
    PATHS,
    Served,
    ended_well,
    failed,
    new_session,
    prompt,
    said,
    serving,
    streaming,
)
from tests.server.sdks import MODELS, is_whole, snapshot
from tests.support import wire
from tests.support.soak import is_soak, sample
from tests.support.upstream import Upstream
from tests.support.waiting import until

four = pytest.mark.parametrize(
    ("dialect", "model"), [(d, m) for d in ("openai", "anthropic") for m in MODELS]
)
_FALLING = {"openai": "gpt-4o-mini", "anthropic": "gpt-4.1-mini", "cut": "gpt-4o"}
FALLBACK = (
    QUICK
    + "[gateway.fallbacks]\n"
    + "".join(f'"{model}" = ["claude-sonnet-4-5"]\n' for model in _FALLING.values())
)


def _arrived(entry: LedgerEntry, code: str) -> None:
    """A failed exchange that was begun: what came is kept, and charged as an estimate."""
    told = entry.metadata
    assert entry.decision == ("TIMEOUT" if code == "TIMEOUT" else "ERROR")
    assert entry.reason.startswith(f"{code}: ")
    assert (told["error_code"], told["finish_reason"]) == (code, "error")
    assert told["cost_certainty"] == "estimated"
    assert told["input_tokens"] > 0
    assert told["output_tokens"] > 0
    assert told["cost_usd"] > 0
    assert told["time_to_first_token_ms"] > 0


@four
def test_the_end_is_told_when_it_is_durable(
    anywhere: Served, session: str, dialect: str, model: str
) -> None:
    with (
        LedgerClient(anywhere.store) as elsewhere,
        streaming(anywhere, dialect, "[[tokens=5 slow=0.03]]", session=session, model=model) as it,
    ):
        # The dispatch is durable before a byte is sent, so before one came.
        assert elsewhere.read(it.headers["x-remit-dispatch"]).event_type == "DISPATCH"
        values: list[Any] = []
        for number, data in enumerate(it):
            value: Any = data if data == "[DONE]" else json.loads(data)
            values.append(value)
            found = list(elsewhere.query(event_type="EXCHANGE", session_id=session))
            if number == 0:
                assert found == []
            if data == "[DONE]" or value.get("type") == "message_stop":
                assert len(found) == 1
        assert ended_well(values)
    assert said(values) == "word word word word word"
    entry = is_whole(
        anywhere, session, model, dialect, response="word word word word word", output_tokens=5
    )
    told = entry.metadata
    assert 0 < told["time_to_first_token_ms"] < told["latency_ms"]
    assert it.comments["x-remit-exchange"] == entry.id
    assert it.comments["x-remit-dispatch"] == told["dispatch_entry_id"]
    assert it.comments["x-remit-cost-certainty"] == "measured"
    assert float(it.comments["x-remit-cost-usd"]) == pytest.approx(told["cost_usd"])


@four
def test_a_provider_that_breaks_off(
    anywhere: Served, upstream: Upstream, session: str, dialect: str, model: str
) -> None:
    before = upstream.count()
    text = "[[tokens=9 cut=3]]"
    with streaming(anywhere, dialect, text, session=session, model=snapshot(model, 1)) as it:
        values = it.values()
    assert said(values).split() == ["word"] * 3
    assert failed(values)
    assert not any(v != "[DONE]" and v.get("type") == "message_stop" for v in values)
    assert upstream.count() == before + 1  # begun, it is nobody else's to answer
    entry = anywhere.exchange(session)
    _arrived(entry, "SERVER_ERROR")
    assert entry.metadata["response"].split() == ["word"] * 3
    assert it.comments["x-remit-exchange"] == entry.id


@four
def test_a_client_that_hangs_up(anywhere: Served, session: str, dialect: str, model: str) -> None:
    with streaming(
        anywhere, dialect, "[[tokens=300 slow=0.05]]", session=session, model=model
    ) as it:
        for data in it:
            if "word" in data:
                break
    until(lambda: len(anywhere.entries("EXCHANGE", session)) == 1)
    entry = anywhere.exchange(session)
    _arrived(entry, "CANCELLED")
    assert 1 <= len(entry.metadata["response"].split()) < 250


@four
def test_a_key_that_is_revoked_ends_its_streams(
    anywhere: Served, session: str, dialect: str, model: str
) -> None:
    key = anywhere.key()
    with streaming(
        anywhere, dialect, "[[tokens=300 slow=0.1]]", session=session, model=model, token=key.key
    ) as it:
        values: list[Any] = []
        for data in it:
            values.append(data if data == "[DONE]" else json.loads(data))
            if "word" in data and len(values) < 20 and "revoked" not in it.comments:
                anywhere.revoke(key)
                it.comments["revoked"] = str(time.monotonic())
    # A stream takes thirty seconds, an ended key half of one to be known.
    assert time.monotonic() - float(it.comments["revoked"]) < 15
    assert failed(values)
    assert not ended_well(values)
    told = json.dumps(values[-1])
    assert "The key was revoked" in told
    assert "invalid_api_key" in told or "authentication_error" in told
    until(lambda: len(anywhere.entries("EXCHANGE", session)) == 1)
    entry = anywhere.exchange(session)
    _arrived(entry, "CANCELLED")
    assert entry.metadata["error_message"] == "the caller's key was revoked or has expired"


@pytest.mark.parametrize("stream", [False, True])
def test_a_revoked_key_ends_its_background(anywhere: Served, session: str, stream: bool) -> None:
    key = anywhere.key()
    body = {"model": "claude-sonnet-4-5", "input": "hi [[delay=3 status=500]]",
            "background": True, "stream": stream}  # fmt: skip
    named = {"x-remit-session": session}
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(
            anywhere.ask, "POST", "/v1/responses", body, token=key.key, headers=named
        )
        until(lambda: len(anywhere.entries("DISPATCH", session)) == 1)
        if not stream:
            assert json.loads(asked.result()[1])["status"] == "queued"
        anywhere.revoke(key)
        status, raw, _ = asked.result()
    assert (status, b"invalid_api_key" in raw) == ((401, True) if stream else (200, False))
    until(lambda: len(anywhere.entries("EXCHANGE", session)) == 1)
    entry = anywhere.exchange(session)
    assert entry.metadata["error_code"] == "CANCELLED"
    assert entry.metadata["error_message"] == "the caller's key was revoked or has expired"
    assert len(anywhere.entries("DISPATCH", session)) == 1


def test_another_model_answers_until_the_first_byte(serve: Serve, upstream: Upstream) -> None:
    with serve(toml=FALLBACK) as served:
        for dialect in PATHS:
            session, before, text = new_session(), upstream.count(), "[[tokens=5 cut=1]]"
            model = _FALLING["cut"]
            with streaming(served, dialect, text, session=session, model=model) as it:
                values = it.values()
            assert failed(values)
            assert said(values).split() == ["word"]
            assert upstream.count() == before + 1
            _arrived(served.exchange(session), "SERVER_ERROR")
            session, before, model = new_session(), upstream.count(), _FALLING[dialect]
            text = f"hello [[fail_first=3 key={session}]]"
            with streaming(served, dialect, text, session=session, model=model) as it:
                values = it.values()
            assert ended_well(values), values
            assert said(values).startswith("You said: hello")
            assert upstream.count() == before + 4
            *refused, last = served.entries("EXCHANGE", session)
            told = last.metadata
            assert [e.metadata["model_id"] for e in refused] == [model] * 3
            assert (told["model_id"], told["provider_id"], told["requested_model_id"]) == (
                "claude-sonnet-4-5", "anthropic", model,
            )  # fmt: skip
            assert (told["attempt"], told["retry_of"]) == (4, refused[-1].id)
            # The circuit of the first is open by now: the other is asked at once.
            later = new_session()
            with streaming(served, dialect, "hi", session=later, model=model) as it:
                assert said(it.values()) == "You said: hi"
            assert served.exchange(later).metadata["model_id"] == "claude-sonnet-4-5"


def test_the_gateway_keeps_the_time(serve: Serve) -> None:
    toml = "\n[gateway]\ntimeout_ms = 700\nidle_timeout_ms = 700\nmax_retries = 0\n"
    with serve(toml=toml) as served:
        for dialect in PATHS:
            session = new_session()
            status, body, _ = served.call(dialect, "[[hang]]", session=session)
            assert status == 504, body
            told = served.exchange(session).metadata
            assert (told["outcome"], told["error_code"]) == ("timeout", "TIMEOUT")
            assert told["cost_certainty"] == "upper_bound"
            session = new_session()
            with streaming(served, dialect, "[[tokens=5 slow=9]]", session=session,
                           model="claude-sonnet-4-5") as it:  # fmt: skip
                assert it.status == 504 or failed(it.values())
            told = served.exchange(session).metadata
            assert (told["outcome"], told["error_code"]) == ("timeout", "TIMEOUT")
            # What goes on is not cut, however long it takes.
            session = new_session()
            with streaming(served, dialect, "[[tokens=25 slow=0.06]]", session=session,
                           model="claude-sonnet-4-5") as it:  # fmt: skip
                assert said(it.values()).split() == ["word"] * 25
            assert served.exchange(session).metadata["latency_ms"] > 1400


def test_a_revoked_key_ends_in_every_worker(
    database: str, upstream: Upstream, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    with serving(root, upstream.url, "--workers", "2", toml=QUICK, database=database) as served:
        key, session = served.key(), new_session()
        texts = [f"{number} [[delay=25]]" for number in range(8)]
        with ThreadPoolExecutor(len(texts)) as pool:
            asked = [
                pool.submit(served.call, "openai", text, session=session, token=key.key)
                for text in texts
            ]
            until(lambda: len(served.entries("DISPATCH", session)) == len(texts))
            served.revoke(key)
            begun = time.monotonic()
            answers = [one.result() for one in asked]
        assert time.monotonic() - begun < 15
        assert {status for status, _, _ in answers} == {401}
        codes = [entry.metadata["error_code"] for entry in served.entries("EXCHANGE", session)]
        assert codes == ["CANCELLED"] * len(texts)


def test_a_client_that_stops_reading_and_half_a_tool_call(tmp_path: Path) -> None:
    toml = f"{QUICK}\n[server]\nbody_timeout_s = 1.0\n"
    with wire.serve({}) as behind, serving(tmp_path / "root", behind.url, toml=toml) as served:
        said = wire.completion_stream(wire.completion("hello " + "x" * 65_536)).chunks
        behind.script = [wire.Raw(content_type="text/event-stream", chunks=said[:-1] * 300)]
        session = new_session()
        call = served.request(prompt(stream=True), f"x-remit-session: {session}")
        with served.connected(call):
            until(lambda: len(served.entries("EXCHANGE", session)) == 1)
        entry = served.exchange(session)
        _arrived(entry, "CANCELLED")
        assert entry.metadata["error_message"] == "the caller stopped reading the answer"
        assert entry.metadata["response"].startswith("hello x")
        half: dict[str, Any] = {"index": 0, "id": "c", "type": "function"}
        half["function"] = {"name": "rm", "arguments": '{"path": "/tm'}
        chunk = {"id": "x", "object": "chat.completion.chunk", "model": "gpt-4o"}
        for reason in (None, "length"):  # Half a call before the end is no success.
            choice = {"index": 0, "delta": {"tool_calls": [half]}, "finish_reason": reason}
            events = wire.sse([{**chunk, "choices": [choice]}])
            behind.script = [
                wire.Raw(content_type="text/event-stream", chunks=[*events, b"data: [DONE]\n\n"])
            ] * 9
            session = new_session()
            _, raw, _ = served.call("openai", "rm", model="gpt-4o", session=session, stream=True)
            outcome = served.entries("EXCHANGE", session)[0].metadata["outcome"]
            assert outcome == ("error" if reason is None else "success")
            assert (b'"error"' in raw) is (reason is None)


_TEXT = "[[tokens=900 slow=0.02]]"
_CHAT: dict[str, Any] = {"max_tokens": 900, "messages": [{"role": "user", "content": _TEXT}]}
_GEMINI = {"contents": [{"role": "user", "parts": [{"text": _TEXT}]}]}
_GPT, _CLAUDE = "gpt-4o-mini", "claude-sonnet-4-5"
_STREAMED = "/v1beta/models/{}:streamGenerateContent?alt=sse"
_TRANSLATED: dict[str, tuple[str, dict[str, Any]]] = {
    "chat to messages": ("/v1/chat/completions", {"model": _CLAUDE, "stream": True, **_CHAT}),
    "messages to chat": ("/v1/messages", {"model": _GPT, "stream": True, **_CHAT}),
    "responses to messages": ("/v1/responses", {"model": _CLAUDE, "stream": True, "input": _TEXT}),
    "gemini to messages": (_STREAMED.format(_CLAUDE), _GEMINI),
    "gemini to chat": (_STREAMED.format(_GPT), _GEMINI),
}
_ROUNDS = 10 if is_soak() else 1


@pytest.mark.soak
@pytest.mark.parametrize("path", sample(_TRANSLATED, 2))
def test_a_kill_within_a_translated_stream_loses_nothing(
    path: str, database: str, upstream: Upstream, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    sessions = [new_session() for _ in range(_ROUNDS)]
    for number, session in enumerate(sessions):
        with (
            serving(root, upstream.url, toml=QUICK, database=database, checked=False) as served,
            closing(http.client.HTTPConnection(*served.address, timeout=60)) as connection,
        ):
            where, body = _TRANSLATED[path]
            named = {"authorization": f"Bearer {served.token}", "x-remit-session": session}
            named["content-type"] = "application/json"
            connection.request("POST", where, json.dumps(body).encode(), named)
            with connection.getresponse() as reply:
                assert reply.status == 200, reply.read()
                left = 3 + 7 * number  # every round dies later in its stream
                while left:
                    line = reply.readline()
                    assert line, "the stream ended before the kill"
                    left -= line.startswith(b"data: ")
                assert [one.decision for one in served.entries("DISPATCH", session)] == [
                    "DISPATCHED"
                ]
                served.kill()
    # A server that is started again settles what the killed ones left, and is checked as it ends.
    with serving(root, upstream.url, toml=QUICK, database=database) as again:
        assert again.call("openai", "hi")[0] == 200
        for session in sessions:
            (orphan,) = again.entries("EXCHANGE_ORPHANED", session)
            (dispatch,) = again.entries("DISPATCH", session)
            assert orphan.metadata["dispatch_entry_id"] == dispatch.id
            assert again.entries("EXCHANGE", session) == []
    print(f"{path} on {database or 'SQLite'}: {_ROUNDS} kills, entries missing 0")


def test_a_key_that_is_revoked_ends_its_calls(anywhere: Served, session: str) -> None:
    key = anywhere.key()
    with ThreadPoolExecutor() as pool:
        text = "hi [[delay=20]]"
        asked = pool.submit(anywhere.call, "openai", text, session=session, token=key.key)
        until(lambda: len(anywhere.entries("DISPATCH", session)) == 1)
        anywhere.revoke(key)
        begun = time.monotonic()
        status, raw, _ = asked.result()
    assert time.monotonic() - begun < 15
    assert (status, b"invalid_api_key" in raw) == (401, True)
    assert anywhere.exchange(session).metadata["error_code"] == "CANCELLED"


def test_a_client_that_does_not_wait_for_a_whole_answer(
    anywhere: Served, upstream: Upstream, session: str
) -> None:
    before = upstream.count()
    named = f"x-remit-session: {session}"
    call = anywhere.request(prompt("[[delay=120]]"), named)
    with anywhere.connected(call):
        until(lambda: upstream.count() > before)
    until(lambda: len(anywhere.entries("EXCHANGE", session)) == 1)
    told = anywhere.exchange(session).metadata
    assert (told["error_code"], told["cost_certainty"]) == ("CANCELLED", "upper_bound")
    assert told["output_tokens"] == 9


@pytest.mark.any_store
def test_a_model_without_a_price_costs_no_zero(anywhere: Served, session: str) -> None:
    text, model = "[[cut=2 tokens=9]]", "gpt-unheard"
    with streaming(anywhere, "openai", text, session=session, model=model) as it:
        assert failed(it.values())
    assert "cost_usd" not in anywhere.exchange(session).metadata
    assert "x-remit-cost-usd" not in it.comments
