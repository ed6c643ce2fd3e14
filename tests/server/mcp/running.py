"""``remit mcp`` as a process of its own, over both transports."""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from remit.gateway.auth import KeyStore, NewKey
from remit.ledger import LedgerClient
from tests.support.processes import Program

TOP = Path(__file__).parents[3]
DOUBLED = (sys.executable, "-m", "tests.server.mcp.doubled")
TOOLS = ["thought_record", "thought_record_list", "thought_verify", "router_route", "router_score",
         "router_status", "router_explain", "query_ledger", "list_sessions",
         "trace_prompt_journey"]  # fmt: skip


def variables(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a server: nobody's keys, nobody's root."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("REMIT_", "OPENAI_", "ANTHROPIC_"))
    }
    return {**kept, **(more or {})}


def stdio(
    root: Path,
    *,
    mode: str = "auto",
    command: Sequence[str] = DOUBLED,
    env: Mapping[str, str] | None = None,
) -> Client:
    """A client that starts the server."""
    server = StdioServerParameters(
        command=command[0],
        args=[*command[1:], "mcp", "--root", str(root)],
        env=variables(env),
        cwd=str(TOP),
    )
    return Client(server, mode=mode, cache=None)


@dataclass
class Served:
    """A server that listens: its URL, root and process, and a key of the role operator."""

    url: str
    root: Path
    process: Program
    errors: Path
    ledger: LedgerClient
    token: str = ""

    def key(self, role: str = "operator", **more: Any) -> NewKey:
        """A new key; the server finds it by itself when it is first shown."""
        with KeyStore(self.ledger) as keys:
            return keys.create(uuid.uuid4().hex, role=role, **more)

    def revoke(self, key: NewKey) -> None:
        """End a key."""
        with KeyStore(self.ledger) as keys:
            keys.revoke(key.key_id, "tested")

    def client(self, token: str | None = None, *, mode: str = "auto") -> Client:
        """A client of the SDK's with a key; closed with its :class:`~mcp.Client`."""
        token = self.token if token is None else token
        headers = {"authorization": f"Bearer {token}"} if token else {}
        web = httpx2.AsyncClient(headers=headers, timeout=60)
        return Client(_closing(self.url, web), mode=mode, cache=None)  # type: ignore[arg-type]

    def stop(self) -> float:
        """SIGTERM; how long the end took, seconds."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) in (0, -signal.SIGTERM), self.errors.read_text()
        return time.monotonic() - began


def _closing(url: str, web: httpx2.AsyncClient) -> Any:
    @asynccontextmanager
    async def transport() -> Any:
        async with web, streamable_http_client(url, http_client=web) as streams:
            yield streams

    return transport()


@contextmanager
def serving(
    root: Path,
    *arguments: str,
    command: Sequence[str] = DOUBLED,
    env: Mapping[str, str] | None = None,
    gateway: bool = False,
) -> Iterator[Served]:
    """``remit mcp --http`` of a root, or ``remit mcp gateway --http``, until the block ends."""
    log = root.parent / f"{uuid.uuid4().hex}.log"
    with Program(
        *command[1:], "mcp", *["gateway"][: int(gateway)], "--http", "--port", "0", "--root",
        str(root), *arguments, environment=variables(env), cwd=TOP, errors=log,
    ) as process:  # fmt: skip
        try:
            line = process.stdout.readline()
            assert line.startswith("Remit serves MCP at http://"), log.read_text()
            with LedgerClient(str(root / "ledger.db")) as ledger:
                served = Served(line.split()[-1], root, process, log, ledger)
                if "--dev" not in arguments:
                    served.token = served.key().key
                yield served
            if process.poll() is None:
                served.stop()
            said = log.read_text()
            assert "Traceback" not in said, said
            assert "never awaited" not in said, said
        finally:
            if process.poll() is None:
                process.kill()
