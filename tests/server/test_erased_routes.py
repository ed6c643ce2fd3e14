"""Whatever route content came in by, an erasure of its entry, session or person finds it all."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator

import pytest

from remit.ledger import ErasureError
from tests.server.conftest import QUICK
from tests.server.erasing import CASES, KEPT, Sender, cases, holds
from tests.server.running import Served
from tests.support.raw_provider import raw_provider, whole
from tests.support.soak import sample

BEFORE = "strict"
_GEMINI = """
[providers.gemini]
kind = "gemini"
base_url = "{url}/v1beta"
api_key = "AIza-upstream-key"
default_model = "gemini-2.5-flash"
"""


@pytest.fixture(scope="module")
def toml() -> Iterator[str]:
    """Settings with a second upstream, which answers every path of Gemini."""

    def answer(connection: socket.socket, path: str, raw: bytes) -> bool:
        candidate = {
            "content": {"parts": [{"text": "yes"}], "role": "model"},
            "finishReason": "STOP",
        }
        count = {"promptTokenCount": 9, "candidatesTokenCount": 1, "totalTokenCount": 10}
        body = {"candidates": [candidate], "usageMetadata": count, "totalTokens": 9,
                "embedding": {"values": [0.5]}, "embeddings": [{"values": [0.5]}]}  # fmt: skip
        connection.sendall(whole(json.dumps(body).encode()))
        return True

    with raw_provider() as gemini:
        gemini.answer = answer
        yield QUICK + _GEMINI.format(url=gemini.url)


@pytest.fixture(scope="module")
def served(anywhere: Served) -> Served:
    return anywhere


def test_every_route_has_a_case(served: Served) -> None:
    document = json.loads(served.ask("GET", "/api/openapi.json", token="")[1])
    posts = {path for path, methods in document["paths"].items() if "post" in methods}
    assert posts == CASES.keys() | KEPT.keys()


@pytest.mark.soak
@pytest.mark.parametrize(("route", "how"), sample(cases(), 3))
def test_no_byte_is_left(served: Served, route: str, how: str) -> None:
    sender = Sender(served, served.token)
    CASES[route](sender)
    sessions = {sender.session, *sender.sessions}
    ledger = served.ledger
    before = [mark for mark in sender.marks if holds(served, mark)]
    assert before, "no mark was recorded: the case shows nothing"
    if how == "subject":
        ledger.erase(subject_id=sender.subject, reason="a test")
    for session in sessions if how == "session" else ():
        with contextlib.suppress(ErasureError):  # an order has a session of its own
            ledger.erase(session_id=session, reason="a test")
    for session in sessions if how == "entry" else ():
        for entry in list(ledger.query(session_id=session)):
            with contextlib.suppress(ErasureError):  # a DISPATCH has no content
                ledger.erase(entry.id, reason="a test")
    left = {mark: found for mark in [*sender.marks, sender.subject]
            if (found := holds(served, mark))}  # fmt: skip
    assert left == {}
    print(f"{route} by {how}: {len(before)} texts recorded, bytes left 0")
