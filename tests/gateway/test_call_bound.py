"""The bound of a call from its body on the wire, in each dialect."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from remit.gateway import call_bound
from remit.providers.prices import Price, PriceTable

TABLE = PriceTable.shipped()
PDF = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": "A"},
}


def _price(model: str) -> Price:
    for provider in ("anthropic", "openai", "google"):
        if (price := TABLE.find(provider, model)) is not None:
            return price
    raise AssertionError(model)


CLAUDE, GPT = _price("claude-sonnet-4-5"), _price("gpt-4o-mini")
GEMINI_2, GEMINI_3 = _price("gemini-2.5-flash"), _price("gemini-3-flash-preview")


def _bound(endpoint: str, body: dict[str, Any], price: Price | None = None, **more: Any) -> Any:
    return call_bound(endpoint, body, len(orjson.dumps(body)), price, **more)


def _dearest(price: Price, found: Any) -> int:
    """What the tokens of a bound cost at the dearest service that an account may default to."""
    percent = {GPT: 200, CLAUDE: 110}.get(price, 100)
    return -(-price.bound_nano(*found.tokens) * percent // 100)


def _messages(**more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]} | more


def _said(*blocks: Any) -> dict[str, Any]:
    return _messages(messages=[{"role": "user", "content": list(blocks)}])


@pytest.mark.parametrize(
    "tool",
    [
        {"name": "f", "input_schema": {}},
        {"type": "custom", "name": "f", "input_schema": {}},
        {"type": "function", "function": {"name": "f"}},
        {"type": "custom", "custom": {"name": "f"}},
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
        {
            "type": "computer_20250124",
            "name": "computer",
            "display_width_px": 1,
            "display_height_px": 1,
        },
        {"type": "memory_20250818", "name": "memory"},
        {"type": "local_shell"},
        {"type": "computer_use_preview"},
        {"type": "apply_patch"},
        {"type": "tool_search", "execution": "client"},
        {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]},
    ],
)
def test_tools_that_the_client_runs_cost_tokens_and_no_more(tool: dict[str, Any]) -> None:
    plain = _bound("anthropic.messages", _messages(), CLAUDE)
    found = _bound("anthropic.messages", _messages(tools=[tool]), CLAUDE)
    assert found.amount.bounded, found.amount.unbounded
    assert plain.tokens[0] < found.tokens[0] < plain.tokens[0] + 2_300
    assert found.amount.nano is not None
    assert found.amount.nano <= _dearest(CLAUDE, found)


@pytest.mark.parametrize(
    ("endpoint", "price", "more", "nano", "runs"),
    [
        ("anthropic.messages", CLAUDE,
         {"tools": [{"type": "web_search_20250305", "name": "w", "max_uses": 3}]}, 30_000_000, 3),
        ("anthropic.messages", CLAUDE, {"tools": [{"type": "web_search_20250305"}]}, 40_000_000, 4),
        ("anthropic.messages", CLAUDE,
         {"tools": [{"type": "web_search_20250305", "max_uses": 1},
                    {"type": "web_fetch_20250910", "max_uses": 2}]}, 10_000_000, 3),
        # Anthropic runs a model ten times at most.
        ("anthropic.messages", CLAUDE,
         {"tools": [{"type": "web_search_20250305", "max_uses": 50}]}, 500_000_000, 9),
        ("anthropic.messages", CLAUDE,
         {"tools": [{"type": "web_search_20250305", "max_uses": 0}]}, 0, 0),
        ("anthropic.messages", CLAUDE, {"tools": [{"type": "web_fetch_20250910"}]}, 0, 4),
        ("anthropic.messages", CLAUDE, {"tools": [{"type": "tool_search_tool_regex"}]}, 0, 9),
        ("anthropic.messages", CLAUDE, {"mcp_servers": [{"url": "u"}]}, 0, 9),
        ("openai.responses", GPT, {"tools": [{"type": "web_search"}], "max_tool_calls": 7},
         70_000_000, 7),
        ("openai.responses", GPT, {"tools": [{"type": "mcp"}]}, 0, 4),
        ("openai.responses", GPT, {"tools": [{"type": "web_search_preview_2025_03_11"}]},
         100_000_000, 4),
        ("openai.responses", GPT,
         {"tools": [{"type": "file_search"}, {"type": "web_search"}], "max_tool_calls": 2},
         20_000_000, 2),
        ("openai.responses", GPT,
         {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}, 120_000_000, 4),
        ("openai.responses", GPT,
         {"tools": [{"type": "code_interpreter", "container": {"memory_limit": "4g"}}]},
         480_000_000, 4),
        ("openai.responses", GPT, {"tools": [{"type": "code_interpreter", "container": "cntr_1"}]},
         4 * 1_920_000_000, 4),  # its size is unknown
        ("openai.responses", GPT,
         {"tools": [{"type": "shell", "container": {"type": "auto"},
                     "environment": {"type": "container_auto", "memory_limit": "16g"}}]},
         4 * 480_000_000, 4),
        ("openai.responses", GPT,
         {"tools": [{"type": "shell", "environment": {"type": "container_reference",
                                                      "container_id": "cntr_1"}}]},
         4 * 1_920_000_000, 4),
        ("openai.responses", GPT,
         {"tools": [{"type": "shell", "environment": {"type": "local"}}]}, 0, 0),
        # One container, for at most an hour in each of ten runs.
        ("anthropic.messages", CLAUDE, {"tools": [{"type": "code_execution_20250825"}]},
         500_000_000, 9),
        # Google bills the prompt, however often Gemini 2.5 searches.
        ("gemini.generate", GEMINI_2, {"tools": [{"googleSearch": {}}]}, 35_000_000, 1),
        ("gemini.generate", GEMINI_2, {"tools": [{"google_search": {}}, {"googleMaps": {}}]},
         60_000_000, 2),
    ],
)  # fmt: skip
def test_tools_of_the_provider_cost_their_price_and_a_window_as_often_as_the_call_allows(
    endpoint: str, price: Price, more: dict[str, Any], nano: int, runs: int
) -> None:
    limit = {"generationConfig": {"maxOutputTokens": 100}}
    body = _messages(max_output_tokens=100, **limit, **more)
    found = _bound(endpoint, body, price, uses=4)
    assert found.amount.bounded, found.amount.unbounded
    first = found.tokens[0] - runs * (price.context_window or 0)
    assert 0 < first < 4_500
    assert found.tokens[1] == 100
    assert found.amount.nano == _dearest(price, found) + nano


@pytest.mark.parametrize(
    ("price", "tool"),
    [
        (GEMINI_3, {"googleSearch": {}}),  # each search is billed
        (GEMINI_3, {"googleMaps": {}}),
        (GEMINI_2, {"googleSearch": {}, "codeExecution": {}}),
        (GEMINI_2, {"urlContext": {}}),
        (None, {"googleSearch": {}}),
    ],
)
def test_googles_tools_that_nothing_limits_have_no_bound(price: Price, tool: Any) -> None:
    amount = _bound("gemini.generate", _messages(tools=[tool]), price).amount
    assert amount.unbounded.startswith("tools[0]")


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "code_interpreter", "container": {"type": "auto", "memory_limit": "128g"}},
        {"type": "shell", "environment": {"type": "container_auto", "memory_limit": 7}},
        {"type": "web_search", "environment": {"type": "local"}},
    ],
)
def test_a_container_of_an_unknown_size_has_no_bound(tool: dict[str, Any]) -> None:
    amount = _bound("openai.responses", _messages(tools=[tool], max_tool_calls=1), GPT).amount
    assert bool(amount.unbounded) == (tool["type"] != "web_search")
    assert tool["type"] != "web_search" or (amount.nano or 0) > 10_000_000


@pytest.mark.parametrize(
    ("more", "bounded"),
    [
        ({}, True),
        ({"size": "1536x1024", "output_format": "webp", "partial_images": 3}, True),
        ({"size": "3840x2160"}, False), ({"size": ["1024x1024"]}, False),
        ({"output_format": "gif", "frame_count": 90}, False),
        ({"output_format": "svg", "svg": {"model": "gpt-6-astra"}}, False),
    ],
)  # fmt: skip
def test_only_pictures_of_the_usual_kind_have_a_price(more: dict[str, Any], bounded: bool) -> None:
    tools = [{"type": "image_generation", **more}]
    amount = _bound("openai.responses", _messages(tools=tools, max_tool_calls=1), GPT).amount
    assert amount.bounded == bounded
    assert bounded or amount.unbounded == 'tools[0] (type "image_generation")'


LARGE = {"type": "code_interpreter", "container": {"type": "auto", "memory_limit": "64g"}}
SEARCH = {"type": "web_search_20250305", "name": "w"}


@pytest.mark.parametrize(
    ("endpoint", "price", "more", "nano"),
    [
        ("openai.responses", GPT, {"tools": [{**LARGE, "tools": []}]}, 4 * 1_920_000_000),
        ("openai.responses", GPT, {"tools": [{"type": "namespace", "tools": [LARGE]}]},
         4 * 1_920_000_000),
        ("anthropic.messages", CLAUDE, {"tools": [{**SEARCH, "tools": []}]}, 40_000_000),
        ("openai.responses", GPT, {"input": [{"type": "additional_tools", "tools": [LARGE]}]},
         4 * 1_920_000_000),
        ("openai.responses", GPT,
         {"input": [{"type": "tool_search_output",
                     "tools": [{"type": "namespace", "tools": [LARGE]}]}]}, 4 * 1_920_000_000),
    ],
)  # fmt: skip
def test_a_tool_counts_wherever_the_request_defines_it(
    endpoint: str, price: Price, more: dict[str, Any], nano: int
) -> None:
    found = _bound(endpoint, _messages(max_output_tokens=100, **more), price, uses=4)
    assert found.amount.nano == _dearest(price, found) + nano
    assert found.limits.field == (
        "max_tool_calls" if endpoint == "openai.responses" else "tools[0].max_uses"
    )


@pytest.mark.parametrize(
    ("endpoint", "more", "unbounded"),
    [
        ("openai.responses", {"input": [{"type": "additional_tools", "tools": {"0": LARGE}}]},
         "input[0].tools"),
        ("openai.responses", {"tools": [{"type": "namespace", "tools": "all"}]}, "tools[0].tools"),
        ("gemini.generate", {"tools": [{"googleSearch": {}, "tools": []}]},
         'tools[0] (type "tools", without a limit)'),
    ],
)  # fmt: skip
def test_an_unreadable_list_of_tools_has_no_bound(
    endpoint: str, more: dict[str, Any], unbounded: str
) -> None:
    price = GEMINI_2 if endpoint == "gemini.generate" else GPT
    assert _bound(endpoint, _messages(**more), price).amount.unbounded == unbounded


@pytest.mark.parametrize("role", ["user", "system"])
@pytest.mark.parametrize(
    ("tool", "nano", "unbounded"),
    [
        ({**SEARCH, "max_uses": 3}, 30_000_000, ""),
        (SEARCH, None, "send tool_addition[0].max_uses"),
        ({"type": "code_execution_20260120", "name": "code_execution"}, 500_000_000, ""),
        ({"type": "advisor_20260301", "name": "a"}, None, 'tool_addition[0] (type "advisor'),
        ({"name": "f", "input_schema": {"type": "object"}}, 0, ""),
        ({"type": "browser_toolset_20260801"}, 0, ""),
    ],
)
def test_a_tool_that_the_conversation_adds_counts(
    role: str, tool: Any, nano: int | None, unbounded: str
) -> None:
    added = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": tool}}
    turns = [*_messages()["messages"], {"role": role, "content": [added]}]
    body = _messages(messages=turns, max_tokens=100)
    found = _bound("anthropic.messages", body, CLAUDE, uses=4)
    assert found.amount.unbounded.startswith(unbounded)
    assert found.amount.bounded == (not unbounded)
    if nano is not None:
        assert found.amount.nano == _dearest(CLAUDE, found) + nano


@pytest.mark.parametrize(
    "block",
    [
        PDF,
        {"type": "file", "file": {"file_id": "f"}},
        {"type": "input_file", "file_url": "https://example.org/a.pdf"},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "container_upload", "file_id": "f"},
        {"type": "item_reference", "id": "i"},
        {"type": "tool_result", "tool_use_id": "t", "content": [PDF]},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_file"}]},
    ],
)
def test_where_bytes_say_nothing_the_window_does(block: dict[str, Any]) -> None:
    for price in (CLAUDE, GPT):
        assert _bound("anthropic.messages", _said(block), price).tokens[0] == price.context_window
    unknown = _bound("anthropic.messages", _said(block), None).amount
    assert not unknown.bounded
    assert unknown.unbounded.startswith("messages[0].content[0]")


@pytest.mark.parametrize(
    "image",
    [
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {"type": "image", "source": {"type": "file", "file_id": "f"}},
        {"type": "image", "source": {"type": "base64", "data": "A" * 90_000}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 90_000}},
        {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 90_000},
        {"type": "input_image", "file_id": "f"},
        {"type": "computer_call_output", "output": {"type": "computer_screenshot", "file_id": "f"}},
        {"type": "tool_result", "content": [{"type": "image", "source": {"data": "A" * 90_000}}]},
    ],
)
def test_an_image_counts_for_the_most_that_one_can(image: dict[str, Any]) -> None:
    tokens_in, _ = _bound("openai.chat", _said(image), None).tokens
    assert 48_169 < tokens_in < 50_000  # as the dearest model counts one in high detail


@pytest.mark.parametrize(
    ("endpoint", "body", "most"),
    [
        ("openai.chat", {"max_tokens": 50, "n": 3}, 150),
        ("openai.chat", {"max_tokens": 50, "max_completion_tokens": 70}, 70),
        ("openai.chat", {}, GPT.max_output_tokens),
        ("openai.chat", {"max_tokens": 0}, GPT.max_output_tokens),
        ("openai.chat", {"max_tokens": "many", "n": True}, GPT.max_output_tokens),
        ("openai.chat", {"max_tokens": 50, "prediction": {"content": "abcd"}}, 54),
        ("openai.chat", {"max_tokens": 5, "n": 2,
                         "prediction": {"content": [{"type": "text", "text": "é"}, 5]}}, 14),
        ("openai.responses", {"max_output_tokens": 60}, 60),
        ("anthropic.messages", {"max_tokens": 60, "thinking": {"budget_tokens": 50}}, 60),
        ("openai.completions", {"max_tokens": 10, "n": 2, "best_of": 4, "prompt": ["a", "b"]}, 80),
        ("openai.completions", {"max_tokens": 10, "prompt": [1, 2, 3]}, 10),
        ("openai.embeddings", {"input": ["a", "b"]}, 0),
        ("openai.moderations", {"input": "a"}, 0),
    ],
)  # fmt: skip
def test_the_output_is_what_the_call_names_for_each_answer(
    endpoint: str, body: dict[str, Any], most: int
) -> None:
    found = _bound(endpoint, body, GPT)
    assert found.tokens[1] == most
    assert found.amount.bounded


@pytest.mark.parametrize(
    ("more", "field"),
    [
        (
            {"tools": [{"type": "function"}, {}, {"type": "bespoke_20270101"}]},
            "tools[2] (type",
        ),
        ({"tools": [{"type": ["odd"]}]}, "tools[0]"),
        ({"tools": [{"type": "namespace", "tools": [{"type": "odd"}]}]}, "tools[0].tools[0]"),
        ({"tools": [{"google_search": {}}]}, 'tools[0] (type "google_search"'),
        ({"context_management": {"edits": [{"type": "compact_20260112"}]}}, "context_management"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
        ({"service_tier": "scale"}, 'service_tier "scale"'),
        ({"service_tier": 5}, 'service_tier "5"'),
        ({"modalities": ["text", "audio"], "audio": {"voice": "v"}}, "modalities"),
        ({"models": ["a", "b"]}, "models"),
        ({"plugins": [{"id": "web"}]}, "plugins"),
        ({"agent": {"type": "agent_reference", "name": "a"}}, "agent"),
        ({"agent_reference": {"type": "agent_reference", "name": "a"}}, "agent_reference"),
        ({"cachedContent": "cachedContents/1"}, "cachedContent"),  # may hold a search
        ({"thread": {"type": "continue", "previous_message_id": "msg_1"}}, "thread"),
        ({"thread": "msg_1"}, "thread"),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode"),
    ],
)
def test_what_has_no_price_is_named(more: dict[str, Any], field: str) -> None:
    amount = _bound("openai.chat", _messages(**more), GPT).amount
    assert not amount.bounded
    assert amount.unbounded.startswith(field)


@pytest.mark.parametrize(
    "more",
    [
        {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
        {"thread": {"type": "create"}}, {"service_tier": "fast"},
        {"reasoning": {"mode": "standard", "effort": "max"}}, {"reasoning": {"effort": "low"}},
        {"tools": [{"type": "computer_toolset_20260801"}, {"type": "browser_toolset_20260801"}]},
        {"tools": [{"name": "f", "input_schema": {}}, {}]}, {"speed": 1.25},
    ],
)  # fmt: skip
def test_what_costs_nothing_more_is_let_pass(more: dict[str, Any]) -> None:
    for endpoint, model in (("openai.chat", GPT), ("openai.speech", _price("tts-1"))):
        amount = _bound(endpoint, _messages(input="x", **more), model).amount
        assert amount.bounded, amount.unbounded


@given(most=st.integers(1, 5_000), output=st.integers(2, 5_000), answers=st.integers(1, 3))
def test_a_lowered_call_is_one_with_a_lower_limit(most: int, output: int, answers: int) -> None:
    body = _messages(max_tokens=output, n=answers)
    asked = call_bound("openai.chat", body, 500, CLAUDE).amount
    assert asked.lowered is not None
    lower = call_bound("openai.chat", body | {"max_tokens": most}, 500, CLAUDE).amount
    assert asked.lowered(most) == lower
    assert (lower.nano or 0) <= (asked.nano or 0) or most > output


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(
            ["type", "role", "content", "source", "image_url", "tools", "output", "data", "text",
             "container", "memory_limit", "max_uses", "audio", "result", "url"]
        ), inner, max_size=5,
    ),
    max_leaves=15,
)  # fmt: skip


@settings(suppress_health_check=list(HealthCheck))  # bodies of any shape are large at times
@given(
    body=st.dictionaries(
        st.sampled_from(
            ["messages", "input", "tools", "prompt", "n", "best_of", "max_tokens", "prediction",
             "service_tier", "max_tool_calls", "system", "mcp_servers", "models", "speed",
             "previous_response_id", "modalities", "web_search_options"]
        ), _json,
    ),
    endpoint=st.sampled_from(["openai.chat", "openai.completions", "openai.embeddings", "x.new"]),
    priced=st.booleans(),
)  # fmt: skip
def test_any_shape_of_body_has_a_bound_or_names_a_field(
    body: dict[str, Any], endpoint: str, priced: bool
) -> None:
    bound = call_bound(endpoint, body, 10_000, GPT if priced else None)
    assert bound.amount.bounded == (not bound.amount.unbounded)
    assert min(bound.tokens) >= 0
    assert bound.amount.tokens == min(sum(bound.tokens), 2**53 - 1)


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("openai.chat", {"messages": [{"role": "user", "content": "hi"}], "max_output_tokens": 1}),
        ("openai.responses", {"input": "hi", "max_tokens": 1}),
        ("openai.speech", {"input": "hi", "max_tokens": 1}),
    ],
)
def test_a_limit_of_another_api_is_none(endpoint: str, body: dict[str, Any]) -> None:
    """Servers of this API pass over it, and answer as long as they can."""
    assert _bound(endpoint, body, GPT).tokens[1] == GPT.max_output_tokens


@pytest.mark.parametrize("name", ["n", "best_of"])
@pytest.mark.parametrize("ten", [10, 10.0, 9.5, "10", " 10", "+10", "1e1", ["1", "10"]])
def test_answers_are_counted_as_lenient_servers_count(name: str, ten: Any) -> None:
    assert _bound("openai.image_edits", {"model": "m", name: ten}, GPT).tokens[1] == 491_520
    assert _bound("openai.chat", _messages(**{name: ten}), GPT).tokens[1] == 1_000


@pytest.mark.parametrize("odd", ["many", {}, float("inf"), "inf", "9" * 40])
def test_a_number_of_answers_that_is_none_has_no_bound(odd: Any) -> None:
    assert "n " in _bound("openai.chat", _messages(n=odd), GPT).amount.unbounded


@pytest.mark.parametrize("kind", [{"type": None}, {}])
def test_an_item_by_its_id_may_fill_the_window(kind: dict[str, Any]) -> None:
    body = {"input": [{**kind, "id": "msg_1"}], "max_output_tokens": 5}
    assert _bound("openai.responses", body, GPT).tokens[0] == GPT.context_window


_CONVERSE = {"messages": [{"role": "user", "content": [{"text": "hi"}]}],
             "inferenceConfig": {"maxTokens": 100}}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({}, ""),
        ({"additionalModelRequestFields": {"top_k": 3}, "serviceTier": {"type": "default"}}, ""),
        ({"additionalModelRequestFields": {"max_tokens": 9}},
         "additionalModelRequestFields.max_tokens"),
        ({"guardrailConfig": {"guardrailIdentifier": "g"}}, "guardrailConfig"),
        ({"promptVariables": {"a": {"text": "b"}}}, "promptVariables"),
        ({"serviceTier": {"type": "priority"}}, "serviceTier"),
        ({"performanceConfig": {"latency": "optimized"}}, "performanceConfig"),
        ({"toolConfig": {"tools": [{"systemTool": {"name": "nova_grounding"}}]}},
         'toolConfig.tools[0] (type "systemTool", without a limit)'),
    ],
)  # fmt: skip
def test_what_converse_may_buy_without_a_bound(more: dict[str, Any], field: str) -> None:
    found = _bound("bedrock.converse", {**_CONVERSE, **more}, CLAUDE)
    assert found.amount.unbounded == field
    assert found.tokens[1] == 100


def test_media_of_converse_count_as_those_of_other_dialects() -> None:
    image = {"image": {"format": "png", "source": {"bytes": "A" * 100_000}}}
    result = {"toolResult": {"toolUseId": "t", "content": [image]}}
    told = {"text": "x" * 1000}
    turn = {"role": "user", "content": [image, result, told]}
    found = _bound("bedrock.converse", {**_CONVERSE, "messages": [turn]}, CLAUDE)
    assert 2 * 49_152 < found.tokens[0] < 2 * 49_152 + 3000
    for other in (
        {"document": {"name": "a", "source": {"bytes": "QQ=="}}},
        {"video": {}},
        {"image": {"format": "png", "source": {"s3Location": {"uri": "s3://a"}}}},
    ):
        turn = {"role": "user", "content": [other]}
        found = _bound("bedrock.converse", {**_CONVERSE, "messages": [turn]}, CLAUDE)
        assert found.tokens[0] == CLAUDE.context_window
