"""The list of calls: filters, sorting, CSV, hostile values, and its cost in a large ledger."""

from __future__ import annotations

import csv
import io
import re
from urllib.parse import quote, urlencode

import pytest

from remit.gateway.auth import NewKey
from tests.server.console.client import Visitor, signed_in
from tests.server.running import Served, prompt

HOSTILE = ("<script>alert(1)</script>", "' OR 1=1 --", '"', "%00", "\u202e", "x" * 199, "=cmd()",
           "../..", "{{7*7}}", "\U0001f600", "*", "%", "_")  # fmt: skip


@pytest.fixture(scope="module")
def ann(served: Served) -> NewKey:
    return served.key(user="ann", usd_nano=10**12)


@pytest.fixture(scope="module")
def visitor(served: Served, ann: NewKey) -> Visitor:
    """An auditor who sees two calls of Ann, one of another key, and a refusal."""
    bob = served.key(user="bob", usd_nano=10**12, models=("claude*",))
    for key, words in ((ann, "the parrot sleeps"), (ann, "a second question"), (bob, "of bob")):
        status, raw, _ = served.ask("POST", "/v1/messages", _body(words), token=key.key)
        assert status == 200, raw
    refused = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "no"}]}
    status, raw, _ = served.ask("POST", "/v1/chat/completions", refused, token=bob.key)
    assert status in (403, 404), raw
    return signed_in(served, "auditor")


def _body(words: str) -> dict[str, object]:
    return prompt(words, model="claude-haiku-4-5")


def _rows(visitor: Visitor, **query: str) -> list[str]:
    shown = visitor.get(f"/console/calls?{urlencode(query)}")
    assert shown.status == 200, shown.text
    body = shown.text.partition("<tbody>")[2].partition("</tbody>")[0]
    return list(re.findall(r"<tr>.*?</tr>", body, re.DOTALL))


def test_filters(visitor: Visitor, ann: NewKey) -> None:
    assert len(_rows(visitor)) == 4
    assert len(_rows(visitor, key=ann.name)) == len(_rows(visitor, key=ann.key_id)) == 2
    assert len(_rows(visitor, user="bob")) == 2
    (refused,) = _rows(visitor, outcome="refused")
    assert "gpt-4o-mini" in refused
    assert _rows(visitor, model="gpt-4o-mini") == [refused]
    assert len(_rows(visitor, outcome="success")) == 3
    assert len(_rows(visitor, outcome="failed")) == 0
    assert len(_rows(visitor, word="parrot")) == 1
    assert len(_rows(visitor, word="parrot", user="bob")) == 0
    assert len(_rows(visitor, model="claude-haiku-4-5")) == 3
    assert len(_rows(visitor, provider="anthropic")) == 3
    assert len(_rows(visitor, min_usd="1000")) == 0
    assert len(_rows(visitor, since="1h", until="now")) == 4
    assert len(_rows(visitor, until="2020-01-01")) == 0
    assert len(_rows(visitor, user="nobody")) == 0


def test_every_row_links_to_its_journey_and_names_its_day(visitor: Visitor) -> None:
    for row in _rows(visitor, outcome="success"):
        link = re.search(
            r'href="(/console/journey/LED-\w+)"><time [^>]*>(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC<',
            row,
        )
        assert link
        assert visitor.get(link[1]).status == 200
    assert "Older" not in visitor.get("/console/calls").text
    assert visitor.get("/console/calls?min_usd=nan").status == 400


def test_sorting(visitor: Visitor) -> None:
    by_tokens = [
        int(found.replace(",", ""))
        for row in _rows(visitor, sort="tokens", outcome="success")
        for found in re.findall(r'<td class="num">([\d,]+) → ', row)
    ]
    assert by_tokens == sorted(by_tokens, reverse=True)
    assert len(by_tokens) == 3
    assert len(_rows(visitor, sort="cost")) == len(_rows(visitor, sort="duration")) == 4


def test_csv_without_formulas(served: Served, visitor: Visitor, ann: NewKey) -> None:
    def rows(query: str) -> list[dict[str, str]]:
        answered = visitor.get(f"/console/calls?format=csv&{query}")
        assert answered.headers["content-type"].startswith("text/csv")
        return list(csv.DictReader(io.StringIO(answered.text)))

    assert [row["key_id"] for row in rows("user=ann")] == [ann.key_id] * 2
    assert {row["outcome"] for row in rows("user=ann")} == {"success"}
    status, raw, _ = served.ask(
        "POST", "/v1/messages", _body("x"), headers={"x-remit-agent": "=HYPERLINK(1)"}
    )
    assert status == 200, raw
    (row,) = rows("agent=" + quote("=HYPERLINK(1)"))
    assert row["agent_id"] == "'=HYPERLINK(1)"


def test_hostile_values(visitor: Visitor) -> None:
    for name in (
        "since", "until", "zone", "key", "user", "team", "agent", "session", "model", "provider",
        "outcome", "error", "min_usd", "word", "sort", "before", "format",
    ):  # fmt: skip
        for value in HOSTILE:
            shown = visitor.get(f"/console/calls?{urlencode({name: value})}")
            assert shown.status in (200, 400), (name, value)
            assert not any(one in shown.text for one in ("<script>alert", "\u202e")), (name, value)
            assert shown.text != "49"
