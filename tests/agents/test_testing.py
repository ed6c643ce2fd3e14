"""``remit.testing``: scripted and recorded models, fixtures, checks of what is on record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import BaseModel

from remit import RemitError, Runtime, tool
from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerClosedError
from remit.providers import ProviderError
from remit.testing import RecordChecks, RecordedModel, ScriptedModel, ToolUse, new_root

pytest_plugins = ["remit.testing"]
Open = Callable[..., Runtime]


class Tea(BaseModel):
    name: str
    minutes: int


@dataclass
class Packet:
    grams: int


@tool(on_unknown="retry")
def stock(tea: str) -> int:
    """How many packets of a tea there are."""
    return 3


@tool
def order_tea(tea: str) -> str:
    """Order tea."""
    return "ordered"


def test_a_script_has_texts_tools_and_data(remit_runtime: Open) -> None:
    runtime = remit_runtime(
        ToolUse("stock", {"tea": "oolong"}),
        "Three packets.",
        Tea(name="oolong", minutes=3),
        Packet(100),
        {"result": [1, 2]},
        lambda request: f"You said {len(request.messages)} things.",
    )
    agent = runtime.agent("seller", tools=[stock])
    with agent.session() as session:
        assert session.turn("Any oolong?").response == "Three packets."
        assert session.turn("Which?", output_type=Tea).output.minutes == 3
        assert session.turn("How much?", output_type=Packet).output == Packet(100)
        assert session.turn("Numbers?", output_type=list[int]).output == [1, 2]
        assert "things" in session.turn("How much is there?").output
    record = RecordChecks(runtime, session.session_id)
    record.tool_ran("stock", tea="oolong")
    record.tool_never_ran("order_tea")
    record.spent_at_most(90)
    record.verified()
    for wrong in (
        lambda: record.tool_ran("stock", tea="sencha"),
        lambda: record.tool_never_ran("stock"),
        lambda: record.spent_at_most(80),
        lambda: record.approved("stock", "Ada"),
    ):
        with pytest.raises(AssertionError):
            wrong()


def test_a_script_that_has_ended_and_an_error_in_it_fail_the_turn(remit_runtime: Open) -> None:
    runtime = remit_runtime(ProviderError("AUTH_ERROR", "no such key"))
    agent = runtime.agent("guide", max_retries=0)
    assert "no such key" in agent.run("One").error_detail
    ended = agent.run("Two")
    assert ended.failed
    assert "the script has no answer to call 2" in ended.error_detail


def test_a_recorded_conversation_is_played_again(remit_runtime: Open, tmp_path: Path) -> None:
    first = remit_runtime(ToolUse("order_tea", {"tea": "oolong"}), "It is ordered.", "Bye.")

    def talk(runtime: Runtime) -> tuple[list[str], str]:
        session = runtime.agent("buyer", tools=[order_tea], approve=["order_tea"]).session()
        waiting = session.turn("Order oolong.")
        runtime.approvals.decide(waiting.waiting_for[0].request_id, granted=True, by="Ada")
        ended = session.resume()
        assert ended is not None
        return [ended.response, session.turn("Thanks.").response], session.session_id

    said, session_id = talk(first)
    RecordChecks(first, session_id).approved("order_tea", by="Ada")
    recorded = RecordedModel(first.ledger, session_id)
    with Runtime.open(new_root(tmp_path / "again"), providers={"recorded": recorded}) as second:
        assert talk(second)[0] == said == ["It is ordered.", "Bye."]
        other = second.agent("buyer", max_retries=0).run("Something else.")
        assert "the record has no answer to this" in other.error_detail


def test_what_a_newcomer_gets_wrong_is_said_with_the_way_out(remit_root: Path) -> None:
    script = {"scripted": ScriptedModel()}
    with Runtime.open(remit_root, providers=script) as runtime:
        lists = ({"tools": "stock"}, {"tools": stock}, {"mcp": "time"}, {"approve": "stock"})
        for wrong in lists:
            with pytest.raises(InvalidInputError, match=rf"Write {next(iter(wrong))}=\[…\]"):
                runtime.agent("a", **wrong)
        with pytest.raises(InvalidInputError, match="texts and files, not int"):
            runtime.agent("a").run(12)
        failed = runtime.agent("a").run("hello")
        with pytest.raises(RemitError) as caught:
            _ = failed.output
        assert str(caught.value).count(failed.error_code) == 1
        with pytest.raises(AssertionError, match="stock never ran"):
            RecordChecks(runtime, failed.session_id).tool_ran("stock")
        agent = runtime.agent("a")
    with pytest.raises(LedgerClosedError, match="Open the runtime again"):
        agent.run("hello")


def test_a_model_whose_provider_has_no_key_is_said_to_need_one(
    remit_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with Runtime.open(remit_root, model="openai/gpt-4o-mini") as runtime:
        failed = runtime.agent("a").run("hello")
    assert failed.error_detail.endswith("which is not configured; set OPENAI_API_KEY")
