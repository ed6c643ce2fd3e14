"""A root whose contract has answers on record that lack a requirement."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime
from remit.kernel.exchange import PromptRequest
from tests.support.processes import Program
from tests.support.scripted import Scripted, scripted

MODEL = "gpt-4o-mini"
RULE = "Answer as a JSON object."
CONTRACT = "PRC-EXECUTE-001"


def answer(body: dict[str, Any]) -> str:
    return '{"tea": 1}' if RULE in json.dumps(body["messages"]) else "tea"


@pytest.fixture
def provider() -> Iterator[Scripted]:
    with scripted() as made:
        made.reply = answer
        yield made


@pytest.fixture
def answered(provider: Scripted, tmp_path: Path) -> Path:
    """A root with 30 answers, and beside it a change and a schema."""
    root = provider.root(tmp_path / "root")
    (tmp_path / "change.toml").write_text(f'kind = "prompt"\nadditions = ["{RULE}"]\n')
    (tmp_path / "schema.json").write_text('{"type": "object"}')
    record(root)
    return root


def record(root: Path, model: str = MODEL, system: str = "") -> None:
    """30 answers of a model, perhaps with more in the system section."""
    with Runtime.open(root, model=model, flags={"budget.mode": "off"}) as runtime:
        pack = runtime.contracts.load_pack("PRM-EXECUTE-001")
        for number in range(30):
            messages = pack.render({"user_input": f"Case {number}?"})
            messages[0]["content"] += system
            request = PromptRequest(
                "", "PRM-EXECUTE-001", CONTRACT, "tester", "RESIDENT", "", "", "",
                f"SES-{number}", "ho1", messages=messages,
            )  # fmt: skip
            assert not runtime.gateway.route(request).error_code


def killed_at(number: int, provider: Scripted, *arguments: str) -> None:
    """Run ``remit`` and kill it as its request of this number comes."""
    running: list[Program] = []
    reply = provider.reply

    def answering(body: dict[str, Any]) -> str:
        if len(provider.bodies) == number:
            running[0].kill()
        return reply(body)

    provider.reply = answering
    with Program("-m", "remit", *arguments, environment=dict(os.environ)) as program:
        running.append(program)
        assert program.wait(120) == -signal.SIGKILL
    provider.reply = reply


def becomes_another(provider: Scripted, reply: Callable[[dict[str, Any]], str]) -> None:
    """After two answers another version of the model answers."""

    def answering(body: dict[str, Any]) -> str:
        provider.model = "gpt-4o-mini-2" if len(provider.bodies) > 2 else MODEL
        return reply(body)

    provider.bodies.clear()
    provider.reply = answering
