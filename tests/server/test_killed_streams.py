"""``kill -9`` within a translated stream: nothing is lost, and the next server settles the call."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.server.conftest import QUICK
from tests.server.running import new_session, serving
from tests.support.postgres import PostgresServer
from tests.support.soak import is_soak, sample
from tests.support.upstream import Upstream

_TEXT = "[[tokens=900 slow=0.02]]"
_CHAT: dict[str, Any] = {"max_tokens": 900, "messages": [{"role": "user", "content": _TEXT}]}
_GEMINI = {"contents": [{"role": "user", "parts": [{"text": _TEXT}]}]}
_GPT, _CLAUDE = "gpt-4o-mini", "claude-sonnet-4-5"
_STREAMED = "/v1beta/models/{}:streamGenerateContent?alt=sse"
PATHS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat to messages": ("/v1/chat/completions", {"model": _CLAUDE, "stream": True, **_CHAT}),
    "messages to chat": ("/v1/messages", {"model": _GPT, "stream": True, **_CHAT}),
    "responses to messages": ("/v1/responses", {"model": _CLAUDE, "stream": True, "input": _TEXT}),
    "gemini to messages": (_STREAMED.format(_CLAUDE), _GEMINI),
    "gemini to chat": (_STREAMED.format(_GPT), _GEMINI),
}
_ROUNDS = 10 if is_soak() else 1


@pytest.mark.soak
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
@pytest.mark.parametrize("path", sample(PATHS, 2))
def test_a_kill_within_a_translated_stream_loses_nothing(
    path: str, store: str, upstream: Upstream, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    database = ""
    if store == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        database = server.database()
    root = tmp_path / "root"
    sessions = [new_session() for _ in range(_ROUNDS)]
    for number, session in enumerate(sessions):
        with (
            serving(root, upstream.url, toml=QUICK, database=database, checked=False) as served,
            closing(http.client.HTTPConnection(*served.address, timeout=60)) as connection,
        ):
            where, body = PATHS[path]
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
    print(f"{path} on {store}: {_ROUNDS} kills, entries missing 0")
