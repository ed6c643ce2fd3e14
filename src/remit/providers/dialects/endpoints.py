"""The three dialects by the name of their endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from remit.providers.dialects.call import DialectError
from remit.providers.dialects.chat import answer as chat_answer
from remit.providers.dialects.chat import request_reader as chat_reader
from remit.providers.dialects.chat import request_writer as chat_writer
from remit.providers.dialects.messages import answer as messages_answer
from remit.providers.dialects.messages import request_reader as messages_reader
from remit.providers.dialects.messages import request_writer as messages_writer
from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.responses import answer as responses_answer
from remit.providers.dialects.responses import request_reader as responses_reader
from remit.providers.dialects.responses import request_writer as responses_writer
from remit.providers.dialects.unreadable import unreadable
from remit.providers.protocol import ProviderResponse

__all__ = ["read_answer", "read_request", "write_answer", "write_request"]


class _RequestWriter(Protocol):
    def __call__(
        self, call: ModelCall, *, model: str, max_output_tokens: int
    ) -> dict[str, Any]: ...


class _AnswerWriter(Protocol):
    def __call__(
        self, answer: ProviderResponse, call: ModelCall, *, answer_id: str, created: int, model: str
    ) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class _Dialect:
    read_request: Callable[[Any], ModelCall]
    write_request: _RequestWriter
    read_answer: Callable[[Mapping[str, Any]], ProviderResponse]
    write_answer: _AnswerWriter


_DIALECTS = {
    "openai.chat": _Dialect(
        chat_reader.read_request,
        chat_writer.write_request,
        chat_answer.read_answer,
        chat_answer.write_answer,
    ),
    "openai.responses": _Dialect(
        responses_reader.read_request,
        responses_writer.write_request,
        responses_answer.read_answer,
        responses_answer.write_answer,
    ),
    "anthropic.messages": _Dialect(
        messages_reader.read_request,
        messages_writer.write_request,
        messages_answer.read_answer,
        messages_answer.write_answer,
    ),
}


def _dialect(endpoint: str) -> _Dialect:
    found = _DIALECTS.get(endpoint)
    if found is None:
        raise DialectError(f"Calls of {endpoint} cannot be translated.")
    return found


def read_request(endpoint: str, body: Mapping[str, Any]) -> ModelCall:
    """A request body of ``endpoint`` in neutral form.

    Raises:
        DialectError: it is no valid one; ``param`` names the field.
    """
    return _dialect(endpoint).read_request(body)


def write_request(
    endpoint: str, call: ModelCall, *, model: str, max_output_tokens: int
) -> dict[str, Any]:
    """``call`` as a request body of ``endpoint``.

    Args:
        endpoint: of the provider.
        call: the request.
        model: as the provider names it.
        max_output_tokens: the model's own largest output, sent where the API demands a limit
            and the client set none.

    Raises:
        DialectError: it cannot be said there; ``param`` names the client's own field.
    """
    write = _dialect(endpoint).write_request
    return write(call, model=model, max_output_tokens=max_output_tokens)


def read_answer(endpoint: str, answer: Mapping[str, Any]) -> ProviderResponse:
    """An answer of ``endpoint`` in neutral form.

    Raises:
        DialectError: it does not have the API's form.
        ProviderError: it reports an error.
    """
    read = _dialect(endpoint).read_answer
    if not isinstance(answer, Mapping):
        raise unreadable("it")
    return read(answer)


def write_answer(
    endpoint: str,
    answer: ProviderResponse,
    call: ModelCall,
    *,
    answer_id: str,
    created: int,
    model: str,
) -> dict[str, Any]:
    """``answer`` as an object of ``endpoint``, for the client that asked ``call``.

    Args:
        endpoint: the client's.
        answer: a successful one.
        call: what the client asked for.
        answer_id: the object's ``id``; ids within it are made of it.
        created: seconds since 1970.
        model: the name that the client knows the model by.
    """
    write = _dialect(endpoint).write_answer
    return write(answer, call, answer_id=answer_id, created=created, model=model)
