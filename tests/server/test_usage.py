"""``/api/usage``: what was spent, for who may read all; ``GET /v1/key``: of one's own key."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Generator
from typing import Any

import pytest

from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter
from remit.ledger import USAGE_TABLES, check_tables
from remit.server.api.routes import Streamed
from tests.server.running import Served, new_session

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


def test_a_report_that_nobody_waits_for_is_read_no_further() -> None:
    closed = False

    def parts() -> Generator[str]:
        nonlocal closed
        try:
            while True:
                yield "more"
        finally:
            closed = True

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        await asyncio.sleep(0)

    asyncio.run(Streamed(parts(), "text/html", "x")({"type": "http"}, receive, send))
    assert closed


@pytest.mark.parametrize("path", _PATHS)
def test_a_key_reads_its_own_limits_and_spending(served: Served, path: str) -> None:
    key = served.key(models=("gpt-4o*",), user=f"own-{_PATHS.index(path)}")
    budgeter = TokenBudgeter(served.ledger)
    budgeter.allocate(
        BudgetScope(key_id=key.key_id),
        limits=BudgetLimits(tokens=100_000, nano=10**9, requests_per_minute=60, window="day"),
    )
    budgeter.allocate(
        BudgetScope(user_id=f"own-{_PATHS.index(path)}"), limits=BudgetLimits(nano=5 * 10**9)
    )
    session = new_session()
    assert served.call("openai", "hi", session=session, token=key.key)[0] == 200
    status, told = _get(served, path, key.key)
    assert status == 200, told
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
    assert key.key not in json.dumps(told)
    assert key.key[9:] not in json.dumps(told)
