"""A receiver of OTLP/HTTP that decodes by OpenTelemetry's own definitions, and calls to watch."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from remit.gateway import CallReport, LLMGateway, RouterConfig
from remit.gateway.auth import Identity
from remit.gateway.budget import TokenBudgeter
from remit.kernel.exchange import PromptResponse, RouteOutcome
from remit.ledger import LedgerClient
from tests.support.requests import openai_provider, prompt_request
from tests.support.wire import Step, serve

__all__ = ["Collector", "call_report", "watched_gateway"]


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


@contextmanager
def watched_gateway(
    directory: Path, answer: Step, *observers: Any, **changes: Any
) -> Iterator[LLMGateway]:
    """A gateway before an OpenAI provider that answers so."""
    config = RouterConfig(
        default_provider="openai",
        default_model="gpt-4o-mini",
        **{"max_retries": 0, "retry_base_ms": 1, "retry_max_ms": 2, **changes},
    )
    with serve(answer) as server, LedgerClient(directory / "ledger.db") as ledger:
        gateway = LLMGateway(
            ledger, TokenBudgeter(ledger), config, dev_mode=True, budget_mode="warn"
        )
        gateway.register_provider("openai", openai_provider(server.url))
        gateway.observers.extend(observers)
        yield gateway


def call_report(**changes: Any) -> CallReport:
    """A report as the gateway makes it; changes go to the request or the response."""
    response: dict[str, Any] = {
        "content": "Hello.",
        "outcome": RouteOutcome.SUCCESS,
        "input_tokens": 13,
        "output_tokens": 5,
        "model_id": "gpt-4o-mini",
        "provider_id": "openai",
        "latency_ms": 12.5,
        "timestamp": "2026-01-01T00:00:00.000000Z",
        "exchange_entry_id": "LED-00000002",
        "dispatch_entry_id": "LED-00000001",
        "cost_incurred": 0.25,
        "cost_certainty": "measured",
    }
    identity = Identity("someone", "agent", key_id="KEY-1")
    first = changes.pop("first_after_ms", None)
    attempts = changes.pop("attempts", 1)
    started = changes.pop("started_ns", 1_700_000_000_000_000_000)
    answer = {name: changes.pop(name) for name in list(changes) if name in _RESPONSE}
    return CallReport(
        prompt_request(**changes),
        PromptResponse(**{**response, **answer}),
        identity,
        started,
        first,
        attempts,
    )


_RESPONSE = frozenset(PromptResponse.__dataclass_fields__)
