"""Coding agents whose recorded session is replayed: nothing is sent to a provider, bytes are equal.

The program runs again in a new home, in a directory of the same path.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from tests.clients.programs.test_programs import BIN
from tests.clients.programs.test_sessions import (
    Session,
    play_claude,
    play_codex,
    relay,
    require,
)
from tests.server.running import Served, serving
from tests.server.test_replay import replaying
from tests.support.strict.running import running

_TOML = "[gateway]\nrecord_streams = true\n"
_HEADER = re.compile(rb"HTTP/1\.1 101 .*?\r\n\r\n", re.DOTALL)
Play = Callable[[Path, Session, str], None]


class _Bytes(io.BytesIO):
    """Bytes that came from a socket, for :class:`http.client.HTTPResponse`."""

    def makefile(self, mode: str) -> Any:
        return self

    def close(self) -> None:
        """Stay open for the next answer."""


def _messages(data: bytes) -> Iterator[bytes]:
    """Yield the bodies of HTTP answers and the messages of a WebSocket, as a server sent them."""
    if data.startswith(b"HTTP/1.1 101 "):
        rest = data[_HEADER.match(data).end() :]  # type: ignore[union-attr]
        while len(rest) > 1:
            size, at = rest[1], 2
            if size >= 126:
                at += 2 if size == 126 else 8
                size = int.from_bytes(rest[2:at], "big")
            if rest[0] == 0x81:  # a whole text message
                yield rest[at : at + size]
            rest = rest[at + size :]
        return
    connection: Any = _Bytes(data)
    while connection.tell() < len(data):
        answer = HTTPResponse(connection)
        answer.begin()
        if not data[connection.tell() :] or data.startswith(b"HTTP/1.1 ", connection.tell()):
            continue  # an answer to HEAD
        content = answer.read()
        if answer.headers.get("x-remit-dispatch"):
            yield content


def _of_calls(messages: list[bytes]) -> list[bytes]:
    """Return the messages without those by which Remit itself answers ``generate: false``."""
    own = {
        response["id"]
        for one in messages
        if one.startswith(b"{") and (response := json.loads(one).get("response"))
        if (response["status"], response["usage"], response["output"]) == ("completed", None, [])
    }
    return sorted(one for one in messages if not any(name.encode() in one for name in own))


@pytest.mark.parametrize(("program", "play"), [("codex", play_codex), ("claude", play_claude)])
def test_a_session_is_replayed(tmp_path: Path, program: str, play: Play) -> None:
    path, place = require(BIN / program), tmp_path / "place"

    def run(served: Served) -> list[bytes]:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        lines: list[bytes] = []
        answers: list[bytearray] = []
        with relay(served.address, lines, answers) as url:
            session = Session(served, place, CODEX_API_KEY=served.token, ANTHROPIC_BASE_URL=url,
                              ANTHROPIC_API_KEY=served.token)  # fmt: skip
            play(path, session, url)
        return _of_calls([one for data in answers for one in _messages(bytes(data))])

    with running() as url, serving(tmp_path / "root", url, toml=_TOML) as served:
        recorded = run(served)
        calls = list(served.ledger.query(event_type="EXCHANGE"))
        (session,) = {call.metadata["session_id"] for call in calls}
        with urllib.request.urlopen(f"{url}/count", timeout=30) as answer:
            sent = json.load(answer)
        with replaying(served, session, any_results=program == "codex") as (replay, recording):
            replayed = run(replay)
            recording.finish()
        with urllib.request.urlopen(f"{url}/count", timeout=30) as answer:
            assert json.load(answer) == sent
    assert len(recording.replayed) == len(calls) > 2
    assert replayed == recorded != []
    print(f"{program}: {len(calls)} calls, {sum(map(len, replayed)):,} bytes equal, 0 sent")
