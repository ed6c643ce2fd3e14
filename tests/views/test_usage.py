"""Usage as it is read: by time in any zone, by who and what, page by page, and why it fell back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from remit.gateway.auth import KeyStore
from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerClient, LedgerEntry
from remit.views import instant_of, read_fallbacks, read_usage
from tests.views.test_report import NOON, written

_START = datetime(2026, 3, 28, 12, tzinfo=UTC)


def _exchange(**metadata: Any) -> LedgerEntry:
    given = {
        "agent_id": "a", "session_id": "SES-1", "contract_id": "PRC-1", "outcome": "success",
        "input_tokens": 10, "output_tokens": 5, "model_id": "m", "cost_usd": 0.001,
        "cost_certainty": "measured", **metadata,
    }  # fmt: skip
    return LedgerEntry("EXCHANGE", "PRC-1", "SUCCESS", "Exchange completed", metadata=given)


def test_days_are_cut_at_the_midnight_of_their_zone(ledger: LedgerClient) -> None:
    for hours in range(0, 48):
        for minutes in (10, 50):
            at = _START + timedelta(hours=hours, minutes=minutes)
            with written(at - NOON):
                ledger.write(_exchange(cost_usd=0.001))
    for zone, days in {
        "UTC": {"2026-03-28": 24, "2026-03-29": 48, "2026-03-30": 24},
        # Half past six in the afternoon there, and quarter past six.
        "Asia/Kolkata": {"2026-03-28": 13, "2026-03-29": 48, "2026-03-30": 35},
        "Asia/Kathmandu": {"2026-03-28": 13, "2026-03-29": 48, "2026-03-30": 35},
        # On the 29th clocks go forward: that day has 23 hours.
        "Europe/Berlin": {"2026-03-28": 22, "2026-03-29": 46, "2026-03-30": 28},
    }.items():
        found = read_usage(ledger, by=["day"], time_zone=zone)
        assert {row.names["day"]: row.calls for row in found.rows} == days, zone
    hours_ = read_usage(
        ledger,
        by=["hour"],
        time_zone="Asia/Kolkata",
        since=_START,
        until=_START + timedelta(hours=2),
    )
    assert [(row.names["hour"], row.calls) for row in hours_.rows] == [
        ("2026-03-28T17:00+05:30", 1), ("2026-03-28T18:00+05:30", 2), ("2026-03-28T19:00+05:30", 1),
    ]  # fmt: skip
    [week, month] = (read_usage(ledger, by=[name]).rows for name in ("week", "month"))
    assert [row.names["week"] for row in week] == ["2026-03-23", "2026-03-30"]
    assert [(row.names["month"], row.calls) for row in month] == [("2026-03", 96)]


def test_a_limit_keeps_the_latest_days(ledger: LedgerClient) -> None:
    for day in (0, 1, 402):  # The periods are read in two parts.
        for model, cost in (("cheap", 0.001), ("dear", 0.002)):
            with written(_START + timedelta(days=day) - NOON):
                ledger.write(_exchange(model_id=model, cost_usd=cost))
    until = _START + timedelta(days=403)
    for limit, days in ((1, ["2027-05-04"]), (2, ["2026-03-29", "2027-05-04"])):
        rows = read_usage(ledger, by=["day"], until=until, limit=limit).rows
        assert [row.names["day"] for row in rows] == days
    rows = read_usage(ledger, by=["day", "model"], until=until, limit=3).rows
    assert [(row.names["day"], row.names["model"]) for row in rows] == [
        ("2026-03-29", "dear"), ("2027-05-04", "dear"), ("2027-05-04", "cheap"),
    ]  # fmt: skip


def test_a_keys_calls_are_its_owners_and_what_is_sure_stands_apart(ledger: LedgerClient) -> None:
    with KeyStore(ledger) as keys:
        made = keys.create("chat", user_id="ann", team_id="search")
    ledger.write_many([
        _exchange(key_id=made.key_id),
        _exchange(key_id=made.key_id, cost_certainty="estimated", cost_usd=0.5),
        _exchange(user_id="ann", cost_certainty="upper_bound", cost_usd=2.0),
        _exchange(user_id="bob", cost_certainty="unpriced", cost_usd=None),
    ])  # fmt: skip
    ann, bob = read_usage(ledger, by=["user"]).rows
    assert (ann.names, ann.calls) == ({"user": "ann"}, 3)
    assert (ann.measured_nano, ann.estimated_nano, ann.upper_bound_nano) == (
        10**6, 5 * 10**8, 2 * 10**9,
    )  # fmt: skip
    assert (bob.nano, bob.unpriced_calls, bob.exact) == (0, 1, False)
    teams = read_usage(ledger, by=["team", "key"]).rows
    assert [(row.names, row.key_name) for row in teams] == [
        ({"team": "", "key": ""}, ""), ({"team": "search", "key": made.key_id}, "chat"),
    ]  # fmt: skip
    [mine] = read_usage(ledger, where={"team": "search"}).rows
    assert mine.calls == 2
    [none] = read_usage(ledger, where={"team": "nobody"}).rows
    assert (none.calls, none.nano, none.exact) == (0, 0, True)


def test_pages_hold_every_row_once(ledger: LedgerClient) -> None:
    for day in range(3):
        with written(_START + timedelta(days=day) - NOON):
            ledger.write_many([
                _exchange(session_id=f"SES-{n}", agent_id=f"a{n % 2}") for n in range(5)
            ])  # fmt: skip
    for by in (["day"], ["day", "session"], ["agent", "session"], ["session", "day"], ["hour"]):
        whole = read_usage(ledger, by=by, order="name")
        assert whole.more is None
        rows, after = [], None
        while True:
            page = read_usage(ledger, by=by, order="name", after=after, limit=2)
            assert len(page.rows) <= 2
            rows += page.rows
            if (after := page.more) is None:
                break
        assert rows == whole.rows
        assert sum(row.calls for row in rows) == 15
    dearest = read_usage(ledger, by=["session"], limit=2)
    assert (len(dearest.rows), dearest.more) == (2, None)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"by": ["colour"]}, "Cannot group by 'colour'"),
        ({"where": {"day": "x"}}, "Cannot group by 'day'"),
        ({"by": ["user"], "order": "name", "after": ["a", "b"]}, "cursor"),
        ({"by": ["day"], "order": "name", "after": ["1); DROP TABLE usage"]}, "cursor"),
        ({"by": ["day"], "time_zone": "Moon/Sea"}, "Unknown time zone"),
        ({"by": ["hour"], "since": datetime(1990, 1, 1, tzinfo=UTC)}, "periods"),
    ],
)
def test_what_cannot_be_read_says_why(
    ledger: LedgerClient, arguments: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        read_usage(ledger, **arguments)


def test_why_calls_fell_back_is_grouped_with_examples(ledger: LedgerClient) -> None:
    passed = [{"model_id": "big", "error_code": "TIMEOUT"}]
    ids = ledger.write_many(
        [_exchange(user_id="ann", fallback_from=passed) for _ in range(4)]
        + [_exchange(user_id="bob", session_id="SES-2", fallback_from=[
            {"model_id": "big", "error_code": "CIRCUIT_OPEN"}, *passed])]
        + [_exchange(user_id="ann"), _exchange(user_id="cyd", session_id="SES-3")]
    )  # fmt: skip
    [ann, bob] = [row for row in read_usage(ledger, by=["user", "model"]).rows if row.fallbacks]
    assert (ann.names["user"], ann.calls, ann.fallbacks) == ("ann", 5, 4)
    assert (bob.names, bob.fallbacks) == ({"user": "bob", "model": "m"}, 1)
    found = read_fallbacks(ledger, by=["user", "model"])
    assert (found.read, found.calls) == (5, 5)
    assert [one.to_dict() for one in found.reasons] == [
        {"user": "ann", "model": "m", "instead_of": "big", "code": "TIMEOUT", "calls": 4,
         "examples": [ids[3], ids[2], ids[1]]},
        {"user": "bob", "model": "m", "instead_of": "big", "code": "CIRCUIT_OPEN", "calls": 1,
         "examples": [ids[4]]},
        {"user": "bob", "model": "m", "instead_of": "big", "code": "TIMEOUT", "calls": 1,
         "examples": [ids[4]]},
    ]  # fmt: skip
    assert read_fallbacks(ledger, where={"user": "cyd"}).reasons == []
    nothing = read_fallbacks(ledger, until=datetime(2020, 1, 1, tzinfo=UTC))
    assert (nothing.read, nothing.calls) == (0, 0)


_NOW = datetime(2026, 3, 29, 23, 30, tzinfo=UTC)  # a Sunday; Monday in Berlin


@pytest.mark.parametrize(
    ("text", "zone", "instant"),
    [
        ("today", "Europe/Berlin", "2026-03-29T22:00+00:00"),
        ("yesterday", "Europe/Berlin", "2026-03-28T23:00+00:00"),
        ("Monday", "Europe/Berlin", "2026-03-29T22:00+00:00"),
        ("24h", "UTC", "2026-03-28T23:30+00:00"),
        ("2026-03-01", "Asia/Kolkata", "2026-02-28T18:30+00:00"),
        ("2026-03-01T10:00", "Europe/Berlin", "2026-03-01T09:00+00:00"),
        ("2026-03-01T10:00Z", "Europe/Berlin", "2026-03-01T10:00+00:00"),
        ("now", "Europe/Berlin", "2026-03-29T23:30+00:00"),
    ],
)
def test_what_people_call_a_time(text: str, zone: str, instant: str) -> None:
    assert instant_of(text, zone, _NOW) == datetime.fromisoformat(instant)
