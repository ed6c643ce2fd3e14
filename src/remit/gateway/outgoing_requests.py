"""The models that may answer a call, and the request that each would be sent."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import traceback
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from msgspec.structs import replace as replace_fields

from remit.gateway.billing import Billing
from remit.gateway.choice import Names
from remit.gateway.config import RouterConfig
from remit.gateway.failures import message_of
from remit.gateway.field_bounds import ToolLimits
from remit.gateway.neutral_calls import in_neutral_form
from remit.gateway.provider_objects import Objects, objects_named
from remit.gateway.session_owners import owner_of
from remit.gateway.stored_response import CannotContinueError
from remit.gateway.transport import AnyProvider
from remit.gateway.validation import Sent, encode_sent, response_schema
from remit.gateway.values import Call, Candidate, Model, Refusal, RefusedError
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import PromptRequest
from remit.ledger import LedgerError
from remit.providers import Body, Outgoing, ProviderError, ProviderRequest, WireProvider
from remit.providers.dialects import DialectError
from remit.providers.wire import member_at

_log = logging.getLogger("remit.gateway")


class Candidates:
    """The maker of candidates: a model with the request it would be sent and its upper bound.

    :meth:`make` makes a candidate, :meth:`read` too, if the database must be read for it. Nothing
    is written, reserved or sent.

    Args:
        names: resolves the names of models and knows who may use them.
        providers: registered providers, keyed by provider id.
        objects: the owners of files that providers store.
        billing: computes upper bounds.
        config: timeouts.
        enforce: whether budgets are enforced. Then limits that bounds rely on are added to bodies.
    """

    def __init__(
        self,
        names: Names,
        providers: Mapping[str, AnyProvider],
        objects: Objects,
        billing: Billing,
        config: RouterConfig,
        *,
        enforce: bool = False,
    ) -> None:
        self._enforce = enforce
        self._names = names
        self._providers = providers
        self._objects = objects
        self._billing = billing
        self._timeout_s = config.default_timeout_ms / 1000

    def provider_of(self, request: PromptRequest) -> str:
        """Return the provider that a request means; empty for a route, or without a model.

        Args:
            request: the request; its ``provider_id`` is returned if it names one.
        """
        name = request.model_id
        if request.provider_id or not isinstance(name, str) or not name:
            return request.provider_id or ""
        if self._names.router_of(request) is not None:
            return ""
        return self._names.candidates(request)[0][0]

    async def read(self, call: Call, model: Model) -> Candidate:
        """Return :meth:`make` for a request with a history or files. Reads the database.

        A request without a history whose body names no object needs :meth:`make` alone.

        Args:
            call: the admitted call.
            model: the model.

        Raises:
            RefusedError: the model cannot be asked, as for :meth:`make`; the conversation cannot be
                continued with it, or is gone; or a named object belongs to another caller
                (``FILE_NOT_FOUND``).
            LedgerError: the ledger cannot be read.
        """
        request, body = call.request, call.request.body
        provider_id, model_id = model[:2]
        provider = self._provider(call, model)
        if request.keeper is not None and body is not None:
            price = self._billing.of(provider_id, model_id).price
            window = None if price is None else price.context_window
            try:
                body = await request.keeper.body_for(
                    provider_id,
                    speaks=speaks(provider, body) and provider_id not in call.translated,
                    window=window,
                )
            except CannotContinueError as error:
                raise RefusedError(Refusal(error.code, error.message, error.param)) from error
            request = replace(request, body=body)
        names = objects_named(body) if body is not None else []
        if names and call.identity is not None:
            owner = owner_of(call.identity)
            other = await asyncio.to_thread(self._objects.of_others, names, owner)
            if other:
                said = (
                    f"the object {other[:100]} does not exist; `GET /v1/files` lists "
                    "the files of the key"
                )
                raise RefusedError(Refusal("FILE_NOT_FOUND", said, "file_id"))
        return self.make(call, model, request)

    def make(self, call: Call, model: Model, request: PromptRequest | None = None) -> Candidate:
        """Return a candidate with the request it would be sent and its upper bound.

        The request is translated to the provider's dialect, or to neutral form for a provider
        without one. If budgets are enforced, limits of the provider's tools that the bound relies
        on are added to the body.

        Args:
            call: the admitted call.
            model: the model.
            request: the request with its history; None for the call's own.

        Raises:
            RefusedError: the key may not use the model (``MODEL_NOT_ALLOWED``), its provider is not
                set up (``PROVIDER_NOT_FOUND``), no model is named or the request cannot be
                expressed for it (``INVALID_INPUT``), or the adapter raises any other error or
                returns no ``Outgoing`` (``PROVIDER_ERROR``).
        """
        provider_id, model_id, sent = model.provider_id, model.model_id, call.sent
        assert sent is not None
        identity, provider = call.identity, self._providers.get(provider_id)
        if not (provider and model_id) or (
            identity is not None and (identity.models or identity.within is not None)
        ):
            provider = self._provider(call, model)
        request = request or call.request
        tariff, body = self._billing.of(provider_id, model_id), request.body
        price, maker = tariff.price, "its translation"
        try:
            if not hasattr(provider, "outgoing"):
                if body is not None:
                    request = in_neutral_form(request)
                    sent = encode_sent(request)
                bound = tariff.bound(request, sent)
                return Candidate(
                    provider_id, model_id, provider, tariff, request, sent, None, bound.amount,
                    bound.usage,
                )  # fmt: skip
            order = ProviderRequest(
                model_id,
                sent.messages,
                request.max_tokens,
                request.temperature,
                self._timeout_s,
                tuple(request.tools or ()),
                response_schema(request) if request.structured_output else None,
                call.tap.wanted,
                body,
                request.headers or _NONE,
                None if price is None else price.max_output_tokens,
                price is not None and price.max_completion_tokens,
                provider_id in call.translated,
                request.query,
            )
            maker = "its adapter"
            outgoing = cast("WireProvider", provider).outgoing(order)
        except (DialectError, InvalidInputError, ProviderError) as error:
            param = getattr(error, "param", None)
            refusal = Refusal("INVALID_INPUT", message_of(error), param)
            raise RefusedError(refusal) from error
        except LedgerError:
            raise
        except Exception as error:  # An adapter that fails must not end the call unrecorded.
            where = "".join(traceback.format_tb(error.__traceback__))
            _log.debug("where it was raised:\n%s", where)
            raise _not_made(model, f"{maker} raised {type(error).__name__}") from error
        if not isinstance(outgoing, Outgoing) or not isinstance(outgoing.body, Body):
            raise _not_made(model, f"its adapter returned no request ({type(outgoing).__name__})")
        uses = 0
        if body is None:
            bound = tariff.bound(request, sent)
        else:
            bound = tariff.body_bound(outgoing.body, call.tool_uses, request.headers)
            limits = bound.limits
            if self._enforce and (limits.tools or limits.of_call):
                uses = limits.uses
                outgoing = replace_fields(outgoing, body=_limited(outgoing.body, limits))
                bound = tariff.body_bound(outgoing.body, headers=request.headers)
            raw = outgoing.body.raw
            if raw is not call.request.body.raw:
                sent = Sent((), b"", hashlib.sha256(raw).hexdigest(), len(raw))
        return Candidate(
            provider_id, model_id, provider, tariff, request, sent, outgoing, bound.amount,
            bound.usage, uses,
        )  # fmt: skip

    def _provider(self, call: Call, model: Model) -> AnyProvider:
        identity, provider_id, model_id = call.identity, model.provider_id, model.model_id
        if (
            identity is not None
            and (identity.models or identity.within is not None)
            and not self._names.may_use(identity, call.request, call.choice, model)
        ):
            message = (
                f"this key may not use {provider_id}/{model_id}; `GET /v1/models` lists its models"
            )
            raise RefusedError(Refusal("MODEL_NOT_ALLOWED", message))
        if provider_id not in self._providers:
            missing = self._names.not_set_up(provider_id, model_id)
            raise RefusedError(Refusal("PROVIDER_NOT_FOUND", missing))
        if not model_id:
            message = (
                f"no model is named, and {provider_id} has no default model; name a model, or set "
                f"[providers.{provider_id}] default_model"
            )
            raise RefusedError(Refusal("INVALID_INPUT", message))
        return self._providers[provider_id]


def _not_made(model: Model, why: str) -> RefusedError:
    """Return (not raise) the refusal of a model whose request cannot be made; log the reason."""
    text = f"the request cannot be made for {model.name}: {why}"
    _log.warning("%s", text)
    return RefusedError(Refusal("PROVIDER_ERROR", text))


def _limited(body: Body, limits: ToolLimits) -> Body:
    """Return a body with the limits that its bound relies on."""
    uses = str(limits.uses).encode()
    if limits.tools:
        body = body.with_elements_member("tools", limits.tools, "max_uses", uses, LIMITED)
    if limits.of_call:
        body = body.with_member(("max_tool_calls",), uses, LIMITED)
    return body


_NONE: Mapping[str, str] = {}
LIMITED = "the reservation relies on this limit"


def speaks(provider: Any, body: Any) -> bool:
    """Return True if a provider accepts a body unchanged.

    Args:
        provider: any provider object; one without ``speaks`` gives False.
        body: the body.
    """
    known = getattr(provider, "speaks", None)
    return callable(known) and bool(known(body.endpoint))


LOWERED = "lowered to what the budget has left"


def lowered(to: Candidate, output: int) -> Candidate:
    """Return a copy of a candidate whose request has the output limit ``output``.

    Limits that the body states are replaced; a body without one gets the endpoint's first.

    Args:
        to: the candidate; its bound is not changed.
        output: output tokens.
    """
    outgoing = to.outgoing
    if outgoing is None:
        return replace_fields(to, request=replace(to.request, max_tokens=output))
    body = outgoing.body
    names = [name for name in body.endpoint.output_limit if member_at(body.value, name) is not None]
    for name in names or body.endpoint.output_limit[:1]:
        body = body.with_member(tuple(name.split(".")), b"%d" % output, LOWERED)
    return replace_fields(to, outgoing=replace_fields(outgoing, body=body))


def neutral_order(
    request: PromptRequest, model_id: str, sent: Sent, timeout_s: float, *, stream: bool
) -> ProviderRequest:
    """Return a request in neutral form for a provider object, without body, headers and query.

    Args:
        request: the call's request.
        model_id: the model by the provider's name.
        sent: the request, encoded.
        timeout_s: longest wait for the answer in seconds.
        stream: True if the answer is wanted as a stream.
    """
    return ProviderRequest(
        model_id=model_id,
        messages=sent.messages,
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        timeout_s=timeout_s,
        tools=tuple(request.tools or ()),
        response_schema=response_schema(request),
        stream=stream,
    )
