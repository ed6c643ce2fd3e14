"""The corpus of odd answers, as each provider's API sends them: every API, one outcome.

``odd_answers.md`` holds the outcomes. ``python -m tests.agents.test_odd_dialects`` writes it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime, tool
from remit.ledger import Erased
from remit.providers.dialects import read_answer
from remit.providers.wire import stream_sum
from remit.tools import Tool
from tests.support.odd_answers import (
    HALF,
    Call,
    Odd,
    chat,
    chat_stream,
    messages,
    messages_stream,
    responses,
    responses_events,
)
from tests.support.roots import new_root
from tests.support.soak import is_soak, sample
from tests.support.wire import serve

TABLE = Path(__file__).with_name("odd_answers.md")
GREAT = 9223372036854775809123
ARGUMENTS: dict[str, Sequence[Any]] = {
    # The first three tools have no parameter, one that is optional, and one that is required.
    "ping": ("", " ", "{}", "{ }", "null", " null\n", "[]", '""', "0", "true", '{"a": 1}', None),
    "sweep": (
        "", "{}", "null", '{"days": 3}', '{"days": 3.0}', '{"days": "3"}', '{"days": null}',
        '{"days": 1e2}', f'{{"days": {GREAT}}}', f'{{"days": -{GREAT}}}', '{"days": 01}',
        '{"days": +1}', '{"days": .5}', '{"days": 1.}', '{"days": NaN}', '{"days": -Infinity}',
        '{"days": 1e999}', '{"days": ' + "9" * 4301 + "}", '{"days": 1, "days": 2}',
        '{"days": 1, "d\\u0061ys": 2}', '{"a": [{"b": 1, "b": 2}]}', '{"days": 1, "more": true}',
        '{"_unparsed": "x"}', '{"a": ' + "[" * 200 + "]" * 200 + "}", '{"days": 1} and more',
        '{"days": 1}{"days": 2}', '{"days": 3650, "dry_run": tru', "days=1", "<days>1</days>",
        "{'days': 1}", "{days: 1}", '{"days": 1,}', '{"days": 0x10}', "[1]", '[{"days": 1}]',
        '"{\\"days\\": 1}"', "```json\n{}\n```", "undefined", "None", "\x00", "\ufeff{}",
        "// none\n{}", {"days": 1}, ["days"], 3, True,
    ),
    "visit": (
        "", "null", '{"city": "Wien"}', '{"city": "Wien", "days": "3"}', '{"city": ""}',
        '{"city": 1}', '{"City": "Wien"}', f'{{"city": "{HALF}"}}', '{"city": "\\ud83d"}',
        '{"city": "\\ud83d\\ude00"}', '{"city": "😀"}', '{"city": "a\\u0000b"}',
        '{"city": "a\nb"}', '{"city": "\\u12"}', '{"city": "\\x41"}', '{"city": "Wien"',
        '{"city": "W', '{"city": "a", "city": "b"}', '{"\\ud83d": 1}',
    ),
}  # fmt: skip
STOPS = ("stop", "length", "content_filter")
ODD = [
    *(Odd(f"{name} {_shown}", calls=(Call(name, given),))
      for name, every in ARGUMENTS.items() for given in every
      for _shown in [given if isinstance(given, str) else f"(no text) {given}"]),
    Odd("no such tool", calls=(Call("no_such_tool", "{}"),)),
    Odd("a tool whose name no API takes", calls=(Call("no such tool!", "{}"),)),
    Odd("two calls of one id", calls=(Call("ping", "{}"), Call("ping", "{}"))),
    Odd("text with a call", "Let me see.", (Call("ping", "{}"),)),
    *(Odd(f"a whole call, then {stop}", calls=(Call("ping", "{}"),), stop=stop)
      for stop in STOPS[1:]),
    *(Odd(f"{name}, then {stop}", text, calls, stop=stop)
      for stop in ("error", "network_error", "insufficient_system_resource")
      for name, text, calls in (("a whole call", "", (Call("ping", "{}"),)), ("text", "I am", ()))),
    Odd("half a call, then length", calls=(Call("sweep", '{"days": 1'),), stop="length"),
    *(Odd(f"text {text!a}, then {stop}", text, stop=stop)
      for text in ("", " \n", "\u200b\ufeff", "The first") for stop in STOPS),
    Odd("a refusal", refusal="No, never."),
    Odd("text, then a refusal", "I could", refusal="No, never."),
    *(Odd(f"text {text!a}", text) for text in (
        "x " + HALF, f"x {HALF} y", "a 😀 b", "\u00ad\u2060\ufe0f", "\u3164", "a\x00b",
        "Error: no", "[error] no", "```\nTraceback (most recent call last)\n```",
        "> **Error:** no", "My card is 4\u200b111.", "My card is \uff14\uff11\uff11\uff11.",
        "My card is 4111.",
        "null", "{}", '{"name": "ping", "arguments": {}}',
    )),
]  # fmt: skip
"""Their names are the rows of the table."""

_WIRES: dict[str, tuple[str, Callable[[Odd], Any]]] = {
    "chat": ("openai", chat),
    "chat stream": ("openai", chat_stream),
    "messages": ("anthropic", messages),
    "messages stream": ("anthropic", messages_stream),
    "messages stream, whole input": (
        "anthropic", lambda odd: messages_stream(odd, whole_input=True),
    ),
}  # fmt: skip


def _tools() -> list[Tool]:
    @tool(on_unknown="retry")
    def visit(city: str, days: int = 1) -> str:
        """Visit a city."""
        return "done"

    days = {"days": {"type": "integer"}}
    sweep = {"type": "object", "properties": days}
    made = [Tool("ping", "Ping.", {"type": "object", "additionalProperties": False}, _done),
            Tool("sweep", "Sweep.", sweep, _done)]  # fmt: skip
    return [*made, visit]


def _done(**_: Any) -> str:
    return "done"


class Bench:
    """Agents of both APIs, each of which is given one odd answer and then ``fine``."""

    def __init__(self, runtimes: dict[str, Runtime], script: dict[str, Any]) -> None:
        self._runtimes = runtimes
        self._script = script

    def outcome(self, odd: Odd, wire: str) -> tuple[str, str, str]:
        """Return what the caller, the next prompt and the record contain."""
        api, written = _WIRES[wire]
        runtime = self._runtimes[api]
        streams = "stream" in wire
        fine = Odd("fine", "fine")
        plain = {"chat": chat, "chat stream": chat_stream, "messages": messages}.get(
            wire, messages_stream
        )(fine)
        answers: list[Any] = [written(odd)]
        asked: list[dict[str, Any]] = []

        def step(body: dict[str, Any]) -> Any:
            asked.append(body)
            return answers.pop() if answers else plain

        self._script[api] = step
        agent = runtime.agent(
            "odd", tools=_tools(), acceptance={"must_not_contain": ["4111"]}, max_retries=1
        )
        session = agent.session()
        if streams:
            *_, last = session.stream("go")
            result = last.result  # type: ignore[union-attr]
        else:
            result = session.turn("go")
        caller = result.error_detail if result.failed else result.response
        entries = list(runtime.ledger.query(session_id=session.session_id))
        calls = [entry.metadata for entry in entries if entry.event_type == "TOOL_CALL"]
        gates = [entry.metadata["verdict"] for entry in entries
                 if entry.event_type == "WO_QUALITY_GATE"]  # fmt: skip
        record = [_recorded(call) for call in calls] + [f"gate: {', '.join(gates)}"]
        return _cell(caller), _cell(_next_prompt(asked)), _cell("; ".join(record))


def _recorded(call: dict[str, Any]) -> str:
    given = call.get("arguments")
    shown = "erased" if isinstance(given, Erased) else json.dumps(given)
    return f"{call['tool_id']} {shown} {call['status']}"


def _next_prompt(asked: list[dict[str, Any]]) -> str:
    """Return what the second prompt has of the first answer: results of tools, or a reason."""
    if len(asked) < 2:
        return "-"
    *_, last = asked[1]["messages"]
    content = last["content"]
    if isinstance(content, list):
        parts = [part for part in content if part["type"] == "tool_result"]
        results = [part["content"] for part in parts]
        return " | ".join(
            each if isinstance(each, str) else "".join(part["text"] for part in each)
            for each in results
        )
    if last["role"] == "tool":
        for call in (call for turn in asked[1]["messages"] for call in turn.get("tool_calls", ())):
            given = json.loads(call["function"]["arguments"])
            assert isinstance(given, dict), "some servers refuse anything else"
        tail = [each["content"] for each in asked[1]["messages"] if each["role"] == "tool"]
        return " | ".join(tail)
    reasons = str(content).partition("these reasons:\n```\n")[2].partition("\n```")[0]
    return f"rejected: {reasons}" if reasons else "the same prompt"


def _cell(text: str) -> str:
    cut = text if len(text) <= 150 else f"{text[:100]}…{text[-40:]}"
    return ascii(cut)[1:-1].replace("|", "¦").replace("`", "'")


@contextmanager
def bench(place: Path) -> Iterator[Bench]:
    """Give a bench with a root in ``place``."""
    new_root(place)
    script: dict[str, Any] = {}
    with (
        serve(lambda body: script["openai"](body)) as chats,
        serve(lambda body: script["anthropic"](body)) as claudes,
    ):
        flags = {
            "providers.odd.kind": "openai", "providers.odd.base_url": f"{chats.url}/v1",
            "providers.claude.kind": "anthropic", "providers.claude.base_url": claudes.url,
            "providers.claude.api_key": "sk-x", "gateway.max_retries": 0,
            "providers.odd.default_model": "m", "providers.claude.default_model": "m",
        }  # fmt: skip
        with (
            Runtime.open(place, flags=flags, model="odd/m") as openai,
            Runtime.open(place, flags=flags, model="claude/m") as anthropic,
        ):
            yield Bench({"openai": openai, "anthropic": anthropic}, script)


def _wires_of(odd: Odd) -> list[str]:
    """Return the wires that can send an answer: only the Messages API streams other values."""
    texts = all(isinstance(call.arguments, str) for call in odd.calls)
    return [wire for wire in _WIRES if texts or wire != "chat stream"]


def rows_of(odd: Odd, outcomes: dict[str, tuple[str, str, str]]) -> list[str]:
    """Return an answer's rows: one if every wire has one outcome."""
    wires: dict[tuple[str, str, str], list[str]] = {}
    for wire, outcome in outcomes.items():
        wires.setdefault(outcome, []).append(wire)
    return [
        f"| {_cell(odd.name)} | {'all' if len(wires) == 1 else ', '.join(those)} | "
        f"{' | '.join(outcome)} |"
        for outcome, those in wires.items()
    ]


@pytest.mark.soak
def test_every_api_gives_one_outcome(tmp_path: Path) -> None:
    table = TABLE.read_text("utf-8")
    assert len(ODD) >= 80
    assert len({odd.name for odd in ODD}) == len(ODD)
    with bench(tmp_path / "root") as made:
        for odd in sample(ODD, 16):
            outcomes = {wire: made.outcome(odd, wire) for wire in _wires_of(odd)}
            for row in rows_of(odd, outcomes):
                assert f"{row}\n" in table, odd
    if is_soak():
        assert table.count("\n| ") - 2 >= len(ODD)


@pytest.mark.parametrize("streams", [False, True])
def test_the_responses_api_is_read_like_chat_completions(streams: bool) -> None:
    for odd in (each for each in ODD if each.stop in STOPS):
        expected = read_answer("openai.chat", chat(odd))
        if streams:
            total = stream_sum("openai.responses")
            for event in responses_events(odd):
                total.add(event["type"], json.dumps(event).encode())
            found = read_answer("openai.responses", total.answer())
        else:
            found = read_answer("openai.responses", responses(odd))
        assert found.content_blocks == expected.content_blocks, odd
        assert found.finish_reason == expected.finish_reason, odd
        assert found.content == expected.content, odd


def _write() -> None:
    head = "# Odd answers, and what becomes of them\n\n"
    head += "Written by `python -m tests.agents.test_odd_dialects`. The APIs that are not `all` "
    head += "differ in what they can say.\n\n"
    head += "| Answer | APIs | The caller | The next prompt | The record |\n|---|---|---|---|---|\n"
    with tempfile.TemporaryDirectory() as place, bench(Path(place) / "root") as made:
        rows = [row for odd in ODD
                for row in rows_of(odd, {wire: made.outcome(odd, wire)
                                         for wire in _wires_of(odd)})]  # fmt: skip
    TABLE.write_text(head + "".join(f"{row}\n" for row in rows), "utf-8")


if __name__ == "__main__":
    _write()
