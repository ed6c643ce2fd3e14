"""The parsing of one request of a batch, and of one line of its results."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Collection
from typing import Any, Literal, NamedTuple, TypeGuard

from remit.gateway.transport import read_result
from remit.gateway.values import Failure
from remit.kernel.exchange import MAX_ID_CHARS, RouteOutcome
from remit.kernel.json_splice import spans, value_at
from remit.kernel.json_text import RepeatedNameError
from remit.ledger import is_plain_text
from remit.providers import Body, ProviderError, ProviderResponse, error_of, error_of_event
from remit.providers.wire import ENDPOINTS, MESSAGES, BodyError, Dialect, Endpoint, object_in


class Place(NamedTuple):
    """The place of a request in a batch: ``said`` for people, ``prefix`` for field names."""

    said: str
    prefix: str

    def field(self, param: str | None) -> str:
        """Return the full name of a field of the request."""
        return f"{self.prefix}.{param}" if param else self.prefix


def place(dialect: Dialect, number: int) -> Place:
    """Return the place of a request in a batch; ``number`` counts from 0, blank lines included."""
    if dialect == "anthropic":
        return Place(f"requests[{number}]", f"requests[{number}]")
    return Place(f"line {number + 1} of the input file", f"input_file_id[{number}]")


def require_unique(text: bytes, names: Collection[str]) -> None:
    """Check that a JSON object has each of some members once, as servers differ which counts.

    Args:
        text: the object, as JSON text that was read before.
        names: names of the members.

    Raises:
        BodyError: one of the members is there twice.
    """
    try:
        spans(text, names, unique=True)
    except RepeatedNameError as error:
        raise BodyError(error.message, error.message.partition(" ")[0]) from None


def read_line(dialect: Dialect, text: bytes, endpoint_path: str) -> tuple[str, Body]:
    """Return the custom id and the body of one request.

    Members that the dialect does not name are ignored.

    Args:
        dialect: the provider's dialect.
        text: the JSON text of the request.
        endpoint_path: the path that the batch names for all its requests; empty without one.

    Raises:
        BodyError: the request is malformed, or goes to another endpoint than the batch.
    """
    value = object_in(text)
    custom_id = value.get("custom_id")
    if not is_name(custom_id):
        raise BodyError("custom_id is missing, or is not a short text.", "custom_id")
    member, endpoint = "params", MESSAGES
    if dialect == "openai":
        member, url = "body", value.get("url")
        found = _ENDPOINTS.get(url) if type(url) is str else None
        if found is None or (endpoint_path and url != endpoint_path):
            raise BodyError("url is not the endpoint of the batch.", "url")
        endpoint = found
        if value.get("method") != "POST":
            raise BodyError("method is not POST.", "method")
    raw = value_at(text, (member,))
    if raw is None:
        raise BodyError(f"{member} is missing.", member)
    try:
        body = Body.read(endpoint, raw)
        if not is_name(body.model):
            raise BodyError("model is not a short text.", "model")
        return custom_id, body
    except BodyError as error:
        field = f"{member}.{error.param}" if error.param else member
        raise BodyError(error.message, field) from error


_ENDPOINTS: dict[str, Endpoint] = {
    f"/v1{endpoint.path}": endpoint
    for endpoint in ENDPOINTS.values()
    if endpoint.dialect == "openai" and not endpoint.form
}
"""By what OpenAI's batches name as their endpoint."""


def answer_of(dialect: Dialect, endpoint: Endpoint, text: bytes) -> ProviderResponse | Failure:
    """Return the answer or failure that one line of results contains.

    A line without an answer gives a :class:`Failure`. An error reply has the code that it has
    outside a batch. Otherwise the code is, for Anthropic, ``BATCH_`` and the type of the result,
    and for OpenAI that of the error in capitals, or ``PROVIDER_ERROR``. Such a failure costs
    nothing if the line states that the request failed, else its bound.

    Args:
        dialect: the provider's dialect.
        endpoint: the endpoint of the request, by which the answer is read.
        text: the line, as JSON text.
    """
    value = object_of(text)
    if dialect == "anthropic":
        result = value.get("result")
        kind = result.get("type") if isinstance(result, dict) else None
        if kind == "succeeded":
            return read_result(endpoint.name, 200, value_at(text, ("result", "message")) or b"")
        if kind == "errored":
            return _failed(error_of(400, {}, value_at(text, ("result", "error")) or b""))
        billing: Literal["nothing", "bound"] = (
            "nothing" if kind in ("canceled", "expired") else "bound"
        )
        code = f"BATCH_{str(kind).upper()[:40]}"
        return Failure(RouteOutcome.ERROR, code, f"the request {kind}", billing)
    response = value.get("response")
    status = response.get("status_code") if isinstance(response, dict) else None
    # Without a status the body may not be JSON.
    raw = None if status is None else value_at(text, ("response", "body"))
    if type(status) is int and not 200 <= status < 300:
        return _failed(error_of(status, {}, raw or b""))
    if type(status) is int and raw is not None:
        answer = read_result(endpoint.name, status, raw)
        said = answer.usage_reported or answer.content
        inner = None if said else error_of_event(raw)
        return answer if inner is None else _failed(inner)
    error = value.get("error")
    given = error if isinstance(error, dict) else {}
    code = str(given.get("code") or "PROVIDER_ERROR").upper()[:60]
    message = str(given.get("message") or "no answer")[:500]
    is_free = bool(error) and not response
    return Failure(RouteOutcome.ERROR, code, message, "nothing" if is_free else "bound")


def _failed(error: ProviderError) -> Failure:
    return Failure(RouteOutcome.ERROR, error.code, error.message)


def identified(line: bytes) -> list[tuple[str, bytes | Failure]]:
    """Return a list of the line with its custom id; empty if the line has none."""
    text = line.removeprefix(BOM_UTF8).strip()
    custom_id = object_of(text).get("custom_id")
    return [(custom_id, text)] if is_name(custom_id) else []


def is_name(value: Any) -> TypeGuard[str]:
    """Return True for a text of 1 to 512 characters without NUL and lone surrogates."""
    return (
        type(value) is str
        and 0 < len(value) <= MAX_ID_CHARS
        and "\x00" not in value
        and is_plain_text(value)
    )


def object_of(text: bytes) -> dict[str, Any]:
    """Return the JSON object in a text; an empty one if the text is anything else."""
    try:
        return object_in(text)
    except BodyError:
        return {}


def id_of(answer: ProviderResponse) -> str:
    """Return the id in a provider's answer; empty if it contains none."""
    found = object_of(answer.reply.body).get("id") if answer.reply is not None else None
    return found if is_name(found) else ""
