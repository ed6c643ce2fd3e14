"""The official SDKs with only base URL and key changed, before both kinds of provider."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.running import Served
from tests.server.sdks import MODELS, anthropic_at, is_whole, openai_at, rates, snapshot
from tests.support.upstream import Upstream

both = pytest.mark.parametrize("model", MODELS)

# The SDK warns of models whose end is near; here nobody but a test answers.
pytestmark = pytest.mark.filterwarnings("ignore:The model .* is deprecated:DeprecationWarning")


def _asked(session: str, model: str, **more: Any) -> Any:
    return {"model": model, "max_tokens": 50, "messages": _turn("hello there"),
            "extra_headers": {"x-remit-session": session}, **more}  # fmt: skip


def _turn(text: str) -> Any:
    return [{"role": "user", "content": text}]


def _named(session: str) -> dict[str, str]:
    return {"x-remit-session": session, "x-remit-agent": "agent-7",
            "x-remit-work-order": "WO-mine-001"}  # fmt: skip


def _recorded(
    raw: Any, served: Served, session: str, model: str, dialect: str, tokens_in: int
) -> dict[str, Any]:
    """Check what every answer leaves; return the metadata of its exchange."""
    answer = raw.parse()
    assert answer.model == model
    type(answer).model_validate(answer.to_dict())
    entry = is_whole(
        served, session, model, dialect, response="You said: hello there",
        finish_reason="stop", agent_id="agent-7", work_order_id="WO-mine-001",
        input_tokens=tokens_in, output_tokens=4,
    )  # fmt: skip
    assert raw.headers["x-remit-exchange"] == entry.id
    assert raw.headers["x-remit-dispatch"] == entry.metadata["dispatch_entry_id"]
    assert raw.headers["x-remit-cost-certainty"] == "measured"
    assert float(raw.headers["x-remit-cost-usd"]) == pytest.approx(entry.metadata["cost_usd"])
    return entry.metadata


@both
def test_an_answer_of_chat_completions_and_its_record(
    served: Served, session: str, model: str
) -> None:
    more = {"temperature": 0.5, "top_p": 0.9}
    asked = _asked(session, model, extra_headers=_named(session), **more)
    raw = openai_at(served).chat.completions.with_raw_response.create(**asked)
    (choice,), usage = raw.parse().choices, raw.parse().usage
    assert (choice.message.content, choice.finish_reason) == ("You said: hello there", "stop")
    assert (usage.prompt_tokens, usage.completion_tokens) == (3, 4)
    told = _recorded(raw, served, session, model, "openai", 3)
    assert told["prompt"] == _turn("hello there")
    own = model.startswith("gpt")
    taken = more if own else {"temperature": 0.5}  # Claude takes only one of both
    assert told["parameters"].items() >= taken.items()
    assert told.get("dropped", []) == ([] if own else ["top_p"])


@both
def test_an_answer_of_messages_and_its_record(served: Served, session: str, model: str) -> None:
    more = {"system": "be brief", "stop_sequences": ["END"]}
    asked = _asked(session, model, extra_headers=_named(session), **more)
    raw = anthropic_at(served).messages.with_raw_response.create(**asked)
    (block,), reason = raw.parse().content, raw.parse().stop_reason
    assert (block.text, reason) == ("You said: hello there", "end_turn")
    told = _recorded(raw, served, session, model, "anthropic", raw.parse().usage.input_tokens)
    roles = [turn["role"] for turn in told["prompt"]]
    if model.startswith("claude"):
        assert (told["input_tokens"], told["system"], roles) == (5, "be brief", ["user"])
        assert told["parameters"]["stop_sequences"] == ["END"]
    else:
        assert roles == ["system", "user"]
        assert told["parameters"]["stop"] == ["END"]


def test_calls_without_a_session_have_one_by_key_and_day(served: Served) -> None:
    asked = _asked("", MODELS[0], extra_headers={})
    raw = openai_at(served).chat.completions.with_raw_response.create(**asked)
    told = served.ledger.read(raw.headers["x-remit-exchange"]).metadata
    assert told["session_id"].startswith("SES-" + told["key_id"].removeprefix("KEY-"))


@both
@pytest.mark.parametrize("with_usage", [False, True])
def test_a_stream_ends_with_usage(
    served: Served, session: str, model: str, with_usage: bool
) -> None:
    more = {"stream_options": {"include_usage": True}} if with_usage else {}
    asked = _asked(session, model, **more)
    with openai_at(served).chat.completions.create(**asked, stream=True) as stream:
        chunks = list(stream)
    for chunk in chunks:
        type(chunk).model_validate(chunk.to_dict())
    if with_usage:
        last = chunks.pop()
        assert last.choices == []
        assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (3, 4)
    assert all(chunk.usage is None for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "stop"


@pytest.mark.parametrize(("dialect", "model"), [("openai", MODELS[1]), ("anthropic", MODELS[0])])
@pytest.mark.parametrize("garbage", ["truncated", "html"])
def test_an_answer_that_cannot_be_translated_is_paid_and_not_tried_again(
    served: Served, upstream: Upstream, session: str, dialect: str, model: str, garbage: str
) -> None:
    named, before = snapshot(model, len(garbage)), upstream.count()
    for _ in range(4):  # more than open a circuit
        text = f"x [[garbage={garbage}]]"
        status, body, headers = served.call(dialect, text, session=session, model=named)
        assert (status, b"answer_untranslatable" in body) == (502, True)
        assert headers["x-should-retry"] == "false"
        assert headers["x-remit-exchange"]
    assert upstream.count() == before + 4
    for entry in served.entries("EXCHANGE", session):  # nobody knows what was billed
        assert entry.decision == "ERROR"
        assert entry.metadata["cost_certainty"] == "upper_bound"
        assert entry.metadata["output_tokens"] == 50
        assert entry.metadata["cost_usd"] > rates(model, 0, 50)


def test_nothing_of_a_key_is_on_disk(served: Served, session: str) -> None:
    assert served.call("openai", "hello", session=session)[0] == 200
    for path in (*served.root.rglob("*"), served.errors):
        if path.is_file():
            data = path.read_bytes()
            assert served.token.encode() not in data, path
            assert b"sk-upstream" not in data, path
