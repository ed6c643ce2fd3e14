"""Make the roots that an earlier version leaves behind when it is killed.

``python -m tests.upgrade.build COMMIT…`` installs each commit of this repository, with its locked
requirements, into an environment of its own, lets it serve keys, agents and clients, and ends its
processes with SIGKILL while three calls wait for their answers. For each commit it writes
``root-COMMIT.tar.gz`` (SQLite) and ``postgres-COMMIT.tar.gz`` next to this file:

- ``root/``: the root; ``ledger.sql``: the dump of its database, for PostgreSQL;
- ``facts.json``: what the root contains, as the commit itself reported it.

A step that a commit does not have yet is left out, and is not in ``facts.json`` either.
"""

from __future__ import annotations

import contextlib
import gzip
import http.client
import io
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support.postgres import PostgresServer, run_sql
from tests.upgrade.upstream import answering

_HERE = Path(__file__).parent
_PLACE = Path("/tmp/remit-root")
_KILLED = _PLACE / "killed"
_WAIT_S = 60
_SMALL = {"model": "gpt-4o-mini", "max_tokens": 50}


class _Old:
    """One earlier version, its root, and the provider that it calls.

    Attributes:
        facts: what the root contains.
    """

    def __init__(self, programs: Path, root: Path, upstream: str, database: str) -> None:
        self.root, self.database = root, database
        self.facts: dict[str, Any] = {}
        self._programs = programs
        self._environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("REMIT_", "PYTHON"))},
            "OPENAI_BASE_URL": f"{upstream}/v1",
            "OPENAI_API_KEY": "sk-openai",
            "ANTHROPIC_BASE_URL": upstream,
            "ANTHROPIC_API_KEY": "sk-anthropic",
            "REMIT_ROOT": str(root),
            **({"REMIT_DATABASE_URL": database} if database else {}),
        }

    def run(self, *arguments: str, optional: bool = False) -> str:
        """Run ``remit ARGUMENTS``; return its output."""
        ran = subprocess.run(
            [self._programs / "remit", *arguments], env=self._environment, cwd=self.root.parent,
            capture_output=True, text=True, timeout=_WAIT_S, check=False,
        )  # fmt: skip
        if ran.returncode and not optional:
            raise SystemExit(f"remit {' '.join(arguments)}: {ran.stdout}{ran.stderr}")
        return "" if ran.returncode else ran.stdout

    def python(self, file: Path) -> list[str]:
        """Run a file with this version's Python; return the lines that it prints."""
        command = [self._programs / "python", file, self.root]
        ran = subprocess.run(
            command, env=self._environment, cwd=self.root.parent, capture_output=True, text=True,
            timeout=_WAIT_S, check=False,
        )  # fmt: skip
        if ran.returncode:
            raise SystemExit(f"{file.name}: {ran.stdout}{ran.stderr}")
        return ran.stdout.split()

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start ``remit ARGUMENTS`` in a process group of its own."""
        return subprocess.Popen(
            [self._programs / "remit", *arguments], env=self._environment, cwd=self.root.parent,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def select(self, sql: str) -> list[tuple[Any, ...]]:
        """Read the ledger's database as an outsider."""
        if self.database:
            return run_sql(self.database, sql)
        with contextlib.closing(sqlite3.connect(self.root / "ledger.db")) as reader:
            return reader.execute(sql).fetchall()


def _until(true: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + _WAIT_S
    while not true():
        if time.monotonic() > end:
            raise SystemExit(f"Not within {_WAIT_S} s: {what}.")
        time.sleep(0.1)


def _ask(
    port: int, path: str, body: Any, key: str, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """POST ``body`` (GET without one); return the status and the answer."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    sent = {"authorization": f"Bearer {key}", "content-type": "application/json", **(headers or {})}
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=300)) as one:
        one.request("POST" if data is not None else "GET", path, data, sent)
        reply = one.getresponse()
        raw = reply.read()
        with contextlib.suppress(ValueError):
            return reply.status, json.loads(raw)
        return reply.status, raw


@contextlib.contextmanager
def _serving(old: _Old) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = old.start("serve", "--port", str(port))

    def is_up() -> bool:
        with contextlib.suppress(OSError):
            return _ask(port, "/v1/models", None, "")[0] in (200, 401)
        return False

    try:
        _until(is_up, "the server answers")
        yield port, process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(_WAIT_S)


def _message(text: str, **more: Any) -> dict[str, Any]:
    return {**_SMALL, "messages": [{"role": "user", "content": text}], **more}


def _keys(old: _Old) -> dict[str, str]:
    """Make keys with limits of every kind; return the two in use."""
    made = {}
    for name, *limits in (
        ("ann", "--budget-usd", "5", "--user", "ann", "--team", "tea", "--organisation", "shop"),
        ("ben", "--budget-tokens", "100000", "--rpm", "1000", "--tpm", "1000000"),
        ("old", "--role", "operator"),
        ("gone", "--models", "gpt*"),
    ):
        told = json.loads(old.run("key", "create", "--name", name, *limits, "--json"))
        made[name] = told["key"]
    made["old"] = json.loads(old.run("key", "rotate", "old", "--grace", "24h", "--json"))["key"]
    old.run("key", "revoke", "gone", "--reason", "left the shop")
    old.run("budget", "set", "--team", "tea", "--usd", "50", "--turns", "10000")
    old.run("budget", "set", "--session", "SES-CHAIN001", "--tokens", "50000")
    old.run("budget", "set", "--user", "ann", "--usd", "20", "--window", "month", optional=True)
    return made


def _calls(old: _Old, port: int, keys: dict[str, str]) -> None:
    """Make calls in every dialect, and everything that clients can keep."""
    ann, ben = keys["ann"], keys["ben"]
    chat = "/v1/chat/completions"
    for turn in range(3):
        status, said = _ask(
            port, chat, _message(f"Tea number {turn}?"), ann,
            {"x-remit-session": "SES-CHAIN001", "x-remit-subject": "person-1",
             "x-remit-work-order": "WO-SES-CHAIN001-001", "idempotency-key": f"again-{turn}"},
        )  # fmt: skip
        assert status == 200, said
    tool = {"type": "function", "function": {
        "name": "stock", "description": "Return the number of packets.",
        "parameters": {"type": "object", "properties": {"tea": {"type": "string"}}},
    }}  # fmt: skip
    for body in (
        _message('Please call stock {"tea": "sencha"} for me.', tools=[tool]),
        _message("Stream it.", stream=True, stream_options={"include_usage": True}),
    ):
        status, said = _ask(port, chat, body, ben, {"x-remit-session": "SES-BEN00001"})
        assert status == 200, said
    status, said = _ask(
        port, "/v1/messages", _message("Erase me.", model="claude-sonnet-4-5"), ben,
        {"x-remit-session": "SES-ERASED01", "x-remit-subject": "person-2",
         "anthropic-version": "2023-06-01"},
    )  # fmt: skip
    assert status == 200, said
    body = {"model": "gpt-4o-mini", "input": "Which tea?", "store": True}
    status, said = _ask(port, "/v1/responses", body, ann)
    if status == 200:
        old.facts["response"] = said["id"]
        more = {**body, "previous_response_id": said["id"]}
        assert _ask(port, "/v1/responses", more, ann)[0] == 200
    status, said = _ask(port, "/v1/conversations", {}, ann)
    if status == 200:
        old.facts["conversation"] = said["id"]
        assert _ask(port, "/v1/responses", {**body, "conversation": said["id"]}, ann)[0] == 200
    _batch(old, port, ben)


def _batch(old: _Old, port: int, key: str) -> None:
    """Upload a file and begin a batch that the provider never finishes."""
    lines = b"".join(
        json.dumps({"custom_id": f"line-{number}", "method": "POST",
                    "url": "/v1/chat/completions", "body": _message("Green tea?")}).encode() + b"\n"
        for number in range(2)
    )  # fmt: skip
    form = b"".join(
        b'--x\r\ncontent-disposition: form-data; name="%s"%s\r\n\r\n%s\r\n' % part
        for part in ((b"purpose", b"", b"batch"), (b"file", b'; filename="in.jsonl"', lines))
    )
    status, said = _ask(port, "/v1/files", form + b"--x--\r\n", key,
                        {"content-type": "multipart/form-data; boundary=x"})  # fmt: skip
    if status != 200:
        return
    body = {"input_file_id": said["id"], "endpoint": "/v1/chat/completions",
            "completion_window": "24h"}  # fmt: skip
    status, said = _ask(port, "/v1/batches", body, key)
    assert status == 200, said
    old.facts["batch"] = said["id"]


def _in_flight(port: int, keys: dict[str, str]) -> list[threading.Thread]:
    """Begin two calls that the provider never answers."""
    requests = (
        ("/v1/chat/completions", _message("Please hang.", stream=True), keys["ann"],
         {"x-remit-session": "SES-CHAIN001", "x-remit-subject": "person-1",
          "idempotency-key": "hanging"}),
        ("/v1/messages", _message("Please hang.", model="claude-sonnet-4-5"), keys["ben"],
         {"x-remit-session": "SES-BEN00001", "anthropic-version": "2023-06-01"}),
    )  # fmt: skip

    def call(*request: Any) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            _ask(port, *request)

    threads = [threading.Thread(target=call, args=one, daemon=True) for one in requests]
    for thread in threads:
        thread.start()
    return threads


def _use(old: _Old) -> None:
    """Fill the root, and kill its processes with three calls in flight."""
    old.run("init", str(old.root))
    keys = _keys(old)
    with _serving(old) as (port, _):
        _calls(old, port, keys)
    session, waiting, request = old.python(_HERE / "turns.py")
    asked = json.loads(old.run("ask", "--model", "openai", "--json", "How long does it steep?"))
    old.run("ask", "--model", "openai", "--session", asked["session_id"], "And sencha?")
    for step in range(2):
        old.run("trail", "add", f"step {step}", "--task", "TASK-1", "--type", "plan",
                "--agent", "planner")  # fmt: skip
    old.run("ledger", "erase", "--session", "SES-ERASED01", "--reason", "request 1", "--yes")
    order = old.run("order", "submit", "clerk", "Count the tea.", "--json", optional=True)
    if order:
        old.facts["order"] = json.loads(order)["order_id"]
    checkpoint = old.run("ledger", "checkpoint")
    for check in (["ledger", "verify"], ["budget", "check"], ["gate", "check", "--all"]):
        old.run(*check)
    with _serving(old) as (port, process):
        threads = _in_flight(port, keys)
        turn = old.start("ask", "--model", "openai", "--session", asked["session_id"],
                         "Please hang.")  # fmt: skip
        in_flight = "SELECT dispatch_entry_id FROM in_flight ORDER BY dispatch_entry_id"
        _until(lambda: len(old.select(in_flight)) == 3, "three calls are in flight")
        for one in (process, turn):
            os.killpg(one.pid, signal.SIGKILL)
            one.wait(_WAIT_S)
        for thread in threads:
            thread.join(_WAIT_S)
    # Whoever reads the database, and closes it, moves its write-ahead log into the file.
    shutil.copytree(old.root, _KILLED)
    old.facts |= {
        "head": old.select("SELECT entry_hash FROM entries ORDER BY seq DESC LIMIT 1")[0][0],
        "in_flight": [one for (one,) in old.select(in_flight)],
        "keys": keys,
        "session": session, "waiting": waiting, "request": request, "chat": asked["session_id"],
        "checkpoint": checkpoint,
    }  # fmt: skip


def _pack(files: dict[str, bytes], root: Path, target: Path) -> None:
    """Write an archive without times, owners and order of the machine."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        found = {f"root/{file.relative_to(root)}": file for file in root.rglob("*")}
        for name, file in sorted(found.items()):
            member = tarfile.TarInfo(name)
            member.mode = file.stat().st_mode & 0o777
            if file.is_dir():
                member.type = tarfile.DIRTYPE
                archive.addfile(member)
            elif file.is_file() and file.name != "ledger.db-shm":
                data = file.read_bytes()
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    target.write_bytes(gzip.compress(packed.getvalue(), 9, mtime=0))


def _install(commit: str, place: Path) -> Path:
    """Install a commit with its locked requirements; return the directory of its programs."""
    tree, programs = place / commit, place / commit / ".venv/bin"
    if (programs / "remit").exists():
        return programs
    repository = _HERE.parents[1]
    git = ["git", "-C", repository]
    subprocess.run([*git, "worktree", "add", "--detach", tree, commit], check=True)
    subprocess.run([sys.executable, "-m", "venv", tree / ".venv"], check=True)
    install = [Path(sys.executable).with_name("uv"), "pip", "install", "--quiet", "--python",
               programs / "python"]  # fmt: skip
    if (locked := tree / "requirements/server.txt").exists():
        subprocess.run([*install, "--require-hashes", "-r", locked], check=True)
        subprocess.run([*install, "--no-deps", tree], check=True)
    else:
        locks = [tree / name for name in ("requirements.lock", "requirements/dev.txt")]
        (lock,) = filter(Path.exists, locks)
        subprocess.run([*install, "-c", lock, f"{tree}[postgres,mcp]"], check=True)
    return programs


def build(commit: str, place: Path, server: PostgresServer) -> None:
    """Write both archives of one commit.

    Args:
        commit: its first seven digits.
        place: the directory of worktrees; kept, so that a second run installs nothing.
        server: where the PostgreSQL database is made.
    """
    programs = _install(commit, place)
    for database, name in (("", "root"), (server.database(), "postgres")):
        shutil.rmtree(_PLACE, ignore_errors=True)
        _PLACE.mkdir()
        with answering(hangs=True) as upstream:
            old = _Old(programs, _PLACE / "root", upstream.url, database)
            _use(old)
        files = {"facts.json": json.dumps(old.facts, indent=1).encode() + b"\n"}
        if database:
            dump = [server.programs / "pg_dump", "--no-owner", "--inserts", database]
            ran = subprocess.run(dump, capture_output=True, check=True)
            # Commands of psql, and a setting by which the test's own queries find no table.
            foreign = (b"\\", b"SELECT pg_catalog.set_config('search_path'")
            lines = ran.stdout.splitlines(keepends=True)
            files["ledger.sql"] = b"".join(one for one in lines if not one.startswith(foreign))
        _pack(files, _KILLED, _HERE / f"{name}-{commit}.tar.gz")
        shutil.rmtree(_PLACE)


def main() -> None:
    """Build the commits of the command line."""
    # A lease records the host's name.
    if os.geteuid() == 0 and socket.gethostname() != "remit":
        shell = ["sh", "-c", 'hostname remit && exec "$@"', "sh"]
        again = [sys.executable, "-m", "tests.upgrade.build", *sys.argv[1:]]
        os.execvp("unshare", ["unshare", "-u", *shell, *again])
    with tempfile.TemporaryDirectory() as data:
        server = PostgresServer(Path(data) / "postgres")
        try:
            for commit in sys.argv[1:]:
                build(commit, Path("/tmp/old"), server)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
