"""What a turn is given reaches its tools, typed, and no record."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from remit import Context, tool
from remit.kernel.errors import InvalidInputError
from remit.runtime import Runtime
from tests.agents.test_subagents import by_agent
from tests.support.agents import Scripted, tools_only
from tests.support.wire import message, tool_use


@dataclass
class Shop:
    secret: str
    sold: list[tuple[str, str, str, str]] = field(default_factory=list)


@tool
def sell(context: Context[Shop], what: str) -> str:
    """Sell something.

    Args:
        what: of the shop's.
    """
    shop = context.deps
    shop.sold.append((what, context.user, context.session_id, context.idempotency_key))
    return f"{what} sold by {context.agent_id}"


@tool
async def whose(context: Context[Any]) -> str:
    """Whose session it is."""
    return context.user or "nobody's"


def test_the_model_does_not_see_it() -> None:
    assert list(sell.input_schema["properties"]) == ["what"]
    assert whose.input_schema["properties"] == {}
    assert (sell.context, sell.deps, whose.deps) == ("context", Shop, None)


def _script() -> Any:
    return by_agent(
        seller=[
            tools_only(tool_use("sell", {"what": "bread"}, "t1"), tool_use("whose", {}, "t2")),
            message("Sold."),
        ]
    )


def _seller(runtime: Runtime, **options: Any) -> Any:
    return runtime.agent(
        "seller", instructions="You are the seller.", tools=[sell, whose], **options
    )


def test_it_holds_what_the_turn_was_given(scripted: Scripted) -> None:
    shop = Shop("swordfish-77")
    with scripted(_script()) as (runtime, server):
        result = _seller(runtime).run("Bread, please.", user="ann", deps=shop)
        outputs = [one["output"] for one in result.tool_results]
        assert outputs == ["bread sold by seller", "ann"]
        ((what, user, session_id, key),) = shop.sold
        assert (what, user, session_id) == ("bread", "ann", result.session_id)
        keys = [e.metadata["idempotency_key"] for e in runtime.ledger.query(event_type="TOOL_CALL")]
        assert key in keys
        assert "swordfish-77" not in str([e.metadata for e in runtime.ledger.read_all()])
        assert "context" not in str(server.calls[0].body["tools"])


@pytest.mark.parametrize("deps", [None, "a text", object()])
def test_a_turn_without_it_is_refused_before_any_work(scripted: Scripted, deps: Any) -> None:
    with scripted(_script()) as (runtime, server):
        with pytest.raises(InvalidInputError, match="sell needs deps of the type Shop"):
            _seller(runtime).run("Bread, please.", deps=deps)
        assert not server.calls
        assert "WO_PLANNED" not in runtime.ledger.count_by_event()


def test_a_turn_that_is_resumed_is_given_it_again(scripted: Scripted, tmp_path: Path) -> None:
    root = tmp_path / "root"
    with scripted(_script()) as (runtime, _):
        session = _seller(runtime, approve=["sell"]).session()
        first = Shop("one")
        (asked,) = session.turn("Bread, please.", deps=first).waiting_for
        runtime.approvals.decide(asked.request_id, granted=True, by="Joe")
        with Runtime.open(root) as other:
            again = _seller(other, approve=["sell"]).session(session.session_id)
            with pytest.raises(InvalidInputError, match="the turn was given none"):
                again.resume()
            second = Shop("two")
            assert again.resume(deps=second).response == "Sold."
        assert (len(first.sold), len(second.sold)) == (0, 1)
