"""G2: honest orders pass, whatever happened to them; every other way is found."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from remit.agents.workorders import IllegalTransitionError, plan_of, replay
from remit.agents.workorders.order import WorkOrder, WorkOrderCost, WorkOrderType
from remit.ledger import LedgerClient, LedgerEntry
from remit.packages.gates import GateReport
from tests.packages.gates.conftest import House
from tests.support.agents import anthropic_runtime, by_kind
from tests.support.wire import Raw, message, tool_use

ORDER = "WO-SES-1-001"


class Writer:
    """Writes orders step by step, as supervisor and worker do; and as they never would."""

    def __init__(self, ledger: LedgerClient) -> None:
        self.ledger = ledger
        self.exchanges: list[str] = []

    def step(self, event: str, wo_id: str = ORDER, tier: str = "", **told: Any) -> str:
        """One step of an order."""
        own = {"WO_PLANNED": "ho2", "WO_DISPATCHED": "ho2"}.get(event, "ho1")
        metadata = {
            "provenance": {"agent_id": "a", "agent_class": "ADMIN", "session_id": "SES-1",
                           "work_order_id": wo_id},
            "scope": {"tier": tier or own},
            **told,
        }  # fmt: skip
        return self.ledger.write(LedgerEntry(event, wo_id, event, f"{event}", [], metadata))

    def plan(self, wo_id: str = ORDER, tier: str = "", **told: Any) -> None:
        """``WO_PLANNED``."""
        order = WorkOrder(wo_id, "SES-1", WorkOrderType.EXECUTE)
        self.step("WO_PLANNED", wo_id, tier, **{**plan_of(order), **told})

    def begin(self, wo_id: str = ORDER) -> None:
        """Planned, dispatched, executing."""
        self.plan(wo_id)
        self.step("WO_DISPATCHED", wo_id)
        self.step("WO_EXECUTING", wo_id)

    def exchange(
        self, tokens: int = 10, usd: float | None = 0.01, *, wo_id: str = ORDER, tier: str = "ho1",
        **told: Any,
    ) -> str:  # fmt: skip
        """``EXCHANGE``."""
        metadata = {
            "agent_id": "a", "session_id": "SES-1", "work_order_id": wo_id, "tier": tier,
            "contract_id": "PRC-X-001", "framework_id": "", "prompt": "p", "response": "r",
            "outcome": "success", "input_tokens": tokens, "output_tokens": tokens,
            "context_hash": "c", "dispatch_entry_id": "LED-00000000", "model_id": "smollm2-135m",
            "finish_reason": "stop", "latency_ms": 1.0, **told,
        }  # fmt: skip
        if usd is not None:
            metadata["cost_usd"] = usd
        return self.ledger.write(LedgerEntry("EXCHANGE", "PRC-X-001", "SUCCESS", "x", [], metadata))

    def call(self, exchange: str, wo_id: str = ORDER) -> None:
        """``LLM_CALL``."""
        self.step("LLM_CALL", wo_id, exchange_entry_id=exchange, dispatch_entry_id="LED-00000000",
                  outcome="success", model_id="m", input_tokens=1, output_tokens=1,
                  latency_ms=1.0)  # fmt: skip

    def end(
        self, tokens: int, usd: float | None, wo_id: str = ORDER, event: str = "WO_COMPLETED",
        **told: Any,
    ) -> None:  # fmt: skip
        """``WO_COMPLETED``, or ``WO_FAILED``."""
        cost = WorkOrderCost(tokens, tokens, 2 * tokens, 1, 0, 1.0, usd).to_dict()
        self.step(event, wo_id, cost={**cost, **told}, output_result={})


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
    result = house.one("G2")
    assert result.passed, result.errors
    assert result.message.startswith("work orders: 4 ended")
    house.changes["model"] = lambda: ("anthropic", "claude-sonnet-5")
    assert house.one("G3").passed
    assert house.one("G6").passed


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
    result = house.one("G2")
    assert result.passed, result.errors
    assert "work orders: 2 ended" in result.message
    assert "1 open: WO-SES-1-003" in result.message


def test_an_exchange_that_came_while_the_worker_ended_may_be_left_out(house: House) -> None:
    with writing(house) as write:
        write.begin()
        write.call(write.exchange())
        write.exchange()  # of a call that was given up
        write.end(10, 0.01)
        write.begin("WO-SES-1-002")
        first = write.exchange(wo_id="WO-SES-1-002")
        write.call(write.exchange(wo_id="WO-SES-1-002"), "WO-SES-1-002")
        write.end(10, 0.01, "WO-SES-1-002")
    told = house.errors("G2")
    assert "WO-SES-1-002 says that it cost 10 + 10 tokens" in told
    assert "its exchanges come to 20 + 20 tokens, 0.02 USD" in told
    assert ORDER + " says" not in told
    assert first


def _wrong_ways() -> dict[str, tuple[Any, str]]:
    def plain(write: Writer) -> None:
        write.begin()
        write.call(write.exchange())

    def ways(*events: str) -> Any:
        def run(write: Writer) -> None:
            write.plan()
            for event in events:
                if event in ("WO_COMPLETED", "WO_FAILED"):
                    write.end(0, None, event=event)
                else:
                    write.step(event)

        return run

    def unplanned(write: Writer) -> None:
        write.step("WO_EXECUTING")

    def replanned(write: Writer) -> None:
        plain(write)
        write.end(10, 0.01)
        write.begin()

    def planned_twice(write: Writer) -> None:
        write.plan()
        write.plan()

    def ended_twice(write: Writer) -> None:
        plain(write)
        write.end(10, 0.01)
        write.end(10, 0.01, event="WO_FAILED")

    def cheap(write: Writer) -> None:
        plain(write)
        write.end(9, 0.01)

    def underpriced(write: Writer) -> None:
        plain(write)
        write.end(10, 0.009)

    def unpriced(write: Writer) -> None:
        plain(write)
        write.end(10, None)

    def bad_sum(write: Writer) -> None:
        plain(write)
        write.end(10, 0.01, total_tokens=19)

    def resumed(write: Writer) -> None:
        write.plan()
        write.step("WO_EXECUTING", resumed=True)

    return {
        "never planned": (unplanned, "had ended, or was never planned"),
        "planned again": (replanned, "was planned 2 times"),
        "planned twice": (planned_twice, "was planned twice"),
        "ended twice": (ended_twice, "is a WO_FAILED of WO-SES-1-001, which had ended"),
        "never dispatched": (ways("WO_EXECUTING"), "is planned and cannot become executing"),
        "never executed": (
            ways("WO_DISPATCHED", "WO_COMPLETED"), "is dispatched and cannot become completed",
        ),
        "failed from dispatched": (
            ways("WO_DISPATCHED", "WO_FAILED"), "is dispatched and cannot become failed",
        ),
        "dispatched twice": (
            ways("WO_DISPATCHED", "WO_DISPATCHED"), "is dispatched and cannot become dispatched",
        ),
        "resumed before it began": (resumed, "cannot be resumed"),
        "dispatched by the worker": (
            lambda write: (write.plan(), write.step("WO_DISPATCHED", tier="ho1")),
            "Only the supervisor may take",
        ),
        "planned by the worker": (
            lambda write: write.plan(tier="ho1"), "and is not the supervisor's",
        ),
        "no plan": (lambda write: write.plan(constraints=1), "does not hold a plan"),
        "cheap": (cheap, "says that it cost 9 + 9 tokens, 0.01 USD"),
        "underpriced": (underpriced, "0.009 USD; its exchanges come to 10 + 10 tokens, 0.01 USD"),
        "unpriced": (unpriced, "no known price; its exchanges"),
        "bad sum": (bad_sum, "says that it cost"),
    }  # fmt: skip


@pytest.mark.parametrize("name", _wrong_ways())
def test_every_other_way_is_found(house: House, name: str) -> None:
    go, says = _wrong_ways()[name]
    with writing(house) as write:
        go(write)
    assert says in house.errors("G2")


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
            except IllegalTransitionError:
                illegal.add(wo_id)
    house.changes["most_errors"] = 1000
    result = house.one("G2")
    found = {re.findall(r"WO-SES-1-\d+", error)[0] for error in result.errors}
    assert found == illegal
    assert (len(result.errors), len(ways)) == (len(illegal), 85)
    assert "WO-SES-1-001" not in illegal


def test_an_empty_ledger_does_not_pass(house: House) -> None:
    for file in house.path.glob("ledger.db*"):
        file.unlink()
    LedgerClient(house.path / "ledger.db").close()
    assert "The ledger has no entry" in house.errors("G2")


def test_a_later_run_goes_on_from_what_was_open(house: House) -> None:
    house.flags["gates.full_entries"] = 0
    with writing(house) as write:
        write.begin("WO-SES-1-002")
        write.begin()  # stays open over both runs
        write.call(write.exchange(wo_id="WO-SES-1-002"), "WO-SES-1-002")
        write.end(10, 0.01, "WO-SES-1-002")
    first = house.one("G2")
    assert first.passed
    assert "--full reads all" not in first.message  # nobody had read anything
    with house.ledger() as ledger:
        mark = ledger.read(first.entry_id).metadata
    assert 0 < mark["resume_at"] < mark["verified_entries"]
    with writing(house) as write:
        write.call(write.exchange())
        write.end(10, 0.01)
    second = house.one("G2")
    assert second.passed, second.errors
    assert "work orders: 1 ended" in second.message
    assert f"({first.entry_id}; --full reads all)" in second.message
    assert "work orders: 2 ended" in house.one("G2", full=True).message
    with writing(house) as write:
        write.step("WO_DISPATCHED")
        write.plan("WO-SES-1-002")
    told = house.errors("G2")
    assert f"WO_DISPATCHED of {ORDER}, which had ended" in told
    assert "WO-SES-1-002 was planned 2 times" in told  # also where its first plan is not read
    result: GateReport = house.check("G2", full=True)
    assert not result.passed


def test_a_mark_that_speaks_of_what_is_not_there_is_not_believed(
    house: House, tmp_path: Path
) -> None:
    house.flags["gates.full_entries"] = 0
    with writing(house) as write:
        write.step("WO_EXECUTING")
        for wrong in (
            {"verified_entries": 10**9},
            {"verified_entries": -1},
            {"verified_entries": 3, "resume_at": 4},
            {"verified_entries": "1"},
            {},
        ):
            write.ledger.write(LedgerEntry("GATE_PASSED", "G2", "PASSED", "x", metadata=wrong))
            assert "never planned" in house.errors("G2")
