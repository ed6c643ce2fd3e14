"""G2: honest orders pass, whatever happened to them; every other way is found."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from remit.agents.workorders import (
    OrderRecordError,
    WorkOrder,
    WorkOrderCost,
    WorkOrderType,
    plan_of,
    replay,
)
from remit.ledger import LedgerClient, LedgerEntry
from tests.packages.gates.conftest import House
from tests.support.agents import anthropic_runtime, by_kind
from tests.support.wire import Raw, message, tool_use

ORDER = "WO-SES-1-001"


class Writer:
    """Writes orders step by step, as supervisor and worker do; and as they never would."""

    def __init__(self, ledger: LedgerClient, order: str = ORDER) -> None:
        self.ledger = ledger
        self.order = order  # where no other is named

    def step(self, event: str, wo_id: str = "", tier: str = "", **fields: Any) -> str:
        """One step of an order."""
        wo_id = wo_id or self.order
        own = {"WO_PLANNED": "ho2", "WO_DISPATCHED": "ho2"}.get(event, "ho1")
        metadata = {
            "provenance": {"agent_id": "a", "agent_class": "ADMIN", "session_id": "SES-1",
                           "work_order_id": wo_id},
            "scope": {"tier": tier or own},
            **fields,
        }  # fmt: skip
        return self.ledger.write(LedgerEntry(event, wo_id, event, f"{event}", [], metadata))

    def plan(self, wo_id: str = "", tier: str = "", **fields: Any) -> None:
        """``WO_PLANNED``."""
        order = WorkOrder(wo_id or self.order, "SES-1", WorkOrderType.EXECUTE)
        self.step("WO_PLANNED", wo_id, tier, **{**plan_of(order), **fields})

    def begin(self, wo_id: str = "") -> None:
        """Planned, dispatched, executing."""
        self.plan(wo_id)
        self.step("WO_DISPATCHED", wo_id)
        self.step("WO_EXECUTING", wo_id)

    def exchange(
        self, tokens: int = 10, usd: float | None = 0.01, *, wo_id: str | None = None,
        tier: str = "ho1", **fields: Any,
    ) -> str:  # fmt: skip
        """``EXCHANGE``; of no order where ``wo_id`` is empty."""
        wo_id = self.order if wo_id is None else wo_id
        metadata = {
            "agent_id": "a", "session_id": "SES-1", "work_order_id": wo_id, "tier": tier,
            "contract_id": "PRC-X-001", "framework_id": "FMWK-RUNTIME-001",
            "prompt": "p", "response": "r",
            "outcome": "success", "input_tokens": tokens, "output_tokens": tokens,
            "context_hash": "c", "dispatch_entry_id": "LED-00000000", "model_id": "smollm2-135m",
            "finish_reason": "stop", "latency_ms": 1.0, **fields,
        }  # fmt: skip
        if usd is not None:
            metadata["cost_usd"] = usd
        return self.ledger.write(LedgerEntry("EXCHANGE", "PRC-X-001", "SUCCESS", "x", [], metadata))

    def call(self, exchange: str, wo_id: str = "") -> None:
        """``LLM_CALL``."""
        self.step("LLM_CALL", wo_id, exchange_entry_id=exchange, dispatch_entry_id="LED-00000000",
                  outcome="success", model_id="m", input_tokens=1, output_tokens=1,
                  latency_ms=1.0)  # fmt: skip

    def end(
        self, tokens: int, usd: float | None, wo_id: str = "", event: str = "WO_COMPLETED",
        **fields: Any,
    ) -> None:  # fmt: skip
        """``WO_COMPLETED``, or ``WO_FAILED``."""
        cost = WorkOrderCost(tokens, tokens, 2 * tokens, 1, 0, 1.0, usd).to_dict()
        self.step(event, wo_id, cost={**cost, **fields}, output_result={})


@contextmanager
def writing(house: House) -> Iterator[Writer]:
    with house.ledger() as ledger:
        yield Writer(ledger)


def test_orders_of_a_real_runtime_pass(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    script = by_kind(
        message("Looking.", tool_use("list_sessions", {})),
        Raw(b"{}", 529),
        message("There is one session."),
        message("Hello."),
    )
    with (
        anthropic_runtime(house.path, monkeypatch, script) as (runtime, _),
        runtime.session() as conversation,
    ):
        conversation.turn("list the sessions")
        conversation.turn("hello")
    assert house.passes("G2").startswith("work orders: 4 ended")
    house.changes["model"] = lambda: ("anthropic", "claude-sonnet-5")
    assert house.passes("G3")
    assert house.passes("G6")


def test_an_order_costs_what_its_exchanges_do(house: House) -> None:
    with writing(house) as write:
        write.begin()
        for _ in range(3):
            write.call(write.exchange())
        write.end(30, 0.03)
        # Late answers, those of clients that name the order, and of other tiers.
        write.exchange()
        write.begin("WO-SES-1-002")
        write.exchange(wo_id="WO-SES-1-002", tier="ho2")
        write.exchange(wo_id="", tier="ho1")
        write.call(write.exchange(5, None, wo_id="WO-SES-1-002"))
        write.end(5, None, "WO-SES-1-002")
        write.plan("WO-SES-1-003")
        write.begin("WO-SES-1-004")
        write.call(write.exchange(wo_id="WO-SES-1-004", usd=1.0), "WO-SES-1-004")
        write.exchange(wo_id="WO-SES-1-004")  # of a call that was given up
        write.end(10, 1.0, "WO-SES-1-004")
    found = house.passes("G2")
    assert "work orders: 3 ended" in found
    assert "1 open: WO-SES-1-003" in found
    with writing(house) as write:  # what the worker noted as a call cannot be left out
        write.begin("WO-SES-1-005")
        write.exchange(wo_id="WO-SES-1-005")
        write.call(write.exchange(wo_id="WO-SES-1-005"), "WO-SES-1-005")
        write.end(10, 0.01, "WO-SES-1-005")
    (error,) = house.one("G2").errors
    assert "The cost of WO-SES-1-005 in " in error
    assert "is 10 + 10 tokens, 0.01 USD, but its exchanges cost 20 + 20 tokens, 0.02 USD" in error


def _steps(*steps: Any) -> Any:
    """Events of an order after its plan; or ``(event, fields)``."""

    def run(write: Writer) -> None:
        write.plan()
        for step in steps:
            event, fields = step if isinstance(step, tuple) else (step, {})
            if event in ("WO_COMPLETED", "WO_FAILED"):
                write.end(0, None, event=event)
            else:
                write.step(event, **fields)

    return run


def _ends(tokens: int = 10, usd: float | None = 0.01, then: Any = None, **cost: Any) -> Any:
    """An order with one exchange of 10 tokens each way and 0.01 USD that ends at this cost."""

    def run(write: Writer) -> None:
        write.begin()
        write.call(write.exchange())
        write.end(tokens, usd, **cost)
        if then is not None:
            then(write)

    return run


WRONG_WAYS: list[tuple[Any, str]] = [
    (lambda write: write.step("WO_EXECUTING"), "had ended or was never planned"),
    (_ends(then=Writer.begin), "was planned 2 times"),
    (lambda write: (write.plan(), write.plan()), "was planned twice"),
    (
        _ends(then=lambda write: write.end(10, 0.01, event="WO_FAILED")),
        "belongs to WO-SES-1-003, which had ended",
    ),
    (_steps("WO_EXECUTING"), "is planned and cannot become executing"),
    (_steps("WO_DISPATCHED", "WO_COMPLETED"), "is dispatched and cannot become completed"),
    (_steps("WO_DISPATCHED", "WO_FAILED"), "is dispatched and cannot become failed"),
    (_steps("WO_DISPATCHED", "WO_DISPATCHED"), "is dispatched and cannot become dispatched"),
    (_steps(("WO_EXECUTING", {"resumed": True})), "cannot be resumed"),
    (_steps(("WO_DISPATCHED", {"tier": "ho1"})), "Only tier ho2 may take"),
    (lambda write: write.plan(tier="ho1"), "but the supervisor did not write it"),
    (lambda write: write.plan(constraints=1), "does not hold a plan"),
    (_ends(9), r"is 9 \+ 9 tokens, 0.01 USD"),
    (_ends(usd=0.009), r"0.009 USD, but its exchanges cost 10 \+ 10 tokens, 0.01 USD"),
    (_ends(usd=None), "no known price, but its exchanges"),
    (_ends(total_tokens=19), "The cost of"),
]


def test_every_other_way_is_found(house: House) -> None:
    with house.ledger() as ledger:
        for number, (go, _) in enumerate(WRONG_WAYS):
            go(Writer(ledger, f"WO-SES-1-{number:03d}"))
    errors = house.one("G2").errors
    assert len(errors) == len(WRONG_WAYS)
    for number, (_, says) in enumerate(WRONG_WAYS):
        mine = [error for error in errors if f"{number:03d}" in error or "WO-SES" not in error]
        assert any(re.search(says, error) for error in mine), (says, mine)


def test_it_agrees_with_the_state_machine_on_every_short_way(house: House) -> None:
    ways = [
        way
        for length in range(4)
        for way in itertools.product(
            ("WO_DISPATCHED", "WO_EXECUTING", "WO_COMPLETED", "WO_FAILED"), repeat=length
        )
    ]
    illegal = set()
    with writing(house) as write:
        for number, way in enumerate(ways, 1):
            wo_id = f"WO-SES-1-{number:03d}"
            write.plan(wo_id)
            for event in way:
                if event in ("WO_COMPLETED", "WO_FAILED"):
                    write.end(0, None, wo_id, event)
                else:
                    write.step(event, wo_id)
            try:
                replay(write.ledger.read_by_submission(wo_id))
            except OrderRecordError:
                illegal.add(wo_id)
    house.changes["most_errors"] = 1000
    errors = house.one("G2").errors
    assert {re.findall(r"WO-SES-1-\d+", error)[0] for error in errors} == illegal
    assert (len(errors), len(ways)) == (len(illegal), 85)
    assert "WO-SES-1-001" not in illegal


def test_a_later_run_goes_on_from_what_was_open(house: House) -> None:
    house.flags["gates.full_entries"] = 0
    with writing(house) as write:
        write.begin("WO-SES-1-002")
        write.begin()  # stays open over both runs
        write.call(write.exchange(wo_id="WO-SES-1-002"), "WO-SES-1-002")
        write.end(10, 0.01, "WO-SES-1-002")
    first = house.one("G2")
    assert first.passed
    assert "--full reads all" not in first.message  # nothing had been read before
    with house.ledger() as ledger:
        mark = ledger.read(first.entry_id).metadata
    assert 0 < mark["resume_at"] < mark["verified_entries"]
    with writing(house) as write:
        write.call(write.exchange())
        write.end(10, 0.01)
    second = house.passes("G2")
    assert "work orders: 1 ended" in second
    assert "--full reads all" in second
    assert "work orders: 2 ended" in house.passes("G2", full=True)
    with writing(house) as write:
        write.step("WO_DISPATCHED")
        write.plan("WO-SES-1-002")
    found = house.errors("G2")
    assert f"(WO_DISPATCHED) belongs to {ORDER}, which had ended" in found
    assert "WO-SES-1-002 was planned 2 times" in found  # also where its first plan is not read
    assert not house.check("G2", full=True).passed
