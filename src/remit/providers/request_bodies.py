"""Request bodies for a provider of one dialect: a client's own bytes, or a translation."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from remit.kernel.json_text import JsonTextError, dump
from remit.providers.clouds import NEW_MESSAGES_VERSION, in_path
from remit.providers.dialects import (
    DialectError,
    ModelCall,
    ResponseFormat,
    read_request,
    write_request,
)
from remit.providers.dialects.errors import cannot
from remit.providers.dialects.targets import (
    MAY_CHANGE,
    Target,
    fitted_body,
    fitted_value,
    needs_responses,
    target_of,
)
from remit.providers.protocol import Outgoing, ProviderError, ProviderRequest
from remit.providers.wire.body import Body
from remit.providers.wire.endpoint_table import (
    CHAT,
    COMPLETIONS,
    CONVERSE,
    GENERATE,
    MESSAGES,
    RESPONSES,
    Endpoint,
)

_DEFAULT_OUTPUT_TOKENS = 4096
MODEL_CHANGED = "the provider's name of the model"
_VERSION = "anthropic-version"
_IN_PATH = (GENERATE.dialect, CONVERSE.dialect)
"""The dialects whose paths name the model."""
_CONFIGS = {GENERATE.name: "generationConfig", CONVERSE.name: "inferenceConfig"}
"""The members that hold limits and sampling, by endpoint; other bodies hold them themselves."""
_BRIDGED = "this model takes tools only on the Responses API"


class WireDialect(ABC):
    """The part of a provider that makes request bodies in its dialect.

    A client's body in the same dialect keeps its bytes except for members that must change. Any
    other request is translated. A subclass sets ``home`` and defines :meth:`speaks`.

    Attributes:
        home: the endpoint that requests are translated to.
        cloud: ``aws`` or ``google`` if the models are on Bedrock or Vertex AI; else empty.
        max_output_tokens: the output limit that is sent if the API demands one and none is known.
        forward_headers: names of the client's headers that are forwarded.
        send_temperature: True if the server accepts a temperature.
        max_completion_tokens_models: name prefixes of models that accept the output limit only as
            ``max_completion_tokens`` and accept no temperature, in addition to those in the price
            table.
        api_version: version of the Messages API for clients that name none.
        target: returns what a model takes, given the provider's name of the model.
    """

    home: Endpoint
    target: Callable[[str], Target] = staticmethod(functools.partial(target_of, "", ""))
    cloud: str = ""
    max_output_tokens: int = _DEFAULT_OUTPUT_TOKENS
    forward_headers: Sequence[str] = ()
    send_temperature: bool = True
    max_completion_tokens_models: Sequence[str] = ()
    api_version: str = ""

    @abstractmethod
    def speaks(self, endpoint: Endpoint) -> bool:
        """Return True if bodies of an endpoint are sent without translation."""

    def outgoing(self, request: ProviderRequest) -> Outgoing:
        """Return the request that would be sent; nothing is sent.

        A body of an endpoint that the provider speaks keeps its text, with the model's name and
        members changed that the model does not take. Any other request, and one that asks for a
        translation, is translated to ``home``, or to the Responses API if the model takes tools
        only there. A client's headers are forwarded only with a body of the home endpoint's
        dialect. A stream of Chat Completions or Completions also asks for its usage. An output
        limit above the model's is lowered if the request is translated. ``dropped`` names the
        client's fields that are changed so or left out.

        Raises:
            ProviderError: ``INVALID_REQUEST``: the provider's dialect cannot express the request.
        """
        body, given = request.body, request.headers
        dropped: Sequence[str] = ()
        headers: dict[str, str] = {}
        # The headers speak to servers of the client's dialect: another would take them amiss.
        if given and body is not None and body.endpoint.dialect == self.home.dialect:
            headers = {name: given[name] for name in self.forward_headers if name in given}
        target = self.target(request.model_id)
        if headers.get(_VERSION, self.api_version) >= NEW_MESSAGES_VERSION:
            target = replace(target, takes_older_fields=False)
        try:
            if body is None:
                body = self._translated(neutral_call(request), request, "", target)
            elif (
                self.speaks(body.endpoint)
                and not request.translate
                and not (
                    body.endpoint is CHAT and body.value.get("tools") and self._bridged(request)
                )
            ):
                if body.model != request.model_id:
                    name = dump(request.model_id)
                    body = body.with_member(("model",), name, MODEL_CHANGED)
                if not target.takes_older_fields or MAY_CHANGE.search(body.raw) is not None:
                    body = fitted_body(body, target)
                if body is not request.body:
                    dropped = _left_out(request.body, body)
            else:
                call = read_request(body.endpoint.name, body.exact)
                dropped = call.dropped
                reason = f"translated from {body.endpoint.name}"
                body = self._translated(call, request, reason, target)
        except DialectError as error:
            raise ProviderError("INVALID_REQUEST", error.message, param=error.param) from error
        except JsonTextError as error:  # nested too deep to be written anew
            raise ProviderError("INVALID_REQUEST", error.message) from error
        return self._completed(body, request, headers, dropped)

    def _bridged(self, request: ProviderRequest) -> bool:
        """Return True if a client's body of Chat Completions with tools must go to Responses."""
        assert request.body is not None
        effort = request.body.value.get("reasoning_effort")
        return self._bridges(request.model_id, True, effort)

    def _bridges(self, model_id: str, tools: bool, effort: str | None) -> bool:
        """Return True if a call must go to the Responses API instead of Chat Completions."""
        return needs_responses(model_id, tools, effort) and self.speaks(RESPONSES)

    def _translated(
        self, call: ModelCall, request: ProviderRequest, reason: str, target: Target
    ) -> Body:
        home, model_id = self.home, request.model_id
        changed = [] if request.body is None else [*request.body.changed]
        if home is CHAT and not request.translate:
            wanted = call.reasoning
            effort = None if wanted is None else wanted.effort or "high"
            if self._bridges(model_id, bool(call.tools), effort):
                home = RESPONSES
                changed.append({"path": "", "reason": _BRIDGED})
        largest = request.largest_output or self.max_output_tokens
        if request.largest_output and (call.max_tokens or 0) > largest:
            call.drop("max_tokens")  # Providers refuse more than the model can write.
            call = replace(call, max_tokens=largest)
        value = write_request(home.name, call, model=model_id, max_output_tokens=largest)
        if target.most_stops is not None and len(call.stop) > target.most_stops:
            raise cannot(
                call.own("stop"), f"more than {target.most_stops} texts that end the answer"
            )
        value = fitted_value(home.name, value, target, translated=True)
        if type(listed := value.get(home.prompt)) is list:
            several = [one if type(one) is list else [one] for one in listed]
            value[home.prompt] = [one for ones in several for one in ones if one is not None]
        self._fit_sampling(call, value, request, home, target)
        if request.body is None and request.stream:
            value["stream"] = True
            if home is CHAT:
                value["stream_options"] = {"include_usage": True}
        if reason:
            changed.append({"path": "", "reason": reason})
        if request.body is not None and request.body.model != model_id:
            was = dump(request.body.model).decode()
            changed.append({"path": "/model", "reason": MODEL_CHANGED, "was": was})
        return Body(home, dump(value), value, changed)

    def _fit_sampling(
        self,
        call: ModelCall,
        value: dict[str, Any],
        request: ProviderRequest,
        home: Endpoint,
        target: Target,
    ) -> None:
        """Change the output limit and sampling of a translated body to those the model takes."""
        named = any(map(request.model_id.startswith, self.max_completion_tokens_models))
        reasons = home.dialect == "openai" and (request.max_completion_tokens or named)
        if reasons and home is CHAT:
            if (limit := value.pop("max_tokens", None)) is not None:
                value["max_completion_tokens"] = limit
            if value.get("stop"):
                raise cannot(call.own("stop"), "an end at certain texts")
        if reasons or not (target.takes_older_fields and self.send_temperature):
            sampling = _sampling(home, value)
            for name in ("temperature", "top_p", "top_k"):
                if (reasons or not target.takes_older_fields or name == "temperature") and (
                    sampling.pop(name, None) not in (None, 1)
                ):
                    call.drop(name)

    def _completed(
        self, body: Body, request: ProviderRequest, headers: dict[str, str], dropped: Sequence[str]
    ) -> Outgoing:
        """Add members that Remit needs; remove members that the server refuses."""
        value = body.value
        if not self.send_temperature or request.body is None:
            sampling = _sampling(body.endpoint, value)
            if not self.send_temperature and "temperature" in sampling:
                outer = [] if sampling is value else [_CONFIGS[body.endpoint.name]]
                place = (*outer, "temperature")
                body = body.without_member(place, "this server takes no temperature")
                dropped = [*dropped, ".".join(place)]
            elif request.body is None and request.temperature not in (
                None, sampling.get("temperature"),
            ):  # fmt: skip
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
        path = ""
        if body.endpoint.dialect in _IN_PATH or (self.cloud and body.endpoint is MESSAGES):
            body, path = in_path(body, self.cloud, headers)
        elif request.query and request.body is not None and request.body.endpoint is body.endpoint:
            path = f"{body.endpoint.path}?{request.query}"
        return Outgoing(body, headers, stream, asks_usage, path=path, dropped=dropped)


def _sampling(endpoint: Endpoint, value: dict[str, Any]) -> dict[str, Any]:
    """Return the object of a body that holds its sampling."""
    config = value.get(_CONFIGS.get(endpoint.name, ""), value)
    return config if type(config) is dict else value


def _left_out(given: Body | None, sent: Body) -> list[str]:
    """Return the client's top-level fields that a body in its own dialect no longer has."""
    return [] if given is None else [name for name in given.value if name not in sent.value]


def neutral_call(request: ProviderRequest) -> ModelCall:
    """Return the request of a caller in Python in the form that all dialects share.

    Taken are model, messages, output limit, temperature, tools and response schema; the rest is
    ignored.
    """
    schema = request.response_schema
    return ModelCall(
        model=request.model_id,
        messages=list(request.messages),
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        tools=tuple(dict(tool) for tool in request.tools),
        response_format=None if schema is None else ResponseFormat(dict(schema), "answer"),
    )
