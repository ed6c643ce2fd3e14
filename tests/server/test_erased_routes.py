"""Whatever route content came in by, an erasure of its entry, session or person finds it all."""

from __future__ import annotations

import contextlib
import json

import pytest

from remit.ledger import ErasureError
from tests.server.erasing import CASES, KEPT, Sender, cases, holds
from tests.server.running import Served
from tests.support.soak import sample

BEFORE = "strict"


@pytest.fixture(scope="module")
def served(anywhere: Served) -> Served:
    return anywhere


def test_every_route_has_a_case(served: Served) -> None:
    document = json.loads(served.ask("GET", "/api/openapi.json", token="")[1])
    posts = {path for path, methods in document["paths"].items() if "post" in methods}
    assert posts == CASES.keys() | KEPT.keys()


@pytest.mark.soak
@pytest.mark.parametrize(("route", "how"), sample(cases(), 5))
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
