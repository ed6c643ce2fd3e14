"""Models that lie: values that nothing holds, and failures that are kept quiet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remit import tool
from remit.agents.supervisor.quality_gate import hidden_failure, unsourced
from remit.tools import ToolError
from tests.support.agents import anthropic_runtime, tools_only
from tests.support.wire import message, tool_use

FLAGS = {"supervisor.classify": False}
ORDER = {"id": "ORD-4711", "rows": [{"n": 3, "usd": 1.25}, {"n": 4, "usd": 2.5}], "limit_s": 90}
SEEN = f"Refund 12.50 EUR of ORD-4711. {ORDER}"


@tool(on_unknown="retry")
def balance(account: str) -> dict[str, Any]:
    """The balance of an account, in dollars."""
    if account != "A-1":
        raise ToolError(f"There is no account {account}.")
    return {"account": account, "balance": 310.25}


def _run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *script: Any, said: str = "") -> Any:
    with anthropic_runtime(tmp_path / "root", monkeypatch, *script, flags=FLAGS) as (
        runtime,
        server,
    ):
        agent = runtime.agent("teller", instructions="A transfer takes 14 days.", tools=[balance])
        result = agent.run(said or "What is my balance?")
        gates = runtime.ledger.read_by_event_type("WO_QUALITY_GATE")
    return result, [gate.metadata["verdict"] for gate in gates], server.calls


def test_a_value_without_a_source_is_asked_for_again_and_then_not_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lie = message("Your balance is $4,210.00.")
    result, verdicts, calls = _run(tmp_path, monkeypatch, lie)
    assert verdicts == ["reject", "reject"]
    assert "holds 4,210.00" in str(calls[-1].body["messages"][-1])  # the reason, once more asked
    assert "4,210" not in result.response
    assert result.error_code == "answer_rejected"
    assert "4,210.00" in result.error_detail


def test_the_tools_value_is_delivered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = tools_only(tool_use("balance", {"account": "A-1"}))
    other, own = message("It is 999.99 dollars."), message("It is $310.25, in 14 days.")
    result, verdicts, _ = _run(tmp_path, monkeypatch, ask, other, own)
    assert verdicts == ["reject", "accept"]
    assert result.response == "It is $310.25, in 14 days."


def test_an_answer_admits_a_failed_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = tools_only(tool_use("balance", {"account": "A-2"}))
    lie, truth = message("Your balance is fine."), message("I could not find the account A-2.")
    result, verdicts, _ = _run(tmp_path, monkeypatch, ask, lie, truth, said="Balance of A-2?")
    assert verdicts == ["reject", "accept"]
    assert result.response == "I could not find the account A-2."


@pytest.mark.parametrize(
    ("text", "hides"),
    [
        ("Done.", True),
        ("Success!", True),
        ("Refund issued.", True),
        ("Email sent, meeting booked.", True),
        ("Not done.", False),
        ("Refund rejected.", False),
        ("Das ging schief.", False),
        ("Goed, met een ander bed.", False),
    ],
)
def test_a_short_report_of_success_hides_a_failure(text: str, hides: bool) -> None:
    failed = [{"status": "error", "tool_id": "refund"}]
    assert hidden_failure(text, failed) == ("refund" if hides else "")
    assert hidden_failure(text, [*failed, {"status": "ok", "tool_id": "retry"}]) == ""


@pytest.mark.parametrize(
    "text",
    [
        "The order ORD-4711 of 12.50 EUR is refunded.",
        "There are 7 items, costing $3.75 in 2 rows.",
        "It took 1.5 minutes, 1.88 dollars per row.",
        "That is HTTP 404 of RFC 9110, step 12, since 2024.",
        "1. First\n2. Second\n\nThese are 2 things.",
        "Call it with `retries=77`.",
        "About 43 % of them are of the first kind.",
    ],
)
def test_values_that_were_seen_or_follow_are_no_inventions(text: str) -> None:
    assert unsourced(text, SEEN, [ORDER]) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("The order ORD-4712 is refunded.", "ORD-4712"),
        ("There are 58 items.", "58"),
        ("It was paid on 2024-05-05.", "2024-05-05"),
        ("The total is 3.80.", "3.80"),
        ("Write to bob@example.org.", "bob@example.org"),
        ("The balance is $1,234.56.", "1,234.56"),
    ],
)
def test_values_that_nothing_holds_are_found(text: str, value: str) -> None:
    assert unsourced(text, SEEN, [ORDER]) == [value]


def test_without_a_tools_result_only_what_is_stated_as_a_fact_needs_a_source() -> None:
    assert unsourced("Water boils near 100 degrees, after some 12 minutes.", "hi") == []
    assert unsourced("Your limit is 250 a day.", "hi") == ["250"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "text",
    [
        "ab1",
        "x",
        "A-",
        "AB-",
        "1",
        "1,111",
        "a@",
        "a.",
        "`",
        "``` a",
        "0a-",
        " ",
        "is 5 ",
        "ABC-1234 ",
    ],
)
def test_a_long_text_takes_time_in_proportion(text: str) -> None:
    """Where a pattern looks at the rest of the text from each place, this takes an hour."""
    long = text * (100_000 // len(text))
    for answer in (long, f"It is 0.{long}"):
        unsourced(answer, "hi")
        hidden_failure(f"the {answer}", [{"status": "error", "tool_id": "balance"}])
