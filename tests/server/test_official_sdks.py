"""The official SDKs with only base URL and key changed, before both kinds of provider."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any, ClassVar

import anthropic
import openai
import pytest

from remit.ledger import Erased
from tests.server.conftest import QUICK
from tests.server.running import Served, new_session, serving
from tests.server.sdks import DEFAULTS, HARD, MODELS, PNG, Weather, is_whole, rates, snapshot
from tests.support import wire
from tests.support.upstream import Upstream

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = '[[tool=get_weather:{"city": "Paris"} parallel=2]]'
IMAGE = {
    "gpt": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
    "claude": {"type": "image",
               "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
}  # fmt: skip
REFUSED = {
    400: (400, "invalid_request"), 401: (502, "auth_error"), 403: (502, "auth_error"),
    404: (400, "invalid_request"), 413: (400, "invalid_request"), 429: (429, "rate_limited"),
    500: (502, "server_error"), 529: (502, "server_error"),
}  # fmt: skip
"""Remit's status and code for a status of a provider of the other dialect."""
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
    odd: ClassVar[dict[str, Any]]
    """Members of a request that Remit does not read."""
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
    odd: ClassVar = {"seed": 7, "store": True}
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
    odd: ClassVar = {"metadata": {"user_id": "u-1"},
           "system": [{"type": "text", "text": "s",
                       "cache_control": {"type": "ephemeral"}}]}  # fmt: skip
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


@pytest.fixture(scope="module")
def claude(served: Served) -> Iterator[Any]:
    with using(Anthropic, served) as found:
        yield found


@pytest.fixture(scope="module")
def watched(behind: wire.WireServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose upstream shows what it gets."""
    root = tmp_path_factory.mktemp("watched") / "root"
    with serving(root, behind.url, toml=QUICK) as running:
        yield running


@pytest.fixture(scope="module")
def seen(kind: type[Sdk], watched: Served) -> Iterator[Any]:
    with using(kind, watched) as found:
        yield found


def _answers(behind: wire.WireServer, model: str, text: str, **more: Any) -> None:
    answer = wire.completion(text) if model.startswith("gpt") else wire.message(text)
    behind.script = [{**answer, "model": model, **more}]


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


@both
def test_a_contract_and_a_subject_come_by_header(
    chat: Any, served: Served, session: str, model: str
) -> None:
    def call(name: str, **headers: str) -> None:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        chat.calls.create(
            **chat.asked(name, model, "hello", extra_headers={"x-remit-session": name, **named})
        )

    call(session, x_remit_contract="PRC-MINE-001", x_remit_subject="person-7")
    entry = served.exchange(session)
    assert entry.submission_id == entry.metadata["contract_id"] == "PRC-MINE-001"
    assert b"person-7" not in served.ledger.read_record(entry.id)
    assert entry.metadata["framework_id"] == ""  # nobody brought it
    call(f"{session}X", x_remit_contract="PRC-EXECUTE-001")
    assert served.exchange(f"{session}X").metadata["framework_id"] == "FMWK-RUNTIME-001"
    served.ledger.erase(subject_id="person-7", reason="asked to", requested_by="test")
    assert isinstance(served.exchange(session).metadata["response"], Erased)


def test_calls_without_a_session_have_one_by_key_and_day(chat: Any, served: Served) -> None:
    asked = chat.asked("", chat.model, "hello", extra_headers={})
    raw = chat.calls.with_raw_response.create(**asked)
    told = served.ledger.read(raw.headers["x-remit-exchange"]).metadata
    assert told["session_id"].startswith("SES-" + told["key_id"].removeprefix("KEY-"))


@both
def test_a_stream_and_its_record(sdk: Any, served: Served, session: str, model: str) -> None:
    with sdk.calls.stream(**sdk.asked(session, model, "hello there")) as stream:
        kinds = [event.type for event in stream]
        answer = getattr(stream, sdk.final)()
    assert sdk.text(answer) == ("You said: hello there", sdk.ends[0])
    if sdk.dialect == "anthropic":
        assert answer.usage.output_tokens == 4
        assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    told = is_whole(
        served, session, model, sdk.dialect, response="You said: hello there", output_tokens=4,
        input_tokens=3,
    ).metadata  # fmt: skip
    assert 0 < told["time_to_first_token_ms"] <= told["latency_ms"]


@both
@pytest.mark.parametrize("with_usage", [False, True])
def test_a_stream_ends_with_usage_where_it_is_asked_for(
    chat: Any, session: str, model: str, with_usage: bool
) -> None:
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


@both
async def test_the_asynchronous_client(sdk: Any, served: Served, session: str, model: str) -> None:
    maker = openai.AsyncOpenAI if sdk.dialect == "openai" else anthropic.AsyncAnthropic
    async with maker(**sdk.options(served)) as client:
        calls = sdk.calls_of(client)
        answer = await calls.create(**sdk.asked(session, model, "one"))
        assert sdk.text(answer)[0] == "You said: one"
        is_whole(served, session, model, sdk.dialect, response="You said: one")
        other = new_session()
        async with calls.stream(**sdk.asked(other, model, "two")) as stream:
            assert sdk.text(await getattr(stream, sdk.final)())[0] == "You said: two"
        is_whole(served, other, model, sdk.dialect, response="You said: two")


@both
@pytest.mark.parametrize("stream", [False, True])
def test_parallel_tools_and_their_results(
    sdk: Any, served: Served, session: str, model: str, stream: bool
) -> None:
    asked = sdk.asked(session, model, TOOL, tools=sdk.tools)
    turn = sdk.streamed(asked) if stream else sdk.calls.create(**asked)
    uses = sdk.uses(turn)
    ids = [call for call, *_ in uses]
    assert [told for _, *told in uses] == [["get_weather", {"city": "Paris"}]] * 2
    assert len(set(ids)) == 2
    told = is_whole(served, session, model, sdk.dialect, finish_reason="tool_use").metadata
    if model.startswith("gpt"):
        made = told["answer"]["choices"][0]["message"]["tool_calls"]
        names = [tool["function"]["name"] for tool in told["tools"]]
    else:
        made = [block for block in told["answer"]["content"] if block["type"] == "tool_use"]
        names = [tool["name"] for tool in told["tools"]]
    assert ([each["id"] for each in made], names) == (ids, ["get_weather"])
    messages, other = [*_turn(TOOL), *sdk.results(uses)], new_session()
    answer = sdk.calls.create(**sdk.asked(other, model, "", messages=messages, tools=sdk.tools))
    assert sdk.text(answer)[1] == sdk.ends[0]
    assert sdk.text(answer)[0].startswith("You said: ")
    prompt = is_whole(served, other, model, sdk.dialect).metadata["prompt"]
    if model == sdk.model:
        assert told["tools"] == sdk.tools
        assert prompt == messages
    elif model.startswith("gpt"):
        assert [turn["tool_call_id"] for turn in prompt[-2:]] == ids
    else:
        results = [block for block in prompt[-1]["content"] if block["type"] == "tool_result"]
        assert [result["tool_use_id"] for result in results] == ids


@both
def test_an_image_reaches_the_provider_in_its_own_form(
    seen: Any, watched: Served, behind: wire.WireServer, session: str, model: str
) -> None:
    _answers(behind, model, "a dot")
    text = {"type": "text", "text": "what is it?"}
    said = seen.calls.create(**seen.asked(session, model, [text, IMAGE[seen.maker]]))
    assert seen.text(said)[0] == "a dot"
    sent = behind.calls[-1].body["messages"][0]["content"]
    assert sent == [text, IMAGE["gpt" if model.startswith("gpt") else "claude"]]
    prompt = is_whole(watched, session, model, seen.dialect).metadata["prompt"]
    assert prompt[0]["content"] == sent


@both
def test_an_answer_held_to_a_schema(
    seen: Any, watched: Served, behind: wire.WireServer, session: str, model: str
) -> None:
    text = json.dumps({"city": "Oslo", "degrees": -3})
    _answers(behind, model, text)
    name = "response_format" if seen.dialect == "openai" else "output_format"
    answer = seen.calls.parse(**seen.asked(session, model, "Oslo?", **{name: Weather}))
    parsed = answer.choices[0].message.parsed if name[0] == "r" else answer.parsed_output
    assert parsed == Weather(city="Oslo", degrees=-3)
    body = behind.calls[-1].body
    if model.startswith("gpt"):
        assert body["response_format"]["type"] == "json_schema"
        sent = body["response_format"]["json_schema"]
        if seen.dialect == "openai":
            assert (sent["strict"], sent["name"]) == (True, "Weather")
    else:
        sent = body["output_config"]["format"]
    assert set(sent["schema"]["properties"]) == {"city", "degrees"}
    is_whole(watched, session, model, seen.dialect, response=text)


def test_fields_nobody_here_knows_pass_both_ways(
    seen: Any, watched: Served, behind: wire.WireServer, session: str
) -> None:
    _answers(behind, seen.model, "hi", x_new={"a": [1, None]})
    odd = {**seen.odd, "x_future": {"deep": [1.5, "é"]}}
    answer = seen.calls.create(**seen.asked(session, seen.model, "hi", extra_body=odd))
    assert answer.to_dict()["x_new"] == {"a": [1, None]}
    call = behind.calls[-1]
    assert call.body.items() >= odd.items()
    headers = {name.lower(): value for name, value in call.headers.items()}
    if seen.dialect == "openai":
        assert headers["authorization"] == "Bearer sk-upstream-openai"
    else:
        assert headers["x-api-key"] == "sk-upstream-anthropic"
    assert not any(name.startswith("x-remit") for name in headers)
    told = is_whole(watched, session, seen.model, seen.dialect).metadata["parameters"]
    odd.pop("system", None)
    assert told.items() >= odd.items()


@both
def test_thinking_comes_through(claude: Any, served: Served, session: str, model: str) -> None:
    answer = claude.streamed(claude.asked(session, model, "hm [[thinking]]"))
    told = is_whole(served, session, model, "anthropic").metadata
    assert told["response"] == "You said: hm [[thinking]]"
    if model.startswith("claude"):
        thought, text = answer.content
        assert thought.to_dict() == {
            "type": "thinking", "thinking": "Let me think.", "signature": "c2lnbmVk",
        }  # fmt: skip
        assert text.text == "You said: hm [[thinking]]"


@both
def test_cached_tokens_are_charged_once(
    claude: Any, served: Served, session: str, model: str
) -> None:
    answer = claude.calls.create(**claude.asked(session, model, "x" * 80 + " [[cached=12]]"))
    assert answer.usage.cache_read_input_tokens == 12
    told = served.exchange(session).metadata
    assert told["cached_input_tokens"] == 12
    assert told["input_tokens"] == answer.usage.input_tokens + 12
    cached = {"gpt-4o-mini": 0.075, "claude-sonnet-4-5": 0.3}[model] * 12 / 1e6
    exact = rates(model, told["input_tokens"] - 12, told["output_tokens"]) + cached
    assert exact - 1e-12 <= told["cost_usd"] <= exact + 1.001e-9


def test_models(sdk: Any, served: Served) -> None:
    listed = list(sdk.client.models.list())
    assert set(DEFAULTS) <= {model.id for model in listed}
    assert {getattr(model, "lifecycle", "active") for model in listed} == {"active"}
    assert sdk.client.models.retrieve(DEFAULTS[0]).id == DEFAULTS[0]
    with pytest.raises(sdk.module.NotFoundError):
        sdk.client.models.retrieve("nothing-like-it")
    few = sdk.with_key(served.key(models=(DEFAULTS[1],)).key).client.models.list()
    # A route that leads to it may be asked for too: it is given nothing else.
    assert [model.id for model in few] == ["auto", DEFAULTS[1]]


def test_a_key_as_a_bearer_token(served: Served, session: str) -> None:
    with anthropic.Anthropic(base_url=served.url, auth_token=served.token, **HARD) as client:  # type: ignore[arg-type]
        answer = client.messages.create(
            model=MODELS[1], max_tokens=9, messages=_turn("hello"),
            extra_headers={"x-remit-session": session},
        )  # fmt: skip
    assert answer.stop_reason == "end_turn"
    is_whole(served, session, MODELS[1], "anthropic")


def test_a_key_that_is_none(sdk: Any, served: Served, session: str) -> None:
    for wrong in ("sk-remit-" + "x" * 43, "nonsense", "~" * 4000):
        error, told = sdk.with_key(wrong).refused(session)
        assert isinstance(error, sdk.module.AuthenticationError)
        assert told["code"] == "invalid_api_key"
        assert wrong not in str(error)
    assert served.entries("PROMPT_REJECTED", session) == []
    assert served.entries("DISPATCH", session) == []


@both
def test_a_model_that_the_key_may_not_use(
    sdk: Any, served: Served, upstream: Upstream, session: str, model: str
) -> None:
    (other,) = set(MODELS) - {model}
    before = upstream.count()
    error, told = sdk.with_key(served.key(models=(other,)).key).refused(session, model=model)
    assert isinstance(error, sdk.module.PermissionDeniedError)
    assert told["code"] == "model_not_allowed"
    assert upstream.count() == before
    (entry,) = served.entries("PROMPT_REJECTED", session)
    assert error.response.headers["x-remit-exchange"] == entry.id
    assert entry.metadata["requested_model_id"] == model


def test_a_budget_that_is_spent(sdk: Any, served: Served, upstream: Upstream, session: str) -> None:
    before = upstream.count()
    error, told = sdk.with_key(served.key(usd_nano=1).key).refused(session)
    assert (error.status_code, told["code"]) == (402, "budget_exhausted")
    assert upstream.count() == before
    assert len(served.entries("PROMPT_REJECTED", session)) == 1
    assert served.entries("DISPATCH", session) == []


def test_too_many_requests_a_minute(sdk: Any, served: Served, session: str) -> None:
    hasty = sdk.with_key(served.key(rpm=1).key)
    call = sdk.asked(session, sdk.model, "hello")
    hasty.calls.create(**call)
    with contextlib.suppress(sdk.module.RateLimitError):  # where a minute has just ended
        hasty.calls.create(**call)
    error, _ = hasty.refused(session)
    assert isinstance(error, sdk.module.RateLimitError)
    assert 1 <= int(error.response.headers["retry-after"]) <= 60


@both
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("own", REFUSED)
def test_what_a_provider_refuses(
    sdk: Any, served: Served, session: str, model: str, own: int, stream: bool
) -> None:
    status, code = REFUSED[own]
    # A name of its own: a circuit that opens is of one model.
    named = f"{model}-{session[4:10].lower()}"
    error, told = sdk.refused(
        session, model=named, messages=_turn(f"x [[status={own}]]"), stream=stream
    )
    if model == sdk.model and own != 401:  # in its own words
        assert (error.status_code, told["message"]) == (own, f"{own} as ordered")
    else:
        assert (error.status_code, told["code"]) == (status, code)
    assert "sk-upstream" not in str(error)
    attempts = served.entries("EXCHANGE", session)
    assert {entry.decision for entry in attempts} == {"ERROR"}
    is_tried_again = code in ("rate_limited", "server_error")
    assert len(attempts) == (3 if is_tried_again else 1)
    retry = error.response.headers.get("x-should-retry")
    assert retry == ("false" if is_tried_again else None)
    assert error.response.headers["x-remit-exchange"] == attempts[-1].id
    for number, entry in enumerate(attempts[1:], 2):
        assert entry.metadata["attempt"] == number
        assert entry.metadata["retry_of"] == attempts[number - 2].id


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
@both
@pytest.mark.parametrize("garbage", ["json", "truncated", "wrong_shape", "html", "empty"])
def test_answers_that_are_none(
    served: Served, upstream: Upstream, session: str, dialect: str, model: str, garbage: str
) -> None:
    named, before = snapshot(model, len(garbage)), upstream.count()
    for _ in range(4):  # more than open a circuit
        text = f"x [[garbage={garbage}]]"
        status, body, headers = served.call(dialect, text, session=session, model=named)
        own = model.startswith("gpt") == (dialect == "openai")
        assert status == (200 if own else 502)
        if own:  # passed on as it came
            kind = "text/html" if garbage == "html" else "application/json"
            assert headers["content-type"].startswith(kind)
            assert b"remit" not in body.lower()
        else:
            assert b"answer_untranslatable" in body
            assert headers["x-should-retry"] == "false"  # it is paid
        assert headers["x-remit-exchange"]
    assert upstream.count() == before + 4  # never tried again
    for entry in served.entries("EXCHANGE", session):  # nobody knows what was billed
        assert entry.decision == "SUCCESS"
        assert entry.metadata["cost_certainty"] == "upper_bound"
        assert entry.metadata["output_tokens"] == 50
        assert entry.metadata["cost_usd"] > rates(model, 0, 50)


@both
def test_a_provider_tells_when_to_come_back(sdk: Any, session: str, model: str) -> None:
    turn = _turn("x [[status=429 retry_after=7]]")
    error, _ = sdk.refused(session, model=f"{model}-late-{sdk.dialect}", messages=turn)
    assert error.response.headers["retry-after"] == "7"


@both
def test_an_open_circuit(sdk: Any, served: Served, session: str, model: str) -> None:
    named = f"{model}-broken-{sdk.dialect}"
    sdk.refused(new_session(), model=named, messages=_turn("x [[status=500]]"))
    error, told = sdk.refused(session, model=named)
    assert (error.status_code, told["code"]) == (503, "circuit_open")
    assert len(served.entries("PROMPT_REJECTED", session)) == 1


def test_bodies_that_are_no_calls(sdk: Any, session: str) -> None:
    for more, name in (({"messages": []}, "messages"), ({"max_tokens": -1}, "max_tokens")):
        error, told = sdk.refused(session, **more)
        assert isinstance(error, sdk.module.BadRequestError)
        assert name in (told["param"] if sdk.dialect == "openai" else told["message"])


def test_fields_are_the_providers_to_judge(
    seen: Any, watched: Served, behind: wire.WireServer, session: str
) -> None:
    error = {"type": "invalid_request_error", "message": "temperature: no", "x_new": [1]}
    said: dict[str, Any] = {"error": error}
    name, limit = "x-request-id", "x-ratelimit-remaining-requests"
    if seen.dialect == "anthropic":
        said = {"type": "error", "request_id": "req_7", **said}
        name, limit = "request-id", "anthropic-ratelimit-requests-remaining"
    headers = {name: "req_7", limit: "12", "x-other": "no"}
    behind.script = [wire.Raw(json.dumps(said).encode(), status=422, headers=headers)]
    odd: Any = {
        "messages": [{"role": "robot", "content": {"x": 1}}],
        "n": 200,
        **({"temperature": 3} if seen.dialect == "openai" else {"speed": 2.5}),
    }
    caught, _ = seen.refused(session, extra_body=odd)
    reply = caught.response
    assert (reply.status_code, reply.content) == (422, json.dumps(said).encode())
    assert (reply.headers[name], reply.headers[limit]) == ("req_7", "12")
    assert caught.request_id == "req_7"
    assert "x-other" not in reply.headers
    assert behind.calls[-1].body.items() >= odd.items()
    told = watched.exchange(session).metadata
    assert (told["error_code"], told["answer"]) == ("INVALID_REQUEST", said)
    assert (told["prompt"], told["parameters"]["n"]) == (odd["messages"], 200)


def test_nothing_of_a_key_is_on_disk(served: Served, chat: Any, session: str) -> None:
    chat.calls.create(**chat.asked(session, chat.model, "hello"))
    for path in (*served.root.rglob("*"), served.errors):
        if path.is_file():
            data = path.read_bytes()
            assert served.token.encode() not in data, path
            assert b"sk-upstream" not in data, path
