"""A fake Chat Completions upstream that leads an agent through a loop of tools.

    python -m benchmarks.agents.upstream

What it answers depends on the conversation it is sent, and on nothing else: the last user message
says ``steps=N``; with K tool results after it, the answer asks for tool number K while K < N, and
is a text from then on. Tools take turns (:mod:`~benchmarks.agents.runners.script`). One thread,
``epoll``, a scan of the bytes: no JSON is read. Every tool result is checked; a wrong one is
counted and answered with 400. No two answers are alike.

``hold=K`` in the user message: the request with K results is not answered the first time it comes,
so that its sender can be killed there. ``GET /count`` tells what came, see :class:`Counts`.
"""

from __future__ import annotations

import json
import re
import select
import socket
import time
from dataclasses import asdict, dataclass, field

from benchmarks.agents.runners.script import MARKER, MODEL, TOOLS
from benchmarks.gateways.upstream import plain_response
from benchmarks.gateways.wire import message_end

BACKLOG = 1024
RECEIVE_BYTES = 1 << 18
ANSWER = f"{MARKER}: an answer of a few sentences, as a model gives one to a question. " * 4

_NUMBER = b"NNNNNNNNNNNN"
_ROLE = re.compile(rb'"role" *: *"(user|tool)"')
_STEPS = re.compile(rb"steps=(\d+)")
_HOLD = re.compile(rb"hold=(\d+)")
_REFUSAL = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: "


@dataclass(slots=True)
class Counts:
    """What came since the start.

    Attributes:
        calls: requests to answer.
        asked: by tool, how often an answer asked for it.
        finished: answers that were texts, the last of a loop.
        wrong: requests that did not hold the tool result they should.
        held: requests that were not answered.
        last_ns: when the latest request was whole, by the machine's monotonic clock.
        after_hold_ns: when the first request after the one held back was; 0 before.
    """

    calls: int = 0
    asked: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOOLS, 0))
    finished: int = 0
    wrong: int = 0
    held: int = 0
    last_ns: int = 0
    after_hold_ns: int = 0


@dataclass(slots=True)
class _Connection:
    socket: socket.socket
    buffer: bytearray = field(default_factory=bytearray)


class Upstream:
    """The server, on a port of 127.0.0.1 that the system chooses."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._epoll = select.epoll()
        self._epoll.register(self._listener, select.EPOLLIN)
        self._connections: dict[int, _Connection] = {}
        self._counts = Counts()
        self._text = _completion({"content": f"{ANSWER}({_NUMBER.decode()})"}, "stop")
        self._held_back: set[int] = set()

    def serve(self) -> None:
        """Answer until the process is ended."""
        listening = self._listener.fileno()
        while True:
            for descriptor, _ in self._epoll.poll():
                if descriptor == listening:
                    self._accept()
                else:
                    self._read(self._connections[descriptor])

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except BlockingIOError:
                return
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections[accepted.fileno()] = _Connection(accepted)
            self._epoll.register(accepted, select.EPOLLIN)

    def _read(self, connection: _Connection) -> None:
        try:
            received = connection.socket.recv(RECEIVE_BYTES)
        except ConnectionError:
            received = b""
        buffer = connection.buffer
        if not received:
            del self._connections[connection.socket.fileno()]
            connection.socket.close()
            return
        buffer += received
        while end := message_end(buffer):
            request = bytes(buffer[:end])
            del buffer[:end]
            if answer := self._answer(request):
                connection.socket.sendall(answer)

    def _answer(self, request: bytes) -> bytes:
        """The response; empty where the request is held back."""
        counts = self._counts
        if request.startswith(b"GET"):
            return plain_response(json.dumps(asdict(counts)).encode())
        counts.calls += 1
        counts.last_ns = time.monotonic_ns()
        if counts.held and not counts.after_hold_ns:
            counts.after_hold_ns = counts.last_ns
        results, place = 0, len(request)
        for found in reversed(list(_ROLE.finditer(request))):
            if found[1] == b"user":
                break
            results, place = results + 1, found.start()
        if results and not _holds_result(request, place, results - 1):
            counts.wrong += 1
            problem = json.dumps({"error": {"message": "a tool result is not what it should be"}})
            return _REFUSAL + b"%d\r\n\r\n%b" % (len(problem), problem.encode())
        hold = _last(_HOLD, request)
        if hold == results and hold not in self._held_back:
            self._held_back.add(hold)
            counts.held += 1
            return b""
        if results >= (_last(_STEPS, request) or 0):
            counts.finished += 1
            return plain_response(self._text.replace(_NUMBER, b"%012d" % counts.calls))
        name = tuple(TOOLS)[results % len(TOOLS)]
        counts.asked[name] += 1
        return plain_response(_completion(_tool_use(name, counts.calls), "tool_calls"))


def _holds_result(request: bytes, place: int, number: int) -> bool:
    """Whether the latest tool's output is there, from a little before the first tool's role on."""
    name = tuple(TOOLS)[number % len(TOOLS)]
    return TOOLS[name].output.encode() in request[max(0, place - 4096) :]


def _last(pattern: re.Pattern[bytes], request: bytes) -> int | None:
    found = pattern.findall(request)
    return int(found[-1]) if found else None


def _tool_use(name: str, number: int) -> dict[str, object]:
    function = {"name": name, "arguments": json.dumps(TOOLS[name].arguments)}
    call = {"id": f"call_{number:08x}", "type": "function", "function": function}
    return {"content": None, "tool_calls": [call]}


def _completion(message: dict[str, object], finish: str) -> bytes:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "refusal": None, **message},
        "logprobs": None,
        "finish_reason": finish,
    }
    completion = {
        "id": "chatcmpl-benchmark",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": MODEL,
        "choices": [choice],
        "usage": {"prompt_tokens": 250, "completion_tokens": 40, "total_tokens": 290},
        "system_fingerprint": "fp_benchmark",
    }
    return json.dumps(completion).encode()


def main() -> None:
    """Print the port and serve."""
    upstream = Upstream()
    print(upstream.port, flush=True)
    upstream.serve()


if __name__ == "__main__":
    main()
