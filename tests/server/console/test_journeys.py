"""The journey of a client's call with its attempts, and the page of a refused request."""

from __future__ import annotations

import html
import re

from tests.server.console.client import signed_in
from tests.server.running import Served, new_session

TOML = """
[gateway]
retry_base_ms = 5
retry_max_ms = 50
[gateway.fallbacks]
"openai/gpt-4o@status=500" = ["openai/gpt-4o-mini"]
"""


def _text(page: str) -> str:
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page)))


def test_a_call_shows_every_attempt_and_its_total_time(served: Served) -> None:
    session = new_session()
    status, raw, _ = served.call("openai", "hi", model="gpt-4o@status=500", session=session)
    assert status == 200, raw
    calls = served.entries("EXCHANGE", session)
    assert len(calls) > 1
    visitor = signed_in(served, "auditor")
    pages = [visitor.get(f"/console/journey/{one.id}").text for one in calls]
    for page, call in zip(pages, calls, strict=True):
        rows = re.findall(r"<tr><td>(\d+)</td>.*?</tr>", page)
        assert rows == [str(number + 1) for number in range(len(calls))]
        assert all(f"/console/journey/{one.id}" in page for one in calls)
        assert call.metadata["dispatch_entry_id"] in page
        assert "Total time" in page
        assert "did not answer: the provider failed" in _text(page)
        assert page.count('<article class="turn"') == 1
    dispatch = visitor.get(f"/console/journey/{calls[0].metadata['dispatch_entry_id']}").text
    assert f"Attempt {len(calls)} of {len(calls)}" in _text(dispatch)


def test_a_providers_error_is_no_message_of_the_assistant(served: Served) -> None:
    session, visitor = new_session(), signed_in(served, "auditor")
    assert served.call("openai", "no [[status=400]]", session=session)[0] == 400
    call = served.exchange(session)
    page = visitor.get(f"/console/journey/{call.id}").text
    line = r'<span class="who">(\w+)</span>\s*<div class="words">(.*?)</div>'
    said = dict(re.findall(line, page, re.DOTALL))
    assert "assistant" not in said
    assert "400 as ordered" in said["provider"]

    # The key that made the call is named.
    ((name,),) = served.ledger.select(
        "SELECT name FROM usage_keys WHERE key_id = ?", (call.metadata["key_id"],)
    )
    assert f'<dd title="{call.metadata["key_id"]}">{name}</dd>' in page


def test_one_attempt_has_no_table_and_a_refusal_is_a_short_page(served: Served) -> None:
    session, visitor = new_session(), signed_in(served, "auditor")
    served.call("openai", "hi", session=session)
    page = visitor.get(f"/console/journey/{served.exchange(session).id}").text
    assert 'id="attempts"' not in page
    assert "Total time" in page
    assert "0 work orders" not in _text(page)
    key, session = served.key(models=("claude*",), user="ann"), new_session()
    assert served.call("openai", "no", token=key.key, session=session)[0] == 403
    (refused,) = served.entries("PROMPT_REJECTED", session)
    page = visitor.get(f"/console/journey/{refused.id}").text
    said = _text(page.partition("<main")[2].partition("</main>")[0])
    assert "gpt-4o-mini" in said
    assert "Nothing was sent, reserved or charged." in said
    assert f"/console/keys/key/{key.key_id}" in page
    assert "/console/keys/user/ann" in page
    link = re.search(r'href="([^"]+)">Requests refused for the same reason', page)
    assert link
    assert refused.id in visitor.get(html.unescape(link[1])).text
    assert len(said) < 900
