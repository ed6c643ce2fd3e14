"""Coding agents with their stock settings, each in one session through Remit.

Each program does a task with tools, has its conversation compacted and changes its model. Nothing
may be retried, no program may print an error, and the trace must hold every call.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from remit.journeys import open_journey
from tests.clients.programs.test_programs import BIN
from tests.server.running import Served, serving
from tests.support.strict.running import running

WORDS = "Make the file {} that says good morning"
_PAGES = "word " * 205_000  # fills the context window of Codex's models, but not one input
_TROUBLE = re.compile(r"\berror\b|retry|reconnect|falling back|stream disconnected", re.IGNORECASE)
_LONG_S = 300
_SESSION = "8d4f5c1e-0f0b-4a4c-9c83-6d3f5f0e7a11"


class Session:
    """A program in a directory of its own, before one server.

    Args:
        served: the server.
        place: an empty directory.
        variables: environment variables of the program.
    """

    def __init__(self, served: Served, place: Path, **variables: str) -> None:
        self.served = served
        self.work = place / "work"
        home = place / "home"
        self.work.mkdir()
        home.mkdir()
        names = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")
        self._variables = {**os.environ, **dict.fromkeys(names, str(home)), "PWD": str(self.work),
                           **variables}  # fmt: skip

    def run(self, program: Path, *arguments: str, given: str = "") -> None:
        """Run the program once; its exit code must be 0, and it must not print an error."""
        done = subprocess.run(
            [program, *arguments], cwd=self.work, env=self._variables, input=given, text=True,
            capture_output=True, timeout=_LONG_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        trouble = [line for line in done.stderr.splitlines() if _TROUBLE.search(line[:1000])]
        assert trouble == []

    def exchanges(self) -> list[dict[str, Any]]:
        """Return the recorded calls; check that each was sent once, succeeded and is in the trace.

        The session is named by the program itself, so that all calls are in one.
        """
        ledger = self.served.ledger
        calls = [entry.metadata for entry in ledger.query(event_type="EXCHANGE")]
        assert [call["error_code"] for call in calls if call["outcome"] != "success"] == []
        assert [call for call in calls if call.get("retry_of") or call.get("attempt")] == []
        assert len(list(ledger.query(event_type="DISPATCH"))) == len(calls)
        assert list(ledger.query(event_type="PROMPT_REJECTED")) == []
        (session,) = {call["session_id"] for call in calls}
        totals = open_journey(ledger, session_id=session)["totals"]
        assert (totals["llm_calls"], totals["failed_calls"]) == (len(calls), 0)
        assert "WARNING" not in self.served.errors.read_text()
        return calls


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with running() as url, serving(tmp_path / "root", url) as found:
        yield found


def require(program: Path) -> Path:
    if not program.exists():
        pytest.skip(f"{program.name} is not installed")
    return program


@contextmanager
def relay(
    address: tuple[str, int], lines: list[bytes], answers: list[bytearray] | None = None
) -> Iterator[str]:
    """Yield the URL of a relay to a server that notes the first line of each connection.

    Args:
        address: the server's.
        lines: gets the first lines.
        answers: gets all bytes that the server sent on each connection.
    """

    async def pump(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, noted: bytearray
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                noted += data
                writer.write(data)
                await writer.drain()
        writer.close()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to_server = await asyncio.open_connection(*address)
        first = await reader.readline()
        lines.append(first.split(b" HTTP/")[0])
        to_server.write(first)
        noted = bytearray()
        if answers is not None:
            answers.append(noted)
        await asyncio.gather(pump(reader, to_server, bytearray()), pump(there, writer, noted))

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    start = asyncio.start_server(pass_on, "127.0.0.1", 0)
    server = asyncio.run_coroutine_threadsafe(start, loop).result(30)
    try:
        yield "http://{}:{}".format(*server.sockets[0].getsockname()[:2])
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)


def test_a_session_of_codex_through_remit(served: Served, tmp_path: Path) -> None:
    codex = require(BIN / "codex")
    lines: list[bytes] = []
    with relay(served.address, lines) as url:
        session = Session(served, tmp_path, CODEX_API_KEY=served.token)
        play_codex(codex, session, url)
    assert b"GET /v1/responses" in lines  # the WebSocket
    assert [line for line in lines if line.startswith(b"POST")] == []  # which it never left
    calls = session.exchanges()
    assert {call["wire"] for call in calls} == {"openai.responses"}
    kinds = [{item["type"] for item in call["answer"]["output"]} for call in calls]
    assert {"compaction"} in kinds
    assert len({call["model_id"] for call in calls}) == 2


def play_codex(codex: Path, session: Session, url: str) -> None:
    where = ("-c", f'openai_base_url="{url}/v1"', "--skip-git-repo-check",
             "--dangerously-bypass-approvals-and-sandbox")  # fmt: skip
    again = ("exec", "resume", "--last", *where)
    session.run(codex, "exec", *where, WORDS.format("one.txt"))
    session.run(codex, *again, "-", given=f"{WORDS.format('two.txt')}. {_PAGES}")
    session.run(codex, *again, "-m", "gpt-6.1-terra", WORDS.format("three.txt"))
    assert sorted(path.name for path in session.work.iterdir()) == [
        "one.txt",
        "three.txt",
        "two.txt",
    ]


def test_a_session_of_claude_code_through_remit(served: Served, tmp_path: Path) -> None:
    claude = require(BIN / "claude")
    session = Session(served, tmp_path, ANTHROPIC_API_KEY=served.token,
                      ANTHROPIC_BASE_URL=served.url)  # fmt: skip
    play_claude(claude, session, served.url)
    calls = session.exchanges()
    assert {call["wire"] for call in calls} == {"anthropic.messages"}
    assert any("summary" in str(call["prompt"])[-20_000:].lower() for call in calls)
    assert len({call["model_id"] for call in calls}) == 2


def play_claude(claude: Path, session: Session, url: str) -> None:
    usual = ("--permission-mode", "acceptEdits", "--output-format", "json")
    # The compacted conversation names the program's own session, which a replay must give again.
    session.run(claude, "-p", WORDS.format("one.txt"), *usual, "--session-id", _SESSION)
    session.run(claude, "-p", "-c", "/compact", *usual)
    session.run(claude, "-p", "-c", WORDS.format("two.txt"), *usual, "--model", "claude-opus-4-5")
    assert sorted(path.name for path in session.work.iterdir()) == ["one.txt", "two.txt"]
