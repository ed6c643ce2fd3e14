"""A server that counts what each of its calls does: ``python -m tests.server.counting``.

It serves a root as ``remit serve`` does, in this process; a thread of it is the client, one call
at a time, and prints the counts as JSON: of each kind of call the least of several, so that
timers and a busy machine have no part in it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import socket
import sqlite3
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks.gateways.target import Bodies, Target
from benchmarks.gateways.wire import message_end

from remit.server import serve

__all__ = ["Counts"]

WARM, COUNTED = 12, 12
QUIET_S = 0.005
PYTHON_JSON = {("json/decoder.py", "raw_decode"), ("json/encoder.py", "encode")}
C_JSON = ("orjson", "msgspec", "rfc8785")
GROWN, MEANWHILE = 30, 240
SHORT, LONG = 5, 15  # chunks
CHUNK_MS = 10  # so that no two arrive together
PERIODIC = {
    ("uvicorn/server.py", "serve"), ("kernel/loops.py", "repeat"),
    ("asyncio/futures.py", "_set_result_unless_cancelled"),
}  # fmt: skip
"""Functions that the event loop calls as time passes: the longer a call lasts, the more often."""


@dataclass(frozen=True)
class Counts:
    """What one call makes the server do.

    Attributes:
        loop: Python functions called on the event loop; each resumption of a coroutine is one.
            Periodic work, and what it calls, is left out, here and of the objects.
        ledger: those called on all other threads.
        objects: made on the event loop and tracked by the collector, as far as they outlive the
            function in C that makes them.
        json: times that JSON was read or written.
        statements: of SQL; those of triggers and of search tables left out.
        rows: of the database that were inserted, changed or deleted, those of search tables too.
        commits: of transactions.
    """

    loop: int = 0
    ledger: int = 0
    objects: int = 0
    json: int = 0
    statements: int = 0
    rows: int = 0
    commits: int = 0


class Counter:
    """What has been counted so far; made in the thread of the event loop."""

    def __init__(self) -> None:
        self._loop = threading.get_ident()
        self._calls = self._others = self._objects = self._json = self._tracked = 0
        self._statements = self._commits = 0
        self._rows: dict[sqlite3.Connection, int] = {}
        self._is_json: dict[object, bool] = {}
        self._is_periodic: dict[object, bool] = {}
        self._left_out: FrameType | None = None  # it and all that it calls are not counted
        self._connect = sqlite3.connect

    def start(self) -> None:
        """Watch threads that are begun from here on, and connections."""
        threading.setprofile(self._on_event)
        sqlite3.connect = self._watched  # type: ignore[assignment]

    def watch_loop(self) -> None:
        """Watch the thread that calls this."""
        gc.disable()  # or its count would begin anew
        sys.setprofile(self._on_event)

    def leave_out(self) -> None:
        """Not the thread that calls this."""
        sys.setprofile(None)

    def now(self) -> Counts:
        """All until now."""
        for connection in self._rows:
            with contextlib.suppress(sqlite3.ProgrammingError):  # closed: its last count stays
                self._rows[connection] = connection.total_changes
        rows = sum(self._rows.values())
        return Counts(
            self._calls, self._others, self._objects, self._json, self._statements, rows,
            self._commits,
        )  # fmt: skip

    def _on_event(self, frame: FrameType, event: str, argument: Any) -> None:
        here = threading.get_ident() == self._loop
        tracked = gc.get_count()[0]
        if here and self._leaves_out(frame, event):
            self._tracked = gc.get_count()[0]
            return
        if event == "call":
            if here:
                self._calls += 1
            else:
                self._others += 1
            code = frame.f_code
            self._json += self._known(code, code.co_filename, code.co_name)
        elif event == "c_call":
            of = type(getattr(argument, "__self__", None)).__module__
            module = str(argument.__module__ or of)
            self._json += module.partition(".")[0] in C_JSON
        if here:  # a call's frame is one, made for this function alone
            self._objects += max(0, tracked - self._tracked - (event == "call"))
        self._tracked = gc.get_count()[0]

    def _leaves_out(self, frame: FrameType, event: str) -> bool:
        """Return True while periodic work of the event loop runs."""
        if self._left_out is None and event == "call":
            code = frame.f_code
            if code not in self._is_periodic:
                place = "/".join(Path(code.co_filename).parts[-2:])
                self._is_periodic[code] = (place, code.co_name) in PERIODIC
            if self._is_periodic[code]:
                self._left_out = frame
        is_left_out = self._left_out is not None
        if self._left_out is frame and event == "return":
            self._left_out = None
        return is_left_out

    def _known(self, code: object, path: str, name: str) -> bool:
        if code not in self._is_json:
            place = "/".join(Path(path).parts[-2:])
            self._is_json[code] = (place, name) in PYTHON_JSON or "/rfc8785/" in path
        return self._is_json[code]

    def _watched(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = self._connect(*arguments, **options)
        connection.set_trace_callback(self._on_statement)
        self._rows[connection] = 0
        return connection

    def _on_statement(self, sql: str) -> None:
        if not sql.startswith("--"):
            self._statements += 1
            self._commits += sql == "COMMIT"


class Client:
    """One connection, and what the server counts meanwhile."""

    def __init__(self, counter: Counter, port: int) -> None:
        self._counter = counter
        self._socket = socket.create_connection(("127.0.0.1", port))

    def counts(self, target: Target) -> Counts:
        """The least of several calls, each number by itself."""
        bodies, counted = Bodies(target), []
        for number in range(WARM + COUNTED):
            before = self._settled()
            answer = self._ask(bodies.next())
            assert answer.startswith(b"HTTP/1.1 200"), answer
            if number >= WARM:
                counted.append(_difference(before, self._settled()))
        return _by_field(min, *counted)

    def _ask(self, request: bytes) -> bytes:
        self._socket.sendall(request)
        answer = b""
        while not message_end(answer):
            received = self._socket.recv(1 << 18)
            assert received, answer
            answer += received
        return answer

    def _settled(self) -> Counts:
        """When nothing is done any more."""
        now = self._counter.now()
        while True:
            time.sleep(QUIET_S)
            before, now = now, self._counter.now()
            if before == now:
                return now


def _by_field(combine: Callable[..., int], *counts: Counts) -> Counts:
    return Counts(
        *(combine(getattr(one, field.name) for one in counts) for field in fields(Counts))
    )


def _difference(before: Counts, after: Counts) -> Counts:
    return Counts(
        *(getattr(after, field.name) - getattr(before, field.name) for field in fields(Counts))
    )


def counted(client: Client, target: Target) -> dict[str, Counts]:
    """Counts by the kind of call."""
    in_order = {**target.headers, "x-remit-work-order": "WO-count-{group}"}
    kinds = {
        "call": target,
        "call in a work order": replace(target, headers=in_order),
        "routed call": replace(target, model="auto"),
        "stream": replace(target, stream=(SHORT, CHUNK_MS)),
    }
    found = {name: client.counts(kind) for name, kind in kinds.items()}
    long = client.counts(replace(target, stream=(LONG, CHUNK_MS)))
    more = _difference(found["stream"], long)
    found["chunk of a stream"] = Counts(
        *(round(getattr(more, field.name) / (LONG - SHORT)) for field in fields(Counts))
    )
    return found


class Steps:
    """Steps that SQLite's machine has made, in tens, on all connections opened meanwhile."""

    def __init__(self) -> None:
        self._steps = 0
        self._connect = sqlite3.connect

    def start(self) -> None:
        """Watch connections that are opened from here on."""
        sqlite3.connect = self._watched  # type: ignore[assignment]

    def of(self, ask: Callable[[], object], calls: int) -> int:
        """The median of so many calls, in which upkeep by the clock has no part."""
        steps = []
        for _ in range(calls):
            before = self._steps
            ask()
            steps.append(self._steps - before)
        return sorted(steps)[calls // 2]

    def _watched(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = self._connect(*arguments, **options)
        connection.set_progress_handler(self._on_step, 10)
        return connection

    def _on_step(self) -> int:
        self._steps += 1
        return 0


def grown(steps: Steps, port: int, target: Target) -> dict[str, list[int]]:
    """The steps of an early call and of a late one, by what all calls share."""
    session = {**target.headers, "x-remit-session": "SES-GROWN"}
    kinds = {
        "key": target,
        "session": replace(target, headers=session),
        "agent": replace(target, headers={**session, "x-remit-agent": "grown"}),
        "work order": replace(target, headers={**session, "x-remit-work-order": "WO-grown"}),
        "routed": replace(target, headers=session, model="auto"),
        "stream": replace(target, headers=session, stream=(1, 0)),
    }
    client, found = Client(Counter(), port), {}
    for name, kind in kinds.items():
        bodies = Bodies(kind)
        ask = functools.partial(lambda bodies: client._ask(bodies.next()), bodies)
        early, _, late = (steps.of(ask, calls) for calls in (GROWN, MEANWHILE, GROWN))
        found[name] = [early, late]
    return found


def main() -> None:
    """Serve the root of the first argument, with the key of the second; print and end.

    With ``grown`` as the third argument it is the steps of early and late calls that are printed.
    """
    root, key, *more = sys.argv[1:]
    counter, steps = Counter(), Steps()
    (steps if more else counter).start()

    def work(url: str) -> None:
        counter.leave_out()
        target = Target(f"{url}/v1/chat/completions", {"authorization": f"Bearer {key}"})
        port = int(url.rpartition(":")[2])
        try:
            found: dict[str, Any]
            if more:
                found = grown(steps, port, target)
            else:
                client = Client(counter, port)
                found = {name: asdict(one) for name, one in counted(client, target).items()}
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        print(json.dumps(found), flush=True)
        os._exit(0)

    def ready(url: str) -> None:
        threading.Thread(target=work, args=(url,)).start()
        if not more:
            counter.watch_loop()

    serve(Path(root), dev=False, flags={"server.port": 0}, ready=ready)


if __name__ == "__main__":
    main()
