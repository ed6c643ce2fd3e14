"""The page of spending: a real time axis, two dimensions, and the time before."""

from __future__ import annotations

import html
import re
import time
from functools import partial
from itertools import pairwise

import pytest

from remit.ledger import LedgerEntry, Transaction
from remit.ledger.usage import INSERT, ON_CONFLICT, QUARTER_S
from tests.server.console.conftest import Inside

NOW = int(time.time()) // QUARTER_S
DAY = 96
NANO = 1_000_000_000


def _row(ago: int, key: str, model: str, certainty: str, nano: int) -> tuple[object, ...]:
    names = (key, "", "", "", "chat", "SES-1", "PRC-1", "p", model, certainty)
    return (NOW - ago, *names, 1, 0, 0, 10, 5, 0, 0, nano, 0)


@pytest.fixture(scope="module")
def spent(inside: Inside) -> Inside:
    """Two keys and two models: on one day of this week, on one of the week before.

    A hundred days ago, three days of spending, of which one is far above the others.
    """
    rows = [
        _row(3 * DAY, "KEY-A", "big", "measured", 2 * NANO),
        _row(3 * DAY, "KEY-A", "small", "upper_bound", NANO // 4),
        _row(3 * DAY, "KEY-B", "small", "measured", NANO // 1_000),
        _row(9 * DAY, "KEY-A", "big", "measured", NANO),
        _row(101 * DAY, "KEY-A", "big", "measured", NANO),
        _row(102 * DAY, "KEY-A", "big", "measured", 9_000 * NANO),
        _row(102 * DAY, "KEY-A", "small", "measured", 1_000 * NANO),
        _row(103 * DAY, "KEY-A", "big", "measured", 5 * NANO),
    ]

    def add(tx: Transaction) -> None:
        tx.execute_many(INSERT + ON_CONFLICT, rows)

    inside.ledger.transact(partial(add))
    return inside


def _page(inside: Inside, query: str) -> str:
    answer = inside.get(f"/console/spend?{query}")
    assert answer.status == 200
    return html.unescape(answer.text)


def test_money_is_exact_on_hover_and_compared_with_the_time_before(spent: Inside) -> None:
    page = _page(spent, "by=key")
    assert 'title="$2.251">$2.25<' in page
    assert 'title="$0.001"><$0.01<' in page  # KEY-B
    assert re.search(r'title="\$1\.00">\$1\.00</data> <small>\(\+125%\)', page)
    rows = {
        key: re.findall(r'<td class="num">([^<]*)</td>', row)
        for key, row in re.findall(r"<tr>.*?(KEY-\w).*?(<td class.*?)</tr>", page)
    }
    assert rows["KEY-A"][0] == "+125%"
    assert rows["KEY-B"][0] == "new"
    assert "<polyline" in page
    assert "<polyline" not in _page(spent, "since=24h")


def test_yesterday_begins_a_range_as_in_the_command_and_its_link_shows_the_end(
    spent: Inside,
) -> None:
    def ends(query: str) -> str:
        (end,) = re.findall(r"<span>[-\d :]+ to ([-\d :]+), UTC</span>", _page(spent, query))
        return end

    around = ends("since=24h"), ends("since=yesterday"), ends("since=24h")
    assert around[1] in (around[0], around[2])
    page = _page(spent, "by=key")
    assert 'href="?since=yesterday&until=today&by=key&' in page
    assert 'href="?since=today&by=key&' in page
    assert "(none)" not in page


def test_bars_stand_on_a_real_time_axis_and_are_stacked(spent: Inside) -> None:
    page = _page(spent, "by=key&stack=model")
    bars = re.findall(r'<rect class="([^"]+)" x="([\d.]+)"[^>]*><title>([^<]+)</title>', page)
    assert [style for style, _, _ in bars] == ["s0", "s1", "s1 unsure"]
    assert len({x for _, x, _ in bars}) == 1
    (place,) = {float(x) for _, x, _ in bars}
    # Seven or eight days, of which one has bars: the others are empty, not left out.
    wide = 960 / 8
    assert 3 * wide < place < 6 * wide
    assert bars[0][2].endswith(", big: $2.00")
    assert bars[2][2].endswith(", small: $0.25, not measured")
    certainty = _page(spent, "by=key")
    styles = re.findall(r'<rect class="([^"]+)"', certainty)
    assert styles == ["measured", "upper_bound"]
    long_range = _page(spent, "since=30d&by=key")
    marks = [float(x) for x in re.findall(r'<text x="([\d.]+)%"', long_range)]
    assert len({round(two - one, 1) for one, two in pairwise(marks)}) == 1


def test_unknown_names_count_as_the_default_and_days_are_those_of_the_zone(spent: Inside) -> None:
    for query in ("by=%00&stack=x", "by=session&stack=session", "since=24h&by=key"):
        page = _page(spent, query)
        assert "<h1>Spend</h1>" in page, query
        assert "option selected>certainty" in page, query
    page = _page(spent, "since=7d&zone=Asia/Kathmandu")
    assert re.search(
        r"\d{4}-\d\d-\d\d \d\d:\d\d to \d{4}-\d\d-\d\d \d\d:\d\d, Asia/Kathmandu", page
    )


def test_the_number_of_fallbacks_leads_to_exactly_these_calls(spent: Inside) -> None:
    passed = {"fallback_from": [{"model_id": "big", "error_code": "TIMEOUT"}]}
    calls = [
        spent.ledger.write(
            LedgerEntry("EXCHANGE", "SES-2", "SUCCESS", "ok", metadata={
                "session_id": "SES-2", "model_id": model, "outcome": outcome, **more})
        )
        for model, outcome, more in (
            ("spare", "success", passed), ("spare", "error", passed), ("spare", "success", {}),
            ("third", "success", passed),
        )
    ]  # fmt: skip
    for by, expected in (("model", calls[:2]), ("session", [*calls[:2], calls[3]])):
        (place,) = re.findall(
            rf'<a href="([^"]*{"spare" if by == "model" else "SES-2"}[^"]*)">{len(expected)}: why',
            _page(spent, f"by={by}&since=24h"),
        )
        listed = spent.get(place).text
        assert sorted(re.findall(r"/console/journey/(LED-\w+)", listed)) == expected
