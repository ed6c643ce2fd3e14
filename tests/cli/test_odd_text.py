"""Half an emoji in a model's answer: every command prints what is recorded of it."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.conftest import Run
from tests.support.wire import Raw, Step, completion, serve

HALF = "x \ud83d y"


def _stream(text: str) -> Raw:
    chunk = {"id": "c", "object": "chat.completion.chunk", "model": "m",
             "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}],
             "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}  # fmt: skip
    data = b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n"
    return Raw(data, content_type="text/event-stream")


@pytest.mark.parametrize("answer", [completion(HALF), _stream(HALF)])
def test_every_command_prints_it(remit: Run, remit_process: Run, answer: Step) -> None:
    with serve(answer) as server:
        env = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": "k"}
        remit("init", **env)
        asked = remit_process("ask", "hi", "--model", "openai/m", LC_ALL="C", **env)
        talked = remit("chat", "--model", "openai/m", stdin="hi\n/exit\n", **env)
        found = remit("ledger", "query", "--event-type", "EXCHANGE", "--json")
        ids = dict.fromkeys(re.findall(r'"id": ?"(LED-[0-9a-f]+)"', found.stdout))
        shown = [remit("ledger", "show", one, *more) for one in ids for more in ((), ("--json",))]
    for done in (asked, talked, found, *shown):
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
    assert "x \ufffd y" in asked.stdout
    assert "x \ufffd y" in talked.stdout
    assert ids
    assert any("x \\ud83d y" in one.stdout for one in shown)  # the exact text, as JSON writes it
