"""The OpenAPI document of everything outside ``/api``: model calls, stored objects, health.

Bodies are in the providers' own forms and pass whatever they contain; only the members that Remit
reads are described. Calls are listed from the table of endpoints that answers them.
"""

from __future__ import annotations

import re
from typing import Any

from remit.providers.wire import BATCHES, ENDPOINTS, FILES, Endpoint

_KEPT = {
    "openai": (
        ("GET", "/v1/responses/{id}", "A stored response"),
        ("DELETE", "/v1/responses/{id}", "Remove a stored response"),
        ("GET", "/v1/responses/{id}/input_items", "What a stored response was asked"),
        ("POST", "/v1/responses/{id}/cancel", "End a response in the background"),
        ("POST", "/v1/conversations", "Begin a conversation"),
        ("GET", "/v1/conversations/{id}", "A conversation"),
        ("POST", "/v1/conversations/{id}", "Change a conversation's labels"),
        ("DELETE", "/v1/conversations/{id}", "Remove a conversation"),
        ("GET", "/v1/conversations/{id}/items", "The items of a conversation"),
        ("POST", "/v1/conversations/{id}/items", "Put items into a conversation"),
        ("GET", "/v1/models", "Models that this key may name"),
        ("GET", "/v1/models/{id}", "One of them"),
    ),
    "both": (
        ("POST", FILES["anthropic"].path, "Hand a file to the provider"),
        ("GET", FILES["anthropic"].path, "This key's files"),
        ("GET", f"{FILES['anthropic'].path}/{{id}}", "A file"),
        ("DELETE", f"{FILES['anthropic'].path}/{{id}}", "Remove a file"),
        ("GET", f"{FILES['anthropic'].path}/{{id}}/content", "A file's bytes"),
        *(
            (method, f"{path}{tail}", summary)
            for path in (f"/v1{BATCHES['openai'].path}", BATCHES["anthropic"].path)
            for method, tail, summary in (
                ("POST", "", "Begin a batch: each request is reserved and settled by itself"),
                ("GET", "", "This key's batches"),
                ("GET", "/{id}", "A batch"),
                ("POST", "/{id}/cancel", "End a batch"),
            )
        ),
        ("GET", f"{BATCHES['anthropic'].path}/{{id}}/results", "The answers of a batch"),
        ("DELETE", f"{BATCHES['anthropic'].path}/{{id}}", "Remove a batch"),
    ),
}
_OPEN = (
    ("/healthz", "Whether the process answers", "application/json", {"status": "ok"}),
    ("/readyz", "Whether it takes calls and can record them", "application/json",
     {"status": "ready"}),
)  # fmt: skip
_MESSAGES = [{"role": "user", "content": "Say hello."}]
_EXAMPLES: dict[str, dict[str, Any]] = {
    "openai.chat": {"model": "gpt-4o-mini", "messages": _MESSAGES},
    "openai.responses": {"model": "gpt-4o-mini", "input": "Say hello."},
    "openai.compact": {"model": "gpt-4o-mini", "input": "Say hello."},
    "openai.input_tokens": {"model": "gpt-4o-mini", "input": "Say hello."},
    "anthropic.messages": {"model": "claude-haiku-4-5", "max_tokens": 200, "messages": _MESSAGES},
    "anthropic.count_tokens": {"model": "claude-haiku-4-5", "messages": _MESSAGES},
    "openai.completions": {"model": "gpt-3.5-turbo-instruct", "prompt": "Say hello."},
    "openai.embeddings": {"model": "text-embedding-3-small", "input": ["hello", "good day"]},
    "openai.moderations": {"input": "hello"},
    "openai.rerank": {"model": "rerank-v3", "query": "bikes", "documents": ["a bike", "a boat"]},
    "openai.images": {"model": "gpt-image-1", "prompt": "A red bike."},
    "openai.speech": {"model": "gpt-4o-mini-tts", "voice": "alloy", "input": "Hello."},
}
_SUMMARIES = {
    "openai.chat": "OpenAI's Chat Completions",
    "openai.responses": "OpenAI's Responses",
    "openai.compact": "Compact the conversation of a response",
    "openai.input_tokens": "Count the input tokens of a response; free",
    "anthropic.messages": "Anthropic's Messages",
    "anthropic.count_tokens": "How many tokens a call of Messages has; free",
    "openai.completions": "A text goes on",
    "openai.embeddings": "Embeddings of texts",
    "openai.moderations": "What a text contains; free",
    "openai.rerank": "Documents in the order of how they fit",
    "openai.images": "Pictures from a text",
    "openai.speech": "Speech from a text",
    "openai.transcriptions": "The text of a recording",
    "openai.translations": "The text of a recording, in English",
    "openai.image_edits": "A picture changed",
    "openai.image_variations": "Pictures like one",
}
_IN = {
    "x-remit-session": "Session that the call belongs to.",
    "x-remit-agent": "Agent in whose name it is made.",
    "x-remit-work-order": "Work order it belongs to.",
    "x-remit-contract": "Contract it is made under.",
    "x-remit-subject": "Person whom the content is about, for erasure; never in the record.",
    "idempotency-key": "The call is made once for each caller and key.",
}
_OUT = {
    "x-remit-exchange": "Entry that has the whole call; of a refusal its PROMPT_REJECTED.",
    "x-remit-dispatch": "Entry of its intent, durable before a byte was sent.",
    "x-remit-decision": "Entry of the routing decision, where a route was asked for.",
    "x-remit-cost-usd": "US dollars of the last attempt.",
    "x-remit-cost-certainty": "measured, estimated, upper_bound or unpriced.",
}
_REFUSALS = {
    "400": "The call has no form that can be recorded or sent.",
    "401": "The key is missing, unknown, expired or revoked.",
    "402": "A budget does not allow it.",
    "403": "The key may not do this.",
    "429": "A limit of this minute, or a budget that other calls still hold.",
    "503": "Nothing can be recorded, or the model is not asked just now.",
}
_REFUSAL = {
    "openai": {"error": {"message": "key:KEY-8IJWLY3QGHBPN7A6 has 0.000045 USD left, the call may "
                         "cost 0.009847", "type": "insufficient_quota", "param": None,
                         "code": "budget_exhausted"}},
    "anthropic": {"type": "error", "error": {
        "type": "billing_error", "message": "key:KEY-8IJWLY3QGHBPN7A6 has 0.000045 USD left, the "
        "call may cost 0.009847", "code": "budget_exhausted"}},
}  # fmt: skip


def paths_beside_the_api() -> dict[str, dict[str, Any]]:
    """Return the path items of an OpenAPI document, keyed by path."""
    found: dict[str, dict[str, Any]] = {}
    for endpoint in ENDPOINTS.values():
        found.setdefault(_path(endpoint), {})["post"] = _call(endpoint)
    for dialect, rows in _KEPT.items():
        for method, path, summary in rows:
            found.setdefault(path, {})[method.lower()] = _kept(method, path, summary, dialect)
    for path, summary, kind, example in _OPEN:
        operation = _operation("GET", path, summary, "health")
        operation["security"] = []
        operation["responses"] = {"200": {"description": summary, "content": {
            kind: {"schema": {"type": "object"}, "example": example}}}}  # fmt: skip
        found[path] = {"get": operation}
    metrics = _operation("GET", "/metrics", "Figures for Prometheus", "health")
    text = {"schema": {"type": "string"}}
    metrics["responses"] = {"200": {"description": "Figures.", "content": {"text/plain": text}}}
    found["/metrics"] = {"get": metrics}
    return found


def _path(endpoint: Endpoint) -> str:
    return endpoint.path if endpoint.path.startswith("/v1") else f"/v1{endpoint.path}"


def _operation(method: str, path: str, summary: str, tag: str) -> dict[str, Any]:
    name = re.sub(r"\W+", "_", f"{method.lower()}{path}").strip("_")
    return {"operationId": name, "tags": [tag], "summary": summary}


def _call(endpoint: Endpoint) -> dict[str, Any]:
    operation = _operation("POST", _path(endpoint), _SUMMARIES[endpoint.name], "model calls")
    operation["description"] = (
        "The body is the provider's own; what Remit does not know passes through, byte for byte "
        "where the provider speaks this dialect. Budgeted, on record before and after."
    )
    operation["parameters"] = [
        {"name": name, "in": "header", "description": about, "schema": {"type": "string"}}
        for name, about in _IN.items()
    ]
    kind = "multipart/form-data" if endpoint.form else "application/json"
    body: dict[str, Any] = {"schema": _schema(endpoint)}
    if endpoint.name in _EXAMPLES:
        body["example"] = _EXAMPLES[endpoint.name]
    operation["requestBody"] = {"required": True, "content": {kind: body}}
    answers: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
    if endpoint.streams:
        answers["text/event-stream"] = {"schema": {"type": "string"}}
    headers = {
        name: {"description": about, "schema": {"type": "string"}} for name, about in _OUT.items()
    }
    operation["responses"] = {
        "200": {"description": "The provider's answer.", "headers": headers, "content": answers},
        **_refusals(endpoint.dialect),
    }
    return operation


def _schema(endpoint: Endpoint) -> dict[str, Any]:
    """Return the schema of the members that Remit reads of a body."""
    properties: dict[str, Any] = {}
    required = []
    if endpoint.has_model:
        properties["model"] = {
            "type": "string", "description": "A model, `provider/model`, or a route such as `auto`."
        }  # fmt: skip
        if not endpoint.model:
            required.append("model")
    if endpoint.form:
        part = "image" if endpoint.name.startswith("openai.image") else "file"
        properties[part] = {"type": "string", "format": "binary"}
        required.append(part)
    else:
        properties[endpoint.prompt] = {"description": "What is asked."}
        required.append(endpoint.prompt)
    for name in endpoint.output_limit:
        properties[name] = {"type": "integer", "minimum": 1,
                            "description": "The longest answer; a budget holds it."}  # fmt: skip
    if endpoint.streams:
        properties["stream"] = {"type": "boolean", "description": "Answer by server-sent events."}
    return {"type": "object", "properties": properties, "required": required,
            "additionalProperties": True}  # fmt: skip


def _kept(method: str, path: str, summary: str, dialect: str) -> dict[str, Any]:
    operation = _operation(method, path, summary, "what providers keep")
    if "{id}" in path:
        operation["parameters"] = [
            {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
        ]
    if method == "POST" and "{id}" not in path:
        kind = "multipart/form-data" if path.endswith("/files") else "application/json"
        operation["requestBody"] = {"content": {kind: {"schema": {"type": "object"}}}}
    if dialect == "both":
        operation["description"] = "The header `anthropic-version` says whose form it is in."
    operation["responses"] = {
        "200": {"description": "The provider's answer.",
                "content": {"application/json": {"schema": {"type": "object"}}}},
        **_refusals("anthropic" if "/messages/" in path else "openai"),
    }  # fmt: skip
    return operation


def _refusals(dialect: str) -> dict[str, Any]:
    return {
        status: {
            "description": about,
            "content": {"application/json": {"schema": {"type": "object"},
                        **({"example": _REFUSAL[dialect]} if status == "402" else {})}},
        }
        for status, about in _REFUSALS.items()
    }  # fmt: skip
