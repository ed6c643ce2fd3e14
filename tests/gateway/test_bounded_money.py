"""For every endpoint, a key with a hard limit cannot be charged more than it has.

A script sends calls until the key is refused, to a provider that bills each call as the real one
would: tools run as often as the request lets them and each fills the window, services are the
dearest that an account may default to, and sound is billed by the length that a decoder finds. The
money that the provider bills is never above the limit. Each row of the table of bounds in
docs/budgets.md is covered.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from remit.gateway import LLMGateway, RouteOutcome, RouterConfig
from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter
from remit.ledger import LedgerClient
from remit.providers import Body
from remit.providers.prices import Price, PriceTable, Usage
from remit.providers.wire import (
    CHAT,
    ENDPOINTS,
    RESPONSES,
    TRANSCRIPTIONS,
    TRANSLATIONS,
    BodyError,
    FormBody,
)
from tests.providers.wire.test_sound_length import flac, wav, webm
from tests.support.requests import anthropic_provider, openai_provider, prompt_request
from tests.support.wire import Raw, serve

pytestmark = pytest.mark.any_store

SESSION = BudgetScope("SES-TESTTEST")
OTHER = BudgetScope("SES-OTHEROTHER")
USD = 10**9
MOST = 8  # calls of a row
HELLO = [{"role": "user", "content": "hi"}]
GPT, CLAUDE, WHISPER = "gpt-4o-mini", "claude-sonnet-4-5", "whisper-1"
RERANKER = "gpt-reranker-1"
OWN = b"""
version = 2026-11-28
[models."gpt-reranker-1"]
provider = "openai"
date = 2026-11-28
input = "1"
output = "1"
context_window = 100000
max_output_tokens = 1
[models."omni-moderation-latest"]
provider = "openai"
date = 2026-11-28
input = "0"
output = "0"
"""


TABLE = PriceTable.shipped()
TABLE = TABLE.overlaid(PriceTable.overlay(OWN, "own", TABLE))


def _price(model: str) -> Price:
    price = TABLE.find("anthropic" if model.startswith("claude") else "openai", model)
    assert price is not None
    return price


def _form(model: str, *files: bytes, name: bytes = b"file", **more: str) -> tuple[bytes, str]:
    part = b'--xx\r\ncontent-disposition: form-data; name="%b"\r\n\r\n%b\r\n'
    fields = {"model": model, **more}
    parts = [part % (field.encode(), value.encode()) for field, value in fields.items()]
    parts += [part % (name + b'"; filename="a', file) for file in files]
    return b"".join(parts) + b"--xx--\r\n", "multipart/form-data; boundary=xx"


class Provider:
    """Answers each call with the most that its request allows, and adds up what it bills."""

    def __init__(self, endpoint: str, model: str, tokens_in: int, seconds: float) -> None:
        self.endpoint, self.price = endpoint, _price(model)
        self.tokens_in, self.seconds = tokens_in, seconds
        self.nano = 0
        self.percent, self.served = 100, ""

    def _uses(self, body: dict[str, Any]) -> tuple[int, int]:
        """Return how often the model searches, and how often it uses any tool."""
        tools = [tool for tool in body.get("tools") or [] if tool.get("type") != "function"]
        searching = [tool for tool in tools if "web_search" in str(tool.get("type"))]
        if self.endpoint == "anthropic.messages":
            limited = [tool.get("max_uses", 500) for tool in tools]
            uses = 500 if body.get("mcp_servers") else sum(limited)
            return sum(tool.get("max_uses", 500) for tool in searching), min(uses, 9)
        uses = int(body.get("max_tool_calls", 500)) if tools else 0
        return uses if searching else 0, uses

    def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        searches, uses = self._uses(body)
        limits = [body.get(name) for name in ENDPOINTS[self.endpoint].output_limit]
        most = max([limit for limit in limits if limit], default=self.price.max_output_tokens or 0)
        answers = max(body.get("n", 1), body.get("best_of", 1))
        tokens_out = most * answers if ENDPOINTS[self.endpoint].output_limit else 0
        if self.endpoint in ("openai.images", "openai.image_edits", "openai.image_variations"):
            tokens_out = 6_240 * answers
        tokens_in = self.tokens_in + uses * (self.price.context_window or 0)
        nano = self.price.cost_nano(Usage(tokens_in, tokens_out))
        nano = nano * self.percent // 100 + 10_000_000 * searches
        code = [{"type": "server_tool_use", "id": "c", "name": "code_execution", "input": {}}]
        code *= CODE in (body.get("tools") or [])
        nano += 50_000_000 * len(code)  # an hour of a container
        if self.endpoint == "anthropic.count_tokens":
            return {"input_tokens": 30}
        if self.price.per_second:
            nano = self.price.sound_nano(seconds=self.seconds)
        elif self.price.per_character:
            nano = self.price.sound_nano(characters=len(body.get("input", "")))
        self.nano += nano
        openai = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out,
                  "input_tokens": tokens_in, "output_tokens": tokens_out,
                  "total_tokens": tokens_in + tokens_out}  # fmt: skip
        if self.endpoint == "anthropic.messages":
            uses = {"server_tool_use": {"web_search_requests": searches}} if searches else {}
            return {
                "id": "m", "type": "message", "role": "assistant", "model": CLAUDE,
                "content": [*code, {"type": "text", "text": "x"}], "stop_reason": "end_turn",
                "usage": {"input_tokens": tokens_in, "output_tokens": tokens_out, **uses},
            }  # fmt: skip
        if self.endpoint == "openai.responses":
            search = {"type": "web_search_call", "status": "completed", "action": {"query": "q"}}
            calls = [{**search, "id": f"ws_{number}"} for number in range(searches)]
            text = {"type": "output_text", "text": "x", "annotations": []}
            message = {"type": "message", "id": "msg_1", "role": "assistant",
                       "status": "completed", "content": [text]}  # fmt: skip
            return {"id": "resp_1", "object": "response", "status": "completed", "model": GPT,
                    "created_at": 1, "output": [*calls, message], "usage": openai,
                    **self._tier()}  # fmt: skip
        if self.price.per_second:
            return {"text": "x", "usage": {"type": "duration", "seconds": self.seconds}}
        choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "text": "x",
                  "finish_reason": "stop"}  # fmt: skip
        return {"id": "1", "model": GPT, "object": "x", "choices": [choice], "usage": openai,
                "data": [{"index": 0, "embedding": [0.5], "b64_json": "AAAA"}],
                **self._tier()}  # fmt: skip

    def _tier(self) -> dict[str, str]:
        return {"service_tier": self.served} if self.served else {}


SEARCH = {"type": "web_search_20250305", "name": "web_search"}
FETCHES = {"type": "web_fetch_20250910", "name": "web_fetch"}
CODE = {"type": "code_execution_20250825", "name": "code_execution"}
IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/a"}}]}
SHOWN = {"role": "user", "content": [{"type": "input_image", "image_url": "https://x/a"}]}
PICTURE = {"type": "image", "source": {"type": "url", "url": "https://x/a"}}
PDF = {"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}}
SEARCHES = {"type": "web_search"}
MCP = {"type": "mcp", "server_label": "a", "server_url": "https://x/a"}
FILE = {"role": "user", "content": [{"type": "file", "file": {"file_id": "file-1"}}]}


def _window(model: str) -> int:
    return _price(model).context_window or 0


ROWS: dict[str, tuple[str, str, Any, float, int, float]] = {
    # endpoint, model, body, limit in dollars, input tokens billed, seconds billed
    "messages": ("anthropic.messages", CLAUDE, {"max_tokens": 50}, 0.05, 60, 0),
    "messages, search": ("anthropic.messages", CLAUDE, {"tools": [SEARCH]}, 60, 60, 0),
    "messages, one search is left": ("anthropic.messages", CLAUDE, {"tools": [SEARCH]}, 5, 60, 0),
    "messages, search of a named number":
        ("anthropic.messages", CLAUDE, {"tools": [{**SEARCH, "max_uses": 3}]}, 12, 9, 0),
    "messages, search of a number that is too dear":
        ("anthropic.messages", CLAUDE, {"tools": [{**SEARCH, "max_uses": 500}]}, 12, 9, 0),
    "messages, search of null": ("anthropic.messages", CLAUDE,
                                 {"tools": [{**SEARCH, "max_uses": None}]}, 60, 60, 0),
    "messages, fetch": ("anthropic.messages", CLAUDE, {"tools": [FETCHES]}, 60, 60, 0),
    "messages, two tools": ("anthropic.messages", CLAUDE, {"tools": [FETCHES, SEARCH]}, 9, 60, 0),
    "messages, MCP servers":
        ("anthropic.messages", CLAUDE, {"mcp_servers": [{"type": "url", "url": "https://x/a"}]},
         60, 60, 0),
    "messages, an image":
        ("anthropic.messages", CLAUDE, {"messages": [{"role": "user", "content": [PICTURE]}]},
         1.2, 48_169, 0),
    "messages, a document":
        ("anthropic.messages", CLAUDE, {"messages": [{"role": "user", "content": [PDF]}]},
         3, 200_000, 0),
    "messages, a document in the wider window":
        ("anthropic.messages", CLAUDE, {"messages": [{"role": "user", "content": [PDF]}]},
         15, 999_000, 0),
    "responses, an image":
        ("openai.responses", GPT, {"input": [SHOWN]}, 0.04, 48_169, 0),
    "responses, a dearer service":
        ("openai.responses", GPT, {"service_tier": "priority"}, 0.0005, 40, 0),
    "chat, a dearer service is not given":
        ("openai.chat", GPT, {"service_tier": "priority"}, 0.0005, 40, 0),
    "chat, the project's default is dearer": ("openai.chat", GPT, {}, 0.0005, 40, 0),
    "chat, the default service": ("openai.chat", GPT, {"service_tier": "default"}, 0.0005, 40, 0),
    "chat, an unknown service": ("openai.chat", GPT, {"service_tier": "scale"}, 1, 40, 0),
    "chat, search options": ("openai.chat", GPT, {"web_search_options": {}}, 1, 40, 0),
    "messages, code": ("anthropic.messages", CLAUDE, {"tools": [CODE]}, 60, 9_000, 0),
    "messages, a thread": ("anthropic.messages", CLAUDE, {
        "thread": {"type": "continue", "previous_message_id": "msg_1"}}, 60, 99, 0),
    "messages, the limit of another API":
        ("anthropic.messages", CLAUDE, {"tools": [SEARCH], "max_tool_calls": 1}, 60, 60, 0),
    "chat": ("openai.chat", GPT, {}, 0.0005, 40, 0),
    "chat, many answers": ("openai.chat", GPT, {"n": 50}, 0.01, 40, 0),
    "chat, an image": ("openai.chat", GPT, {"messages": [IMAGE]}, 0.04, 48_169, 0),
    "chat, a file by id": ("openai.chat", GPT, {"messages": [FILE]}, 0.1, _window(GPT), 0),
    "chat, search": ("openai.chat", GPT, {"tools": [{"type": "web_search"}]}, 1, 40, 0),
    "chat, no limit": ("openai.chat", GPT, {"max_tokens": None}, 0.05, 40, 0),
    "responses": ("openai.responses", GPT, {}, 0.0005, 40, 0),
    "responses, search": ("openai.responses", GPT, {"tools": [{"type": "web_search"}]}, 0.3, 99, 0),
    "responses, MCP servers": ("openai.responses", GPT, {"tools": [MCP]}, 0.6, 99, 0),
    "responses, the limit of another API":
        ("openai.responses", GPT, {"tools": [{"type": "web_search", "max_uses": 1}]}, 0.3, 99, 0),
    "responses, a template": ("openai.responses", GPT, {"prompt": {"id": "pmpt_1"}}, 1, 99, 0),
    "responses, an earlier one":
        ("openai.responses", GPT, {"previous_response_id": "r"}, 0.06, _window(GPT), 0),
    "completions": ("openai.completions", "gpt-3.5-turbo-instruct", {"best_of": 9}, 0.01, 2, 0),
    "embeddings":
        ("openai.embeddings", "text-embedding-3-small", {"input": "x" * 900}, 1e-4, 900, 0),
    "rerank": ("openai.rerank", RERANKER, {"query": "x", "documents": ["y" * 900]}, 5e-3, 900, 0),
    "moderations": ("openai.moderations", "omni-moderation-latest", {"input": "x"}, 1e-9, 0, 0),
    "count_tokens": ("anthropic.count_tokens", CLAUDE, {"messages": HELLO}, 1e-9, 0, 0),
    "images/edits": ("openai.image_edits", "gpt-image-1", [b"png", b"png"], 20, 98_304, 0),
    "images/variations": ("openai.image_variations", "gpt-image-1", [b"png"], 20, 49_152, 0),
    "transcriptions, tokens":
        ("openai.transcriptions", "gpt-4o-transcribe", [b"silk"], 0.3, 16_000, 0),
    "transcriptions, tokens in pieces":
        ("openai.transcriptions", "gpt-4o-transcribe", {"chunking_strategy": "auto"}, 5, 99_999, 0),
    "images": ("openai.images", "gpt-image-1", {"prompt": "x", "n": 9}, 40, 10, 0),
    "speech, tokens": ("openai.speech", "gpt-4o-mini-tts", {"input": "x" * 900}, 1, 900, 0),
    "speech": ("openai.speech", "tts-1", {"input": "x" * 4_000, "voice": "a"}, 0.1, 0, 0),
    "transcriptions, FLAC": ("openai.transcriptions", WHISPER, [flac(183)], 0.01, 0, 1_500),
    "transcriptions, WAV": ("openai.transcriptions", WHISPER, [wav(60)], 0.01, 0, 60),
    "transcriptions, WebM": ("openai.transcriptions", WHISPER, [webm(1_000)], 0.01, 0, 60),
    "transcriptions, two files":
        ("openai.transcriptions", WHISPER, [wav(30), wav(30)], 0.01, 0, 60),
    "transcriptions, no known format":
        ("openai.transcriptions", WHISPER, [b"silk" * 9_000], 1, 0, 9_999),
    "translations, FLAC": ("openai.translations", WHISPER, [flac(183)], 0.01, 0, 1_500),
}  # fmt: skip

REFUSED = {
    "chat, search": "tools[0]",
    "chat, search options": "web_search_options",
    "chat, an unknown service": 'service_tier "scale"',
    "transcriptions, tokens in pieces": "chunking_strategy",
    "responses, a template": "prompt",
    "messages, a thread": "thread",
    "transcriptions, no known format": "file (its length is unreadable)",
}
"""Rows of which no call is sent, and the field that the refusal names."""

TOO_DEAR = (
    "transcriptions, FLAC", "translations, FLAC", "messages, search of a number that is too dear",
)  # fmt: skip
"""Rows of which no call is sent, as one costs more than the key has."""

SERVED = {
    "chat, a dearer service is not given": ("default", 100),
    "chat, the project's default is dearer": ("priority", 200),
    "responses, a dearer service": ("priority", 200),
}
"""Rows whose provider gives another service than it is asked for: that and its hundredths."""

HEADERS = {
    "messages, a document in the wider window": {"anthropic-beta": "a,context-1m-2025-08-07"}
}
"""Headers of the client that rows send."""

COVERED = {
    ("every endpoint that sends text", "input tokens"):
        ["chat", "messages", "responses", "completions"],
    ("every endpoint that sends text", "output tokens"): ["chat, no limit", "chat, many answers"],
    ("every endpoint", "a more expensive service"):
        [*SERVED, "chat, the default service", "chat, an unknown service"],
    ("chat, messages, responses", "images, given as data, URL or id"):
        ["chat, an image", "messages, an image", "responses, an image"],
    ("chat, messages, responses",
     "documents, files, audio, earlier responses, and items referenced by id"):
        ["chat, a file by id", "messages, a document", "messages, a document in the wider window",
         "responses, an earlier one"],
    ("messages", "web search, web fetch"): [
        "messages, search", "messages, one search is left", "messages, search of a named number",
        "messages, search of a number that is too dear", "messages, search of null",
        "messages, fetch", "messages, two tools", "messages, the limit of another API",
    ],
    ("messages", "MCP servers, tool search"): ["messages, MCP servers"],
    ("messages", "code execution"): ["messages, code"],
    ("messages", "thread with continue"): ["messages, a thread"],
    ("responses", "web search, file search, code interpreter, shell, images, MCP servers"):
        ["responses, search", "responses, the limit of another API", "responses, MCP servers"],
    ("responses", "a prompt template referenced by id"): ["responses, a template"],
    ("chat", "tools that the provider runs, web_search_options"):
        ["chat, search", "chat, search options"],
    ("completions, embeddings, rerank", "tokens"): ["completions", "embeddings", "rerank"],
    ("images, images/edits, images/variations", "image tokens"):
        ["images", "images/edits", "images/variations"],
    ("audio/speech", "characters, or audio tokens"): ["speech", "speech, tokens"],
    ("audio/transcriptions, audio/translations", "seconds of audio"): [
        "transcriptions, FLAC", "transcriptions, WAV", "transcriptions, WebM",
        "transcriptions, two files", "transcriptions, no known format", "translations, FLAC",
    ],
    ("audio/transcriptions, audio/translations", "audio tokens"):
        ["transcriptions, tokens", "transcriptions, tokens in pieces"],
    ("moderations, count_tokens, files, stored responses", "nothing"):
        ["moderations", "count_tokens"],
}  # fmt: skip
"""Rows of the table in docs/budgets.md, and the rows here that cover each."""

ELSEWHERE = {
    ("batches", "each request of the batch"),  # tests/server/test_batches.py
    ("generateContent", "Google Search, Google Maps, with Gemini 2.5"),  # test_call_bound.py
    ("generateContent", "cachedContent"),  # test_call_bound.py
    ("generateContent", "other tools of Google; any with later models"),
}
"""Rows that tests of other files cover."""


def test_every_row_of_the_documented_bounds_is_covered() -> None:
    text = (Path(__file__).parents[2] / "docs/budgets.md").read_text()
    table = text.partition("| endpoint | costs | upper bound |")[2].partition("\n\n")[0]
    rows = [line.replace("`", "").split(" | ") for line in table.splitlines()[2:]]
    documented = {(row[0].removeprefix("| "), row[1]) for row in rows}
    covered = {row for row in documented if "pass-through" not in row[0]}
    assert covered == {*COVERED, *ELSEWHERE}
    assert {row for rows in COVERED.values() for row in rows} == ROWS.keys()


def _body(endpoint: str, model: str, more: Any) -> Body:
    if isinstance(more, list):
        name = b"image[]" if "image" in endpoint else b"file"
        raw, kind = _form(model, *more, name=name)
        return FormBody.read_form(ENDPOINTS[endpoint], raw, kind)
    if endpoint == "openai.transcriptions":
        return FormBody.read_form(ENDPOINTS[endpoint], *_form(model, b"silk", **more))
    base: dict[str, Any] = {"model": model}
    if endpoint in ("anthropic.messages", "openai.chat"):
        base |= {"messages": HELLO, "max_tokens": 50}
    elif endpoint == "openai.responses":
        base |= {"input": "hi", "max_output_tokens": 50}
    elif endpoint == "openai.completions":
        base |= {"prompt": "hi", "max_tokens": 50}
    value = {name: each for name, each in {**base, **more}.items() if each is not None}
    return Body.read(ENDPOINTS[endpoint], orjson.dumps(value))


def _gateway(
    ledger: LedgerClient, budgeter: TokenBudgeter, url: str, *, retries: int = 2, **more: Any
) -> LLMGateway:
    config = RouterConfig(max_retries=retries)
    gateway = LLMGateway(ledger, budgeter, config, dev_mode=True, **more)
    gateway.register_provider("openai", openai_provider(url))
    gateway.register_provider("anthropic", anthropic_provider(url))
    return gateway


@pytest.mark.parametrize("row", ROWS)
def test_nobody_spends_more_than_a_hard_limit(ledger: LedgerClient, row: str) -> None:
    endpoint, model, more, dollars, tokens_in, seconds = ROWS[row]
    limit = round(dollars * USD)
    budgeter = TokenBudgeter(ledger)
    budgeter.allocate(SESSION, limits=BudgetLimits(nano=limit))
    provider = Provider(endpoint, model, tokens_in, seconds)
    provider.served, provider.percent = SERVED.get(row, ("", 100))
    sent = 0
    with serve(provider) as server:
        gateway = _gateway(ledger, budgeter, server.url, prices=TABLE)
        request: Callable[[], Any] = lambda: prompt_request(  # noqa: E731
            prompt="",
            model_id=model,
            max_tokens=None,
            body=_body(endpoint, model, more),
            headers=HEADERS.get(row),
        )
        while sent < MOST:
            response = gateway.route(request())
            if response.outcome is not RouteOutcome.SUCCESS:
                break
            sent += 1
        assert sent == len(server.calls)
    (state,) = budgeter.status(SESSION)
    assert provider.nano <= limit
    assert state.spent_nano >= provider.nano
    assert state.reserved_nano == 0
    if row in REFUSED:
        assert (sent, response.error_code) == (0, "UNBOUNDED")
        assert REFUSED[row] in (response.error_message or "")
    else:
        assert (sent == 0) == (row in TOO_DEAR), (response.error_code, response.error_message)
        assert sent == MOST or response.error_code == "BUDGET_EXHAUSTED"


@pytest.mark.parametrize(
    ("endpoint", "model", "tools", "paths", "member"),
    [
        ("anthropic.messages", CLAUDE, [FETCHES, SEARCH],
         ["/tools/0/max_uses", "/tools/1/max_uses"],
         '"max_uses":10'),
        ("openai.responses", GPT, [{"type": "web_search"}], ["/max_tool_calls"],
         '"max_tool_calls":10'),
        ("openai.responses", GPT, [MCP], ["/max_tool_calls"], '"max_tool_calls":10'),
    ],
)  # fmt: skip
@pytest.mark.parametrize("enough", [True, False])
def test_a_limit_that_the_reservation_relies_on_is_sent_and_recorded(
    ledger: LedgerClient, endpoint: str, model: str, tools: Any, paths: list[str], member: str,
    enough: bool,
) -> None:  # fmt: skip
    budgeter = TokenBudgeter(ledger)
    little = 6 * USD if model == CLAUDE else USD // 10
    budgeter.allocate(SESSION, limits=BudgetLimits(nano=60 * USD if enough else little))
    member = member if enough else member.replace("10", "1")
    with serve(Provider(endpoint, model, 9_000, 0)) as server:
        gateway = _gateway(ledger, budgeter, server.url)
        body = _body(endpoint, model, {"tools": tools})
        response = gateway.route(
            prompt_request(prompt="", model_id=model, max_tokens=None, body=body)
        )
        assert response.outcome is RouteOutcome.SUCCESS
        (call,) = server.calls
    assert call.raw.decode().replace(f"{member},", "") == body.raw.decode()
    (exchange,) = ledger.read_by_event_type("EXCHANGE")
    assert [change["path"] for change in exchange.metadata["changed"]] == paths


CONTAINER = {"type": "code_interpreter", "container": {"type": "auto", "memory_limit": "64g"}}
SEARCHED = {"type": "web_search_call", "id": "w", "status": "completed"}
RAN = [{"type": "code_interpreter_call", "id": f"i{number}", "status": "completed", "code": "1",
        "container_id": f"c{number}"} for number in range(5)]  # fmt: skip
FAILURE = {"code": "server_error", "message": "no"}
COUNTED = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
MESSAGE: dict[str, Any] = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": CLAUDE,
    "content": [],
    "usage": {"input_tokens": 9, "output_tokens": 1},
}


def _responded(output: Any, **more: Any) -> dict[str, Any]:
    return {"id": "r", "object": "response", "status": "completed", "model": GPT, "created_at": 1,
            "output": output, "usage": COUNTED, **more}  # fmt: skip


def _failed(output: Any, **usage: Any) -> dict[str, Any]:
    return _responded(output, status="failed", error=FAILURE, **usage)


def _stream(*events: dict[str, Any]) -> Raw:
    chunks = [b"data: %s\n\n" % orjson.dumps(event) for event in events]
    return Raw(content_type="text/event-stream", chunks=chunks, cut=True)


def _items(*items: dict[str, Any]) -> list[dict[str, Any]]:
    begun = _responded([], status="in_progress", usage=None)
    events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
    for number, item in enumerate(items):
        for kind in ("added", "done"):
            kind = f"response.output_item.{kind}"
            events.append({"type": kind, "output_index": number, "item": item})
    return events


@pytest.mark.parametrize(
    ("model", "tools", "answer", "whole"),
    [
        (GPT, [CONTAINER], _stream(*_items(RAN[0])), True),
        (GPT, [SEARCHES], _stream(*_items(SEARCHED), {"type": "error", **FAILURE}), True),
        (GPT, [MCP], _stream(*_items(), {"type": "response.output_text.delta", "delta": "x"}),
         True),
        (GPT, [CONTAINER], _stream(*_items(RAN[0]), {
            "type": "response.failed", "response": _failed(RAN[:1], usage=None)}), True),
        (GPT, [CONTAINER], _stream(*_items(), {
            "type": "response.failed", "response": _failed([SEARCHED], usage=None)}), True),
        (CLAUDE, [SEARCH], _stream({"type": "message_start", "message": MESSAGE}, {
            "type": "content_block_start", "index": 0, "content_block": {
                "type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}},
            {"type": "error", "error": FAILURE}), True),
        (GPT, [CONTAINER], _failed(RAN[:1], usage=None), True),
        (GPT, [CONTAINER], _failed(RAN[:1], usage={"input_tokens": 9, "output_tokens": 0}), True),
        (GPT, [CONTAINER], _failed({"0": RAN[0]}, usage=None), True),
        (GPT, [CONTAINER], _failed([], usage=None), False),
        (GPT, [], _stream(*_items(), {
            "type": "response.failed", "response": _failed([], usage=None)}), False),
        (GPT, [CONTAINER], _responded(RAN), True),
        (GPT, [], _responded(RAN[:1]), True),
        (CLAUDE, [CODE], {**MESSAGE, "usage": {
            **MESSAGE["usage"], "server_tool_use": {"code_execution_requests": 9_999}}}, True),
    ],
)  # fmt: skip
def test_tools_that_ran_unreported_or_beyond_their_bound_cost_the_whole_reservation(
    ledger: LedgerClient, model: str, tools: Any, answer: Any, whole: bool
) -> None:
    budgeter = TokenBudgeter(ledger)
    budgeter.allocate(SESSION, limits=BudgetLimits(nano=60 * USD))
    held: list[int] = []

    def reply(_: dict[str, Any]) -> Any:
        held.append(budgeter.status(SESSION)[0].reserved_nano)
        return answer

    with serve(reply) as server:
        gateway = _gateway(ledger, budgeter, server.url, retries=0)
        more = {"tools": tools or None, "stream": isinstance(answer, Raw) or None}
        endpoint = "openai.responses"
        if model == GPT:
            more["max_tool_calls"] = 1 if tools else None
        else:
            endpoint = "anthropic.messages"
        body = _body(endpoint, model, more)
        request = prompt_request(prompt="", model_id=model, max_tokens=None, body=body)
        gateway.route(request, on_text=(lambda _: None) if more["stream"] else None)
    (state,) = budgeter.status(SESSION)
    assert held[0] > 0
    assert (state.spent_nano, state.reserved_nano) == (held[0] if whole else 0, 0)
    (exchange,) = ledger.read_by_event_type("EXCHANGE")
    assert exchange.metadata["cost_certainty"] == ("upper_bound" if whole else "measured")


def test_a_raised_bound_concerns_its_cause_and_its_account_alone(ledger: LedgerClient) -> None:
    budgeter = TokenBudgeter(ledger)
    for scope in (SESSION, OTHER):
        budgeter.allocate(scope, limits=BudgetLimits(nano=100 * USD))
    provider = Provider("anthropic.messages", CLAUDE, 9_000, 0)

    with serve(provider) as server:
        gateway = _gateway(ledger, budgeter, server.url)
        body = _body("anthropic.messages", CLAUDE, {"tools": [SEARCH]})
        gateway.route(prompt_request(prompt="", model_id=CLAUDE, max_tokens=None, body=body))
    raised = ledger.read_by_event_type("EXCHANGE")[0].metadata["raised_bound"]
    assert (raised["cause"], raised["model_id"]) == ("web_search", CLAUDE)

    def held(scope: BudgetScope, **more: Any) -> int:
        with serve(Provider("anthropic.messages", CLAUDE, 9, 0)) as server:
            gateway = _gateway(ledger, budgeter, server.url)
            body = _body("anthropic.messages", CLAUDE, more)
            request = prompt_request(
                prompt="", model_id=CLAUDE, max_tokens=None, body=body, session_id=scope.session_id
            )
            assert gateway.route(request).outcome is RouteOutcome.SUCCESS
        sql = "SELECT percent FROM raised_bounds"
        return len(list(ledger.select(sql)))

    assert held(OTHER) == held(SESSION) == held(OTHER, tools=[SEARCH]) == 1


_TWICE = [
    (RESPONSES, b'{"model":"m","input":[{"type":"%b","tools":[{"type":"web_search"}],"tools":[]}]}'
     % kind, "input")
    for kind in (
        b"additional_tools", b"tool_search_output", b"\\u0061dditional_tools",
        b"tool\\u005faddition",
    )
] + [
    (CHAT, b'{"model":"m","messages":[{"role":"user"}],"tools":'
     b'[{"type":"web_search","max_uses":500, "max_uses":1}]}', "tools"),
]  # fmt: skip
for _name in ("model", "max_tokens", "n", "tools", "service_tier"):
    for _spelled in (_name, _name.replace(_name[0], f"\\u{ord(_name[0]):04x}", 1)):
        _raw = b'{"model":"m","max_tokens":5,"n":1,"tools":[],"service_tier":"default",'
        _raw += f'"messages":[{{"role":"user","content":"hi"}}],"{_spelled}":1}}'.encode()
        _TWICE.append((CHAT, _raw, _name))


@pytest.mark.parametrize(("endpoint", "raw", "param"), _TWICE)
def test_a_member_that_is_there_twice_is_refused(endpoint: Any, raw: bytes, param: str) -> None:
    with pytest.raises(BodyError) as refused:
        Body.read(endpoint, raw)
    assert refused.value.param == param


@pytest.mark.parametrize("endpoint", [TRANSCRIPTIONS, TRANSLATIONS])
def test_a_field_that_is_in_a_form_twice_is_refused(endpoint: Any) -> None:
    raw, kind = _form("whisper-1", wav(1))
    again = b'--xx\r\ncontent-disposition: form-data; name="%b"%b\r\n\r\nm\r\n--xx--\r\n'
    for name, file in ((b"model", b""), (b"model", b'; filename="a"'), (b"file", b"")):
        with pytest.raises(BodyError) as refused:
            FormBody.read_form(endpoint, raw.replace(b"--xx--\r\n", again % (name, file)), kind)
        assert refused.value.param == name.decode()
