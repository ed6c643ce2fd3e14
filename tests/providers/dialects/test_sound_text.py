"""Halves of an emoji in a stream: joined if they follow each other, else replaced by U+FFFD."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from remit.kernel.exchange import (
    BlockEnd,
    RefusalDelta,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolInputDelta,
)
from remit.providers.dialects.tool_calls import read_arguments
from tests.providers.dialects.bodies import Reading

HIGH, LOW, EMOJI = "\ud83d", "\ude00", "😀"
CUTS = {
    "joined": (["a " + HIGH, LOW + " b"], f"a {EMOJI} b"),
    "joined over an empty piece": ([HIGH, "", LOW], EMOJI),
    "alone within": (["x " + HIGH + " y"], "x \ufffd y"),
    "alone before another piece": (["x " + HIGH, " y"], "x \ufffd y"),
    "alone at the end": (["x " + HIGH], "x \ufffd"),
    "second halves alone": ([LOW, LOW], "\ufffd\ufffd"),
    "first halves twice": ([HIGH, HIGH + LOW], "\ufffd" + EMOJI),
    "sound": (["ä", EMOJI], "ä" + EMOJI),
}

Events = list[dict[str, Any]]


def _chat(kind: str, pieces: Sequence[str]) -> Events:
    def delta(piece: str, first: bool) -> dict[str, Any]:
        if kind == "tool":
            call: dict[str, Any] = {"index": 0, "function": {"arguments": piece}}
            if first:
                call |= {"id": "c", "function": {"name": "t", "arguments": piece}}
            return {"tool_calls": [call]}
        return {{"text": "content", "thinking": "reasoning_content"}.get(kind, kind): piece}

    chunks = [{"choices": [{"index": 0, "delta": delta(piece, not number)}]}
              for number, piece in enumerate(pieces)]  # fmt: skip
    return [*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]


def _messages(kind: str, pieces: Sequence[str]) -> Events:
    block: dict[str, Any] = {"type": kind, kind: ""}
    name = {"text": "text", "thinking": "thinking"}.get(kind, "partial_json")
    if kind == "tool":
        block = {"type": "tool_use", "id": "c", "name": "t", "input": {}}
    change = "input_json_delta" if kind == "tool" else f"{kind}_delta"
    return [
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": change, name: piece}}
          for piece in pieces),
        {"type": "content_block_stop", "index": 0},
    ]  # fmt: skip


def _responses(kind: str, pieces: Sequence[str]) -> Events:
    whole = "".join(pieces)
    delta = {
        "text": "response.output_text.delta", "refusal": "response.refusal.delta",
        "thinking": "response.reasoning_text.delta",
        "tool": "response.function_call_arguments.delta",
    }[kind]  # fmt: skip
    item: dict[str, Any]
    if kind == "tool":
        item = {"type": "function_call", "id": "f", "call_id": "c", "name": "t"}
        done, first = {**item, "arguments": whole}, {**item, "arguments": ""}
    elif kind == "thinking":
        item = {"type": "reasoning", "id": "r", "summary": []}
        done, first = {**item, "content": [{"type": "reasoning_text", "text": whole}]}, item
    else:
        part = {"text": "output_text", "refusal": "refusal"}[kind]
        shown = {"type": part, {"text": "text", "refusal": "refusal"}[kind]: whole}
        item = {"type": "message", "id": "m", "role": "assistant", "content": []}
        done, first = {**item, "content": [shown]}, item
    return [
        {"type": "response.output_item.added", "output_index": 0, "item": first},
        *({"type": delta, "output_index": 0, "delta": piece} for piece in pieces),
        {"type": "response.output_item.done", "output_index": 0, "item": done},
    ]


DIALECTS: dict[str, tuple[Callable[[str, Sequence[str]], Events], tuple[str, ...]]] = {
    "openai.chat": (_chat, ("text", "thinking", "refusal", "tool")),
    "openai.responses": (_responses, ("text", "thinking", "refusal", "tool")),
    "anthropic.messages": (_messages, ("text", "thinking", "tool")),
}
_EVENTS = {"text": TextDelta, "thinking": ThinkingDelta, "refusal": RefusalDelta}


def _pieces(kind: str, events: Sequence[StreamEvent]) -> list[str]:
    if kind == "tool":
        return [event.partial_json for event in events if isinstance(event, ToolInputDelta)]
    return [event.text for event in events if isinstance(event, _EVENTS[kind])]  # type: ignore[attr-defined]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize(
    ("endpoint", "kind"), [(name, kind) for name, (_, kinds) in DIALECTS.items() for kind in kinds]
)
def test_pieces_and_the_whole_of_a_stream_are_sound(endpoint: str, kind: str, cut: str) -> None:
    given, wanted = CUTS[cut]
    if kind == "tool":
        given, wanted = ['{"q": "', *given, '"}'], f'{{"q": "{wanted}"}}'
    reader = Reading(endpoint)
    events = [event for data in DIALECTS[endpoint][0](kind, given) for event in reader.feed(data)]
    events += reader.finish()
    assert "".join(_pieces(kind, events)) == wanted
    for piece in _pieces(kind, events):
        piece.encode()  # each can be printed as it comes
    (end,) = [event for event in events if isinstance(event, BlockEnd)]
    if kind == "tool":
        assert end.block["input"] == {"q": wanted[7:-2]}
    else:
        assert end.block[kind] == wanted


def test_two_calls_whose_pieces_take_turns_keep_their_own_halves() -> None:
    reader = Reading("openai.chat")
    sent = [(0, '{"q":"' + HIGH), (1, '{"q":"' + HIGH), (0, LOW + '"}'), (1, 'x"}')]
    chunks = [
        {"choices": [{"index": 0, "delta": {"tool_calls": [
            {"index": index, "id": f"c{index}", "function": {"name": "t", "arguments": piece}}
        ]}}]}
        for index, piece in sent
    ]  # fmt: skip
    events = [event for chunk in chunks for event in reader.feed(chunk)]
    events += reader.finish()
    blocks = [event.block["input"] for event in events if isinstance(event, BlockEnd)]
    assert blocks == [{"q": EMOJI}, {"q": "\ufffdx"}]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        (" \n", {}),
        ('{"n": 1917043659912705297}', {"n": 1917043659912705297}),
        ('{"n": -9223372036854775809}', {"n": -9223372036854775809}),
        ('{"q": "\\ud83d"}', {"q": "\ufffd"}),
        ('{"q": "\\ud83d\\ude00"}', {"q": EMOJI}),
        *((text, {"_unparsed": text}) for text in (
            "null", "[]", "3", "true", '"{}"', "{}{}", "{", '{"a": tru', "{'a': 1}", '{"a": NaN}',
            '{"a": Infinity}', '{"a": 1e400}', '{"a":1,}', "{a: 1}", '{"a": "b\nc"}', "```{}```",
            '{"_unparsed": "x"}', '{"a": 1, "a": 2}', '{"a": 1, "\\u0061": 2}',
            '{"n": ' + "9" * 4301 + "}", '{"a":' + "[" * 200 + "]" * 200 + "}", "\ufeff{}",
        )),
    ],
)  # fmt: skip
def test_arguments_are_read_exactly_or_not_at_all(text: str, value: dict[str, Any]) -> None:
    assert read_arguments(text) == value
