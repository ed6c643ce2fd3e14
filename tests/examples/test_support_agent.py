"""``examples/support_agent`` and ``examples/research_agent``."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from benchmarks.agents import side_by_side

from tests.examples.playing import (
    Asked,
    Model,
    Use,
    begin,
    entries,
    kill,
    line,
    playing,
    remit,
    rows,
    run,
    sound,
)
from tests.support.waiting import until

EXAMPLE = "support_agent/support_agent.py"
COMPLAINT = "Order 1002 came broken, I want my money back."


def clerk(asked: Asked) -> str | Use:
    """Looks an order up; refunds it when it was broken; says what came of it."""
    if asked.results:
        return f"Here is what I found: {asked.results[-1]}"
    if COMPLAINT in asked.text:
        return "refund", {"order_id": 1002, "reason": "broken"}
    return "look_up_order", {"order_id": 1001}


def _waiting(place: Path, model: Model) -> tuple[str, str]:
    """Start it, and kill it when it waits; its session and the request."""
    program = begin(place, model, EXAMPLE, COMPLAINT)
    session = line(program, "session SES-").split()[1]
    request = line(program, "remit approve LED-")
    assert "refund {'order_id': 1002, 'reason': 'broken'}" in request
    kill(program)
    return session, request.split()[2]


def decide(place: Path, request: str, *more: str) -> None:
    """As a person does in another terminal, who first looks at what waits."""
    assert f"{request}  " in remit(place, "approve")
    remit(place, "approve", request, "--yes", "--by", "Ada", *more)
    assert "is waiting for approval" in remit(place, "approve")


def _refunds(place: Path) -> list[tuple[object, ...]]:
    return rows(place / "shop.db", "SELECT order_id, reason FROM refunds")


def test_a_refund_is_released_after_a_crash_and_made_once(tmp_path: Path) -> None:
    with playing("openai", clerk) as model:
        session, request = _waiting(tmp_path, model)
        assert not _refunds(tmp_path)
        decide(tmp_path, request)
        printed = run(tmp_path, model, EXAMPLE, "--session", session)
        assert "Order 1002 is refunded." in printed
        assert _refunds(tmp_path) == [(1002, "broken")]
        assert len(model.asked) == 2  # what was answered before the crash was not asked again
    (turn,) = entries(tmp_path, "TURN_RECORDED")
    assert turn.metadata["user_message"] == COMPLAINT
    (granted,) = entries(tmp_path, "APPROVAL_GRANTED")
    assert granted.metadata["decided_by"] == "Ada"
    shown = remit(tmp_path, "trace", session)
    assert "Ada" in shown
    assert "refund" in shown
    sound(tmp_path)


def test_a_refund_made_just_before_the_crash_is_not_made_again(tmp_path: Path) -> None:
    with playing("anthropic", clerk) as model:
        session, request = _waiting(tmp_path, model)
        decide(tmp_path, request)
        with closing(sqlite3.connect(tmp_path / "root/ledger.db")) as ledger:
            with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
                shop.execute("BEGIN IMMEDIATE")  # the refund cannot be made yet
                program = begin(tmp_path, model, EXAMPLE, "--session", session)
                until(lambda: bool(entries(tmp_path, "TOOL_INTENT")))
                ledger.execute("BEGIN IMMEDIATE")  # what comes of it cannot be written down
            until(lambda: bool(_refunds(tmp_path)))
            kill(program)
        assert not entries(tmp_path, "TOOL_CALL")

        printed = run(tmp_path, model, EXAMPLE, "--session", session)
    assert "Order 1002 is refunded." in printed
    assert [one.metadata.get("attempt") for one in entries(tmp_path, "TOOL_INTENT")] == [None, 2]
    assert _refunds(tmp_path) == [(1002, "broken")]
    sound(tmp_path)


def test_remits_program_is_no_longer_than_the_shortest_and_two_lines() -> None:
    sizes = {name: side_by_side.counted(program) for name, program in side_by_side.ALL.items()}
    remit = sizes.pop("Remit")
    assert remit.lines <= min(size.lines for size in sizes.values()) + 2
    assert remit.files == 1


def test_killed_while_it_waits_it_goes_on_to_the_typed_answer(tmp_path: Path) -> None:
    outcome = side_by_side.run(side_by_side.ALL["Remit"], tmp_path)
    assert outcome.printed == "text='Order 1002 is refunded.' refunded=True"
    assert outcome.calls == 3
