"""Nothing is printed that no caller asked for: no warning of a log, no error of a lost task."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime, tool
from remit.testing import ScriptedModel, ToolUse
from tests.support.roots import new_root
from tests.support.wire import Raw, completion, completion_stream, serve

_CHUNK = {"id": "c", "object": "chat.completion.chunk", "model": "m"}
_USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
_END = [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        {"choices": [], "usage": _USAGE}]  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root of its own."""
    return new_root(tmp_path / "root")


class _Heard(logging.Handler):
    """Notes what is logged as a warning or worse."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(f"{record.name}: {record.getMessage()}")


@pytest.fixture
def heard() -> Iterator[_Heard]:
    """Listen to every logger."""
    handler = _Heard()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


def _stream(*chunks: dict[str, Any]) -> Raw:
    lines = [b"data: " + json.dumps({**_CHUNK, **each}).encode() + b"\n\n" for each in chunks]
    return Raw(content_type="text/event-stream", chunks=[*lines, b"data: [DONE]\n\n"])


def _delta(delta: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, **more}]}


def _call(index: int, given: str, **function: str) -> dict[str, Any]:
    part = {"index": index, "function": {"arguments": given, **function}}
    return _delta({"tool_calls": [{**part, "id": f"c{index}"} if function else part]})


STREAMS = {
    "a text that is a number": [_delta({"content": 5})],
    "a call that is no object": [_delta({"tool_calls": ["x"]})],
    "a call without a name": [_call(0, "{}", kind="x")],
    "arguments behind their end": [
        _call(0, "{}", name="a"), _call(1, "{}", name="a"), _call(0, "x"),
    ],
    "an error": [_delta({"content": "hi"}), {"error": {"message": "overloaded"}}],
    "an end without its finish": [_delta({"content": "hi"}), _delta({"content": None})],
}  # fmt: skip


@pytest.mark.parametrize("name", STREAMS)
def test_an_answer_that_cannot_be_read_is_an_error_and_no_warning(
    root: Path, heard: _Heard, name: str
) -> None:
    with serve(_stream(*STREAMS[name], *_END), completion_stream(completion("fine"))) as server:
        flags = {
            "providers.odd.kind": "openai", "providers.odd.base_url": f"{server.url}/v1",
            "providers.odd.default_model": "m", "model.default": "odd", "gateway.max_retries": 0,
        }  # fmt: skip
        with Runtime.open(root, flags=flags) as runtime:
            *_, last = runtime.agent("a", max_retries=0).session().stream("go")
            gc.collect()
    assert last.result.failed or last.result.output in ("fine", "hi")  # type: ignore[union-attr]
    assert heard.said == []


@pytest.mark.parametrize("ends", ["swallows", "raises", "refuses"])
def test_a_tool_that_outlives_its_time_prints_nothing(root: Path, heard: _Heard, ends: str) -> None:
    gone = threading.Event()

    @tool(timeout_s=0.05)
    async def stays() -> str:
        """Stay."""
        try:
            while True:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    if ends == "raises":
                        raise ValueError("while it ended") from None
        except GeneratorExit:
            if ends == "refuses":
                raise RuntimeError("no") from None
            raise
        finally:
            gone.set()

    model = ScriptedModel(ToolUse("stays", {}), "fine", "fine", "fine")
    with Runtime.open(root, providers={"s": model}) as runtime:
        result = runtime.agent("a", tools=[stays]).run("go")
        assert gone.wait(60)
        assert result.tool_results or result.response
    gc.collect()
    assert heard.said == []
