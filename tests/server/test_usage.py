"""What calls cost: usage, a key's own limits, receipts, prices of the operator's own."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from remit.gateway.auth import KeyStore
from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter
from remit.ledger import USAGE_TABLES, LedgerEntry, check_tables
from remit.providers.prices import PriceTable, Usage
from tests.server.conftest import Serve
from tests.server.running import Served, new_session
from tests.support.commands import run_remit
from tests.support.waiting import until

_PATHS = ("/v1/key", "/key", "/openai/v1/key", "/openai/key", "/anthropic/v1/key", "/anthropic/key")


def _get(served: Served, path: str, token: str) -> tuple[int, Any]:
    status, raw, _ = served.ask("GET", path, token=token)
    return status, json.loads(raw)


def test_usage_is_what_was_called_page_by_page(anywhere: Served) -> None:
    key = anywhere.key(user="usage-ann")
    session = new_session()
    for dialect, model in (("openai", "gpt-4o-mini"), ("anthropic", "claude-sonnet-4-5")):
        for _ in range(2):
            assert (
                anywhere.call(dialect, "hi", session=session, model=model, token=key.key)[0] == 200
            )
    auditor = anywhere.key(role="auditor").key
    status, told = _get(anywhere, "/api/usage?by=model&user=usage-ann&since=today", auditor)
    assert status == 200, told
    exchanges = anywhere.entries("EXCHANGE", session)
    assert told["total"]["calls"] == len(exchanges) == 4
    for name in ("input_tokens", "output_tokens"):
        assert told["total"][name] == sum(one.metadata[name] for one in exchanges)
    spent = sum(one.metadata["cost_usd"] for one in exchanges)
    assert told["total"]["measured_usd"] == pytest.approx(spent)
    pages, cursor = [], ""
    while True:
        _, page = _get(anywhere, f"/api/usage?by=model,key&user=usage-ann&limit=1{cursor}", auditor)
        pages += page["rows"]
        assert (page["total"] is None) == bool(cursor)
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert len(pages) == 2
    status, raw, headers = anywhere.ask("GET", "/api/report?since=today", token=auditor)
    file = raw.decode()
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8"), file
    assert file.rstrip().endswith("</html>")
    assert {one.id for one in exchanges} <= {*re.findall(r'<code class="id">(LED-\w+)<', file)}
    assert key.key_id in file
    assert {row["key"] for row in pages} == {key.key_id}
    assert list(check_tables(anywhere.ledger, USAGE_TABLES)) == []


def test_what_cannot_be_understood_is_refused(served: Served) -> None:
    auditor = served.key(role="auditor").key
    for query, status in (
        ("usage?by=colour", 400), ("usage?since=soon", 400), ("usage?time_zone=Moon", 400),
        ("usage?cursor=x", 400), ("usage?cursor=WyJhIl0%3D", 200), ("usage?user=a&user=b", 400),
        ("usage?colour=red", 400), ("report?since=soon", 400), ("report?until=soon", 400),
        ("report?time_zone=Moon&since=today", 400), ("report?most=-1", 400), ("report?by=key", 400),
    ):  # fmt: skip
        assert _get(served, f"/api/{query}", auditor)[0] == status, query


def test_a_key_reads_its_own_limits_and_spending(served: Served) -> None:
    key = served.key(models=("gpt-4o*",), user="own")
    budgeter = TokenBudgeter(served.ledger)
    budgeter.allocate(
        BudgetScope(key_id=key.key_id),
        limits=BudgetLimits(tokens=100_000, nano=10**9, requests_per_minute=60, window="day"),
    )
    budgeter.allocate(BudgetScope(user_id="own"), limits=BudgetLimits(nano=5 * 10**9))
    session = new_session()
    assert served.call("openai", "hi", session=session, token=key.key)[0] == 200
    status, told = _get(served, _PATHS[0], key.key)
    assert status == 200, told
    assert all(_get(served, path, key.key) == (200, told) for path in _PATHS)
    assert (told["id"], told["role"], told["models"]) == (key.key_id, "agent", ["gpt-4o*"])
    own, user = told["budgets"]
    cost = served.exchange(session).metadata["cost_usd"]
    assert own["scope"] == f"key:{key.key_id}"
    assert own["spent_usd"] == pytest.approx(cost) == user["spent_usd"]
    assert own["remaining_usd"] == pytest.approx(1 - cost)
    assert own["remaining_tokens"] == 100_000 - own["spent_tokens"]
    assert (own["requests_per_minute"], own["window"], own["reserved_usd"]) == (60, "day", 0)
    assert own["window_end"]
    assert (user["limit_usd"], user["remaining_tokens"]) == (5.0, None)
    assert key.key[9:] not in json.dumps(told)


def _set(served: Served, *rates: str) -> None:
    done = run_remit("price", "set", "gpt-4o-mini", *rates, "--root", served.root)
    assert done.returncode == 0, done.stderr


def _listed(served: Served, query: str) -> Any:
    with KeyStore(served.ledger) as keys:
        auditor = keys.create(new_session(), role="auditor").key
    status, body, _ = served.ask("GET", f"/api/prices?{query}", token=auditor)
    assert status == 200, body
    return json.loads(body)


def test_a_running_server_takes_a_price_up_and_names_it(serve: Serve) -> None:
    with serve() as served:
        before = new_session()
        assert served.call("openai", "hi", session=before)[0] == 200
        shipped = PriceTable.shipped().version
        (exchange,) = served.entries("EXCHANGE", before)
        assert exchange.metadata["price_version"] == shipped
        _set(served, "--input", "100", "--output", "200")

        paid_by: list[LedgerEntry] = []

        def taken_up() -> bool:
            session = new_session()
            assert served.call("openai", "hi", session=session)[0] == 200
            paid_by[:] = served.entries("EXCHANGE", session)
            return bool(paid_by[0].metadata["price_version"] != shipped)

        until(taken_up)
        own = PriceTable.from_file(served.root / "prices.toml")
        price = own.find("openai", "gpt-4o-mini")
        assert price is not None
        said = paid_by[0].metadata
        assert said["price_version"] == f"{own.version};{shipped}"
        paid = price.cost_nano(Usage(said["input_tokens"], said["output_tokens"]))
        assert said["cost_usd"] == paid / 1e9
        assert paid > 0

        page = _listed(served, "own=true")
        listed = run_remit("price", "list", "--own", "--json", "--root", served.root)
        assert page["prices"] == json.loads(listed.stdout)["prices"]
        assert (page["version"], page["base_version"]) == (said["price_version"], shipped)
        (change,) = served.ledger.read_by_submission("prices")
        assert page["entry"] == change.id
        (one,) = page["prices"]
        assert (one["model"], one["input"], one["origin"]) == ("gpt-4o-mini", "100", "own")
        of_4o = _listed(served, "provider=openai&model=gpt-4o&limit=1")["prices"][0]
        assert (of_4o["model"], of_4o["origin"]) == ("gpt-4o", "shipped")
        first = _listed(served, "provider=openai&limit=1")
        second = _listed(served, f"provider=openai&limit=1&cursor={first['next_cursor']}")
        names = [page["prices"][0]["model"] for page in (first, second)]
        assert names == sorted({*names})
        assert len(names) == 2
