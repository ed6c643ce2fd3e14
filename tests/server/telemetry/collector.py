"""A receiver of OTLP/HTTP that decodes what it gets by OpenTelemetry's own definitions."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

__all__ = ["Collector"]


class Collector:
    """A real OTLP/HTTP endpoint for spans and logs.

    Attributes:
        got: path, headers and message of each request that was accepted.
        rejects: the status of all answers, ``"partly"`` to reject one log record of each request,
            or ``"as a page"`` to answer 200 with HTML; None accepts everything.
    """

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], Any]] = []
        self.rejects: int | str | None = None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                is_logs = self.path.endswith("/logs")
                kind: Any = ExportLogsServiceRequest if is_logs else ExportTraceServiceRequest
                status, answer = 200, b""
                if outer.rejects is None:
                    outer.got.append((self.path, dict(self.headers), kind.FromString(body)))
                elif outer.rejects == "partly":
                    partial = ExportLogsPartialSuccess(rejected_log_records=1)
                    response = ExportLogsServiceResponse(partial_success=partial)
                    answer = response.SerializeToString()
                elif outer.rejects == "as a page":
                    answer = b"<html>"
                else:
                    status = int(outer.rejects)
                self.send_response(status)
                if status == 301:
                    self.send_header("location", f"{outer.url}/elsewhere")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> Collector:
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
