"""What the strict provider keeps between calls: files, batches and responses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.support.strict.shapes import Wrong, check

__all__ = ["Stored"]

_CREATED = 1_700_000_000
_AT = "2026-01-02T03:04:05Z"
Ask = Callable[[str, dict[str, Any]], tuple[int, dict[str, Any]]]


def _missing(kind: str, name: str) -> Wrong:
    return Wrong(f"No such {kind}: {name}", "id", "not_found")


class Stored:
    """All of it; ``ask`` answers one line of a batch: path and body to status and answer."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.responses: dict[str, dict[str, Any]] = {}
        self.files: dict[str, tuple[dict[str, Any], bytes]] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.results: dict[str, bytes] = {}

    # -- files -----------------------------------------------------------------------------

    def add_file(self, dialect: str, name: str, kind: str, purpose: str, content: bytes) -> Any:
        if dialect == "openai":
            if not purpose:
                raise Wrong("Missing required parameter: 'purpose'.", "purpose")
            told = {"object": "file", "id": f"file-{len(self.files):022d}", "purpose": purpose,
                    "filename": name, "bytes": len(content), "created_at": _CREATED,
                    "expires_at": None, "status": "processed",
                    "status_details": None}  # fmt: skip
        else:
            told = {"type": "file", "id": f"file_{len(self.files):024d}", "filename": name,
                    "size_bytes": len(content), "mime_type": kind, "created_at": _AT,
                    "downloadable": True}  # fmt: skip
        self.files[told["id"]] = (told, content)
        return told

    def file(self, name: str) -> tuple[dict[str, Any], bytes]:
        if name not in self.files:
            raise _missing("File object", name)
        return self.files[name]

    def list_files(self, dialect: str) -> dict[str, Any]:
        mark = "file-" if dialect == "openai" else "file_"
        listed = [told for name, (told, _) in self.files.items() if name.startswith(mark)]
        more = {"object": "list"} if dialect == "openai" else {}
        return {**more, "data": listed, "has_more": False,
                "first_id": listed[0]["id"] if listed else None,
                "last_id": listed[-1]["id"] if listed else None}  # fmt: skip

    def delete_file(self, dialect: str, name: str) -> dict[str, Any]:
        self.file(name)
        del self.files[name]
        if dialect == "openai":
            return {"object": "file", "deleted": True, "id": name}
        return {"type": "file_deleted", "id": name}

    # -- batches ---------------------------------------------------------------------------

    def add_batch(self, body: dict[str, Any]) -> dict[str, Any]:
        """Run a batch of OpenAI's to its end."""
        check("openai.batches", body)
        lines = [json.loads(line) for line in self.file(body["input_file_id"])[1].splitlines()]
        done = []
        for at, line in enumerate(lines):
            status, answer = self._ask(line["url"], line["body"])
            done.append({"id": f"batch_req_{at:024d}", "custom_id": line["custom_id"],
                         "response": {"status_code": status, "request_id": f"req_{at:032x}",
                                      "body": answer}, "error": None})  # fmt: skip
        text = "\n".join(json.dumps(each, ensure_ascii=False) for each in done) + "\n"
        kept = self.add_file("openai", "output.jsonl", "", "batch_output", text.encode())
        batch = {"id": f"batch_{len(self.batches):032x}", "object": "batch",
                 "endpoint": body["endpoint"], "errors": None,
                 "input_file_id": body["input_file_id"],
                 "completion_window": body["completion_window"], "status": "completed",
                 "output_file_id": kept["id"], "error_file_id": None, "created_at": _CREATED,
                 "in_progress_at": _CREATED, "expires_at": _CREATED + 86400,
                 "finalizing_at": _CREATED, "completed_at": _CREATED, "failed_at": None,
                 "expired_at": None, "cancelling_at": None, "cancelled_at": None,
                 "request_counts": {"total": len(done), "completed": len(done), "failed": 0},
                 "metadata": body.get("metadata")}  # fmt: skip
        self.batches[batch["id"]] = batch
        return batch

    def add_message_batch(self, body: dict[str, Any], results_url: str) -> dict[str, Any]:
        """The same of Anthropic's."""
        requests = body.get("requests")
        if not isinstance(requests, list) or not requests:
            raise Wrong("requests: Field required", "requests")
        lines = []
        for line in requests:
            status, answer = self._ask("/v1/messages", line["params"])
            result = ({"type": "succeeded", "message": answer} if status == 200 else
                      {"type": "errored", "error": answer})  # fmt: skip
            lines.append(json.dumps({"custom_id": line["custom_id"], "result": result},
                                    ensure_ascii=False))  # fmt: skip
        name = f"msgbatch_{len(self.batches):024d}"
        self.results[name] = ("\n".join(lines) + "\n").encode()
        counts = {"processing": 0, "succeeded": len(lines), "errored": 0, "canceled": 0,
                  "expired": 0}  # fmt: skip
        batch = {"id": name, "type": "message_batch", "processing_status": "ended",
                 "request_counts": counts, "ended_at": _AT, "created_at": _AT,
                 "expires_at": _AT, "archived_at": None, "cancel_initiated_at": None,
                 "results_url": results_url.format(name)}  # fmt: skip
        self.batches[name] = batch
        return batch

    def batch(self, name: str) -> dict[str, Any]:
        if name not in self.batches:
            raise _missing("batch", name)
        return self.batches[name]

    def list_batches(self, dialect: str) -> dict[str, Any]:
        mark = "batch_" if dialect == "openai" else "msgbatch_"
        listed = [one for name, one in reversed(self.batches.items()) if name.startswith(mark)]
        more = {"object": "list"} if dialect == "openai" else {}
        return {**more, "data": listed, "has_more": False,
                "first_id": listed[0]["id"] if listed else None,
                "last_id": listed[-1]["id"] if listed else None}  # fmt: skip

    # -- responses -------------------------------------------------------------------------

    def keep_response(self, answer: dict[str, Any], items: list[dict[str, Any]]) -> None:
        """Keep an answer with the items that led to it."""
        before = self.responses.get(answer["previous_response_id"] or "", {"context": []})
        self.responses[answer["id"]] = {"answer": answer, "items": items,
                                        "context": [*before["context"], *items,
                                                    *answer["output"]]}  # fmt: skip

    def response(self, name: str) -> dict[str, Any]:
        """A kept answer, its items and its whole context."""
        if name not in self.responses:
            raise Wrong(f"Response with id '{name}' not found.", "response_id", "not_found")
        return self.responses[name]
