"""The examples as programs, and a model that is played in either dialect."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remit import LedgerClient, LedgerEntry
from tests.support.commands import run_remit
from tests.support.roots import new_root
from tests.support.wire import (
    Raw,
    completion,
    completion_stream,
    function_call,
    message,
    message_stream,
    serve,
    tool_use,
)

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE_S = 240.0

Use = tuple[str, Mapping[str, Any]]
"""A tool that the model wants, with its arguments."""


@dataclass
class Asked:
    """What the model is asked, the same in either dialect.

    Attributes:
        text: all that was said, results of tools included.
        results: what tools gave back since the last word of the user.
        tools: names of those on offer.
        held: whether the answer is held to a schema.
    """

    text: str
    results: list[str]
    tools: list[str]
    held: bool


Player = Callable[[Asked], str | Use | Sequence[Use] | dict[str, Any]]
"""Plays the model: a text, tools that it wants, or the data that a schema asks for."""


@dataclass
class Model:
    """A played model behind a real HTTP server; what is no stream takes ``delay_s``."""

    dialect: str
    url: str
    delay_s: float = 0.0
    asked: list[Asked] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """Of a process that shall ask it."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ANTHROPIC_", "OPENAI_", "REMIT_"))
        }
        name = self.dialect.upper()
        return {
            **kept,
            f"{name}_BASE_URL": self.url,
            f"{name}_API_KEY": "sk-played",
            "REMIT_GATEWAY__RETRY_BASE_MS": "1",
            "PYTHONWARNINGS": "error",
        }


@contextmanager
def playing(dialect: str, player: Player, *, delay_s: float = 0.0) -> Iterator[Model]:
    """Serve a model that ``player`` plays."""
    read, say = (_messages, _message) if dialect == "anthropic" else (_chat, _completion)
    model = Model(dialect, "", delay_s)

    def step(body: dict[str, Any]) -> dict[str, Any] | Raw:
        asked = read(body)
        model.asked.append(asked)
        answer = say(player(asked))
        if body.get("stream"):
            return (message_stream if dialect == "anthropic" else completion_stream)(answer)
        return Raw(json.dumps(answer).encode(), delay_s=model.delay_s)

    with serve(step) as server:
        model.url = server.url
        yield model


def _messages(body: dict[str, Any]) -> Asked:
    last = body["messages"][-1]["content"]
    blocks = last if isinstance(last, list) else []
    results = [str(one["content"]) for one in blocks if one["type"] == "tool_result"]
    text = json.dumps([body.get("system", ""), body["messages"]], ensure_ascii=False)
    held = bool(body.get("output_config"))
    tools = [] if held else [one["name"] for one in body.get("tools", ())]
    return Asked(text, results, tools, held)


def _message(answer: Any) -> dict[str, Any]:
    if isinstance(answer, dict):
        return message(json.dumps(answer))
    if isinstance(answer, str):
        return message(answer)
    uses = [answer] if isinstance(answer[0], str) else answer
    return message(
        *(tool_use(name, dict(given), f"toolu_{n}") for n, (name, given) in enumerate(uses))
    )


def _chat(body: dict[str, Any]) -> Asked:
    results: list[str] = []
    for one in reversed(body["messages"]):
        if one["role"] != "tool":
            break
        results.insert(0, one["content"])
    text = json.dumps(body["messages"], ensure_ascii=False)
    tools = [one["function"]["name"] for one in body.get("tools", ())]
    return Asked(text, results, tools, "response_format" in body)


def _completion(answer: Any) -> dict[str, Any]:
    if isinstance(answer, dict):
        return completion(json.dumps(answer))
    if isinstance(answer, str):
        return completion(answer)
    uses = [answer] if isinstance(answer[0], str) else answer
    return completion(
        "",
        [
            function_call(name, json.dumps(given), f"call_{n}")
            for n, (name, given) in enumerate(uses)
        ],
    )


def begin(place: Path, model: Model, example: str, *arguments: str) -> subprocess.Popen[str]:
    """Start an example in a directory; its root is ``root`` there, a copy of a new one at first."""
    if not (place / "root").exists():
        new_root(place / "root")
    command = [sys.executable, str(EXAMPLES / example), *arguments, "--root", "root"]
    return subprocess.Popen(
        command, cwd=place, env=model.environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def ended(program: subprocess.Popen[str]) -> str:
    """What a program that ends well printed from here on."""
    try:
        printed, _ = program.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        kill(program)
        raise
    assert program.returncode == 0, printed
    return printed


def run(place: Path, model: Model, example: str, *arguments: str) -> str:
    """Run an example to its end."""
    return ended(begin(place, model, example, *arguments))


def line(program: subprocess.Popen[str], begins: str) -> str:
    """The next line that a running program prints; it begins so."""
    assert program.stdout is not None
    printed = program.stdout.readline().rstrip("\n")
    if not printed.startswith(begins):
        program.kill()
        raise AssertionError(f"{printed}\n{program.communicate()[0]}")
    return printed


def kill(program: subprocess.Popen[str]) -> None:
    """``kill -9``."""
    program.kill()
    program.communicate()


def remit(place: Path, *arguments: str, status: int = 0) -> str:
    """Run a command on the root; what it printed on standard output."""
    done = run_remit(*arguments, "--root", "root", cwd=place)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def entries(place: Path, event_type: str) -> list[LedgerEntry]:
    """What is on record of one kind."""
    with LedgerClient(str(place / "root/ledger.db")) as ledger:
        return ledger.read_by_event_type(event_type)


def sound(place: Path) -> None:
    """The ledger verifies, budgets agree with it, trace hashes can be computed again."""
    remit(place, "ledger", "verify")
    remit(place, "budget", "check")
    remit(place, "trace", "--last", "--verify")


def rows(database: Path, query: str) -> list[tuple[Any, ...]]:
    """What a SQLite file holds."""
    with closing(sqlite3.connect(database)) as opened:
        return opened.execute(query).fetchall()
