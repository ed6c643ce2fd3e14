"""Request bodies for a provider of one dialect: a client's own bytes, or a translation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from remit.kernel.json_text import dump
from remit.providers.dialects import (
    DialectError,
    ModelCall,
    ResponseFormat,
    read_request,
    write_request,
)
from remit.providers.dialects.targets import MADE_BY_A_MODEL, Target, fitted_body, fitted_messages
from remit.providers.protocol import Outgoing, ProviderError, ProviderRequest
from remit.providers.wire.body import Body
from remit.providers.wire.endpoint import CHAT, COMPLETIONS, Endpoint

_DEFAULT_OUTPUT_TOKENS = 4096
MODEL_CHANGED = "the provider's name of the model"


class WireDialect(ABC):
    """The part of a provider that makes request bodies in its dialect.

    A client's body in the same dialect keeps its bytes except for members that must change. Any
    other request is translated.

    Attributes:
        home: the endpoint that requests are translated to.
        max_output_tokens: the output limit that is sent if the API demands one and none is known.
        forward_headers: names of the client's headers that are forwarded.
        send_temperature: True if the server accepts a temperature.
        max_completion_tokens_models: name prefixes of models that accept the output limit only as
            ``max_completion_tokens`` and accept no temperature, in addition to those in the price
            table.
    """

    home: Endpoint
    max_output_tokens: int = _DEFAULT_OUTPUT_TOKENS
    forward_headers: Sequence[str] = ()
    send_temperature: bool = True
    max_completion_tokens_models: Sequence[str] = ()

    @abstractmethod
    def speaks(self, endpoint: Endpoint) -> bool:
        """Return True if bodies of an endpoint are sent without translation."""

    def target(self, model_id: str) -> Target:
        """Return the blocks of a conversation that the provider accepts for a model."""
        return Target()

    def outgoing(self, request: ProviderRequest) -> Outgoing:
        """Return the request that would be sent.

        Raises:
            ProviderError: ``INVALID_REQUEST``: the provider's dialect cannot express the request.
        """
        body = request.body
        try:
            if body is None:
                body = self._translated(neutral_call(request), request, "")
            elif self.speaks(body.endpoint) and not request.translate:
                if body.model != request.model_id:
                    name = dump(request.model_id)
                    body = body.with_member(("model",), name, MODEL_CHANGED)
                if MADE_BY_A_MODEL.search(body.raw):
                    body = fitted_body(body, self.target(request.model_id))
            else:
                call = read_request(body.endpoint.name, body.value)
                body = self._translated(call, request, f"translated from {body.endpoint.name}")
        except DialectError as error:
            raise ProviderError("INVALID_REQUEST", error.message, param=error.param) from error
        return self._completed(body, request)

    def _translated(self, call: ModelCall, request: ProviderRequest, reason: str) -> Body:
        largest = request.largest_output or self.max_output_tokens
        value = write_request(
            self.home.name, call, model=request.model_id, max_output_tokens=largest
        )
        if type(listed := value.get(self.home.prompt)) is list:
            fitted = fitted_messages(self.home.name, listed, self.target(request.model_id))
            value[self.home.prompt] = fitted
        named = any(map(request.model_id.startswith, self.max_completion_tokens_models))
        if self.home is CHAT and (request.max_completion_tokens or named):
            if (limit := value.pop("max_tokens", None)) is not None:
                value["max_completion_tokens"] = limit
            if request.body is None:  # a client that names a temperature knows its model
                value.pop("temperature", None)
        if request.body is None and request.stream:
            value["stream"] = True
            if self.home is CHAT:
                value["stream_options"] = {"include_usage": True}
        changed = [] if request.body is None else [*request.body.changed]
        if reason:
            changed.append({"path": "", "reason": reason})
        if request.body is not None and request.body.model != request.model_id:
            was = dump(request.body.model).decode()
            changed.append({"path": "/model", "reason": MODEL_CHANGED, "was": was})
        return Body(self.home, dump(value), value, changed)

    def _completed(self, body: Body, request: ProviderRequest) -> Outgoing:
        """Add members that Remit needs; remove members that the server refuses."""
        value = body.value
        if not self.send_temperature and "temperature" in value:
            body = body.without_member(("temperature",), "this server takes no temperature")
        elif request.body is None and request.temperature not in (None, value.get("temperature")):
            # A contract's value, which the model's own form of the request has no place for.
            why = "the model does not take this temperature"
            body.changed.append({"path": "/temperature", "reason": why})
        asks_usage, stream = False, body.stream
        if stream and body.endpoint in (CHAT, COMPLETIONS):
            options = value.get("stream_options")
            given = isinstance(options, dict) and options.get("include_usage") is True
            if not given and (options is None or isinstance(options, dict)):
                body = body.with_member(
                    ("stream_options", "include_usage"), b"true", "usage would stay unknown"
                )
                asks_usage = True
        came = request.body
        # A client's headers speak to its own dialect's servers: another's would take them amiss.
        alike = came is not None and came.endpoint.dialect == body.endpoint.dialect
        passed: dict[str, str] = {}
        if alike and request.headers:
            passed = {n: request.headers[n] for n in self.forward_headers if n in request.headers}
        return Outgoing(body, passed, stream, asks_usage)


def neutral_call(request: ProviderRequest) -> ModelCall:
    """Return the request of a caller in Python in the form that all dialects share."""
    schema = request.response_schema
    return ModelCall(
        model=request.model_id,
        messages=list(request.messages),
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        tools=tuple(dict(tool) for tool in request.tools),
        response_format=None if schema is None else ResponseFormat(dict(schema), "answer"),
    )
