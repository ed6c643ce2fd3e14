"""Orders that are done for a virtual key: its limits are theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from remit.gateway.auth import KeyStore
from remit.gateway.budget import BudgetLimits, BudgetScope
from remit.kernel.errors import InvalidInputError, NotFoundError
from tests.agents.queue.test_workers import FLAGS, check, working
from tests.support.agents import anthropic_runtime, tools_only
from tests.support.commands import run_remit
from tests.support.wire import message, tool_use


def test_what_a_key_may_not_do_its_orders_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    script = [
        tools_only(tool_use("helper", {"task": "Look."})), message("Seen."), message("Done."),
        message("Again."),
    ]  # fmt: skip
    with anthropic_runtime(root, monkeypatch, *script, flags=FLAGS) as (runtime, server):
        keys = KeyStore(runtime.ledger)
        helper = runtime.agent("helper", instructions="Look.", max_retries=0)
        clerk = runtime.agent("clerk", tools=[helper.as_tool()], max_retries=0)
        made = keys.create("shop", user_id="ann", team_id="tea")
        scope = BudgetScope(key_id=made.key_id)
        runtime.budgeter.allocate(scope, limits=BudgetLimits(tokens=1_000_000), by="t")
        keys.create("small", models=["gpt-*"])
        keys.create("others", agents=["till"])

        def spent() -> int:
            return runtime.budgeter.status(scope)[0].spent_tokens

        with working(runtime, [clerk], at_once=1):
            first = clerk.submit("Go.", for_key="shop")
            assert first.result(60).response == "Done."
            assert spent() == 3 * 18  # its sub-agent's call too
            refused = clerk.submit("Go.", for_key="small").result(60)
            assert refused.error_code == "MODEL_NOT_ALLOWED"
            for wrong, options in (
                (InvalidInputError, {"for_key": "others"}),
                (InvalidInputError, {"for_key": "shop", "user": "bob"}),
                (NotFoundError, {"for_key": "nobody"}),
            ):
                with pytest.raises(wrong):
                    clerk.submit("Go.", **options)
            runtime.budgeter.allocate(scope, limits=BudgetLimits(tokens=60), by="t")
            assert (
                clerk.submit("Go.", for_key=made.key_id).result(60).error_code == "budget_exhausted"
            )
            runtime.budgeter.allocate(scope, limits=BudgetLimits(requests_per_minute=3), by="t")
            limited = clerk.submit("Go.", for_key=made.key_id).result(60)
            assert limited.error_code == "RATE_LIMITED"
            runtime.budgeter.allocate(scope, limits=BudgetLimits(), by="t")
            last = clerk.submit("Go.", for_key=made.key_id)
            assert last.result(60).response == "Again."
            keys.rotate("shop")  # the key goes on
            later = clerk.submit("Go.", for_key="shop", queue="later")
            keys.revoke("shop")
        with working(runtime, [clerk], queues=("later",)):
            assert later.result(60).error_code == "AUTH_ERROR"
        assert len(server.calls) == 4
        done = run_remit("usage", "--by", "key,user,team", "--json", "--root", root)
        rows: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
        assert [(row["key"], row["user"], row["team"], row["calls"]) for row in rows] == [
            (made.key_id, "ann", "tea", 4)
        ]
        submitted = run_remit("order", "submit", "clerk", "x", "--for-key", "shop", "--root", root)
        assert submitted.returncode == 1
        assert "is revoked" in submitted.stderr
        assert run_remit("budget", "check", "--root", root).returncode == 0
        check(runtime)
