"""The console over HTTP: who sees what, who may do what, and what no page gives away."""

from __future__ import annotations

import html
import json
import re
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import remit
from remit.agents import ApprovalQueue
from remit.agents.tools import tool
from remit.gateway.auth import ROLES, KeyStore
from remit.ledger import LedgerEntry
from tests.server.conftest import Serve
from tests.server.console.client import VIEWS, Stream, Visitor, signed_in
from tests.server.running import Served, new_session, serving
from tests.support.upstream import Upstream
from tests.support.waiting import until

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u202e\x1b[31m</pre></main>"


def test_every_view_asks_for_a_login_and_reads_with_a_key_that_may_read(anywhere: Served) -> None:
    anywhere.call("openai", "hi")
    visitor, auditor = Visitor(anywhere), signed_in(anywhere, "auditor")
    for path in VIEWS:
        asked = visitor.get(path)
        assert asked.status == 303, path
        place = asked.headers["location"]
        assert place.startswith("/console/login?next=")
        assert visitor.get(place).status == 200
        shown = auditor.get(path)
        assert (shown.status, '<main id="main">' in shown.text) == (200, True), path
        assert len(shown.text) < 100_000
        assert visitor.ask("HEAD", path).headers["location"] == place
        head = auditor.ask("HEAD", path)
        assert (head.status, head.text) == (200, "")
        assert int(head.headers["content-length"]) > 1000


def test_a_login_needs_a_key_that_may_read_and_its_cookie_holds_no_key(served: Served) -> None:
    visitor = Visitor(served)
    assert visitor.try_key("sk-remit-" + "x" * 43).status == 403
    assert visitor.try_key("").status == 403
    assert "<footer" not in visitor.get("/console/login").text
    agent = visitor.try_key(served.key(role="agent").key)
    assert agent.status == 403
    assert "set-cookie" not in agent.headers
    assert "agent" in agent.text
    key = served.key(role="auditor").key
    for place in ("https://example.com/", "//example.com", "/\\example.com", "x"):
        answered = visitor.try_key(key, place)
        assert answered.headers["location"] == "/", place
    cookie = answered.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert key not in cookie
    over_tls = visitor.post("/console/login", {"key": key}, x_forwarded_proto="https")
    assert "Secure" in over_tls.headers["set-cookie"]


def test_a_cookie_that_was_changed_or_made_up_is_none(served: Served) -> None:
    visitor = signed_in(served)
    good = visitor.cookie
    name = good.partition("=")[0]
    other = good[:-1] + ("A" if good[-1] != "A" else "B")
    for cookie in (other, f"{name}=e30.e30", f'{name}="', f"{name}=.",
                   good.replace(".", ".."), "x" * 5000):  # fmt: skip
        visitor.cookie = cookie
        assert visitor.get("/console/sessions").status == 303, cookie
    visitor.cookie = good
    assert visitor.get("/console/sessions").status == 200


@pytest.mark.parametrize("how", ["revoked", "rotated"])
def test_a_stolen_cookie_ends_with_its_key(served: Served, how: str) -> None:
    thief, made = Visitor(served), served.key(role="operator")
    thief.cookie = thief.try_key(made.key).headers["set-cookie"].partition(";")[0]
    assert thief.get("/").status == 200
    with closing(Stream(served, thief.cookie)) as stream, KeyStore(served.ledger) as keys:
        assert stream.reply.status == 200
        if how == "revoked":
            keys.revoke(made.key_id)
        else:
            keys.rotate(made.key_id)
        while stream.reply.readline():  # it ends with the login
            pass
    assert thief.get("/console/live").status == 401
    assert thief.get("/").status == 303
    assert thief.post("/console/verify", {"token": "x"}).status == 401


def test_a_form_of_another_site_changes_nothing(served: Served) -> None:
    visitor = signed_in(served)
    token = visitor.form_token()
    before = served.ledger.count()
    for form, headers in (
        ({}, {}),
        ({"token": "guessed"}, {}),
        ({"token": token}, {"sec_fetch_site": "cross-site"}),
        ({"token": token}, {"sec_fetch_site": "same-site"}),
        ({"token": token}, {"origin": "https://example.com"}),
        ({"token": signed_in(served).form_token()}, {}),
    ):
        answered = visitor.post("/console/verify", form, **headers)
        assert answered.status == 403, (form, headers)
    gates = served.ledger.query(after=before - 1)
    assert not [one for one in gates if one.event_type.startswith("GATE_")]


@pytest.mark.parametrize("role", ["auditor", "admin"])
def test_who_may_not_decide_cannot(served: Served, role: str) -> None:
    visitor = signed_in(served, role)
    answered = visitor.decide("/console/verify", {})
    assert answered.status == 403
    page = visitor.get("/console/verify").text
    assert "Check all gates now" not in page
    assert "remit gate check" not in page
    assert f"The role {role} can view results and check entries" in page
    assert 'Acceptance cases pass <code class="id">G4</code>' in page
    assert visitor.decide("/console/approvals/LED-00000001", {"verdict": "grant"}).status == 403
    adopted = visitor.decide("/console/proposals/PRP-0000/adopt", {"reason": "x"})
    assert adopted.status == (404 if "adopt" in ROLES[role] else 403)


def test_pages_are_no_ones_frame_and_run_no_script_but_ours(served: Served) -> None:
    for path in ("/", "/console/login", "/console/nothing"):
        headers = signed_in(served).get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"


def test_what_somebody_wrote_is_shown_and_never_obeyed(serve: Serve) -> None:
    with serve(checked=False) as served:  # of calls that no gateway made
        _show_hostile_entries(served)


def _show_hostile_entries(served: Served) -> None:
    session = new_session()
    served.call("openai", HOSTILE, session=session)
    named = {"session_id": session, "agent_id": HOSTILE}

    def write(event: str, about: str, **metadata: Any) -> str:
        return served.ledger.write(
            LedgerEntry(event, about, "SUCCESS", HOSTILE, metadata={**named, **metadata})
        )

    write("SESSION_START", session, provenance=named)
    write("ESCALATION", HOSTILE)
    write("TURN_RECORDED", session, provenance=named, turn_number=1, user_message=HOSTILE,
          response=HOSTILE)  # fmt: skip
    entry = write(
        "EXCHANGE", HOSTILE, model_id=HOSTILE, outcome=HOSTILE, error_code=HOSTILE,
        fallback_from=[{"model_id": HOSTILE, "error_code": HOSTILE}], contract_id=HOSTILE,
        prompt=HOSTILE, response=HOSTILE,
    )  # fmt: skip
    visitor = signed_in(served)
    pages = [*VIEWS, f"/console/sessions/{session}", f"/console/journey/{session}",
             f"/console/journey/{entry}", f"/console/why/{entry}", f"/console/verify/{entry}",
             "/console/sessions/%3Cscript%3E", "/console/find?id=%3Cscript%3E"]  # fmt: skip
    seen = 0
    for path in pages:
        shown = visitor.get(path)
        assert shown.status in (200, 303, 404), (path, shown.text)
        without = re.sub(
            r'<script (type="module" |type="application/json" )?[^>]*>', "", shown.text
        )
        assert "<script" not in without, path
        assert not any(one in shown.text for one in ("<img", "\u202e", "\x1b")), path
        seen += html.escape("<script>alert(1)") in shown.text
    assert seen >= 5


def test_what_there_is_not_or_is_too_long_is_said(served: Served) -> None:
    visitor = signed_in(served)
    for path in ("/console/nothing", "/console/sessions/SES-NONE", "/console/journey/LED-0ffffff0",
                 "/console/why/DEC-none", "/console/verify/LED-0ffffff0", "/console/verify/x",
                 "/console/proposals/PRP-ffff", "/console/static/../login.py",
                 "/console/journey/WO-NONE"):  # fmt: skip
        assert visitor.get(path).status == 404, path
    assert visitor.get("/console/approvals/LED-00000000").status in (404, 409)
    assert visitor.get("/console/sessions?before=nonsense").status in (400, 409)
    assert visitor.ask("DELETE", "/").status == 405
    assert visitor.post("/console/verify", {"token": "x" * 100_000}).status == 413
    refused = Visitor(served).post("/console/login", {"key": "x" * 100_000})
    assert (refused.status, refused.headers["connection"]) == (413, "close")


def test_new_calls_appear_by_themselves(anywhere: Served) -> None:
    visitor = signed_in(anywhere)
    with closing(Stream(anywhere, visitor.cookie)) as stream:
        assert stream.reply.status == 200
        assert stream.reply.headers["content-type"] == "text/event-stream"
        session = new_session()
        until(lambda: bool(anywhere.call("openai", HOSTILE, session=session)))
        found = anywhere.exchange(session)
        rows = stream.rows()
        while found.id not in [row["id"] for row in rows]:
            rows += stream.rows()
        (row,) = [row for row in rows if row["id"] == found.id]
        assert row["kind"] == "call"
        assert "gpt-4o-mini" in str(row["cells"])
        assert HOSTILE not in json.dumps(rows)


@tool
def pay_back(order: int) -> str:
    """Pay an order back."""
    return str(order)


def test_refusals_are_one_row_with_a_link_to_all_of_them(served: Served) -> None:
    key = served.key(models=("claude*",))
    asked = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "no"}]}
    for _ in range(12):
        assert served.ask("POST", "/v1/chat/completions", asked, token=key.key)[0] == 403
    visitor = signed_in(served)
    page = visitor.get("/").text
    (row,) = [one for one in re.findall(r"<tr>.*?</tr>", page, re.DOTALL) if key.name in one]
    assert ">12<" in row
    assert "gpt-4o-mini" in row
    link = re.search(r'href="(/console/calls[^"]*)"', row)
    assert link
    assert visitor.get(html.unescape(link[1])).text.count("/console/journey/LED-") == 12


def test_a_waiting_request_is_a_state_and_counted_on_every_page(served: Served) -> None:
    queue = ApprovalQueue(served.ledger)
    asked = queue.request(pay_back, {"order": 7}, session_id=new_session(), agent_id="shop")
    request = asked.request_id
    visitor = signed_in(served)
    assert request in visitor.get("/").text
    for path in ("/console/spend", "/console/nothing", "/console/journey/LED-ffffffff"):
        assert re.search(r"Approvals <span[^>]*>\d+<", visitor.get(path).text), path
    denied = visitor.decide(f"/console/approvals/{request}", {"verdict": "deny", "reason": "no"})
    assert denied.status == 303
    assert request not in visitor.get("/").text


def test_today_and_yesterday(served: Served) -> None:
    served.call("openai", "hi")
    page = signed_in(served).get("/").text
    rows = re.findall(
        r'<th scope="row"><a href="([^"]+)">(\w+)</a></th>(.*?)</tr>', page, re.DOTALL
    )
    assert [(html.unescape(link), day) for link, day, _ in rows] == [
        ("/console/calls?since=today&zone=UTC", "Today"),
        ("/console/calls?since=yesterday&until=today&zone=UTC", "Yesterday"),
    ]
    # The amount of a day links to that day alone.
    assert [re.findall(r"/console/spend[?]since=[^\"]*", row[2]) for row in rows] == [
        ["/console/spend?since=today&amp;by=key&amp;stack=model&amp;zone=UTC"],
        ["/console/spend?since=yesterday&amp;until=today&amp;by=key&amp;stack=model&amp;zone=UTC"],
    ]
    assert int(re.findall(r"<td[^>]*>([^<]*)</td>", rows[0][2])[0].replace(",", "")) >= 1


def _install_again(site: Path) -> None:
    """Replace files of a package below a running server, as pip does; templates of one are bad."""
    old = site / f"old-{len([*site.iterdir()])}"
    (site / "remit/server").rename(old)  # pip removes the old files after it wrote the new ones
    shutil.copytree(old, site / "remit/server")
    for file in (site / "remit/server").rglob("*.j2"):
        file.write_bytes(b"{{")


def test_an_installation_under_a_running_server_is_said(upstream: Upstream, tmp_path: Path) -> None:
    site = tmp_path / "site"
    shutil.copytree(Path(remit.__file__).parent, site / "remit")
    for is_loaded in (True, False):
        with serving(
            tmp_path / "root", upstream.url, "--workers", "1", environment={"PYTHONPATH": str(site)}
        ) as served:
            if is_loaded:
                visitor = signed_in(served)
                (site / "remit/server/app.py").touch()
                assert visitor.get("/").status == 200
                assert served.ask("GET", "/api/openapi.json")[0] == 200
            _install_again(site)
            for path in ("/", "/console/spend", "/api/budgets"):
                status, raw, headers = served.ask("GET", path)
                assert status == 503
                if path.startswith("/api"):
                    assert json.loads(raw)["error"]["code"] == "restart_needed"
                else:
                    assert headers["content-type"] == "text/html; charset=utf-8"
                    assert "unsafe-inline" not in headers["content-security-policy"]
                    assert b"<p>Remit was installed again after this server started." in raw
            assert served.call("openai", "still here")[0] == 200
