"""The official SDKs with only base URL and key changed, before both kinds of provider."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any, ClassVar

import anthropic
import openai
import pytest

from tests.server.running import Served
from tests.server.sdks import HARD, MODELS, is_whole, rates, snapshot
from tests.support.upstream import Upstream

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
both = pytest.mark.parametrize("model", MODELS)

# The SDK warns of models whose end is near; here nobody but a test answers.
pytestmark = pytest.mark.filterwarnings("ignore:The model .* is deprecated:DeprecationWarning")


def _turn(text: Any) -> Any:
    return [{"role": "user", "content": text}]


class Sdk:
    """An official SDK at a server: what the tests of both ask of it."""

    dialect: str
    module: Any
    maker: str
    """How the names of its own provider's models begin."""
    model: str
    more: ClassVar[dict[str, Any]]
    """Optional members of a request."""
    ends: tuple[str, str]
    """Why an answer ended: as a text, and with calls of tools."""
    final: str
    """The method of a stream that reads it to its end."""
    tools: ClassVar[Any]

    def __init__(self, client: Any) -> None:
        self.client = client
        self.calls = self.calls_of(client)

    @classmethod
    def options(cls, served: Served) -> dict[str, Any]:
        return {"base_url": f"{served.url}{cls.path}", "api_key": served.token, **HARD}

    path = ""

    def with_key(self, key: str) -> Sdk:
        return type(self)(self.client.with_options(api_key=key))

    def asked(self, session: str, model: str, content: Any, **more: Any) -> Any:
        return {"model": model, "max_tokens": 50, "messages": _turn(content),
                "extra_headers": {"x-remit-session": session}, **more}  # fmt: skip

    def streamed(self, asked: Any) -> Any:
        with self.calls.stream(**asked) as stream:
            return getattr(stream, self.final)()

    def refused(self, session: str, **more: Any) -> tuple[Any, dict[str, Any]]:
        """The error that the SDK raises, and what its body says."""
        asked = {**self.asked(session, self.model, "hello"), **more}
        with pytest.raises(self.module.APIStatusError) as caught:
            self.calls.create(**asked)
        told = self.told(caught.value.body)
        assert told["message"]
        return caught.value, told

    calls_of: Any
    told: Any
    text: Any
    usage: Any
    uses: Any


class OpenAi(Sdk):
    dialect, module, maker, model, path = "openai", openai, "gpt", MODELS[0], "/v1"
    more: ClassVar = {"temperature": 0.5, "top_p": 0.9}
    ends, final = ("stop", "tool_calls"), "get_final_completion"
    tools: ClassVar = [
        {"type": "function",
         "function": {"name": "get_weather", "description": "Weather.", "parameters": SCHEMA}}
    ]  # fmt: skip

    @staticmethod
    def calls_of(client: Any) -> Any:
        return client.chat.completions

    @staticmethod
    def told(body: Any) -> dict[str, Any]:
        return dict(body)

    @staticmethod
    def text(answer: Any) -> tuple[str, str]:
        """The text of an answer, and why it ended."""
        return answer.choices[0].message.content, answer.choices[0].finish_reason

    @staticmethod
    def usage(answer: Any) -> tuple[int, int]:
        return answer.usage.prompt_tokens, answer.usage.completion_tokens

    @staticmethod
    def uses(answer: Any) -> list[tuple[str, str, Any]]:
        calls = [(call.id, call.function) for call in answer.choices[0].message.tool_calls]
        return [(name, told.name, json.loads(told.arguments)) for name, told in calls]

    @staticmethod
    def results(uses: list[tuple[str, str, Any]]) -> list[Any]:
        calls = [
            {"id": call, "type": "function",
             "function": {"name": name, "arguments": json.dumps(given)}}
            for call, name, given in uses
        ]  # fmt: skip
        return [{"role": "assistant", "tool_calls": calls},
                *({"role": "tool", "tool_call_id": call, "content": "18 C"}
                  for call, *_ in uses)]  # fmt: skip


class Anthropic(Sdk):
    dialect, module, maker, model = "anthropic", anthropic, "claude", MODELS[1]
    more: ClassVar = {"system": "be brief", "stop_sequences": ["END"]}
    ends, final = ("end_turn", "tool_use"), "get_final_message"
    tools: ClassVar = [
        {"name": "get_weather", "description": "The weather.", "input_schema": SCHEMA}
    ]

    @staticmethod
    def calls_of(client: Any) -> Any:
        return client.messages

    @staticmethod
    def told(body: Any) -> dict[str, Any]:
        assert body["type"] == "error"
        return dict(body["error"])

    @staticmethod
    def text(answer: Any) -> tuple[str, str]:
        """The text of an answer, and why it ended."""
        return "".join(block.text for block in answer.content), answer.stop_reason

    @staticmethod
    def usage(answer: Any) -> tuple[int, int]:
        return answer.usage.input_tokens, answer.usage.output_tokens

    @staticmethod
    def uses(answer: Any) -> list[tuple[str, str, Any]]:
        calls = [block for block in answer.content if block.type == "tool_use"]
        return [(call.id, call.name, call.input) for call in calls]

    @staticmethod
    def results(uses: list[tuple[str, str, Any]]) -> list[Any]:
        calls = [{"type": "tool_use", "id": call, "name": name, "input": given}
                 for call, name, given in uses]  # fmt: skip
        done = [{"type": "tool_result", "tool_use_id": call, "content": "18 C"}
                for call, *_ in uses]  # fmt: skip
        return [{"role": "assistant", "content": calls}, *_turn(done)]


MAKERS: Any = {OpenAi: openai.OpenAI, Anthropic: anthropic.Anthropic}


@contextlib.contextmanager
def using(kind: type[Sdk], served: Served) -> Iterator[Any]:
    with MAKERS[kind](**kind.options(served)) as client:
        yield kind(client)


@pytest.fixture(scope="module", params=[OpenAi, Anthropic], ids=["openai", "anthropic"])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def sdk(kind: type[Sdk], served: Served) -> Iterator[Any]:
    with using(kind, served) as found:
        yield found


@pytest.fixture(scope="module")
def chat(served: Served) -> Iterator[Any]:
    with using(OpenAi, served) as found:
        yield found


@both
def test_an_answer_and_its_record(sdk: Any, served: Served, session: str, model: str) -> None:
    named = {"x-remit-session": session, "x-remit-agent": "agent-7",
             "x-remit-work-order": "WO-mine-001"}  # fmt: skip
    asked = sdk.asked(session, model, "hello there", extra_headers=named, **sdk.more)
    raw = sdk.calls.with_raw_response.create(**asked)
    answer = raw.parse()
    assert (sdk.text(answer), answer.model) == (("You said: hello there", sdk.ends[0]), model)
    type(answer).model_validate(answer.to_dict())
    tokens = sdk.usage(answer)
    entry = is_whole(
        served, session, model, sdk.dialect, response="You said: hello there",
        finish_reason="stop", agent_id="agent-7", work_order_id="WO-mine-001",
        input_tokens=tokens[0], output_tokens=4,
    )  # fmt: skip
    told, roles = entry.metadata, [turn["role"] for turn in entry.metadata["prompt"]]
    if sdk.dialect == "openai":
        assert (tokens, told["prompt"]) == ((3, 4), _turn("hello there"))
        own = model.startswith(sdk.maker)
        taken = sdk.more if own else {"temperature": 0.5}  # Claude takes only one of both
        assert told["parameters"].items() >= taken.items()
        assert told.get("dropped", []) == [] if own else told["dropped"] == ["top_p"]
    elif model.startswith("claude"):
        assert (tokens, told["system"], roles) == ((5, 4), "be brief", ["user"])
        assert told["parameters"]["stop_sequences"] == ["END"]
    else:
        assert roles == ["system", "user"]
        assert told["parameters"]["stop"] == ["END"]
    assert raw.headers["x-remit-exchange"] == entry.id
    assert raw.headers["x-remit-dispatch"] == told["dispatch_entry_id"]
    assert raw.headers["x-remit-cost-certainty"] == "measured"
    assert float(raw.headers["x-remit-cost-usd"]) == pytest.approx(told["cost_usd"])


def test_calls_without_a_session_have_one_by_key_and_day(chat: Any, served: Served) -> None:
    asked = chat.asked("", chat.model, "hello", extra_headers={})
    raw = chat.calls.with_raw_response.create(**asked)
    told = served.ledger.read(raw.headers["x-remit-exchange"]).metadata
    assert told["session_id"].startswith("SES-" + told["key_id"].removeprefix("KEY-"))


@both
@pytest.mark.parametrize("with_usage", [False, True])
def test_a_stream_ends_with_usage(chat: Any, session: str, model: str, with_usage: bool) -> None:
    more = {"stream_options": {"include_usage": True}} if with_usage else {}
    asked = chat.asked(session, model, "hello there", **more)
    with chat.calls.create(**asked, stream=True) as stream:
        chunks = list(stream)
    for chunk in chunks:
        type(chunk).model_validate(chunk.to_dict())
    if with_usage:
        last = chunks.pop()
        assert (last.choices, chat.usage(last)) == ([], (3, 4))
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


def test_nothing_of_a_key_is_on_disk(served: Served, chat: Any, session: str) -> None:
    chat.calls.create(**chat.asked(session, chat.model, "hello"))
    for path in (*served.root.rglob("*"), served.errors):
        if path.is_file():
            data = path.read_bytes()
            assert served.token.encode() not in data, path
            assert b"sk-upstream" not in data, path
