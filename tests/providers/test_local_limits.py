"""What the local model refuses by the client's own field; no model is needed for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remit.kernel.json_text import dump
from remit.kernel.settings import default_settings
from remit.providers import Body, LocalProvider, ProviderError, Timeouts
from remit.providers.wire import CHAT, ENDPOINTS
from tests.support.requests import provider_request

NAME = "smollm2-135m"
HI = [{"role": "user", "content": "hi"}]
FUNCTION = {"name": "look", "parameters": {"type": "object", "properties": {}}}
TOOL = {"type": "function", "function": FUNCTION}
CALLED = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]}  # fmt: skip
PNG = "data:image/png;base64,iVBORw0KGgo="
MEDIA = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
PAPER = {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}


def _said(part: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [part]}]}


def _asks(endpoint: str, body: dict[str, Any], *, tools: bool = False) -> Any:
    settings = default_settings().local.model_copy(update={"native_tools": tools})
    provider = LocalProvider(Path("none.gguf"), NAME, settings, "")
    prompt = ENDPOINTS[endpoint].prompt
    value = {"model": NAME, "max_tokens" if prompt == "messages" else "store": 9, **body}
    if prompt == "input":
        value["store"] = False
    value.setdefault(prompt, HI)
    asked = Body.read(ENDPOINTS[endpoint], dump(value))
    return provider.outgoing(provider_request(model_id=NAME, body=asked))


@pytest.mark.parametrize(
    ("endpoint", "body", "param"),
    [
        ("openai.chat", {"n": 2}, "n"),
        ("openai.chat", {"audio": {"voice": "alloy", "format": "wav"}}, "audio"),
        ("openai.chat", {"modalities": ["text", "audio"]}, "modalities"),
        ("openai.chat", {"prediction": {"type": "content", "content": "x"}}, "prediction"),
        ("openai.chat", {"reasoning_effort": "high"}, "reasoning_effort"),
        ("openai.chat", {"verbosity": "low"}, "verbosity"),
        ("openai.chat", {"web_search_options": {}}, "web_search_options"),
        ("openai.chat", {"tools": [TOOL]}, "tools"),
        ("openai.chat", {"tools": [TOOL], "tool_choice": "required"}, "tool_choice"),
        ("openai.chat",
         {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "look"}}},
         "tool_choice"),
        ("openai.chat", {"messages": [*HI, CALLED, *HI]}, "messages[1]"),
        ("openai.chat", _said({"type": "image_url", "image_url": {"url": PNG}}),
         "messages[0].content[0]"),
        ("openai.chat", _said(SOUND), "messages[0].content[0]"),
        ("openai.chat", _said({"type": "file", "file": PAPER}), "messages[0].content[0].file"),
        ("openai.chat", {"response_format": {"type": "zzz"}}, "response_format.type"),
        ("openai.chat", {"temperature": "hot"}, "temperature"),
        ("anthropic.messages", {"tools": [{"name": "look", "input_schema": {"type": "object"}}]},
         "tools"),
        ("anthropic.messages", {"thinking": {"type": "enabled", "budget_tokens": 2048}},
         "thinking"),
        ("anthropic.messages", _said({"type": "image", "source": MEDIA}), "messages[0].content[0]"),
        ("openai.responses", {"reasoning": {"effort": "low"}}, "reasoning"),
        ("openai.responses", {"tools": [{"type": "function", **FUNCTION, "strict": False}]},
         "tools"),
        ("openai.embeddings", {}, "model"),
        ("openai.moderations", {}, "model"),
        ("openai.responses", {"include": ["message.output_text.logprobs"]}, "include"),
    ],
)  # fmt: skip
def test_it_refuses_by_the_clients_field(endpoint: str, body: dict[str, Any], param: str) -> None:
    with pytest.raises(ProviderError) as caught:
        _asks(endpoint, body)
    assert caught.value.code == "INVALID_REQUEST"
    assert caught.value.param == param


def test_a_template_with_tools_gets_functions_and_no_other_kind() -> None:
    assert _asks(CHAT.name, {"tools": [TOOL], "tool_choice": "required"}, tools=True)
    assert _asks(CHAT.name, {"messages": [*HI, CALLED, *HI], "tools": [TOOL]}, tools=True)
    custom = {"type": "custom", "custom": {"name": "free"}}
    with pytest.raises(ProviderError) as caught:
        _asks(CHAT.name, {"tools": [TOOL, custom]}, tools=True)
    assert caught.value.param == "tools[1]"


def test_another_models_name_is_refused() -> None:
    provider = LocalProvider(Path("none.gguf"), NAME, default_settings().local, "")
    with pytest.raises(ProviderError) as caught:
        provider.outgoing(provider_request(model_id="gpt-9"))
    assert caught.value.param == "model"


@pytest.mark.parametrize(
    ("expected", "said"), [("0" * 64, "has the SHA-256"), ("", "no SHA-256 is recorded")]
)
async def test_weights_with_another_hash_are_refused_when_they_are_loaded(
    tmp_path: Path, expected: str, said: str
) -> None:
    pytest.importorskip("xllamacpp")
    weights = tmp_path / "changed.gguf"
    weights.write_bytes(b"GGUF changed")
    provider = LocalProvider(weights, NAME, default_settings().local, expected)
    asked = Body.read(CHAT, dump({"model": NAME, "messages": HI}))
    outgoing = provider.outgoing(provider_request(model_id=NAME, body=asked))
    with pytest.raises(ProviderError, match=said):
        await provider.send(outgoing, Timeouts(30, 30, 30))
    await provider.aclose()
