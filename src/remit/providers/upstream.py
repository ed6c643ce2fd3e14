"""Providers that are reached over HTTP, in the dialect of OpenAI, Anthropic, Gemini or Bedrock."""

from __future__ import annotations

import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from remit.kernel.exchange import ModelCapabilities, Reply
from remit.kernel.json_text import JsonTextError, dump
from remit.kernel.settings import ProviderSettings
from remit.providers.clouds import NEW_MESSAGES_VERSION, in_path, signed, signer
from remit.providers.dialects import (
    DialectError,
    ModelCall,
    ResponseFormat,
    read_request,
    write_request,
)
from remit.providers.dialects.effort import needs_responses
from remit.providers.dialects.errors import cannot
from remit.providers.dialects.targets import (
    MAY_CHANGE,
    Target,
    fitted_body,
    fitted_value,
    target_of,
)
from remit.providers.protocol import Outgoing, ProviderError, ProviderReply, ProviderRequest
from remit.providers.upstream_errors import error_of, json_value
from remit.providers.upstream_http import HttpUpstream, Timeouts
from remit.providers.upstream_reply import UpstreamReply
from remit.providers.wire.body import Body, member_at
from remit.providers.wire.endpoint_table import (
    CHAT,
    COMPLETIONS,
    CONVERSE,
    COUNT_CONTENT,
    GENERATE,
    MESSAGES,
    RESPONSES,
    Endpoint,
)

PASSED_ON = (
    "content-type", "request-id", "x-request-id", "retry-after", "retry-after-ms",
    "x-should-retry", "openai-processing-ms", "openai-version", "openai-organization",
    "anthropic-organization-id",
)  # fmt: skip
"""Headers that a client receives, in addition to those that begin with :data:`_LIMITS`."""

_KEY_HEADERS = {"anthropic": ("x-api-key", ""), "gemini": ("x-goog-api-key", "")}
_HOMES = {"anthropic": MESSAGES, "openai": CHAT, "gemini": GENERATE, "converse": CONVERSE}
_LIMITS = ("x-ratelimit-", "anthropic-ratelimit-")
_NO_SUCH_ENDPOINT = (404, 405, 501)
_MISSES = 3
"""Answers in a row without a Responses API, after which calls are translated at once."""
_PROBE_S = 300.0
"""Seconds until a server without a Responses API is tried again."""
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


class UpstreamProvider(WireDialect):
    """A provider with one base URL and one dialect. Nothing is sent before the first call.

    Args:
        base_url: the URL, with ``/v1`` for ``openai``, ``/v1beta`` for ``gemini``, ``/v1`` and the
            path of project and location for Vertex AI, and without a version for ``anthropic`` and
            Bedrock.
        api_key: the key, sent as bearer token, ``x-api-key`` or ``x-goog-api-key``; empty
            for servers without keys, and for clouds that take this machine's credentials.
        settings: dialect, abilities and default values.
        name: the provider's id, such as ``mistral``; some ids select the blocks that are accepted.

    Raises:
        ConfigError: there is no key, and the library for the cloud's credentials is not installed.
    """

    def __init__(
        self, base_url: str, api_key: str, settings: ProviderSettings, name: str = ""
    ) -> None:
        headers: dict[str, str] = {}
        self.cloud = settings.cloud
        if api_key:
            kind = {"aws": "openai", "google": "gemini"}.get(self.cloud, settings.kind)
            name_of_key, prefix = _KEY_HEADERS.get(kind, ("authorization", "Bearer "))
            headers[name_of_key] = prefix + api_key
        self._sign = signer(self.cloud, base_url) if self.cloud and not api_key else None
        self._http = HttpUpstream(base_url, headers)
        self.target = functools.lru_cache(256)(
            functools.partial(target_of, "gemini" if settings.kind == "gemini" else name, base_url)
        )
        self._every: dict[str, str] = {}
        if settings.kind == "anthropic" and not self.cloud:
            self._every["anthropic-version"] = self.api_version = settings.api_version
        self._settings = settings
        self.home = _HOMES[settings.kind]
        self.max_output_tokens = settings.max_output_tokens
        self.forward_headers = settings.forward_headers
        self.send_temperature = settings.send_temperature
        self.max_completion_tokens_models = settings.max_completion_tokens_models
        self._misses = 0
        self._probe_at = 0.0

    def __repr__(self) -> str:
        return f"UpstreamProvider({self._http!r})"

    def capabilities(self, model_id: str) -> ModelCapabilities:
        """Return the abilities that the settings state, the same for every model."""
        return ModelCapabilities(
            self._settings.native_tools,
            self._settings.structured_output,
            self._settings.prose,
            self._settings.images,
        )

    async def aclose(self) -> None:
        """Close the connections of the running loop."""
        await self._http.aclose()

    def speaks(self, endpoint: Endpoint) -> bool:
        """Return True if bodies of an endpoint are sent without translation.

        These are the endpoints of the home dialect; on a cloud, only the main endpoint and Gemini's
        count of tokens. For the Responses API the result is False if the settings exclude it, and
        for 300 seconds after three answers in a row that the server has no such endpoint.
        """
        if self.cloud:
            return endpoint is self.home or (endpoint is COUNT_CONTENT and self.home is GENERATE)
        if endpoint is RESPONSES and self._settings.kind == "openai":
            is_there = self._misses < _MISSES or time.monotonic() >= self._probe_at
            return self._settings.responses and is_there
        return endpoint.dialect == self.home.dialect

    async def send(self, outgoing: Outgoing, timeouts: Timeouts) -> ProviderReply:
        """Send a request once and return the reply as soon as its headers have come.

        For a call of a model that is not streamed, the body is awaited too, up to 256 KiB. The
        caller closes the reply; a reply with another status than 2xx is read into the error. An
        answer that the server lacks the Responses API is counted for :meth:`speaks`.

        Args:
            outgoing: the request.
            timeouts: limits of the waits.

        Raises:
            ProviderError: there is no answer, its status is not 2xx, or this machine has no valid
                credentials for the cloud (``LOCAL_ERROR``). ``to_translate`` and ``retryable`` are
                set if the server lacks the Responses API, ``to_unfold`` if it does not know the
                previous response.
            Exception: the error that the pieces of an upload raised.
        """
        body = outgoing.body
        endpoint = body.endpoint
        headers = {"content-type": body.content_type, **self._every, **outgoing.headers}
        path, own = outgoing.path or endpoint.path, None
        if self._sign is not None:
            own = await signed(self._sign, outgoing.method, self._http.url(path), body.raw)
        reply = await self._http.send(
            outgoing.method, path, outgoing.upload or body.raw, headers,
            timeouts, reconnect=outgoing.reconnect,
            whole=bool(endpoint.output_limit) and not outgoing.stream and not endpoint.verbatim,
            signed=own,
        )  # fmt: skip
        if 200 <= reply.status < 300:
            if endpoint is RESPONSES:
                self._misses = 0
            return reply
        error = await refusal(endpoint.name, reply, self._http.secrets)
        said = error.reply.body if error.reply is not None else b""
        if endpoint is RESPONSES and reply.status in _NO_SUCH_ENDPOINT and _no_endpoint(said):
            # The server may lack this endpoint, or a proxy may be restarting.
            self._misses += 1
            self._probe_at = time.monotonic() + _PROBE_S
            error.retryable = error.to_translate = True
        if endpoint is RESPONSES and _is_forgotten(said):
            error.to_unfold = True
        raise error

    def passing(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the client's headers that ``forward_headers`` names.

        Args:
            headers: the client's headers, with lower-case names.
        """
        return {name: headers[name] for name in self.forward_headers if name in headers}

    async def fetch(
        self, path: str, headers: Mapping[str, str], timeouts: Timeouts
    ) -> UpstreamReply:
        """Send a GET request and return the reply, also with an error status; the caller closes it.

        The provider's key is sent. Credentials of this machine for a cloud are not.

        Args:
            path: path after the base URL, with its query.
            headers: headers in addition to the provider's own.
            timeouts: limits of the waits.

        Raises:
            ProviderError: there is no answer, or a redirect.
        """
        return await self._http.send("GET", path, b"", {**self._every, **headers}, timeouts)


async def refusal(endpoint: str, reply: UpstreamReply, secrets: Collection[str]) -> ProviderError:
    """Return the error of an answer with an error status; the error contains the answer.

    Args:
        endpoint: the endpoint whose form the answer has, such as ``openai.chat``.
        reply: the reply, which is read and closed.
        secrets: texts that the error must not show.

    Raises:
        ProviderError: the answer cannot be read.
    """
    try:
        said = await reply.read()
    finally:
        await reply.aclose()
    error = error_of(reply.status, reply.headers, said, secrets)
    error.reply = Reply(endpoint, reply.status, passed_on(reply.headers), said)
    return error


def passed_on(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the headers of an answer that its client receives: names in lower case, values without
    outer blanks.

    The result has the headers in :data:`PASSED_ON` and the headers of rate limits.
    """
    return tuple(
        [(low, value.strip()) for name, value in headers.items() if (low := _name_passed_on(name))]
    )


@functools.lru_cache(64)  # A hostile head has up to 256 KiB of names, which stay in memory.
def _name_passed_on(name: str) -> str:
    """Return a header's name as a client receives it; empty if it is not passed on."""
    low = name.lower()
    return low if low in PASSED_ON or low.startswith(_LIMITS) else ""


def _is_forgotten(said: bytes) -> bool:
    """Return True if the error says that the previous response is unknown."""
    return bool(member_at(json_value(said), "error.code") == "previous_response_not_found")


def _no_endpoint(said: bytes) -> bool:
    """Return True if the error concerns the path and not a model or an item."""
    error = member_at(json_value(said), "error")
    return not (member_at(error, "code") or member_at(error, "param"))
