"""Parameters for a provider of the other dialect."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.providers.dialects import DialectError, translate_parameters
from tests.providers.dialects.strategies import words

CHOICES = [
    ("auto", {"type": "auto"}),
    ("none", {"type": "none"}),
    ("required", {"type": "any"}),
    ({"type": "function", "function": {"name": "f"}}, {"type": "tool", "name": "f"}),
]


@pytest.mark.parametrize(("openai", "anthropic"), CHOICES)
def test_the_choice_of_tools_both_ways(openai: Any, anthropic: Any) -> None:
    there = translate_parameters({"tool_choice": openai}, "openai", "anthropic")
    assert there == {"tool_choice": anthropic}
    assert translate_parameters(there, "anthropic", "openai") == {"tool_choice": openai}


@pytest.mark.parametrize(("openai", "anthropic"), [*CHOICES, (None, {"type": "auto"})])
def test_one_tool_at_a_time_both_ways(openai: Any, anthropic: Any) -> None:
    asked = {"tool_choice": openai, "parallel_tool_calls": False}
    there = translate_parameters(asked, "openai", "anthropic")
    if openai == "none":
        assert there == {"tool_choice": {"type": "none"}}
        return
    assert there == {"tool_choice": {**anthropic, "disable_parallel_tool_use": True}}
    back = translate_parameters(there, "anthropic", "openai")
    assert back == {"tool_choice": openai or "auto", "parallel_tool_calls": False}
    several = {"tool_choice": openai, "parallel_tool_calls": True}
    plain = translate_parameters({"tool_choice": openai}, "openai", "anthropic")
    assert translate_parameters(several, "openai", "anthropic") == plain


def test_one_allowed_tool_that_must_be_used() -> None:
    def allowed(mode: str, *names: str) -> dict[str, Any]:
        tools = [{"type": "function", "function": {"name": name}} for name in names]
        choice = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}
        return translate_parameters({"tool_choice": choice}, "openai", "anthropic")

    assert allowed("required", "f") == {"tool_choice": {"type": "tool", "name": "f"}}
    for names in (("f", "g"), ()):
        with pytest.raises(DialectError):
            allowed("required", *names)
    with pytest.raises(DialectError):
        allowed("auto", "f")


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "stop": st.lists(words, min_size=1),
            "top_p": st.floats(0, 1),
            "user": words,
            "tool_choice": st.sampled_from([choice for choice, _ in CHOICES]),
        },
    )
)
def test_what_both_dialects_have_comes_back(parameters: dict[str, Any]) -> None:
    there = translate_parameters(parameters, "openai", "anthropic")
    assert translate_parameters(there, "anthropic", "openai") == parameters
    assert len(there) == len(parameters)


def test_the_rest_is_left_out() -> None:
    openai = {
        "stop": "END",
        "user": None,
        "safety_identifier": "s",
        "top_k": 5,
        "n": 1,
        "seed": 3,
        "store": True,
        "logprobs": False,
        "reasoning_effort": "low",
        "response_format": {"type": "text"},
        "modalities": ["text"],
        "metadata": {"a": "b"},
        "presence_penalty": 0.5,
        "x_new": 1,
    }
    assert translate_parameters(openai, "openai", "anthropic") == {
        "stop_sequences": ["END"],
        "metadata": {"user_id": "s"},
        "top_k": 5,
    }
    anthropic = {
        "stop_sequences": [],
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "low"},
        "metadata": {"user_id": None},
        "top_k": 5,
        "service_tier": "auto",
        "mcp_servers": [],
    }
    assert translate_parameters(anthropic, "anthropic", "openai") == {}
    for dialect, parameters in (("openai", openai), ("anthropic", anthropic)):
        same = translate_parameters(parameters, dialect, dialect)  # type: ignore[arg-type]
        assert same == parameters
        assert same is not parameters


@pytest.mark.parametrize(
    ("parameters", "param"),
    [
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"audio": {"voice": "x"}}, "audio"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"n": 2}, "n"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"response_format": []}, "response_format"),
        ({"logit_bias": {"50256": -100}}, "logit_bias"),
        ({"web_search_options": {"search_context_size": "low"}}, "web_search_options"),
        ({"stop": 3}, "stop"),
        ({"stop": ["a", 3]}, "stop"),
        ({"stop": "\n"}, "stop"),
        ({"top_p": "1"}, "top_p"),
        ({"top_p": True}, "top_p"),
        ({"tool_choice": "maybe"}, "tool_choice"),
        ({"tool_choice": 3}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tool_choice": {"type": "custom", "custom": {"name": "c"}}}, "tool_choice"),
        ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"parallel_tool_calls": 0}, "parallel_tool_calls"),
        ({"user": 3}, "user"),
    ],
)
def test_what_anthropic_cannot_honour(parameters: dict[str, Any], param: str) -> None:
    with pytest.raises(DialectError) as caught:
        translate_parameters(parameters, "openai", "anthropic")
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("parameters", "param"),
    [
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"container": "c"}, "container"),
        ({"inference_geo": "eu"}, "inference_geo"),
        ({"stop_sequences": {}}, "stop_sequences"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice"),
        ({"tool_choice": {"type": ["auto"]}}, "tool_choice"),
        ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": 1}}, "tool_choice"),
        ({"metadata": "x"}, "metadata"),
        ({"metadata": {"user_id": 3}}, "metadata.user_id"),
    ],
)
def test_what_openai_cannot_honour(parameters: dict[str, Any], param: str) -> None:
    with pytest.raises(DialectError) as caught:
        translate_parameters(parameters, "anthropic", "openai")
    assert caught.value.param == param
