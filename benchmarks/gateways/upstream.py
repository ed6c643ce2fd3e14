"""A fake OpenAI-compatible upstream that is no bottleneck: one thread, ``epoll``, fixed bytes.

    python -m benchmarks.gateways.upstream --port PORT

``POST …/chat/completions`` answers about 1 KB at once; with ``"stream": true`` it sends as many
events as the prompt asks by ``chunks=N delay_ms=D``. ``GET /count`` tells how many chat requests
came: a gateway that answers without asking is found out.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import re
import select
import socket
import time
from dataclasses import dataclass, field

from benchmarks.gateways.wire import MARKER, MODEL, message_end

ANSWER_CHARACTERS = 700
DEFAULT_CHUNKS, DEFAULT_DELAY_MS = 20, 5
BACKLOG = 1024
RECEIVE_BYTES = 1 << 18

_SENTENCE = "An answer of a few sentences, as a model gives one to a short question. "
_STREAM = re.compile(rb'"stream" *: *true')
_USAGE = re.compile(rb'"include_usage" *: *true')
_CHUNKS = re.compile(rb"chunks=(\d+)")
_DELAY = re.compile(rb"delay_ms=(\d+)")
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


def answer_body() -> bytes:
    """A whole answer of the Chat Completions API, about 1 KB."""
    text = f"{MARKER.decode()}: {_SENTENCE * 20}"[:ANSWER_CHARACTERS]
    answer = {
        "id": "chatcmpl-benchmark",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text, "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 250, "completion_tokens": 140, "total_tokens": 390},
        "system_fingerprint": "fp_benchmark",
    }
    return json.dumps(answer).encode()


def plain_response(body: bytes) -> bytes:
    """A 200 with a JSON body."""
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


@dataclass(slots=True)
class _Connection:
    socket: socket.socket
    buffer: bytearray = field(default_factory=bytearray)
    streaming: bool = False


@dataclass(slots=True)
class _Stream:
    connection: _Connection
    left: int
    delay_s: float
    usage: bool


class Upstream:
    """The server.

    Args:
        port: on 127.0.0.1; 0 lets the system choose.
    """

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self.requests = 0
        self._epoll = select.epoll()
        self._epoll.register(self._listener, select.EPOLLIN)
        self._connections: dict[int, _Connection] = {}
        self._due: list[tuple[float, int, _Stream]] = []
        self._numbers = itertools.count()
        self._answer = plain_response(answer_body())

    def serve(self) -> None:
        """Answer until the process is ended."""
        listening = self._listener.fileno()
        while True:
            timeout = max(0.0, self._due[0][0] - time.monotonic()) if self._due else -1
            for descriptor, _ in self._epoll.poll(timeout):
                if descriptor == listening:
                    self._accept()
                else:
                    self._read(self._connections[descriptor])
            while self._due and self._due[0][0] <= time.monotonic():
                _, _, stream = heapq.heappop(self._due)
                self._continue(stream)

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
        if not received:
            self._drop(connection)
            return
        connection.buffer += received
        self._answer_waiting(connection)

    def _answer_waiting(self, connection: _Connection) -> None:
        buffer = connection.buffer
        while not connection.streaming and (end := message_end(buffer)):
            request = bytes(buffer[:end])
            del buffer[:end]
            if request.startswith(b"GET"):
                counted = json.dumps({"requests": self.requests}).encode()
                self._send(connection, plain_response(counted))
                continue
            self.requests += 1
            if _STREAM.search(request):
                self._start(connection, request)
            else:
                self._send(connection, self._answer)

    def _start(self, connection: _Connection, request: bytes) -> None:
        chunks, delay = _CHUNKS.search(request), _DELAY.search(request)
        connection.streaming = True
        stream = _Stream(
            connection,
            int(chunks[1]) if chunks else DEFAULT_CHUNKS,
            (int(delay[1]) if delay else DEFAULT_DELAY_MS) / 1000,
            _USAGE.search(request) is not None,
        )
        self._continue(stream, _STREAM_HEAD)

    def _continue(self, stream: _Stream, head: bytes = b"") -> None:
        connection = stream.connection
        if connection.socket.fileno() < 0:
            return
        if stream.left:
            stream.left -= 1
            text = f"tick {time.monotonic_ns()} "
            # The head and the first event go together, so that they arrive as one piece.
            self._send(connection, head + _event(_chunk({"role": "assistant", "content": text})))
            due = time.monotonic() + stream.delay_s
            heapq.heappush(self._due, (due, next(self._numbers), stream))
            return
        end = _event(_chunk({}, "stop"))
        if stream.usage:
            end += _event(_usage_chunk())
        connection.streaming = False
        self._send(connection, head + end + _event("[DONE]") + b"0\r\n\r\n")
        self._answer_waiting(connection)

    def _send(self, connection: _Connection, content: bytes) -> None:
        try:
            sent = connection.socket.send(content)
            if sent < len(content):
                connection.socket.sendall(content[sent:])
        except (ConnectionError, BlockingIOError):
            self._drop(connection)

    def _drop(self, connection: _Connection) -> None:
        if (descriptor := connection.socket.fileno()) >= 0:
            del self._connections[descriptor]
            connection.socket.close()


def _chunk(delta: dict[str, str], finish: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return _chunk_of([choice])


def _usage_chunk() -> str:
    return _chunk_of([], {"prompt_tokens": 250, "completion_tokens": 140, "total_tokens": 390})


def _chunk_of(choices: list[dict[str, object]], usage: dict[str, int] | None = None) -> str:
    chunk: dict[str, object] = {
        "id": "chatcmpl-benchmark",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": MODEL,
        "system_fingerprint": "fp_benchmark",
        "choices": choices,
    }
    return json.dumps(chunk if usage is None else chunk | {"usage": usage})


def _event(data: str) -> bytes:
    """One server-sent event as one HTTP chunk."""
    event = f"data: {data}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(event), event)


def main() -> None:
    """Print the port and serve."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateways.upstream")
    parser.add_argument("--port", type=int, default=0)
    upstream = Upstream(parser.parse_args().port)
    print(upstream.port, flush=True)
    upstream.serve()


if __name__ == "__main__":
    main()
