"""A recorded run answers its client's program again: byte for byte, without an upstream."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anthropic
import pytest

from remit.gateway import Recording
from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.providers.sse import SseParser
from remit.providers.wire import stream_sum
from remit.server import ReplayServer
from tests.server.running import Served
from tests.server.sdks import anthropic_at
from tests.support.commands import require_said
from tests.support.processes import run_program
from tests.support.upstream import Upstream

TOML = """
[gateway]
retry_base_ms = 5
retry_max_ms = 50
record_streams = true
[providers.own]
kind = "openai"
base_url = "http://127.0.0.1:9/v1"
"""
PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
Answer = tuple[int, bytes, Mapping[str, str]]


@contextmanager
def replaying(
    served: Served, run: str, any_results: bool = False, **options: Any
) -> Iterator[tuple[Served, Recording]]:
    """A server that replays a run of ``served``."""
    root = Root(served.root)
    recording = Recording(served.ledger, run, any_results)
    before = served.ledger.count()
    with ReplayServer(recording, root, load_settings(root.config).settings, **options) as server:
        yield replace(served, url=server.url), recording
    assert served.ledger.count() == before


def answers(served: Served, session: str, calls: list[tuple[str, str, bool]]) -> list[Answer]:
    """The answers to a conversation: (dialect, text, stream) of each call."""
    found = []
    for dialect, text, stream in calls:
        model = "claude-sonnet-4-5" if "claude" in text else "gpt-4o-mini"
        found.append(served.call(dialect, text, session=session, model=model, stream=stream))
    return found


TALK = [
    ("openai", "hello", False),
    ("openai", "hello", True),
    ("openai", "[[tool=lookup:{}]] weather", True),
    ("anthropic", "hello claude", False),
    ("anthropic", "tell claude [[tokens=40]]", True),
    ("anthropic", "hello translated", False),
    ("openai", "hello claude translated", True),
    ("openai", "broken [[status=400]]", False),
    ("openai", "hello", False),
]


def test_every_answer_comes_again(anywhere: Served, upstream: Upstream, session: str) -> None:
    recorded, calls = answers(anywhere, session, TALK), upstream.count()
    time.sleep(1.1)  # A replay that told the time of day would differ.
    with replaying(anywhere, session) as (replay, recording):
        again = answers(replay, session, TALK)
        recording.finish()
    assert upstream.count() == calls
    for (status, body, headers), (new_status, new_body, new_headers) in zip(
        recorded, again, strict=True
    ):
        assert (new_status, new_body) == (status, body)
        own = {name for name in headers if name.startswith("x-remit-")}
        assert {name: new_headers.get(name) for name in own} == {n: headers[n] for n in own}


def turns(number: int) -> list[tuple[str, str, bool]]:
    return [("openai", f"turn {n}", n % 2 == 0) for n in range(number)]


def test_one_changed_byte_is_named(served: Served, upstream: Upstream, session: str) -> None:
    answers(served, session, turns(12))
    calls = upstream.count()
    with replaying(served, session) as (replay, recording):
        answers(replay, session, turns(9))
        status, body, _ = replay.call("openai", "turn 8!", session=session, model="gpt-4o-mini",
                                      stream=False)  # fmt: skip
        assert status == 422
        said = json.loads(body)["error"]["message"]
        expected = (
            'request 10 differs from the recording in /messages/0/content: expected "turn 9", '
            'found "turn 8!"'
        )
        assert expected in said
        assert answers(replay, session, turns(1))[0][0] == 422
        with pytest.raises(RemitError, match="request 10 differs"):
            recording.finish()
    assert upstream.count() == calls


def test_a_missing_call_is_named_and_an_erased_one_is_refused(served: Served, session: str) -> None:
    answers(served, session, turns(3))
    with replaying(served, session) as (replay, recording):
        answers(replay, session, turns(2))
        with pytest.raises(RemitError, match="before request 3: 1 of 3 recorded calls"):
            recording.finish()
    second = served.entries("EXCHANGE", session)[1]
    served.ledger.erase(entry_id=second.id, reason="asked", requested_by="Ada")
    with pytest.raises(RemitError, match=f"of {second.id} was erased .LED-.*of {session} "):
        Recording(served.ledger, session)


def test_parallel_calls_in_any_order(served: Served, upstream: Upstream, session: str) -> None:
    def talk(to: Served, order: list[int]) -> dict[int, bytes]:
        def one(number: int) -> bytes:
            return to.call("openai", f"part {number} [[delay=0.1]]", session=session)[1]

        with ThreadPoolExecutor(8) as pool:
            return dict(zip(order, pool.map(one, order), strict=True))

    recorded = talk(served, [*range(8)])
    calls = upstream.count()
    with replaying(served, session) as (replay, recording):
        assert talk(replay, [*reversed(range(8))]) == recorded
        recording.finish()
    assert upstream.count() == calls


@pytest.mark.parametrize(
    ("calls", "statuses"),
    [
        ([("hello", "gpt-4o-mini"), ("hello", "gpt-4.1"), ("hello", "gpt-4o-mini")],
         [200, 403, 200]),
        ([("[[cut=3]] tell me more", "gpt-4.1-nano")], [200]),
        ([("[[status=500]] no", "gpt-4.1-nano")], [500]),  # Its circuit opens.
    ],
)  # fmt: skip
def test_a_refusal_and_a_broken_stream_come_again(
    served: Served, session: str, calls: list[tuple[str, str]], statuses: list[int]
) -> None:
    key = served.key(models=("gpt-4o-mini", "gpt-4.1-nano")).key

    def talk(to: Served) -> list[tuple[int, bytes]]:
        return [
            to.call("openai", text, session=session, model=model, token=key,
                    stream=len(calls) == 1)[:2]
            for text, model in calls
        ]  # fmt: skip

    recorded = talk(served)
    assert [status for status, _ in recorded] == statuses
    with replaying(served, session) as (replay, recording):
        assert talk(replay) == recorded
        recording.finish()


CLIENT = """
import openai
client = openai.OpenAI(max_retries=0)
for number in range(3):
    text = f"turn {number}{'!' if number == CHANGED else ''}"
    answer = client.chat.completions.create(
        model="gpt-4o-mini", max_tokens=50, messages=[{"role": "user", "content": text}])
    print(answer.choices[0].message.content)
"""


def test_the_command_runs_the_program_again(
    served: Served, upstream: Upstream, session: str, tmp_path: Path
) -> None:
    variables = {"OPENAI_BASE_URL": f"{served.url}/v1", "OPENAI_API_KEY": served.token}
    made = "client = openai.OpenAI(max_retries=0"
    headers = f"{made}, default_headers={{'x-remit-session': '{session}'}})"
    same = CLIENT.replace("CHANGED", "-1")
    first = run_program(
        "-c", same.replace(f"{made})", headers), environment={**os.environ, **variables}
    )
    assert first.returncode == 0, first.stderr
    calls = upstream.count()

    def again(program: str) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "client.py"
        file.write_text(program)
        return run_program(
            "-m", "remit", "replay", session, "--root", str(served.root), "--", sys.executable,
            str(file), environment=os.environ,
        )  # fmt: skip

    done = again(same)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"You said: turn {number}" for number in range(3)]
    assert "Replayed 3 of 3 calls; 0 upstream calls." in done.stderr
    require_said(again(CLIENT.replace("CHANGED", "1")), 'expected "turn 1", found "turn 1!"')
    assert upstream.count() == calls


TOOLS: Any = [{"name": "read", "description": "Read a file.", "input_schema": {"type": "object"}}]


def coding_session(served: Served, session: str, files: Path, number: int) -> list[bytes]:
    """The bytes of every answer to a coding agent that reads a file and goes on, by its SDK."""
    client, came, messages = anthropic_at(served, session=session), [], []
    for turn in range(number):
        order = f'[[tool=read:{{"path":"{turn % 3}.txt"}} parallel=2]] Read file {turn}.'
        messages.append({"role": "user", "content": order})
        while True:
            with client.messages.with_streaming_response.create(
                model="claude-sonnet-4-5", max_tokens=200, stream=turn % 2 == 0,
                messages=messages[-4:], tools=TOOLS,
            ) as answer:  # fmt: skip
                came.append(raw := b"".join(answer.iter_bytes()))
            blocks = _blocks(raw)
            messages.append({"role": "assistant", "content": blocks})
            uses = [block for block in blocks if block["type"] == "tool_use"]
            if not uses:
                break
            texts = [(files / f"{turn % 3}.txt").read_text() for _ in uses]
            messages.append({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": use["id"], "content": text}
                for use, text in zip(uses, texts, strict=True)
            ]})  # fmt: skip
    return came


def _blocks(raw: bytes) -> list[dict[str, Any]]:
    """The blocks of an answer of the Messages API, streamed or not."""
    if raw[:1] == b"{":
        found: list[dict[str, Any]] = json.loads(raw)["content"]
        return found
    total = stream_sum("anthropic.messages")
    for event in SseParser().feed(raw):
        if event.data:
            total.add(event.name, event.data)
    answer: Any = total.answer()
    return list(answer["content"])


@pytest.mark.filterwarnings("ignore:The model 'claude-sonnet-4-5':DeprecationWarning")
def test_a_coding_agents_session_of_thirty_turns(
    served: Served, upstream: Upstream, session: str, tmp_path: Path
) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(f"file {number}\n" * 20)
    recorded, calls = coding_session(served, session, tmp_path, 30), upstream.count()
    assert len(recorded) > 30
    with replaying(served, session) as (replay, recording):
        assert coding_session(replay, session, tmp_path, 30) == recorded
        recording.finish()
    assert upstream.count() == calls
    (tmp_path / "1.txt").write_text("another text")
    with replaying(served, session) as (replay, recording):
        with pytest.raises(anthropic.UnprocessableEntityError, match="request 4 differs"):
            coding_session(replay, session, tmp_path, 30)
        assert recording.difference is not None
        assert "/messages/3/content/0/content" in str(recording.difference)
