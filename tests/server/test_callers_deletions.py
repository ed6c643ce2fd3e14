"""Erasures: by a caller's DELETE, and of an entry, session or person on every route."""

from __future__ import annotations

import contextlib
import json
import random
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from remit.ledger import Erased, ErasureError, LedgerClient, LedgerEntry
from tests.server.conftest import QUICK
from tests.server.erasing import CASES, CLAUDE, GPT, KEPT, Sender, cases, holds
from tests.server.running import Served
from tests.support.raw_provider import raw_provider, whole
from tests.support.soak import SEED, is_soak, sample

BEFORE = "strict"
RULES = "You are the assistant of the harbour office. Answer briefly, and name the berth."


@pytest.fixture(scope="module")
def served(anywhere: Served) -> Served:
    return anywhere


class Plain(Sender):
    """Calls of one key without any header of Remit's: key and day are their session."""

    def send(self, path: str, body: Any, **more: Any) -> Any:
        """Send a request; named sessions and persons are left out."""
        headers = {"x-remit-session": "", "x-remit-subject": "", **more.pop("headers", {})}
        return super().send(path, body, headers=headers, **more)


def values(ledger: LedgerClient) -> dict[tuple[str, str], str]:
    """Return every content value that can be read, by entry and key."""
    found: dict[tuple[str, str], str] = {}

    def add(entry: LedgerEntry, name: str, value: Any) -> None:
        if isinstance(value, (dict, list)):
            inner = value.items() if isinstance(value, dict) else enumerate(value)
            for key, item in inner:
                add(entry, f"{name}/{key}", item)
        elif not isinstance(value, Erased):
            found[entry.id, name] = str(value)

    for entry in ledger.query():
        if not entry.reason.startswith("[content erased"):
            found[entry.id, "reason"] = entry.reason
        add(entry, "", entry.metadata)
    return found


def _deletes(sender: Plain) -> list[tuple[str, list[str], Callable[[], None]]]:
    """Make one thing of each kind that a caller can delete: its name, its texts, its deletion."""
    made: list[tuple[str, list[str], Callable[[], None]]] = []

    def add(kind: str, path: str) -> None:
        texts = [*sender.marks]
        sender.marks.clear()
        made.append((kind, texts, lambda: sender.send(path, None, method="DELETE")))

    for model in (GPT, CLAUDE):
        answer = sender.send("/v1/responses", {"model": model, "instructions": RULES,
                                               "input": sender.say()})  # fmt: skip
        add(f"response of {model}", f"/v1/responses/{answer['id']}")
    first = sender.send("/v1/responses", {"model": GPT, "instructions": RULES,
                                          "input": "[[say shared]] a first question"})  # fmt: skip
    chained = sender.send("/v1/responses", {
        "model": CLAUDE, "instructions": RULES, "input": sender.say(),
        "previous_response_id": first["id"]})  # fmt: skip
    add("response that continues another", f"/v1/responses/{chained['id']}")
    items = [{"type": "message", "role": "user", "content": text}
             for text in (sender.mark(), sender.mark())]  # fmt: skip
    conversation = sender.send("/v1/conversations", {"items": items,
                                                     "metadata": {"a": sender.mark()}})  # fmt: skip
    path = f"/v1/conversations/{conversation['id']}"
    listed = sender.send(f"{path}/items?order=asc", None, method="GET")["data"]
    texts, sender.marks[:] = sender.marks[:1], sender.marks[1:]
    first_item = f"{path}/items/{listed[0]['id']}"
    made.append(("item of a conversation", texts,
                 lambda: sender.send(first_item, None, method="DELETE")))  # fmt: skip
    add("conversation", path)
    raw = sender.mark().encode()
    file = sender.form("/v1/files", purpose="user_data", file=(f"{sender.mark()}.txt", raw))
    add("file", f"/v1/files/{file['id']}")
    params = {"model": CLAUDE, "max_tokens": 50, "system": RULES,
              "messages": [{"role": "user", "content": sender.say()}]}  # fmt: skip
    requests = [{"custom_id": sender.mark()[:64], "params": params}]
    batch = sender.send("/v1/messages/batches", {"requests": requests})
    path = f"/v1/messages/batches/{batch['id']}"
    sender.send(path, None, method="GET")
    add("message batch", path)
    return made


def _others(sender: Plain, number: int) -> None:
    """Make calls in every dialect with the same instructions as all others of the key."""
    asked = [{"role": "system", "content": RULES},
             {"role": "user", "content": f"Which berth has ship {number % 3}?"}]  # fmt: skip
    sender.send("/v1/chat/completions", {"model": GPT, "messages": asked})
    sender.send("/v1/messages", {"model": CLAUDE, "max_tokens": 50, "system": RULES,
                                 "messages": asked[1:]})  # fmt: skip
    sender.send("/v1/responses", {"model": GPT, "instructions": RULES,
                                  "input": asked[1]["content"]})  # fmt: skip


KINDS = [
    "response of gpt-4o-mini", "response of claude-sonnet-4-5", "response that continues another",
    "item of a conversation", "conversation", "file", "message batch",
]  # fmt: skip


@pytest.mark.soak
@pytest.mark.parametrize("kind", sample(KINDS, 1))
def test_other_calls_lose_nothing(served: Served, kind: str) -> None:
    sender = Plain(served, served.key().key)
    for number in range(12 if is_soak() else 2):
        _others(sender, number)
    made = {name: (texts, delete) for name, texts, delete in _deletes(sender)}
    texts, delete = made[kind]
    assert [text for text in texts if holds(served, text)], "the case shows nothing"
    before = values(served.ledger)
    delete()
    after = values(served.ledger)
    lost = {place: text for place, text in before.items() if place not in after}
    of_others = {place: text for place, text in lost.items()
                 if not _is_of(served.ledger, place[0], texts)}  # fmt: skip
    assert lost
    assert of_others == {}
    assert {text: found for text in texts if (found := holds(served, text))} == {}
    for name, (kept, _) in made.items():
        if name != kind and name != "item of a conversation":
            assert all(holds(served, text) for text in kept if text in before.values()), name
    print(f"DELETE of a {kind}: {len(lost)} values erased, lost by other calls 0")


def _is_of(ledger: LedgerClient, entry_id: str, texts: list[str]) -> bool:
    """Return True if an entry was withdrawn by the last deletion."""
    (erasure,) = ledger.query(event_type="ERASURE", order="desc", limit=1)
    named = erasure.metadata["withdrawn"]
    return entry_id in named or not named


def test_five_chats_survive_the_deletion_of_a_response(served: Served) -> None:
    sender = Plain(served, served.key().key)
    asked = [f"Which berth has the ship number {number}?" for number in range(5)]
    for text in asked:
        messages = [{"role": "system", "content": RULES}, {"role": "user", "content": text}]
        sender.send("/v1/chat/completions", {"model": GPT, "messages": messages})
    answer = sender.send("/v1/responses", {"model": GPT, "instructions": RULES, "input": "Berth?"})
    before = values(served.ledger)
    sender.send(f"/v1/responses/{answer['id']}", None, method="DELETE")
    lost = {entry for entry, _ in before.keys() - values(served.ledger).keys()}
    assert len(lost) == 1  # the response's own exchange
    kept = [*values(served.ledger).values()]
    assert [text for text in asked if text in kept] == asked
    sender.send(f"/v1/responses/{answer['id']}", None, method="GET", status=404)
    sender.send(f"/v1/responses/{answer['id']}", None, method="DELETE", status=404)


@pytest.mark.soak
@pytest.mark.parametrize("seed", sample(range(SEED, SEED + 6), 1))
def test_what_all_share_goes_with_the_last_of_them(served: Served, seed: int) -> None:
    """Responses with the same words, deleted in any order."""
    chance, sender = random.Random(seed), Plain(served, served.key().key)
    shared = sender.mark()
    body = {"model": CLAUDE, "instructions": shared, "input": f"[[say yes]] {shared}?"}
    ids = [sender.send("/v1/responses", body)["id"] for _ in range(4)]
    chance.shuffle(ids)
    for name in ids:
        assert holds(served, shared)
        sender.send(f"/v1/responses/{name}", None, method="DELETE")
    assert holds(served, shared) == []


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
