"""The official OpenAI SDK with only base URL and key changed, before both kinds of provider."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from remit.ledger import Erased
from tests.server.conftest import QUICK
from tests.server.running import Served, new_session, serving
from tests.server.sdks import DEFAULTS, HARD, MODELS, PNG, Weather, is_whole, rates, snapshot
from tests.support import wire
from tests.support.upstream import Upstream

TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]

both = pytest.mark.parametrize("model", MODELS)


@pytest.fixture(scope="module")
def chat(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key=served.token, **HARD) as client:  # type: ignore[arg-type]
        yield client


@pytest.fixture(scope="module")
def seen(
    behind: wire.WireServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Served, openai.OpenAI]]:
    root = tmp_path_factory.mktemp("seen") / "root"
    with (
        serving(root, behind.url, toml=QUICK) as served,
        openai.OpenAI(base_url=f"{served.url}/v1", api_key=served.token, **HARD) as client,  # type: ignore[arg-type]
    ):
        yield served, client


def _named(session: str) -> dict[str, str]:
    return {"x-remit-session": session}


def _turn(text: Any) -> Any:
    return [{"role": "user", "content": text}]


@both
def test_an_answer_and_its_record(
    chat: openai.OpenAI, served: Served, session: str, model: str
) -> None:
    raw = chat.chat.completions.with_raw_response.create(
        model=model, messages=_turn("hello there"), max_tokens=40, temperature=0.5, top_p=0.9,
        extra_headers={**_named(session), "x-remit-agent": "agent-7",
                       "x-remit-work-order": "WO-mine-001"},
    )  # fmt: skip
    answer = raw.parse()
    assert answer.choices[0].message.content == "You said: hello there"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == model
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 4)
    openai.types.chat.ChatCompletion.model_validate(answer.to_dict())
    entry = is_whole(
        served, session, model, "openai", prompt=_turn("hello there"), finish_reason="stop",
        response="You said: hello there", input_tokens=3, output_tokens=4, agent_id="agent-7",
        work_order_id="WO-mine-001",
    )  # fmt: skip
    parameters = entry.metadata["parameters"]
    assert parameters["temperature"] == 0.5
    if model.startswith("gpt"):
        assert parameters["top_p"] == 0.9
    else:  # which takes only one of both
        assert entry.metadata["dropped"] == ["top_p"]
    assert raw.headers["x-remit-exchange"] == entry.id
    assert raw.headers["x-remit-dispatch"] == entry.metadata["dispatch_entry_id"]
    assert raw.headers["x-remit-cost-certainty"] == "measured"
    assert float(raw.headers["x-remit-cost-usd"]) == pytest.approx(entry.metadata["cost_usd"])


@both
def test_a_contract_and_a_subject_come_by_header(
    chat: openai.OpenAI, served: Served, session: str, model: str
) -> None:
    chat.chat.completions.create(
        model=model, messages=_turn("hello"),
        extra_headers={**_named(session), "x-remit-contract": "PRC-MINE-001",
                       "x-remit-subject": "person-7"},
    )  # fmt: skip
    entry = served.exchange(session)
    assert entry.submission_id == entry.metadata["contract_id"] == "PRC-MINE-001"
    assert b"person-7" not in served.ledger.read_record(entry.id)
    assert entry.metadata["framework_id"] == ""  # nobody brought it
    headers = {**_named(f"{session}X"), "x-remit-contract": "PRC-EXECUTE-001"}
    chat.chat.completions.create(model=model, messages=_turn("hello"), extra_headers=headers)
    assert served.exchange(f"{session}X").metadata["framework_id"] == "FMWK-RUNTIME-001"
    served.ledger.erase(subject_id="person-7", reason="asked to", requested_by="test")
    assert isinstance(served.exchange(session).metadata["response"], Erased)


@both
def test_calls_without_a_session_have_one_by_key_and_day(
    chat: openai.OpenAI, served: Served, model: str
) -> None:
    raw = chat.chat.completions.with_raw_response.create(model=model, messages=_turn("hello"))
    told = served.ledger.read(raw.headers["x-remit-exchange"]).metadata
    assert told["session_id"].startswith("SES-" + told["key_id"].removeprefix("KEY-"))


@both
def test_a_stream_and_its_record(
    chat: openai.OpenAI, served: Served, session: str, model: str
) -> None:
    with chat.chat.completions.create(
        model=model, messages=_turn("hello there"), stream=True, extra_headers=_named(session)
    ) as stream:
        chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "You said: hello there"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert all(chunk.usage is None for chunk in chunks)
    for chunk in chunks:
        openai.types.chat.ChatCompletionChunk.model_validate(chunk.to_dict())
    entry = is_whole(
        served, session, model, "openai", response="You said: hello there", output_tokens=4
    )
    assert 0 < entry.metadata["time_to_first_token_ms"] <= entry.metadata["latency_ms"]


@both
def test_a_stream_ends_with_usage_where_it_is_asked_for(
    chat: openai.OpenAI, session: str, model: str
) -> None:
    with chat.chat.completions.create(
        model=model, messages=_turn("hello there"), stream=True, extra_headers=_named(session),
        stream_options={"include_usage": True},
    ) as stream:  # fmt: skip
        *before, last = stream
    assert all(chunk.usage is None for chunk in before)
    assert last.choices == []
    assert last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (3, 4)


@both
async def test_the_asynchronous_client(served: Served, session: str, model: str) -> None:
    async with openai.AsyncOpenAI(
        base_url=f"{served.url}/v1",
        api_key=served.token,
        **HARD,  # type: ignore[arg-type]
    ) as client:
        answer = await client.chat.completions.create(
            model=model, messages=_turn("one"), extra_headers=_named(session)
        )
        assert answer.choices[0].message.content == "You said: one"
        is_whole(served, session, model, "openai", response="You said: one")
        other = new_session()
        stream = await client.chat.completions.create(
            model=model, messages=_turn("two"), stream=True, extra_headers=_named(other)
        )
        said = [chunk.choices[0].delta.content or "" async for chunk in stream]
        assert "".join(said) == "You said: two"
        is_whole(served, other, model, "openai", response="You said: two")


@both
def test_parallel_tools_and_their_results(
    chat: openai.OpenAI, served: Served, session: str, model: str
) -> None:
    messages = _turn('[[tool=get_weather:{"city": "Paris"} parallel=2]]')
    turn = chat.chat.completions.create(
        model=model, messages=messages, tools=TOOLS, extra_headers=_named(session)
    ).choices[0]
    assert turn.finish_reason == "tool_calls"
    calls: Any = turn.message.tool_calls
    assert len({call.id for call in calls}) == 2
    assert [json.loads(call.function.arguments) for call in calls] == [{"city": "Paris"}] * 2
    told = is_whole(served, session, model, "openai", finish_reason="tool_use").metadata
    if model.startswith("gpt"):
        assert told["tools"] == TOOLS
        assert told["answer"]["choices"][0]["message"]["tool_calls"] == [
            call.to_dict() for call in calls
        ]
    else:
        assert [tool["name"] for tool in told["tools"]] == ["get_weather"]
        uses = [block for block in told["answer"]["content"] if block["type"] == "tool_use"]
        assert [(use["id"], use["name"], use["input"]) for use in uses] == [
            (call.id, "get_weather", {"city": "Paris"}) for call in calls
        ]
    messages.append(turn.message.model_dump(exclude_none=True))
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "18 C"} for call in calls]
    other = new_session()
    answer = chat.chat.completions.create(
        model=model, messages=messages, tools=TOOLS, extra_headers=_named(other)
    )
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.choices[0].message.content or "").startswith("You said: ")
    prompt = is_whole(served, other, model, "openai").metadata["prompt"]
    if model.startswith("gpt"):
        assert prompt == messages
    else:
        results = [block for block in prompt[-1]["content"] if block["type"] == "tool_result"]
        assert [result["tool_use_id"] for result in results] == [call.id for call in calls]


@both
def test_streamed_parallel_tools(
    chat: openai.OpenAI, served: Served, session: str, model: str
) -> None:
    with chat.chat.completions.stream(
        model=model, messages=_turn('[[tool=get_weather:{"city": "Rome"} parallel=2]]'),
        tools=TOOLS, extra_headers=_named(session),
    ) as stream:  # fmt: skip
        final = stream.get_final_completion().choices[0]
    assert final.finish_reason == "tool_calls"
    calls: Any = final.message.tool_calls
    assert [json.loads(call.function.arguments) for call in calls] == [{"city": "Rome"}] * 2
    told = is_whole(served, session, model, "openai", finish_reason="tool_use").metadata
    if model.startswith("gpt"):
        made = told["answer"]["choices"][0]["message"]["tool_calls"]
    else:
        made = [block for block in told["answer"]["content"] if block["type"] == "tool_use"]
    assert [each["id"] for each in made] == [call.id for call in calls]


@both
def test_an_image_reaches_the_provider_in_its_own_form(
    seen: tuple[Served, openai.OpenAI], behind: wire.WireServer, session: str, model: str
) -> None:
    served, client = seen
    answer = wire.completion("a dot") if model.startswith("gpt") else wire.message("a dot")
    behind.script = [{**answer, "model": model}]
    url = f"data:image/png;base64,{PNG}"
    parts = [{"type": "text", "text": "what is it?"},
             {"type": "image_url", "image_url": {"url": url}}]  # fmt: skip
    said = client.chat.completions.create(
        model=model, messages=_turn(parts), extra_headers=_named(session)
    )
    assert said.choices[0].message.content == "a dot"
    sent = behind.calls[-1].body["messages"][0]["content"]
    if model.startswith("gpt"):
        assert sent == parts
    else:
        source = {"type": "base64", "media_type": "image/png", "data": PNG}
        assert sent == [parts[0], {"type": "image", "source": source}]
    prompt = is_whole(served, session, model, "openai").metadata["prompt"]
    assert prompt[0]["content"] == sent


@both
def test_an_answer_held_to_a_schema(
    seen: tuple[Served, openai.OpenAI], behind: wire.WireServer, session: str, model: str
) -> None:
    served, client = seen
    given = {"city": "Oslo", "degrees": -3}
    if model.startswith("gpt"):
        behind.script = [{**wire.completion(json.dumps(given)), "model": model}]
    else:
        behind.script = [{**wire.message(json.dumps(given)), "model": model}]
    answer = client.chat.completions.parse(
        model=model, messages=_turn("Oslo?"), response_format=Weather,
        extra_headers=_named(session),
    )  # fmt: skip
    assert answer.choices[0].message.parsed == Weather(city="Oslo", degrees=-3)
    assert answer.choices[0].finish_reason == "stop"
    told = is_whole(served, session, model, "openai").metadata
    assert json.loads(told["response"]) == given
    if model.startswith("gpt"):
        sent = behind.calls[-1].body["response_format"]
        assert sent["json_schema"]["strict"] is True
        assert sent["json_schema"]["name"] == "Weather"
    else:
        sent = behind.calls[-1].body["output_config"]["format"]
        assert set(sent["schema"]["properties"]) == {"city", "degrees"}


def test_fields_nobody_here_knows_pass_both_ways(
    seen: tuple[Served, openai.OpenAI], behind: wire.WireServer, session: str
) -> None:
    served, client = seen
    behind.script = [{**wire.completion("hi"), "model": "gpt-4o-mini", "x_new": {"a": [1, None]}}]
    answer = client.chat.completions.create(
        model="gpt-4o-mini", messages=_turn("hi"), extra_headers=_named(session), seed=7,
        extra_body={"x_future": {"deep": [1.5, "é"]}, "store": True},
    )  # fmt: skip
    assert answer.to_dict()["x_new"] == {"a": [1, None]}
    call = behind.calls[-1]
    assert call.body["x_future"] == {"deep": [1.5, "é"]}
    assert (call.body["seed"], call.body["store"]) == (7, True)
    assert call.headers["Authorization"] == "Bearer sk-upstream-openai"
    assert not any(name.lower().startswith("x-remit") for name in call.headers)
    told = is_whole(served, session, "gpt-4o-mini", "openai").metadata["parameters"]
    assert (told["seed"], told["x_future"]) == (7, {"deep": [1.5, "é"]})


@pytest.mark.parametrize("name", ["base_url", "api_base", "custom_llm_provider", "api_key"])
def test_where_a_client_wants_its_call_to_go_is_refused(
    seen: tuple[Served, openai.OpenAI], behind: wire.WireServer, session: str, name: str
) -> None:
    _, client = seen
    before = len(behind.calls)
    with wire.serve(wire.completion("gone")) as elsewhere:
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(
                model="gpt-4o-mini", messages=_turn("hi"), extra_headers=_named(session),
                extra_body={name: f"{elsewhere.url}/v1"},
            )  # fmt: skip
        assert elsewhere.calls == []
    assert len(behind.calls) == before


def test_models(chat: openai.OpenAI, served: Served) -> None:
    names = [model.id for model in chat.models.list()]
    assert set(DEFAULTS) <= set(names)
    assert chat.models.retrieve(DEFAULTS[0]).id == DEFAULTS[0]
    with pytest.raises(openai.NotFoundError):
        chat.models.retrieve("nothing-like-it")
    only = served.key(models=(DEFAULTS[1],)).key
    few = chat.with_options(api_key=only).models.list()
    # A route that leads to it may be asked for too: it is given nothing else.
    assert [model.id for model in few] == ["auto", DEFAULTS[1]]


# -- refusals ------------------------------------------------------------------------------


def _refused(client: openai.OpenAI, session: str, **more: Any) -> openai.APIStatusError:
    asked: Any = {"model": "gpt-4o-mini", "messages": _turn("hello"), "max_tokens": 50, **more}
    with pytest.raises(openai.APIStatusError) as caught:
        client.chat.completions.create(**asked, extra_headers=_named(session))
    error = caught.value
    assert isinstance(error.body, dict)
    assert set(error.body) == {"message", "type", "param", "code"}
    assert error.body["message"]
    return error


def test_a_key_that_is_none(chat: openai.OpenAI, served: Served, session: str) -> None:
    for wrong in ("sk-remit-" + "x" * 43, "nonsense", "~" * 4000):
        error = _refused(chat.with_options(api_key=wrong), session)
        assert isinstance(error, openai.AuthenticationError)
        assert error.code == "invalid_api_key"
        assert wrong not in str(error)
    assert served.entries("PROMPT_REJECTED", session) == []
    assert served.entries("DISPATCH", session) == []


@both
def test_a_model_that_the_key_may_not_use(
    chat: openai.OpenAI, served: Served, upstream: Upstream, session: str, model: str
) -> None:
    (other,) = set(MODELS) - {model}
    client = chat.with_options(api_key=served.key(models=(other,)).key)
    before = upstream.count()
    error = _refused(client, session, model=model)
    assert isinstance(error, openai.PermissionDeniedError)
    assert error.code == "model_not_allowed"
    assert upstream.count() == before
    (entry,) = served.entries("PROMPT_REJECTED", session)
    assert error.response.headers["x-remit-exchange"] == entry.id
    assert set(entry.metadata) == {
        "agent_id", "session_id", "contract_id", "error_code", "error_message", "key_id",
        "requested_model_id", "provider_id",
    }  # fmt: skip
    assert entry.metadata["requested_model_id"] == model


def test_a_budget_that_is_spent(
    chat: openai.OpenAI, served: Served, upstream: Upstream, session: str
) -> None:
    client = chat.with_options(api_key=served.key(usd_nano=1).key)
    before = upstream.count()
    error = _refused(client, session)
    assert (error.status_code, error.code) == (402, "budget_exhausted")
    assert upstream.count() == before
    assert len(served.entries("PROMPT_REJECTED", session)) == 1
    assert served.entries("DISPATCH", session) == []


def test_too_many_requests_a_minute(chat: openai.OpenAI, served: Served, session: str) -> None:
    client = chat.with_options(api_key=served.key(rpm=1).key)
    call: Any = {"model": "gpt-4o-mini", "messages": _turn("hello"), "max_tokens": 9}
    client.chat.completions.create(**call)
    with contextlib.suppress(openai.RateLimitError):  # where a minute has just ended
        client.chat.completions.create(**call)
    error = _refused(client, session)
    assert isinstance(error, openai.RateLimitError)
    assert 1 <= int(error.response.headers["retry-after"]) <= 60


@both
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("ordered", "status", "kind", "code"),
    [
        ("status=400", 400, openai.BadRequestError, "invalid_request"),
        ("status=401", 502, openai.InternalServerError, "auth_error"),
        ("status=404", 400, openai.BadRequestError, "invalid_request"),
        ("status=429", 429, openai.RateLimitError, "rate_limited"),
        ("status=500", 502, openai.InternalServerError, "server_error"),
        ("status=529", 502, openai.InternalServerError, "server_error"),
    ],
)
def test_what_a_provider_refuses(
    chat: openai.OpenAI, served: Served, session: str, model: str, ordered: str, status: int,
    kind: type[Exception], code: str, stream: bool,
) -> None:  # fmt: skip
    # A name of its own: a circuit that opens is of one model.
    named = f"{model}-{session[4:10].lower()}"
    error = _refused(chat, session, model=named, messages=_turn(f"x [[{ordered}]]"), stream=stream)
    if model.startswith("gpt") and ordered != "status=401":  # in its own words
        own = int(ordered.removeprefix("status="))
        assert error.status_code == own
        assert error.body["message"] == f"{own} as ordered"  # type: ignore[index]
    else:
        assert (error.status_code, error.code) == (status, code)
        assert isinstance(error, kind)
    assert "sk-upstream" not in str(error)
    assert error.response.headers.get("x-should-retry") == (
        "false" if code in ("rate_limited", "server_error") else None
    )
    attempts = served.entries("EXCHANGE", session)
    assert len(attempts) == (3 if code in ("rate_limited", "server_error") else 1)
    assert {entry.decision for entry in attempts} == {"ERROR"}
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
def test_a_provider_tells_when_to_come_back(chat: openai.OpenAI, session: str, model: str) -> None:
    text = "x [[status=429 retry_after=7]]"
    error = _refused(chat, session, model=f"{model}-late", messages=_turn(text))
    assert error.response.headers["retry-after"] == "7"


@both
def test_an_open_circuit(chat: openai.OpenAI, served: Served, session: str, model: str) -> None:
    named = f"{model}-broken"
    _refused(chat, new_session(), model=named, messages=_turn("x [[status=500]]"))
    error = _refused(chat, session, model=named)
    assert (error.status_code, error.code) == (503, "circuit_open")
    assert len(served.entries("PROMPT_REJECTED", session)) == 1


def test_bodies_that_are_no_calls(chat: openai.OpenAI, session: str) -> None:
    for more, param in (({"messages": []}, "messages"), ({"max_tokens": -1}, "max_tokens")):
        error = _refused(chat, session, **more)
        assert isinstance(error, openai.BadRequestError)
        assert error.param == param


def test_fields_are_the_providers_to_judge(
    seen: tuple[Served, openai.OpenAI], behind: wire.WireServer, session: str
) -> None:
    served, client = seen
    said = {"error": {"message": "temperature: no", "type": "invalid_request_error",
                      "param": "temperature", "code": "too_warm", "x_new": [1]}}  # fmt: skip
    headers = {"x-request-id": "req_7", "x-ratelimit-remaining-requests": "12", "x-other": "no"}
    behind.script = [wire.Raw(json.dumps(said).encode(), status=422, headers=headers)]
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        client.chat.completions.create(
            model="gpt-4o-mini", messages=_turn("hi"), temperature=3, n=200, user=7,  # type: ignore[arg-type]
            extra_headers=_named(session),
        )  # fmt: skip
    reply = caught.value.response
    assert reply.content == json.dumps(said).encode()
    assert (reply.headers["x-request-id"], reply.headers["x-ratelimit-remaining-requests"]) == (
        "req_7", "12",
    )  # fmt: skip
    assert "x-other" not in reply.headers
    body = behind.calls[-1].body
    assert (body["temperature"], body["n"], body["user"]) == (3, 200, 7)
    told = served.exchange(session).metadata
    assert (told["error_code"], told["answer"]) == ("INVALID_REQUEST", said)
    assert told["parameters"]["n"] == 200


def test_nothing_of_a_key_is_on_disk(served: Served, chat: openai.OpenAI) -> None:
    chat.chat.completions.create(model="gpt-4o-mini", messages=_turn("hello"))
    for path in (*served.root.rglob("*"), served.errors):
        if path.is_file():
            data = path.read_bytes()
            assert served.token.encode() not in data, path
            assert b"sk-upstream" not in data, path
