"""What a root holds, byte for byte, and requests to every ``POST`` route with marked texts."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from remit.agents import ApprovalQueue, tool
from tests.server.running import FORM, Served, form, new_session
from tests.support.postgres import run_sql
from tests.support.waiting import until

__all__ = ["CASES", "KEPT", "Sender", "holds"]

GPT, CLAUDE = "gpt-4o-mini", "claude-sonnet-4-5"
_SOUND = b"RIFF$\x00\x00\x00WAVEfmt "


def holds(served: Served, text: str) -> list[str]:
    """Return the files of a root, and on PostgreSQL the tables, that hold a text."""
    sought = text.encode()
    found = [
        str(path.relative_to(served.root.parent))
        for path in [*served.root.rglob("*"), *served.root.parent.glob("*.log")]
        if path.is_file() and sought in path.read_bytes()
    ]
    if served.store.startswith("postgresql://"):
        tables = run_sql(served.store, "SELECT tablename FROM pg_tables WHERE schemaname='public'")
        for (name,) in tables:
            rows = run_sql(served.store, f'SELECT t::text FROM "{name}" AS t')
            hexed = sought.hex()  # of a column of bytes
            if any(text in row or hexed in row for (row,) in rows):
                found.append(f"table {name}")
    return found


@dataclass
class Sender:
    """Sends requests of one session and one person, with a mark in every text.

    Attributes:
        marks: the texts that were sent, and those that the upstream answered.
        sessions: where the content was recorded, if not in the named session alone.
    """

    served: Served
    token: str
    session: str = field(default_factory=new_session)
    subject: str = field(default_factory=lambda: f"person-{uuid.uuid4().hex}")
    marks: list[str] = field(default_factory=list)
    sessions: set[str] = field(default_factory=set)

    def mark(self, kind: str = "text") -> str:
        """Return a new text that nothing else holds."""
        self.marks.append(f"mark-{kind}-{uuid.uuid4().hex}")
        return self.marks[-1]

    def say(self) -> str:
        """Return a text that the strict provider answers with a text of its own."""
        return f"[[say {self.mark('said')}]] {self.mark()}"

    def send(
        self, path: str, body: Any, *, token: str = "", status: int = 200,
        headers: Mapping[str, str] | None = None, method: str = "POST",
    ) -> Any:  # fmt: skip
        """Send a request and return its answer, parsed if it is JSON."""
        named = {"x-remit-session": self.session, "x-remit-subject": self.subject,
                 **(headers or {})}  # fmt: skip
        if not isinstance(body, bytes):
            named.setdefault("content-type", "application/json")
        if path.startswith("/v1/messages"):
            named["anthropic-version"] = "2023-06-01"
        found, raw, _ = self.served.ask(
            method, path, body, token=token or self.token, headers=named
        )
        assert found == status, (path, found, raw[:500])
        try:
            return json.loads(raw)
        except ValueError:
            return raw

    def form(self, path: str, status: int = 200, **parts: str | tuple[str, bytes]) -> Any:
        """Send a form; a file is its name and its bytes."""
        return self.send(path, form(**parts), headers=FORM, status=status)

    def messages(self) -> list[dict[str, str]]:
        """Return a prompt with a system message."""
        return [{"role": "system", "content": self.mark()}, {"role": "user", "content": self.say()}]


def _tools(sender: Sender) -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": {"x": {"type": "string",
                                                     "description": sender.mark()}}}  # fmt: skip
    told = {"name": "look", "description": sender.mark(), "parameters": schema}
    return [{"type": "function", "function": told}]


def _chat(sender: Sender) -> None:
    body = {"model": GPT, "messages": sender.messages(), "user": sender.mark("user"),
            "tools": _tools(sender), "stop": [sender.mark("stop")[:40]]}  # fmt: skip
    sender.send("/v1/chat/completions", body,
                headers={"idempotency-key": sender.mark("idempotency")})  # fmt: skip
    # The same in a stream, and one that the provider refuses with the client's words.
    sender.send("/v1/chat/completions", {**body, "stream": True})
    sender.send("/v1/chat/completions", {**body, "model": GPT, "temperature": 9}, status=400)


def _responses(sender: Sender) -> None:
    body = {"model": GPT, "input": sender.say(), "instructions": sender.mark(),
            "metadata": {"a": sender.mark("label")}, "user": sender.mark("user")}  # fmt: skip
    first = sender.send("/v1/responses", body)
    further = {"model": CLAUDE, "input": sender.say(), "previous_response_id": first["id"]}
    sender.send("/v1/responses", further)


def _cancel(sender: Sender) -> None:
    body = {"model": GPT, "input": sender.say(), "background": True}
    made = sender.send("/v1/responses", body)
    path = f"/v1/responses/{made['id']}"
    until(lambda: sender.send(path, None, method="GET")["status"] == "completed")
    sender.send(f"{path}/cancel", b"")


def _anthropic(sender: Sender) -> None:
    body = {"model": CLAUDE, "max_tokens": 50, "system": sender.mark(),
            "messages": [{"role": "user", "content": sender.say()}],
            "metadata": {"user_id": sender.mark("user")}}  # fmt: skip
    sender.send("/v1/messages", body)


def _count(sender: Sender) -> None:
    body = {"model": CLAUDE, "messages": [{"role": "user", "content": sender.say()}]}
    sender.send("/v1/messages/count_tokens", body)


def _conversation(sender: Sender) -> str:
    items = [{"type": "message", "role": "user", "content": sender.mark()}]
    made = sender.send("/v1/conversations",
                       {"items": items, "metadata": {"a": sender.mark("label")}})  # fmt: skip
    return str(made["id"])


def _labels(sender: Sender) -> None:
    path = f"/v1/conversations/{_conversation(sender)}"
    sender.send(path, {"metadata": {"b": sender.mark("label")}})


def _items(sender: Sender) -> None:
    name = _conversation(sender)
    items = [{"type": "message", "role": "user", "content": sender.mark()}]
    sender.send(f"/v1/conversations/{name}/items", {"items": items})
    body = {"model": CLAUDE, "input": sender.say(), "conversation": name}
    sender.send("/v1/responses", body)


def _plain(path: str, **body: Any) -> Callable[[Sender], None]:
    """A call with a mark in place of each text that is None."""

    def send(sender: Sender) -> None:
        filled = {name: sender.mark() if value is None else value for name, value in body.items()}
        status = 200 if "rerank" not in path else 404
        sender.send(path, filled, status=status)

    return send


def _form(path: str, model: str, **more: str) -> Callable[[Sender], None]:
    def send(sender: Sender) -> None:
        file = (f"{sender.mark('file')}.wav", _SOUND + sender.mark("bytes").encode())
        kind = "file" if "audio" in path else "image"
        parts: dict[str, Any] = {"model": model, kind: file, **more}
        if "variations" not in path:
            parts["prompt"] = sender.mark()
        sender.form(path, status=404 if "variations" in path else 200, **parts)

    return send


def _gemini(verb: str, model: str, *, batch: bool = False) -> tuple[str, Callable[[Sender], None]]:
    """Return a path of Gemini and a call of it."""

    def send(sender: Sender) -> None:
        content = {"role": "user", "parts": [{"text": sender.mark()}]}
        body: dict[str, Any] = {"contents": [content]}
        if batch:
            body = {"requests": [{"model": f"models/{model}", "content": content}]}
        elif verb == "embedContent":
            body = {"content": content}
        sender.send(f"/v1beta/models/gemini/{model}:{verb}", body)

    return "/v1beta/models/{id}:" + verb, send


def _converse(sender: Sender) -> None:
    content = [{"text": sender.mark()}]
    body = {"messages": [{"role": "user", "content": content}], "system": [{"text": sender.mark()}]}
    for verb in ("converse", "converse-stream"):
        sender.send(f"/model/{CLAUDE}/{verb}", body)
    invoked = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 50,
               "messages": [{"role": "user", "content": sender.say()}]}  # fmt: skip
    for verb in ("invoke", "invoke-with-response-stream"):
        sender.send(f"/model/{CLAUDE}/{verb}", invoked)


def _file(sender: Sender) -> str:
    line = {"custom_id": sender.mark("custom"), "method": "POST", "url": "/v1/chat/completions",
            "body": {"model": GPT, "max_tokens": 50, "messages": sender.messages()}}  # fmt: skip
    raw = json.dumps(line).encode() + b"\n"
    name = f"{sender.mark('file')}.jsonl"
    return str(sender.form("/v1/files", purpose="batch", file=(name, raw))["id"])


def _batch(sender: Sender) -> str:
    body = {"input_file_id": _file(sender), "endpoint": "/v1/chat/completions",
            "completion_window": "24h", "metadata": {"a": sender.mark("label")}}  # fmt: skip
    made = sender.send("/v1/batches", body)
    sender.send(f"/v1/batches/{made['id']}", None, method="GET")  # its results are recorded
    return str(made["id"])


def _message_batch(sender: Sender) -> str:
    params = {"model": CLAUDE, "max_tokens": 50, "system": sender.mark(),
              "messages": [{"role": "user", "content": sender.say()}]}  # fmt: skip
    request = {"custom_id": sender.mark("custom")[:64], "params": params}
    made = sender.send("/v1/messages/batches", {"requests": [request]})
    sender.send(f"/v1/messages/batches/{made['id']}", None, method="GET")
    return str(made["id"])


def _feedback(sender: Sender) -> None:
    body = {"model": GPT, "messages": sender.messages()}
    sender.send("/v1/chat/completions", body)
    exchange = sender.served.exchange(sender.session)
    sender.send("/api/feedback", {"target": exchange.id, "score": 1, "reason": sender.mark()},
                status=201)  # fmt: skip


def _order(sender: Sender) -> None:
    key = sender.served.key(role="operator").key
    made = sender.send("/api/orders", {"agent_id": "a", "task": sender.mark()}, token=key,
                       status=201)  # fmt: skip
    sender.sessions.add(made["session_id"])


@tool
def pay(order: str) -> str:
    """Pay an order back."""
    return order


def _approval(sender: Sender) -> None:
    queue = ApprovalQueue(sender.served.ledger)
    asked = queue.request(pay, {"order": sender.mark()}, session_id=sender.session, agent_id="a",
                          subject_id=sender.subject)  # fmt: skip
    key = sender.served.key(role="operator").key
    sender.send(f"/api/approvals/{asked.request_id}", {"grant": False, "reason": sender.mark()},
                token=key)  # fmt: skip


CASES: dict[str, Callable[[Sender], Any]] = {
    "/v1/chat/completions": _chat,
    "/v1/responses": _responses,
    "/v1/responses/{id}/cancel": _cancel,
    "/v1/responses/compact": _plain("/v1/responses/compact", model="gpt-4o-mini", input=None),
    "/v1/responses/input_tokens": _plain(
        "/v1/responses/input_tokens", model="gpt-4o-mini", input=None
    ),
    "/v1/messages": _anthropic,
    "/v1/messages/count_tokens": _count,
    "/model/{id}/converse": _converse,
    "/v1/conversations": _conversation,
    "/v1/conversations/{id}": _labels,
    "/v1/conversations/{id}/items": _items,
    "/v1/completions": _plain("/v1/completions", model="gpt-3.5-turbo-instruct", prompt=None),
    "/v1/embeddings": _plain("/v1/embeddings", model="text-embedding-3-small", input=None),
    "/v1/moderations": _plain("/v1/moderations", model="omni-moderation-latest", input=None),
    "/v1/rerank": _plain("/v1/rerank", model="openai/rerank-v3", query=None, documents=["a"]),
    "/v1/images/generations": _plain("/v1/images/generations", model="gpt-image-1", prompt=None),
    "/v1/audio/speech": _plain("/v1/audio/speech", model="tts-1", voice="alloy", input=None),
    "/v1/audio/transcriptions": _form("/v1/audio/transcriptions", "whisper-1"),
    "/v1/audio/translations": _form("/v1/audio/translations", "whisper-1"),
    "/v1/images/edits": _form("/v1/images/edits", "gpt-image-1"),
    "/v1/images/variations": _form("/v1/images/variations", "dall-e-2"),
    "/v1/files": _file,
    "/v1/batches": _batch,
    "/v1/batches/{id}/cancel": lambda sender: sender.send(
        f"/v1/batches/{_batch(sender)}/cancel", b""
    ),
    "/v1/messages/batches": _message_batch,
    "/v1/messages/batches/{id}/cancel": lambda sender: sender.send(
        f"/v1/messages/batches/{_message_batch(sender)}/cancel", b""
    ),
    **dict(
        [
            _gemini("generateContent", "gemini-2.5-flash"),
            _gemini("countTokens", "gemini-2.5-flash"),
            _gemini("embedContent", "text-embedding-004"),
            _gemini("batchEmbedContents", "text-embedding-004", batch=True),
        ]
    ),
    "/api/feedback": _feedback,
    "/api/orders": _order,
    "/api/approvals/{request_id}": _approval,
}
"""By route, a request with a mark in each text that is content."""

KEPT = {
    "/api/gates": "no text of a person",
    "/api/keys": "names of keys, which are recorded for good",
    "/api/keys/{name_or_id}/rotate": "no text of a person",
    **{
        f"/api/learn/proposals/{kind}": "an operator's reason, without a session"
        for kind in ("abilities", "boundary", "limit", "set-aside", "tools")
    },
    "/api/learn/proposals/{proposal_id}/adopt": "an operator's reason, without a session",
    "/api/learn/proposals/{proposal_id}/reject": "an operator's reason, without a session",
    "/api/learn/proposals/{proposal_id}/rollback": "an operator's reason, without a session",
    "/api/learn/proposals/{proposal_id}/stop": "an operator's reason, without a session",
    "/api/ledger/checkpoint": "no text of a person",
    "/api/orders/{order_id}/{verb}": "no text of a person",
    "/api/organisations": "names, which are recorded for good",
    "/api/pins/{tool_id}": "no text of a person",
    "/api/teams": "names, which are recorded for good",
    "/api/users": "names, which are recorded for good",
}
"""Routes that record no content of a session, each with the reason."""


def cases() -> Iterator[tuple[str, str]]:
    """Every route with every way to erase."""
    for route in CASES:
        for how in ("entry", "session", "subject"):
            yield route, how
