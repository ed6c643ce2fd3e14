"""Entries of the ledger as OpenTelemetry logs.

The body of a log record is a line of the export (:mod:`remit.ledger.cursor_exports`), so the bodies
in their order are the export as JSON lines, with its proofs. ``log.record.uid`` is the id of the
entry. A batch that is sent again has the same ids, and its proof is about all of its lines.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import ConfigError, RemitError, excerpt
from remit.kernel.secrets import redact_secrets
from remit.ledger import Batch, columns_of
from remit.server.telemetry.tracing import INSTALL, made_resource, signal_url

if TYPE_CHECKING:
    from requests import Response

_NAMES = {"session_id": "gen_ai.conversation.id", "agent_id": "gen_ai.agent.id",
          "model_id": "gen_ai.response.model"}  # fmt: skip
"""Columns with a name in OpenTelemetry's GenAI conventions; the others are ``remit.NAME``."""


def _note_answer(answers: list[Response], answer: Response, **_: Any) -> None:
    """Keep an answer, and follow no redirect, which would lose the entries."""
    answer.headers.pop("location", None)
    answers.append(answer)


def log_sender(url: str, service_name: str = "") -> Callable[[Batch], None]:
    """Return a function that sends a batch to a receiver, and blocks until the answer.

    Each entry becomes a log record, and the batch's proof the last one. OpenTelemetry's
    ``OTEL_EXPORTER_OTLP_…`` variables set headers, TLS, compression and timeout. Redirects are not
    followed. The function raises RemitError if the receiver cannot be reached or did not accept
    each record; use it in one thread at a time.

    Args:
        url: URL of the receiver; ``/v1/logs`` is added if it has no path.
        service_name: ``service.name`` of the records. Empty: from the variables, else ``remit``.

    Raises:
        ConfigError: the URL is not valid, or the extra ``otel`` is not installed.
    """
    try:
        from google.protobuf.message import DecodeError
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
            ExportLogsServiceResponse,
        )
        from opentelemetry.sdk._logs import ReadableLogRecord
        from requests import Session
    except ImportError as error:
        raise ConfigError(
            "The export needs OpenTelemetry, which is not installed.", next_step=INSTALL
        ) from error
    answers: list[Response] = []
    session = Session()
    session.hooks["response"].append(functools.partial(_note_answer, answers))
    exporter = OTLPLogExporter(endpoint=signal_url(url, "/v1/logs"), session=session)
    resource = made_resource(service_name)

    def send(batch: Batch) -> None:
        answers.clear()
        result = exporter.export([ReadableLogRecord(one, resource) for one in _records(batch)])
        said = "it cannot be reached"
        if answers:
            status, body = answers[-1].status_code, answers[-1].content
            said = f"it answered {status}: {excerpt(redact_secrets(answers[-1].text))}"
            if result.name == "SUCCESS" and status < 300:  # It takes a redirect for a success.
                try:
                    partial = ExportLogsServiceResponse.FromString(body).partial_success
                except DecodeError:
                    raise RemitError(
                        f"The receiver did not accept the entries: {said}",
                        next_step="Check the URL: its answer is not that of an OTLP receiver.",
                    ) from None
                if not partial.rejected_log_records:
                    return
                said = (f"it rejected {partial.rejected_log_records} records: "
                        f"{excerpt(redact_secrets(partial.error_message))}")  # fmt: skip
        raise RemitError(
            f"The receiver did not accept the entries: {said}.",
            next_step="Check the URL and OTEL_EXPORTER_OTLP_HEADERS; the cursor did not move.",
        )

    return send


def _records(batch: Batch) -> list[Any]:
    """Return the batch as log records, with the proof at the end."""
    from opentelemetry._logs import LogRecord, SeverityNumber

    found, now = [], time.time_ns()
    for text, line in zip(batch.records, batch.lines, strict=True):
        record = json.loads(text)
        columns = columns_of(record["metadata"])
        named = {_NAMES.get(name, f"remit.{name}"): value
                 for name, value in columns._asdict().items() if value is not None}  # fmt: skip
        has_failed = columns.outcome in ("error", "timeout")
        severity = SeverityNumber.ERROR if has_failed else SeverityNumber.INFO
        found.append(
            LogRecord(
                timestamp=_nanoseconds(record["timestamp"]),
                observed_timestamp=now,
                severity_number=severity,
                severity_text=severity.name,
                body=line.decode(),
                event_name=f"remit.{record['event_type']}",
                attributes={
                    **named,
                    "log.record.uid": record["id"],
                    "remit.event_type": record["event_type"],
                    "remit.submission_id": record["submission_id"],
                    "remit.decision": record["decision"],
                },
            )
        )
    last = found[-1]
    found.append(
        LogRecord(
            timestamp=last.timestamp,
            observed_timestamp=now,
            body=batch.proof.decode(),
            severity_number=SeverityNumber.INFO,
            severity_text="INFO",
            event_name="remit.proof",
            attributes={"log.record.uid": f"proof-{batch.cursor.next}-{len(batch.records)}"},
        )
    )
    return found


def _nanoseconds(timestamp: str) -> int:
    moment = datetime.fromisoformat(timestamp)
    return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1000
