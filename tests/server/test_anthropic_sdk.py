"""The official Anthropic SDK with only base URL and key changed, before both kinds of provider."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from tests.server.conftest import QUICK
from tests.server.running import Served, new_session, serving
from tests.server.sdks import DEFAULTS, HARD, MODELS, PNG, Weather, is_whole
from tests.support import wire
from tests.support.upstream import Upstream

TOOLS: Any = [
    {
        "name": "get_weather",
        "description": "The weather of a city.",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
    }
]

both = pytest.mark.parametrize("model", MODELS)

# The SDK warns of models whose end is near; here nobody but a test answers.
pytestmark = pytest.mark.filterwarnings("ignore:The model .* is deprecated:DeprecationWarning")


@pytest.fixture(scope="module")
def claude(served: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=served.url, api_key=served.token, **HARD) as client:  # type: ignore[arg-type]
        yield client


@pytest.fixture(scope="module")
def seen(
    behind: wire.WireServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Served, anthropic.Anthropic]]:
    root = tmp_path_factory.mktemp("seen") / "root"
    with (
        serving(root, behind.url, toml=QUICK) as served,
        anthropic.Anthropic(base_url=served.url, api_key=served.token, **HARD) as client,  # type: ignore[arg-type]
    ):
        yield served, client


def _named(session: str) -> dict[str, str]:
    return {"x-remit-session": session}


def _turn(text: Any) -> Any:
    return [{"role": "user", "content": text}]


def _asked(session: str, model: str, content: Any, **more: Any) -> Any:
    return {"model": model, "max_tokens": 64, "messages": _turn(content),
            "extra_headers": _named(session), **more}  # fmt: skip


@both
def test_an_answer_and_its_record(
    claude: anthropic.Anthropic, served: Served, session: str, model: str
) -> None:
    named = {**_named(session), "x-remit-agent": "agent-7", "x-remit-work-order": "WO-mine-001"}
    raw = claude.messages.with_raw_response.create(
        **_asked(session, model, "hello there", system="be brief", stop_sequences=["END"],
                 extra_headers=named)
    )  # fmt: skip
    answer = raw.parse()
    assert [block.to_dict()["text"] for block in answer.content] == ["You said: hello there"]
    assert (answer.stop_reason, answer.model, answer.role) == ("end_turn", model, "assistant")
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (
        (5, 4) if model.startswith("claude") else (answer.usage.input_tokens, 4)
    )
    anthropic.types.Message.model_validate(answer.to_dict())
    entry = is_whole(
        served, session, model, "anthropic", response="You said: hello there",
        finish_reason="stop", agent_id="agent-7", work_order_id="WO-mine-001",
        input_tokens=answer.usage.input_tokens, output_tokens=4,
    )  # fmt: skip
    told, roles = entry.metadata, [turn["role"] for turn in entry.metadata["prompt"]]
    if model.startswith("claude"):
        assert (told["system"], roles) == ("be brief", ["user"])
        assert told["parameters"]["stop_sequences"] == ["END"]
    else:
        assert roles == ["system", "user"]
        assert told["parameters"]["stop"] == ["END"]
    assert raw.headers["x-remit-exchange"] == entry.id
    assert raw.headers["x-remit-dispatch"] == entry.metadata["dispatch_entry_id"]
    assert float(raw.headers["x-remit-cost-usd"]) == pytest.approx(entry.metadata["cost_usd"])


@both
def test_a_stream_and_its_record(
    claude: anthropic.Anthropic, served: Served, session: str, model: str
) -> None:
    with claude.messages.stream(**_asked(session, model, "hello there")) as stream:
        kinds = [event.type for event in stream]
        answer = stream.get_final_message()
    assert answer.content[0].to_dict()["text"] == "You said: hello there"
    assert answer.stop_reason == "end_turn"
    assert answer.usage.output_tokens == 4
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    entry = is_whole(
        served, session, model, "anthropic", response="You said: hello there", output_tokens=4,
        input_tokens=3,
    )  # fmt: skip
    assert 0 < entry.metadata["time_to_first_token_ms"] <= entry.metadata["latency_ms"]


@both
async def test_the_asynchronous_client(served: Served, session: str, model: str) -> None:
    async with anthropic.AsyncAnthropic(
        base_url=served.url,
        api_key=served.token,
        **HARD,  # type: ignore[arg-type]
    ) as client:
        answer = await client.messages.create(**_asked(session, model, "one"))
        assert answer.content[0].text == "You said: one"
        is_whole(served, session, model, "anthropic", response="You said: one")
        other = new_session()
        async with client.messages.stream(**_asked(other, model, "two")) as stream:
            assert await stream.get_final_text() == "You said: two"
        is_whole(served, other, model, "anthropic", response="You said: two")


@both
@pytest.mark.parametrize("stream", [False, True])
def test_parallel_tools_and_their_results(
    claude: anthropic.Anthropic, served: Served, session: str, model: str, stream: bool
) -> None:
    text = '[[tool=get_weather:{"city": "Paris"} parallel=2]]'
    asked = _asked(session, model, text, tools=TOOLS, tool_choice={"type": "auto"})
    if stream:
        with claude.messages.stream(**asked) as events:
            turn = events.get_final_message()
    else:
        turn = claude.messages.create(**asked)
    assert turn.stop_reason == "tool_use"
    calls = [block for block in turn.content if block.type == "tool_use"]
    assert len({call.id for call in calls}) == 2
    assert [(call.name, call.input) for call in calls] == [("get_weather", {"city": "Paris"})] * 2
    told = is_whole(served, session, model, "anthropic", finish_reason="tool_use").metadata
    if model.startswith("claude"):
        assert told["tools"] == TOOLS
        made = [block for block in told["answer"]["content"] if block["type"] == "tool_use"]
    else:
        assert [tool["function"]["name"] for tool in told["tools"]] == ["get_weather"]
        made = told["answer"]["choices"][0]["message"]["tool_calls"]
    assert [each["id"] for each in made] == [call.id for call in calls]
    messages = [
        *_turn(text),
        {"role": "assistant", "content": [block.to_dict() for block in turn.content]},
        *_turn([{"type": "tool_result", "tool_use_id": c.id, "content": "18 C"} for c in calls]),
    ]
    other = new_session()
    answer = claude.messages.create(**_asked(other, model, "", messages=messages, tools=TOOLS))
    assert answer.stop_reason == "end_turn"
    prompt = is_whole(served, other, model, "anthropic").metadata["prompt"]
    if model.startswith("claude"):
        assert prompt == messages
    else:
        assert [turn["tool_call_id"] for turn in prompt[-2:]] == [c.id for c in calls]


@both
def test_an_image_reaches_the_provider_in_its_own_form(
    seen: tuple[Served, anthropic.Anthropic], behind: wire.WireServer, session: str, model: str
) -> None:
    served, client = seen
    answer = wire.completion("a dot") if model.startswith("gpt") else wire.message("a dot")
    behind.script = [{**answer, "model": model}]
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    parts = [{"type": "text", "text": "what is it?"}, {"type": "image", "source": source}]
    said = client.messages.create(**_asked(session, model, parts))
    assert said.content[0].to_dict()["text"] == "a dot"
    sent = behind.calls[-1].body["messages"][0]["content"]
    if model.startswith("gpt"):
        url = f"data:image/png;base64,{PNG}"
        assert sent == [parts[0], {"type": "image_url", "image_url": {"url": url}}]
    else:
        assert sent == parts
    prompt = is_whole(served, session, model, "anthropic").metadata["prompt"]
    assert prompt[0]["content"] == sent


@both
def test_an_answer_held_to_a_schema(
    seen: tuple[Served, anthropic.Anthropic], behind: wire.WireServer, session: str, model: str
) -> None:
    served, client = seen
    text = json.dumps({"city": "Oslo", "degrees": -3})
    answer = wire.completion(text) if model.startswith("gpt") else wire.message(text)
    behind.script = [{**answer, "model": model}]
    said = client.messages.parse(**_asked(session, model, "Oslo?", output_format=Weather))
    assert said.parsed_output == Weather(city="Oslo", degrees=-3)
    body = behind.calls[-1].body
    if model.startswith("gpt"):
        assert body["response_format"]["type"] == "json_schema"
        schema = body["response_format"]["json_schema"]["schema"]
    else:
        schema = body["output_config"]["format"]["schema"]
    assert set(schema["properties"]) == {"city", "degrees"}
    is_whole(served, session, model, "anthropic", response=text)


def test_fields_nobody_here_knows_pass_both_ways(
    seen: tuple[Served, anthropic.Anthropic], behind: wire.WireServer, session: str
) -> None:
    served, client = seen
    model = "claude-sonnet-4-5"
    behind.script = [{**wire.message("hi"), "model": model, "x_new": {"a": [1, None]}}]
    answer = client.messages.create(
        **_asked(
            session, model, "hi", metadata={"user_id": "u-1"},
            system=[{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
            extra_body={"x_future": {"deep": [1.5, "é"]}, "top_k": 4},
        )
    )  # fmt: skip
    assert answer.to_dict()["x_new"] == {"a": [1, None]}
    call = behind.calls[-1]
    assert call.body["x_future"] == {"deep": [1.5, "é"]}
    assert call.body["metadata"] == {"user_id": "u-1"}
    assert "top_k" not in call.body  # which the version that this SDK names refuses
    assert call.body["system"][0]["cache_control"] == {"type": "ephemeral"}
    sent = {name.lower(): value for name, value in call.headers.items()}
    assert sent["x-api-key"] == "sk-upstream-anthropic"
    assert not any(name.startswith("x-remit") for name in sent)
    recorded = is_whole(served, session, model, "anthropic").metadata
    assert recorded["parameters"]["x_future"] == {"deep": [1.5, "é"]}
    assert recorded["dropped"] == ["top_k"]
    assert [change["path"] for change in recorded["changed"]] == ["/top_k"]


@both
def test_thinking_comes_through(
    claude: anthropic.Anthropic, served: Served, session: str, model: str
) -> None:
    with claude.messages.stream(**_asked(session, model, "hm [[thinking]]")) as stream:
        answer = stream.get_final_message()
    told = is_whole(served, session, model, "anthropic").metadata
    assert told["response"] == "You said: hm [[thinking]]"
    if model.startswith("claude"):
        thought, text = answer.content
        assert thought.to_dict() == {
            "type": "thinking", "thinking": "Let me think.", "signature": "c2lnbmVk",
        }  # fmt: skip
        assert text.to_dict()["text"] == "You said: hm [[thinking]]"


@both
def test_cached_tokens_are_charged_once(
    claude: anthropic.Anthropic, served: Served, session: str, model: str
) -> None:
    answer = claude.messages.create(**_asked(session, model, "x" * 80 + " [[cached=12]]"))
    assert answer.usage.cache_read_input_tokens == 12
    told = served.exchange(session).metadata
    assert told["cached_input_tokens"] == 12
    assert told["input_tokens"] == answer.usage.input_tokens + 12
    given, cached, made = {"gpt-4o-mini": (0.15, 0.075, 0.6),
                           "claude-sonnet-4-5": (3, 0.3, 15)}[model]  # fmt: skip
    exact = ((told["input_tokens"] - 12) * given + 12 * cached + told["output_tokens"] * made) / 1e6
    assert exact - 1e-12 <= told["cost_usd"] <= exact + 1.001e-9


@both
def test_tokens_are_counted_by_the_provider_or_here(
    claude: anthropic.Anthropic, served: Served, upstream: Upstream, model: str
) -> None:
    before = upstream.count()
    counted = claude.messages.count_tokens(model=model, messages=_turn("hello there"))
    assert counted.input_tokens >= 3
    assert upstream.count() == before + model.startswith("claude")


def test_models(claude: anthropic.Anthropic, served: Served) -> None:
    page = claude.models.list()
    assert set(DEFAULTS) <= {model.id for model in page.data}
    assert {model.lifecycle for model in page.data} == {"active"}
    assert page.has_more is False
    assert claude.models.retrieve(DEFAULTS[1]).id == DEFAULTS[1]
    with pytest.raises(anthropic.NotFoundError):
        claude.models.retrieve("nothing-like-it")


# -- refusals ------------------------------------------------------------------------------


def _refused(
    client: anthropic.Anthropic, session: str, **more: Any
) -> tuple[anthropic.APIStatusError, dict[str, Any]]:
    asked = {**_asked(session, "claude-sonnet-4-5", "hello"), **more}
    with pytest.raises(anthropic.APIStatusError) as caught:
        client.messages.create(**asked)
    body = caught.value.body
    assert isinstance(body, dict)
    assert body["type"] == "error"
    assert body["error"]["message"]
    return caught.value, body["error"]


def test_a_key_that_is_none(claude: anthropic.Anthropic, served: Served, session: str) -> None:
    error, told = _refused(claude.with_options(api_key="sk-remit-" + "x" * 43), session)
    assert isinstance(error, anthropic.AuthenticationError)
    assert told["type"] == "authentication_error"
    assert served.entries("PROMPT_REJECTED", session) == []


def test_a_key_as_a_bearer_token(served: Served, session: str) -> None:
    with anthropic.Anthropic(base_url=served.url, auth_token=served.token, **HARD) as client:  # type: ignore[arg-type]
        client.messages.create(**_asked(session, "claude-sonnet-4-5", "hello"))
    is_whole(served, session, "claude-sonnet-4-5", "anthropic")


@both
def test_a_model_that_the_key_may_not_use(
    claude: anthropic.Anthropic, served: Served, upstream: Upstream, session: str, model: str
) -> None:
    (other,) = set(MODELS) - {model}
    client = claude.with_options(api_key=served.key(models=(other,)).key)
    before = upstream.count()
    error, told = _refused(client, session, model=model)
    assert isinstance(error, anthropic.PermissionDeniedError)
    assert (told["type"], told["code"]) == ("permission_error", "model_not_allowed")
    assert upstream.count() == before
    assert len(served.entries("PROMPT_REJECTED", session)) == 1


def test_a_budget_that_is_spent(
    claude: anthropic.Anthropic, served: Served, upstream: Upstream, session: str
) -> None:
    client = claude.with_options(api_key=served.key(usd_nano=1).key)
    before = upstream.count()
    error, told = _refused(client, session)
    assert (error.status_code, told["code"]) == (402, "budget_exhausted")
    assert upstream.count() == before
    assert served.entries("DISPATCH", session) == []


def test_too_many_requests_a_minute(
    claude: anthropic.Anthropic, served: Served, session: str
) -> None:
    client = claude.with_options(api_key=served.key(rpm=1).key)
    call = _asked(session, "claude-sonnet-4-5", "hello")
    client.messages.create(**call)
    with contextlib.suppress(anthropic.RateLimitError):  # where a minute has just ended
        client.messages.create(**call)
    error, told = _refused(client, session)
    assert isinstance(error, anthropic.RateLimitError)
    assert told["type"] == "rate_limit_error"
    assert 1 <= int(error.response.headers["retry-after"]) <= 60


@both
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("ordered", "status", "kind", "code"),
    [
        ("status=400", 400, "invalid_request_error", "invalid_request"),
        ("status=403", 502, "api_error", "auth_error"),
        ("status=413", 400, "invalid_request_error", "invalid_request"),
        ("status=429", 429, "rate_limit_error", "rate_limited"),
        ("status=500", 502, "api_error", "server_error"),
        ("status=529", 502, "api_error", "server_error"),
    ],
)
def test_what_a_provider_refuses(
    claude: anthropic.Anthropic, served: Served, session: str, model: str, ordered: str,
    status: int, kind: str, code: str, stream: bool,
) -> None:  # fmt: skip
    named = f"{model}-{session[4:10].lower()}"
    error, told = _refused(
        claude, session, model=named, messages=_turn(f"x [[{ordered}]]"), stream=stream
    )
    if model.startswith("claude"):  # in its own words
        own = int(ordered.removeprefix("status="))
        assert (error.status_code, told["message"]) == (own, f"{own} as ordered")
        assert set(told) == {"type", "message"}
    else:
        assert (error.status_code, told["type"], told["code"]) == (status, kind, code)
    attempts = served.entries("EXCHANGE", session)
    assert len(attempts) == (3 if code in ("rate_limited", "server_error") else 1)
    assert error.response.headers["x-remit-exchange"] == attempts[-1].id


@both
def test_a_provider_tells_when_to_come_back(
    claude: anthropic.Anthropic, session: str, model: str
) -> None:
    text = "x [[status=429 retry_after=7]]"
    error, _ = _refused(claude, session, model=f"{model}-late", messages=_turn(text))
    assert error.response.headers["retry-after"] == "7"


@both
def test_an_open_circuit(
    claude: anthropic.Anthropic, served: Served, session: str, model: str
) -> None:
    named = f"{model}-broken"
    _refused(claude, new_session(), model=named, messages=_turn("x [[status=500]]"))
    error, told = _refused(claude, session, model=named)
    assert (error.status_code, told["code"]) == (503, "circuit_open")
    assert len(served.entries("PROMPT_REJECTED", session)) == 1


def test_bodies_that_are_no_calls(claude: anthropic.Anthropic, session: str) -> None:
    for more, named in (({"messages": []}, "messages"), ({"max_tokens": 0}, "max_tokens")):
        error, told = _refused(claude, session, **more)
        assert isinstance(error, anthropic.BadRequestError)
        assert named in told["message"]


def test_fields_are_the_providers_to_judge(
    seen: tuple[Served, anthropic.Anthropic], behind: wire.WireServer, session: str
) -> None:
    served, client = seen
    error = {"type": "invalid_request_error", "message": "messages.0.role: no"}
    said = {"type": "error", "request_id": "req_1", "error": error}
    headers = {"request-id": "req_1", "anthropic-ratelimit-requests-remaining": "7"}
    behind.script = [wire.Raw(json.dumps(said).encode(), status=400, headers=headers)]
    turns: Any = [{"role": "robot", "content": {"x": 1}}]
    caught, _ = _refused(client, session, messages=turns, extra_body={"speed": 2.5})
    assert caught.response.content == json.dumps(said).encode()
    assert caught.request_id == "req_1"
    assert caught.response.headers["anthropic-ratelimit-requests-remaining"] == "7"
    body = behind.calls[-1].body
    assert (body["messages"], body["speed"]) == (turns, 2.5)
    told = served.exchange(session).metadata
    assert (told["prompt"], told["answer"]) == (turns, said)
