"""The pages of keys and budgets: what they show, and their forms, which operations declare."""

from __future__ import annotations

import html
import re
from urllib.parse import quote, urlencode

import pytest

from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter
from tests.server.console.client import Visitor, signed_in
from tests.server.console.test_calls import HOSTILE
from tests.server.running import Served, prompt
from tests.support.waiting import until


@pytest.fixture(scope="module")
def visitor(served: Served) -> Visitor:
    return signed_in(served)


def _text(page: str) -> str:
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", page)))


def _row(page: str, name: str) -> str:
    (found,) = [
        one for one in re.findall(r"<tr>.*?</tr>", page, re.DOTALL) if f">{name}</a>" in one
    ]
    return found


def test_a_row_has_limit_spent_remaining_and_last_use(served: Served, visitor: Visitor) -> None:
    key = served.key(usd_nano=2_000_000_000, user="ann")
    assert "never" in _row(visitor.get("/console/keys").text, key.name)
    assert served.ask("POST", "/v1/messages", _call(), token=key.key)[0] == 200
    row = _row(visitor.get("/console/keys").text, key.name)
    assert re.search(r"\$0.01 spent, \$\d\.\d\d remaining of \$2.00", _text(row))
    assert 'title="$0.0' in row  # the exact amount
    assert "UTC" in row
    assert f"/console/calls?key={key.key_id}" in row
    assert "/console/keys/user/ann" in row


def _call() -> dict[str, object]:
    return prompt(model="claude-haiku-4-5")


def test_a_new_key_works_and_its_secret_is_shown_once(served: Served, visitor: Visitor) -> None:
    made = visitor.decide(
        "/console/keys/key",
        {"operation": "key create", "name": "from the form", "budget_usd": "1.50",
         "models": "claude*, gpt-4o", "role": "agent"},
    )  # fmt: skip
    assert made.status == 200, made.text
    secret = re.search(r"sk-remit-[\w-]+", made.text)
    assert secret
    until(lambda: served.ask("POST", "/v1/messages", _call(), token=secret[0])[0] == 200)
    shown = visitor.get("/console/keys/from%20the%20form")
    assert shown.status == 303
    page = visitor.get(shown.headers["location"]).text
    assert secret[0] not in page
    assert "claude*, gpt-4o" in _text(page)
    assert "of $1.50" in _text(page)


def test_a_change_of_limits_shows_before_and_after(served: Served, visitor: Visitor) -> None:
    key = served.key(usd_nano=2_000_000_000)
    path = f"/console/keys/key/{key.key_id}"
    form = {"operation": "budget set", "usd": "3", "rpm": "40", "window": "month"}
    changed = visitor.decide(path, form)
    assert changed.status == 303
    page = _text(visitor.get(changed.headers["location"]).text)
    said = "Before: $2.00. Now: $3.00 a month (UTC); 40 calls a minute."
    assert f"The limits were changed. {said}" in page
    (state,) = TokenBudgeter(served.ledger).status(BudgetScope(key_id=key.key_id))
    assert state.limits == BudgetLimits(None, 3 * 10**9, None, 40, None, "month", "UTC")
    assert 'name="usd" value="3.0"' in visitor.get(path).text
    entry = served.ledger.read(changed.headers["location"].partition("changed=")[2])
    assert entry.metadata["by"].startswith(visitor_name(visitor))


def visitor_name(visitor: Visitor) -> str:
    found = re.search(r'class="who-am-i"><span title="([^"]+)"', visitor.get("/").text)
    assert found
    return found[1]


def test_rotate_and_revoke(served: Served, visitor: Visitor) -> None:
    key = served.key()
    path = f"/console/keys/key/{key.key_id}"
    made = visitor.decide(path, {"operation": "key rotate", "grace_s": "0"})
    secret = re.search(r"sk-remit-[\w-]+", made.text)
    assert secret
    until(lambda: served.ask("POST", "/v1/messages", _call(), token=key.key)[0] == 401)
    until(lambda: served.ask("POST", "/v1/messages", _call(), token=secret[0])[0] == 200)
    gone = visitor.decide(path, {"operation": "key revoke", "reason": "lost"})
    assert gone.status == 303
    page = visitor.get(gone.headers["location"]).text
    assert "revoked" in page
    assert "key rotate" not in page
    until(lambda: served.ask("POST", "/v1/messages", _call(), token=secret[0])[0] == 401)
    assert key.name not in visitor.get("/console/keys").text


def test_teams_have_keys_sums_and_forms(served: Served, visitor: Visitor) -> None:
    made = visitor.decide(
        "/console/keys/team", {"operation": "team create", "name": "Payments", "usd": "10"}
    )
    assert made.status == 303, made.text
    place = made.headers["location"]
    assert place.startswith("/console/keys/team/payments")
    assert "of $10.00" in _text(visitor.get("/console/keys/team").text)
    renamed = visitor.decide(
        "/console/keys/team/payments", {"operation": "team rename", "name": "Pay & Bill"}
    )
    assert renamed.status == 303, renamed.text
    assert "<h1>Pay &amp; Bill</h1>" in visitor.get("/console/keys/team/payments").text
    visitor.decide("/console/keys/key", {"operation": "key create", "name": "of pay",
                                         "team": "payments"})  # fmt: skip
    assert ">of pay</a>" in visitor.get("/console/keys/team/payments").text
    assert visitor.get("/console/keys/organisation").status == 200


@pytest.mark.parametrize("role", ["auditor", "admin"])
def test_a_role_without_the_permission_changes_nothing(served: Served, role: str) -> None:
    reader, key = signed_in(served, role), served.key()
    assert "Create a key" not in reader.get("/console/keys").text
    assert ("Propose a change" in reader.get("/console/proposals").text) == (role == "admin")
    before = served.ledger.count()
    for path, operation in (
        ("/console/keys/key", "key create"),
        (f"/console/keys/key/{key.key_id}", "key revoke"),
        (f"/console/keys/key/{key.key_id}", "budget set"),
        ("/console/keys/team", "team create"),
    ):
        assert f'value="{operation}"' not in reader.get(path).text
        sent = {"operation": operation, "name": "x", "usd": "1", "token": reader.form_token()}
        answered = reader.post(path, sent, sec_fetch_site="same-origin")
        assert answered.status == 403, operation
    assert served.ledger.count() == before


def test_hostile_values(served: Served, visitor: Visitor) -> None:
    key = served.key()
    path = f"/console/keys/key/{key.key_id}"
    before = served.ledger.count()
    for value in (*HOSTILE, "\0", "a\nb"):
        for place in (
            f"/console/keys?{urlencode({'from': value})}",
            f"/console/keys/team?{urlencode({'from': value})}",
            f"{path}?{urlencode({'changed': value})}",
            f"/console/keys/{quote(value, safe='')}",
            f"/console/keys/user/{quote(value, safe='')}",
        ):
            shown = visitor.get(place)
            assert shown.status in (200, 303, 400, 404), (place, shown.status)
            assert "<script>alert" not in shown.text
            assert "\u202e" not in shown.text
        for operation in ("key create", "ledger erase", "user rename", value):
            answered = visitor.decide(path, {"operation": operation, "name": value})
            assert answered.status in (400, 404, 409), (operation, value)
    assert served.ledger.count() == before
