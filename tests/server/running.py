"""``remit serve`` as a process of its own, and what tests ask of it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from remit.gateway.auth import KeyStore, NewKey
from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter, audit_budgets
from remit.ledger import LedgerClient, LedgerEntry, Transaction
from remit.runtime.state_tables import check_state
from tests.support.processes import Program
from tests.support.roots import new_root
from tests.support.waiting import until

__all__ = [
    "FORM", "PATHS", "Events", "Served", "ended_well", "failed", "form", "new_session", "prompt",
    "received", "said", "serving", "statuses", "streaming",
]  # fmt: skip

FORM = {"content-type": "multipart/form-data; boundary=BOUND"}
"""The header of every :func:`form`."""
PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}


@dataclass
class Served:
    """A running server: its URL, root, ledger (a connection of the test's own), process."""

    url: str
    root: Path
    store: str
    ledger: LedgerClient
    process: Program | subprocess.Popen[str]
    errors: Path
    token: str = ""
    killed: bool = False
    small: int = 0

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    def key(
        self,
        *,
        role: str = "agent",
        models: tuple[str, ...] = (),
        agents: tuple[str, ...] = (),
        usd_nano: int | None = None,
        tokens: int | None = None,
        rpm: int | None = None,
        user: str = "",
        pass_through: tuple[str, ...] = (),
        unpriced: tuple[str, ...] = (),
    ) -> NewKey:
        """A new virtual key; counts within ``[auth] revocation_s``: it is waited for."""

        budgeter = TokenBudgeter(self.ledger)

        def limit(tx: Transaction, key_id: str) -> dict[str, Any]:
            limits = BudgetLimits(tokens, usd_nano, None, rpm, None)
            budgeter.allocate(BudgetScope(key_id=key_id), limits=limits, tx=tx)
            return {}

        with KeyStore(self.ledger) as keys:
            made = keys.create(
                uuid.uuid4().hex, role=role, models=models, agents=agents, user_id=user,
                in_transaction=limit, pass_through=pass_through, pass_through_unpriced=unpriced,
            )  # fmt: skip
        until(lambda: self.ask("GET", "/v1/models", token=made.key)[0] == 200)
        return made

    def revoke(self, key: NewKey) -> None:
        """End a key."""
        with KeyStore(self.ledger) as keys:
            keys.revoke(key.key_id, "tested")

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """One request by a plain HTTP client: status, body, headers by lower-case name, joined."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = dict(headers or {})
        if (token := self.token if token is None else token) != "":
            sent.setdefault("authorization", f"Bearer {token}")
        with closing(http.client.HTTPConnection(*self.address, timeout=60)) as connection:
            connection.request(method, path, data, sent)
            reply = connection.getresponse()
            raw = reply.read()
            found: dict[str, str] = {}
            for name, value in ((name.lower(), value) for name, value in reply.getheaders()):
                found[name] = f"{found[name]}, {value}" if name in found else value
            return reply.status, raw, found

    def call(
        self, dialect: str, text: str, *, session: str = "", model: str = "gpt-4o-mini",
        token: str | None = None, headers: Mapping[str, str] | None = None, **more: Any,
    ) -> tuple[int, bytes, Mapping[str, str]]:  # fmt: skip
        """One model call by a plain HTTP client."""
        named = {"x-remit-session": session} if session else {}
        body = prompt(text, model=model, **{"max_tokens": 50, **more})
        path = PATHS[dialect]
        return self.ask("POST", path, body, token=token, headers={**named, **(headers or {})})

    def head(
        self, *lines: str, path: str = PATHS["openai"], method: str = "POST",
        token: str | None = None,
    ) -> bytes:  # fmt: skip
        """The head of a request, with a key and these lines."""
        token = self.token if token is None else token
        first = [f"{method} {path} HTTP/1.1", "host: remit", f"authorization: Bearer {token}"]
        return "\r\n".join([*first, *lines, "", ""]).encode("latin-1")

    def request(self, body: Mapping[str, Any], *lines: str, **more: Any) -> bytes:
        """A whole request; for more see :meth:`head`."""
        data = json.dumps(body).encode()
        return self.head(*lines, f"content-length: {len(data)}", **more) + data

    @contextmanager
    def connected(self, data: bytes = b"", *, wait_s: float = 30) -> Iterator[socket.socket]:
        """A connection over which ``data`` was sent, until the block ends."""
        with closing(socket.create_connection(self.address, timeout=wait_s)) as connection:
            connection.sendall(data)
            yield connection

    def raw(self, data: bytes, *, wait_s: float = 20) -> bytes:
        """Everything that comes back for ``data`` until the server closes, or falls silent."""
        with self.connected(data, wait_s=wait_s) as connection:
            return received(connection)

    def entries(self, event_type: str, session: str) -> list[LedgerEntry]:
        """Of one session, in order."""
        return list(self.ledger.query(event_type=event_type, session_id=session))

    def exchange(self, session: str) -> LedgerEntry:
        """The one exchange of a session, its one ``DISPATCH`` checked."""
        (found,) = self.entries("EXCHANGE", session)
        (dispatch,) = self.entries("DISPATCH", session)
        assert found.metadata["dispatch_entry_id"] == dispatch.id
        assert set(dispatch.metadata) == {"contract_id", "agent_id", "session_id"}
        assert dispatch.decision == "DISPATCHED"
        assert dispatch.timestamp <= found.timestamp
        return found

    def rss_bytes(self, name: str = "VmRSS") -> int:
        """Resident memory of the server's process; ``VmHWM`` is the most it ever had."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"the process tells no {name}")

    def grown(self) -> int:
        """By how many bytes its memory ever exceeded what it has after a few calls."""
        if not self.small:
            self.call("openai", "hi")
            self.small = self.rss_bytes()
        return self.rss_bytes("VmHWM") - self.small

    def kill(self) -> None:
        """SIGKILL, waited for."""
        self.process.kill()
        self.process.wait(60)
        self.killed = True

    def stop(self) -> None:
        """SIGTERM, waited for; nothing of it may have gone wrong."""
        if self.killed:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.errors.read_text()

    def check(self) -> None:
        """No failure that nobody foresaw, a sound ledger, each DISPATCH ended, true budgets."""
        said = self.errors.read_text()
        assert "Traceback" not in said, said
        assert "never awaited" not in said, said
        assert "never retrieved" not in said, said
        report = self.ledger.verify()
        assert report.verified, report
        assert self.ledger.orphans() == []
        opened = [entry.id for entry in self.ledger.query(event_type="DISPATCH")]
        closed = [
            entry.metadata["dispatch_entry_id"]
            for kind in ("EXCHANGE", "EXCHANGE_ORPHANED")
            for entry in self.ledger.query(event_type=kind)
        ]
        assert sorted(closed) == sorted(opened)
        audit = audit_budgets(self.ledger)
        assert audit.equal, audit


@contextmanager
def serving(
    root: Path,
    upstream_url: str,
    *arguments: str,
    toml: str = "",
    database: str = "",
    environment: Mapping[str, str] | None = None,
    checked: bool = True,
    program: Sequence[str] = ("-m", "remit"),
) -> Iterator[Served]:
    """``remit serve`` of a root, made when it is not there, until the block ends.

    Args:
        root: its directory.
        upstream_url: of both providers.
        arguments: more of the command line.
        toml: put behind ``remit.toml`` of a new root.
        database: a PostgreSQL URL; SQLite when left out.
        environment: more variables.
        checked: hold the ledger to its promises at the end.
        program: what runs the command line.
    """
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith("REMIT_")},
        "OPENAI_BASE_URL": f"{upstream_url}/v1",
        "OPENAI_API_KEY": "sk-upstream-openai",
        "ANTHROPIC_BASE_URL": upstream_url,
        "ANTHROPIC_API_KEY": "sk-upstream-anthropic",
        # An unknown key waits so long for a process that may just have made it.
        **({} if "[auth]" in toml else {"REMIT_AUTH__REVOCATION_S": "0.1"}),
        **({"REMIT_DATABASE_URL": database} if database else {}),
        **(environment or {}),
    }
    if not (root / "remit.toml").exists():
        new_root(root, toml, database=database)
    log = root.parent / f"{root.name}-{uuid.uuid4().hex[:8]}.log"
    store = database or str(root / "ledger.db")
    with (
        log.open("w", encoding="utf-8") as errors,
        _started(
            [*program, "serve", "--root", str(root), "--port", "0", *arguments], variables, errors
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("Remit listens on http://"), log.read_text()
            with LedgerClient(store, checks=(check_state,)) as ledger:
                served = Served(line.split()[-1], root, store, ledger, process, log)
                if "--dev" not in arguments:
                    served.token = served.key().key
                yield served
                served.stop()
                if checked:
                    served.check()
        finally:
            if process.poll() is None:
                process.kill()


def _started(
    line: list[str], variables: dict[str, str], errors: IO[str]
) -> Program | subprocess.Popen[str]:
    """``python LINE``; started as a user does where it starts processes, which read variables."""
    if "--workers" not in line:
        return Program(*line, environment=variables, errors=Path(errors.name))
    return subprocess.Popen(
        [sys.executable, *line],
        env=variables, stdout=subprocess.PIPE, stderr=errors, text=True,
    )  # fmt: skip


def statuses(reply: bytes) -> list[int]:
    """The statuses of all answers in what came back."""
    return [int(found) for found in re.findall(rb"HTTP/1\.1 ([1-5]\d\d) ", reply)]


def received(connection: socket.socket) -> bytes:
    """What comes until the other side closes, or falls silent for the socket's timeout."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except (TimeoutError, ConnectionError):
        pass
    return b"".join(parts)


def prompt(text: str = "hi", **more: Any) -> dict[str, Any]:
    """The body of a call of Chat Completions or Messages."""
    turn = {"role": "user", "content": text}
    return {"model": "gpt-4o-mini", "max_tokens": 9, "messages": [turn], **more}


def form(**fields: str | bytes | tuple[str, bytes]) -> bytes:
    """The body of a form, whose header is ``FORM``; bytes are a file, a pair a file by its name."""
    parts = []
    for name, value in fields.items():
        file, data = value if isinstance(value, tuple) else ("a", value)
        named = f'; filename="{file}"' if isinstance(data, bytes) else ""
        head = f'--BOUND\r\ncontent-disposition: form-data; name="{name}"{named}\r\n\r\n'
        parts.append(head.encode() + (data if isinstance(data, bytes) else data.encode()))
    return b"\r\n".join([*parts, b"--BOUND--\r\n"])


def new_session() -> str:
    """An id that no other test has."""
    return f"SES-{uuid.uuid4().hex[:16].upper()}"


class Events:
    """The blocks of a stream of server-sent events, each as its lines."""

    def __init__(self, reply: http.client.HTTPResponse) -> None:
        self.status = reply.status
        self.headers = {name.lower(): value for name, value in reply.getheaders()}
        self.comments: dict[str, str] = {}
        self._reply = reply

    def __iter__(self) -> Iterator[str]:
        """The data of each event; comments are kept in ``comments``."""
        data: list[str] = []
        while line := self._reply.readline():
            text = line.decode("utf-8", "surrogateescape").rstrip("\n")
            if text.startswith(": "):
                self.comments |= dict(part.split("=", 1) for part in text[2:].split())
            elif text.startswith("data: "):
                data.append(text[6:])
            elif not text and data:
                yield "\n".join(data)
                data = []
        assert not data, "the stream ended within an event"

    def values(self) -> list[Any]:
        """All of them, read; ``[DONE]`` stays text."""
        return [data if data == "[DONE]" else json.loads(data) for data in self]


@contextmanager
def streaming(
    served: Served, dialect: str, text: str, *, session: str = "", model: str = "gpt-4o-mini",
    token: str | None = None, headers: Mapping[str, str] | None = None, **more: Any,
) -> Iterator[Events]:  # fmt: skip
    """One streamed call; leaving the block hangs up."""
    connection = http.client.HTTPConnection(*served.address, timeout=60)
    body = prompt(text, **{"model": model, "max_tokens": 50, "stream": True, **more})
    sent = {"authorization": f"Bearer {token or served.token}", **(headers or {})}
    if session:
        sent["x-remit-session"] = session
    try:
        connection.request("POST", PATHS[dialect], json.dumps(body).encode(), sent)
        reply = connection.getresponse()
        with reply:
            yield Events(reply)
    finally:
        connection.close()


def said(values: list[Any]) -> str:
    """The text of an answer in either dialect."""
    parts = []
    for value in values:
        if isinstance(value, dict):
            for choice in value.get("choices", ()):
                parts.append(choice["delta"].get("content") or "")
            if value.get("type") == "content_block_delta":
                parts.append(value["delta"].get("text", ""))
    return "".join(parts)


def ended_well(values: list[Any]) -> bool:
    """Whether the last event is the dialect's own end."""
    last = values[-1]
    return last == "[DONE]" or (isinstance(last, dict) and last.get("type") == "message_stop")


def failed(values: list[Any]) -> bool:
    """Whether an error was told in the stream."""
    return any(isinstance(value, dict) and "error" in value for value in values)
