"""The start page: figures of two days, refusals in groups, and requests that wait for a person."""

from __future__ import annotations

import html
import re

from remit.agents import ApprovalQueue
from remit.agents.tools import tool
from tests.server.console.client import signed_in
from tests.server.running import Served, new_session


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
    assert re.search(r"Approvals <span[^>]*>\d+<", visitor.get("/console/spend").text)
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
    assert int(re.findall(r"<td[^>]*>([^<]*)</td>", rows[0][2])[0].replace(",", "")) >= 1
