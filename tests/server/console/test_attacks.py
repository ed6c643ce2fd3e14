"""The console under attack: what it is sent and asked for that no browser of ours would send."""

from __future__ import annotations

import http.client
import re
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from remit.ledger import LedgerEntry
from tests.server.conftest import Serve
from tests.server.console.client import Stream, Visitor, signed_in
from tests.server.running import Served, new_session, serving
from tests.support.upstream import Upstream

PAIRS = '[approvals.tools."refund"]\npeople = 2\n'
LONG = "x" * 1_000_000


@pytest.fixture(scope="module")
def desk(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server on whose ledger tests write by hand, where two people grant a refund."""
    with serving(
        tmp_path_factory.mktemp("desk") / "root", upstream.url, toml=PAIRS, checked=False
    ) as desk:
        yield desk


@pytest.mark.parametrize(
    "place", ["/console/\u2603", "/console/\r\nset-cookie: a=b", "/console/\x00", "/console/a b"]
)
def test_a_login_leads_only_to_what_a_header_can_hold(served: Served, place: str) -> None:
    answered = Visitor(served).try_key(served.key(role="auditor").key, place)
    assert answered.status == 303
    assert re.fullmatch(r"/console/[!-~]+", answered.headers["location"])
    assert answered.headers["set-cookie"].startswith("remit_console_")


def test_no_odd_origin_is_taken_and_a_login_holds_beside_any_cookie(served: Served) -> None:
    visitor, key = signed_in(served), served.key(role="auditor").key
    token = visitor.form_token()
    for origin in ("http://[", "null", "https://"):
        assert visitor.post("/console/verify", {"token": token}, origin=origin).status == 403
        assert Visitor(served).post("/console/login", {"key": key}, origin=origin).status == 403
    login = visitor.cookie
    for others in ("a b=1; {}", '{{"a":1}}; {}', 'foo="bar; {}', "expires=Thu; {}",
                   "{}; =; \xff=\xfe"):  # fmt: skip
        visitor.cookie = others.format(login)
        assert visitor.get("/console/sessions").status == 200, others


def test_two_roots_on_one_host_keep_their_logins_apart(
    served: Served, serve: Serve, upstream: Upstream, tmp_path: Path
) -> None:
    with serving(tmp_path / "other", upstream.url) as other:
        one, two = signed_in(served), signed_in(other)
        assert one.cookie.partition("=")[0] != two.cookie.partition("=")[0]
        both = f"{one.cookie}; {two.cookie}"
        one.cookie, two.cookie = two.cookie, one.cookie
        assert one.get("/").status == two.get("/").status == 303
        one.cookie = two.cookie = both
        assert one.get("/").status == two.get("/").status == 200


def test_methods_that_no_page_takes_are_refused(served: Served) -> None:
    visitor = signed_in(served)
    for method, path in (("PUT", "/console/login"), ("DELETE", "/console/login"),
                         ("HEAD", "/console/live"), ("POST", "/console/live"),
                         ("PUT", "/")):  # fmt: skip
        assert visitor.ask(method, path).status == 405, (method, path)
    assert visitor.get("/console").headers["location"] == "/"


def test_a_server_ends_at_once_under_the_eyes_of_a_viewer(serve: Serve) -> None:
    with serve(toml="[server]\ndrain_s = 50\n") as served:
        visitor = signed_in(served)
        with closing(Stream(served, visitor.cookie)) as stream:
            served.process.send_signal(signal.SIGTERM)
            while stream.reply.readline():
                pass
            served.process.wait(40)
        assert "did not end in time" not in served.errors.read_text()


def test_a_viewer_keeps_the_place_when_strangers_fill_the_server(serve: Serve) -> None:
    with serve(toml="[server]\nmax_connections = 20\n") as served:
        visitor = signed_in(served)
        with closing(Stream(served, visitor.cookie)) as stream:
            strangers = [http.client.HTTPConnection(*served.address) for _ in range(60)]
            for one in strangers:
                one.connect()
            served.call("openai", "hi")
            assert stream.rows()
            for one in strangers:
                one.close()


def test_one_key_does_not_take_all_places(serve: Serve) -> None:
    with serve(toml="[server]\nmax_connections = 8\n") as served:
        visitor = signed_in(served)
        streams = [Stream(served, visitor.cookie) for _ in range(6)]
        assert [one.reply.status for one in streams] == [200] * 6
        with closing(Stream(served, visitor.cookie)) as more:
            assert more.reply.status == 429
            assert more.reply.headers["retry-after"]
        for one in streams:
            one.close()


def _asked(served: Served, arguments: object) -> str:
    session = new_session()
    return served.ledger.write(
        LedgerEntry("APPROVAL_REQUESTED", session, "APPROVAL_REQUESTED", "x", metadata={
            "provenance": {"agent_id": "clerk", "agent_class": "OPERATOR", "session_id": session},
            "tool_id": "refund", "arguments": arguments, "idempotency_key": session,
            "kind": "approval", "parameters": {"type": "object"}})
    )  # fmt: skip


def test_the_second_of_two_people_grants_what_the_first_changed(desk: Served) -> None:
    first, second, third = (signed_in(desk, user=name) for name in ("ann", "bob", "cid"))
    request = _asked(desk, {"order": 12, "note": "\u202e\x9b"})
    path = f"/console/approvals/{request}"
    late = third.form_of(path)
    form = {**first.form_of(path), "verdict": "grant"}
    assert "\\u202e\\u009b" in form["arguments"]  # JSON, and visible
    assert first.post(path, {**form, "arguments": '{"order": NaN}'}).status == 400
    assert first.post(path, {**form, "arguments": '{"order": 13}'}).status == 303
    stale = third.post(path, {**late, "verdict": "grant"})
    assert stale.status == 409
    assert "arguments changed after the page was loaded" in stale.text
    assert second.post(path, {**second.form_of(path), "verdict": "grant"}).status == 303
    (granted,) = desk.ledger.query(event_type="APPROVAL_GRANTED", submission_id=request)
    assert granted.metadata["arguments"] == {"order": 13}


def test_arguments_that_were_erased_are_said_to_be(desk: Served) -> None:
    request, visitor = _asked(desk, {"a": "secret"}), signed_in(desk)
    entry = desk.ledger.read(request)
    desk.ledger.erase(session_id=entry.submission_id, reason="asked for")
    path = f"/console/approvals/{request}"
    assert "[erased under LED-" in visitor.get(path).text
    form = visitor.form_of(path)
    assert visitor.post(path, {**form, "verdict": "grant"}).status == 409
    assert visitor.post(path, {**form, "verdict": "deny"}).status == 303


def test_no_page_grows_with_what_was_recorded(desk: Served) -> None:
    session, visitor = new_session(), signed_in(desk)
    about = {"provenance": {"agent_id": "a", "session_id": session}, "tool_id": "t"}
    for _ in range(20):
        desk.ledger.write(LedgerEntry("TOOL_CALL", session, "OK", "x", metadata={
            **about, "status": "ok", "arguments": {"a": LONG}, "result": LONG}))  # fmt: skip
    turn = desk.ledger.write(LedgerEntry("TURN_RECORDED", session, "RECORDED", "x", metadata={
        **about, "turn_number": 1, "user_message": LONG, "response": LONG}))  # fmt: skip
    for view in (f"sessions/{session}", f"journey/{turn}"):
        shown = visitor.get(f"/console/{view}").text
        assert "more characters" in shown
        assert len(shown) < 3_000_000


def test_spend_reads_any_range_or_says_what_it_cannot_read(served: Served) -> None:
    served.call("openai", "hi")
    visitor = signed_in(served)
    for query in ("since=0001-01-01", "since=0001-01-01&zone=America/New_York", "until=9999-12-31",
                  "since=2016-01-01", "since=99999w", "since=9999-12-31"):  # fmt: skip
        shown = visitor.get(f"/console/spend?{query}")
        assert (shown.status, "1970" in shown.text) == (200, False), query
    for query in ("zone=Nonsense", "zone=../../etc/passwd", "since=%00", "since=9999999w&zone=%ff"):
        assert visitor.get(f"/console/spend?{query}").status == 400, query
