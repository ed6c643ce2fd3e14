"""The OpenAPI document of everything outside ``/api``: model calls, stored objects, health.

Bodies have the forms of the providers and pass unchanged; only the members that Remit reads are
described. Calls are listed from the table of endpoints that answers them.
"""

from __future__ import annotations

import re
from typing import Any

from remit.providers import EVENT_STREAM
from remit.providers.wire import BATCHES, CONVERSE, ENDPOINTS, FILES, Endpoint
from remit.server.refusals import refusal_body

_KEPT = {
    "openai": (
        ("GET", "/v1/responses/{id}", "A stored response"),
        ("DELETE", "/v1/responses/{id}", "Delete a stored response"),
        ("GET", "/v1/responses/{id}/input_items", "The input of a stored response"),
        ("POST", "/v1/responses/{id}/cancel", "Cancel a background response"),
        ("POST", "/v1/conversations", "Create a conversation"),
        ("GET", "/v1/conversations/{id}", "A conversation"),
        ("POST", "/v1/conversations/{id}", "Change a conversation's metadata"),
        ("DELETE", "/v1/conversations/{id}", "Delete a conversation"),
        ("GET", "/v1/conversations/{id}/items", "The items of a conversation"),
        ("POST", "/v1/conversations/{id}/items", "Add items to a conversation"),
        ("GET", "/v1/models", "Models that this key may call"),
        ("GET", "/v1/models/{id}", "A model"),
    ),
    "gemini": (
        ("GET", "/v1beta/models", "Models that this key may call, in Gemini's form"),
        ("GET", "/v1beta/models/{id}", "A model, in Gemini's form"),
    ),
    "both": (
        ("POST", FILES["anthropic"].path, "Upload a file"),
        ("GET", FILES["anthropic"].path, "Files of this key"),
        ("GET", f"{FILES['anthropic'].path}/{{id}}", "A file"),
        ("DELETE", f"{FILES['anthropic'].path}/{{id}}", "Delete a file"),
        ("GET", f"{FILES['anthropic'].path}/{{id}}/content", "Content of a file"),
        *(
            (method, f"{path}{tail}", summary)
            for path in (f"/v1{BATCHES['openai'].path}", BATCHES["anthropic"].path)
            for method, tail, summary in (
                ("POST", "", "Create a batch; each request is reserved and settled separately"),
                ("GET", "", "Batches of this key"),
                ("GET", "/{id}", "A batch"),
                ("POST", "/{id}/cancel", "Cancel a batch"),
            )
        ),
        ("GET", f"{BATCHES['anthropic'].path}/{{id}}/results", "Results of a batch"),
        ("DELETE", f"{BATCHES['anthropic'].path}/{{id}}", "Delete a batch"),
    ),
}
_ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
_OPEN = (
    ("/healthz", "Liveness: the process answers", "application/json", {"status": "ok"}),
    ("/readyz", "Readiness: the process takes calls and can record them", "application/json",
     {"status": "ready"}),
)  # fmt: skip
_OF_PATHS = ("bedrock", "gemini")
"""Dialects whose paths name the model."""
_MESSAGES = [{"role": "user", "content": "Say hello."}]
_EXAMPLES: dict[str, dict[str, Any]] = {
    "openai.chat": {"model": "gpt-4o-mini", "messages": _MESSAGES},
    "openai.responses": {"model": "gpt-4o-mini", "input": "Say hello."},
    "openai.compact": {"model": "gpt-4o-mini", "input": "Say hello."},
    "openai.input_tokens": {"model": "gpt-4o-mini", "input": "Say hello."},
    "anthropic.messages": {"model": "claude-haiku-4-5", "max_tokens": 200, "messages": _MESSAGES},
    "anthropic.count_tokens": {"model": "claude-haiku-4-5", "messages": _MESSAGES},
    "gemini.generate": {"contents": [{"role": "user", "parts": [{"text": "Say hello."}]}]},
    "gemini.count_tokens": {"contents": [{"parts": [{"text": "Say hello."}]}]},
    "gemini.embed": {"content": {"parts": [{"text": "hello"}]}},
    "gemini.batch_embed": {"requests": [{"content": {"parts": [{"text": "hello"}]}}]},
    "bedrock.converse": {"messages": [{"role": "user", "content": [{"text": "Say hello."}]}]},
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
    "anthropic.count_tokens": "Count the input tokens of a message; free",
    "gemini.generate": "Gemini's generateContent; streamGenerateContent streams",
    "gemini.count_tokens": "Count the input tokens of Gemini's contents; free",
    "gemini.embed": "Embed a content with a model of Gemini",
    "gemini.batch_embed": "Embed several contents with a model of Gemini",
    "bedrock.converse": "Bedrock's Converse; converse-stream streams",
    "openai.completions": "OpenAI's legacy Completions",
    "openai.embeddings": "Embeddings of texts",
    "openai.moderations": "Moderate a text; free",
    "openai.rerank": "Rank documents by relevance to a query",
    "openai.images": "Create images from a text",
    "openai.speech": "Create speech from a text",
    "openai.transcriptions": "Transcribe audio",
    "openai.translations": "Translate audio into English text",
    "openai.image_edits": "Edit an image",
    "openai.image_variations": "Create variations of an image",
}
_IN = {
    "x-remit-session": "Session of the call.",
    "x-remit-agent": "Agent that makes the call.",
    "x-remit-work-order": "Work order of the call.",
    "x-remit-contract": "Contract that governs the call.",
    "x-remit-subject": "Person whom the content is about, for erasure; not part of the record.",
    "idempotency-key": "Idempotency key: a repeated request by the same caller does not repeat the "
    "call.",
}
_OUT = {
    "x-remit-exchange": "EXCHANGE entry of the call, or PROMPT_REJECTED entry of its refusal.",
    "x-remit-dispatch": "Entry of the intent (DISPATCH), stored before anything was sent.",
    "x-remit-decision": "Entry of the routing decision, if the call named a route.",
    "x-remit-cost-usd": "Cost of the last attempt, in US dollars.",
    "x-remit-cost-certainty": "Certainty of the cost: measured, estimated, upper_bound, unpriced.",
}
_REFUSALS = {
    "400": "The request is invalid.",
    "401": "The key is missing, unknown, expired or revoked.",
    "402": "A budget does not cover the call.",
    "403": "The key lacks the permission.",
    "429": "A rate limit is reached, or calls in flight hold the rest of a budget.",
    "503": "The record cannot be written, or the circuit breaker of the model is open.",
}
_LEFT = "key:KEY-8IJWLY3QGHBPN7A6 has 0.000045 USD left, the call may cost 0.009847"
_REFUSAL = {
    name.partition(".")[0]: refusal_body(name, 402, "budget_exhausted", _LEFT)
    for name in ("openai.chat", "anthropic.messages", "gemini.generate", "bedrock.converse")
}


def paths_beside_the_api() -> dict[str, dict[str, Any]]:
    """Return the path items of an OpenAPI document for calls and checks of health, keyed by path.

    The paths are those of model calls and of stored objects (``/v1/…``, ``/v1beta/…`` and
    Bedrock's ``/model/…``), ``/healthz``, ``/readyz`` and ``/metrics``. Other paths outside
    ``/api``, such as the console's, are left out.
    """
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
    metrics = _operation("GET", "/metrics", "Metrics for Prometheus", "health")
    text = {"schema": {"type": "string"}}
    metrics["responses"] = {
        "200": {
            "description": "Metrics in the text format of Prometheus.",
            "content": {"text/plain": text},
        }
    }
    found["/metrics"] = {"get": metrics}
    return found


def _path(endpoint: Endpoint) -> str:
    if endpoint is CONVERSE:
        return endpoint.path.replace("/model/", "/model/{id}/")
    if endpoint.dialect == "gemini":
        return "/v1beta" + endpoint.path.replace(":", "/{id}:")
    return endpoint.path if endpoint.path.startswith("/v1") else f"/v1{endpoint.path}"


def _operation(method: str, path: str, summary: str, tag: str) -> dict[str, Any]:
    name = re.sub(r"\W+", "_", f"{method.lower()}{path}").strip("_")
    return {"operationId": name, "tags": [tag], "summary": summary}


def _call(endpoint: Endpoint) -> dict[str, Any]:
    operation = _operation("POST", _path(endpoint), _SUMMARIES[endpoint.name], "model calls")
    operation["description"] = (
        "The body has the form of the provider. If the provider speaks this dialect, the body "
        "passes byte for byte, unknown fields included. The call is held to its budgets, and "
        "recorded before and after."
    )
    operation["parameters"] = [
        {"name": name, "in": "header", "description": about, "schema": {"type": "string"}}
        for name, about in _IN.items()
    ]
    if endpoint.dialect in _OF_PATHS:
        operation["parameters"].append(_ID)
    kind = "multipart/form-data" if endpoint.form else "application/json"
    body: dict[str, Any] = {"schema": _schema(endpoint)}
    if endpoint.name in _EXAMPLES:
        body["example"] = _EXAMPLES[endpoint.name]
    operation["requestBody"] = {"required": True, "content": {kind: body}}
    answers: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
    if endpoint.streams:
        kind = EVENT_STREAM if endpoint is CONVERSE else "text/event-stream"
        answers[kind] = {"schema": {"type": "string"}}
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
    if endpoint.has_model and endpoint.dialect not in _OF_PATHS:
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
        properties[endpoint.prompt] = {"description": "Input of the model."}
        required.append(endpoint.prompt)
    for name in endpoint.output_limit if endpoint.dialect not in _OF_PATHS else ():
        properties[name] = {"type": "integer", "minimum": 1,
                            "description": "Maximum number of output tokens."}  # fmt: skip
    if endpoint.streams and endpoint.dialect not in _OF_PATHS:
        properties["stream"] = {"type": "boolean", "description": "Answer by server-sent events."}
    return {"type": "object", "properties": properties, "required": required,
            "additionalProperties": True}  # fmt: skip


def _kept(method: str, path: str, summary: str, dialect: str) -> dict[str, Any]:
    operation = _operation(method, path, summary, "stored objects")
    if "{id}" in path:
        operation["parameters"] = [_ID]
    if method == "POST" and "{id}" not in path:
        kind = "multipart/form-data" if path.endswith("/files") else "application/json"
        operation["requestBody"] = {"content": {kind: {"schema": {"type": "object"}}}}
    if dialect == "both":
        operation["description"] = (
            "The answer has Anthropic's form if the request has the header `anthropic-version`."
        )
    operation["responses"] = {
        "200": {"description": "The provider's answer.",
                "content": {"application/json": {"schema": {"type": "object"}}}},
        **_refusals(
            "anthropic" if "/messages/" in path else dialect if dialect == "gemini" else "openai"
        ),
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
