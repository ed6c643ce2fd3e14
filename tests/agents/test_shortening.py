"""What a model is shown of a long conversation: the newest, calls with their results, on record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit import Tool
from remit.agents.worker.conversation import count_omitted, shorten
from remit.kernel.errors import InvalidInputError
from tests.support.agents import TEXT, Scripted, anthropic_runtime, tools_only
from tests.support.wire import message, tool_use


def _conversation(sizes: list[int]) -> list[dict[str, Any]]:
    """A question, then a call and its result of each size."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look at all."}]
    for number, size in enumerate(sizes):
        use = {"type": "tool_use", "id": f"t{number}", "name": "look", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "x" * size}
        messages.append({"role": "assistant", "content": [use]})
        messages.append({"role": "user", "content": [{**result, "is_error": False}]})
    return messages


@given(st.lists(st.integers(0, 4000), max_size=12), st.integers(1, 4000))
def test_calls_keep_their_results_and_the_oldest_go_first(sizes: list[int], most: int) -> None:
    messages = _conversation(sizes)
    kept = shorten(messages, most)
    assert len(kept) == len(messages)
    ids = [
        (one["type"], one.get("id") or one["tool_use_id"]) for m in kept[1:] for one in m["content"]
    ]
    assert ids == [
        (kind, f"t{number}") for number in range(len(sizes)) for kind in ("tool_use", "tool_result")
    ]
    count = count_omitted(kept)
    assert kept[1 + 2 * count :] == messages[1 + 2 * count :]
    assert kept[-1] == messages[-1]
    fits = len(json.dumps(kept, separators=(",", ":"))) <= most * 4
    assert fits or count == max(0, len(sizes) - 1)
    assert shorten(kept, most) == kept or not fits


def test_old_results_of_tools_go_on_record_and_again_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = [tools_only(tool_use("look", {"text": f"shelf {n}"}, f"t{n}")) for n in range(4)]
    pay = tools_only(tool_use("pay", {"text": "10"}, "t9"))
    script = [*looks, pay, message("Four shelves.")]
    root = tmp_path / "root"
    with anthropic_runtime(root, monkeypatch, *script) as (runtime, server):
        look = Tool("look", "Look.", TEXT, lambda text: f"{text}: " + "tea " * 1000)
        paying = Tool("pay", "Pay.", TEXT, lambda text: "paid")
        agent = runtime.agent(
            "clerk", tools=[look, paying], approve=["pay"], context_tokens=2500, turn_limit=9
        )
        session = agent.session()
        (asked,) = session.turn("Look at all.").waiting_for
        runtime.approvals.decide(asked.request_id, granted=True, by="Ann")
        assert session.resume().response == "Four shelves."
        left = [
            entry.metadata.get("left_out", 0)
            for entry in runtime.ledger.query(event_type="LLM_CALL")
        ]
        sent = server.calls[-1].body["messages"]
        shown = [one for m in sent[1:] for one in m["content"] if one["type"] == "tool_result"]
        assert left == [0, 0, 0, 2, 2, 2]
        assert [f"shelf {n}:" in str(shown[n]["content"]) for n in range(4)] == [
            False, False, True, True,
        ]  # fmt: skip
        (started,) = runtime.ledger.query(event_type="SESSION_START")
        assert "supervisor.context_tokens" in started.metadata["overrides"]


def test_old_turns_go_by_tokens_on_record(scripted: Scripted) -> None:
    with scripted(message("Yes. " * 40)) as (runtime, server):
        session = runtime.agent("clerk", context_tokens=130).session()
        turns = [session.turn(f"Question {n}?").turn_entry_id for n in range(4)]
        said = json.dumps(server.calls[-1].body["messages"])
        assert [f"Question {n}?" in said for n in range(4)] == [False, True, True, True]
        plan = list(runtime.ledger.query(event_type="WO_PLANNED"))[-1]
        left = plan.metadata["attention"]["left_out"]
        assert [one["ref"] for one in left] == turns[:1]


@pytest.mark.parametrize("tokens", [0, -1, 1.5, True])
def test_what_is_no_number_of_tokens_is_refused(scripted: Scripted, tokens: Any) -> None:
    with (
        scripted(message("x")) as (runtime, _),
        pytest.raises(InvalidInputError, match="context_tokens"),
    ):
        runtime.agent("clerk", context_tokens=tokens)
