"""``/a2a/NAME``: other agents over the Agent2Agent protocol, under keys and budgets, on record.

JSON-RPC is passed on in both directions byte for byte, streams included. So is the agent's card:
a signature covers all of it, the addresses too, so nothing in it can be changed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from typing_extensions import override

from remit.kernel.budget import Amount, nano_of
from remit.kernel.errors import ConfigError
from remit.kernel.exchange import RouteOutcome
from remit.kernel.json_text import dump
from remit.kernel.settings import A2aSettings
from remit.providers import Outgoing, ProviderError, Timeouts
from remit.providers.a2a import A2aAgent
from remit.providers.wire.endpoint import A2A, Endpoint
from remit.providers.wire.form import ObjectBody
from remit.server import request as requests
from remit.server.answers import failure, upstream_answer
from remit.server.authentication import AuthenticatedRequest, Authenticator
from remit.server.calls import ModelCalls
from remit.server.endpoints import Handler
from remit.server.refusals import HttpError
from remit.server.relay import Relay
from remit.server.replies import Answer, Receive, Scope, Send, json_answer, reply
from remit.server.shares import Share

_PASSED_ON = (b"a2a-version", b"a2a-extensions", b"x-a2a-extensions")
_OF_CARD = ("content-type", "etag", "cache-control", "last-modified")
_WORK = frozenset({"SendMessage", "SendStreamingMessage", "message/send", "message/stream"})
_INVALID, _INTERNAL = -32600, -32603


class AgentCalls(ModelCalls):
    """The endpoints of the agents that the configuration names.

    Raises:
        ConfigError: one of them cannot be reached by what is configured.
    """

    def of_agents(self, agents: Mapping[str, A2aSettings]) -> dict[str, requests.Handler]:
        """By path, what answers a ``POST`` to one of them."""
        self._agents = {name: _agent(name, settings) for name, settings in agents.items()}
        self._prices = {name: nano_of(settings.price_usd) for name, settings in agents.items()}
        serve = functools.partial(self.serve, A2A)
        return {f"/a2a/{name}{tail}": serve for name in agents for tail in ("", "/")}

    def cards(
        self, authenticator: Authenticator, timeouts: Timeouts
    ) -> dict[tuple[str, str], Handler]:
        """By method and path, what answers with their cards."""

        def serve(name: str) -> Handler:
            async def handler(scope: Scope, receive: Receive, send: Send) -> None:
                caller = await authenticator.caller(scope)
                _permit(caller, name)
                try:
                    came, body = await self._agents[name].card(timeouts)
                except ProviderError as error:
                    raise HttpError(502, error.code, "The agent's card cannot be had.") from error
                headers = [(header.encode(), came.headers[header].encode("latin-1", "replace"))
                           for header in _OF_CARD[1:] if header in came.headers]  # fmt: skip
                kind = came.headers.get(_OF_CARD[0], "application/json")
                await reply(send, Answer(came.status, body, kind.encode("latin-1"), headers))

            return handler

        return {
            ("GET", f"/a2a/{name}/.well-known/agent-card.json"): serve(name)
            for name in self._agents
        }

    async def aclose(self) -> None:
        """Close their connections."""
        for agent in self._agents.values():
            await agent.aclose()

    @override
    async def _answer(
        self,
        endpoint: Endpoint,
        caller: AuthenticatedRequest,
        request: requests.Request,
        share: Share,
    ) -> None:
        name = request.path.removeprefix("/a2a/").rstrip("/")
        _permit(caller, name)
        body = await self._body(endpoint, caller, request, share)
        asked = self._authenticator.request(caller, body)
        asked.idempotency_key = None  # a task of the agent's is not given twice for one message
        passed = {key.decode(): value.decode("latin-1") for key, value in request.headers
                  if key in _PASSED_ON}  # fmt: skip
        nano = self._prices[name] if body.value.get("method") in _WORK else 0
        relay = Relay(body, request)
        response = await self._gateway.pass_on(
            asked, "a2a", Outgoing(body, passed, stream=True), identity=caller.identity,
            amount=Amount(0, nano), sink=relay, agent=(name, self._agents[name]),
        )  # fmt: skip
        if relay.started:
            relay.finish(response)
        elif response.reply is not None and response.reply.status != 401:
            request.answer(upstream_answer(response))
        elif response.outcome is not RouteOutcome.SUCCESS:
            raise failure(response)

    @override
    def _read(self, endpoint: Endpoint, caller: AuthenticatedRequest, raw: bytes) -> ObjectBody:
        return ObjectBody.read_object(endpoint, raw)

    @override
    def _refusal(self, request: requests.Request, error: HttpError) -> Answer:
        code = _INVALID if 400 <= error.status < 500 else _INTERNAL
        reason = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "domain": "remit",
                  "reason": error.code.upper()}  # fmt: skip
        said = {"code": code, "message": error.message, "data": [reason]}
        headers = [*error.headers]
        if error.retry_after_s is not None:
            headers.append((b"retry-after", b"%d" % max(1, round(error.retry_after_s))))
        if error.close:
            headers.append((b"connection", b"close"))
        body = dump({"jsonrpc": "2.0", "id": None, "error": said})
        return json_answer(body, error.status, headers)


def _permit(caller: AuthenticatedRequest, name: str) -> None:
    """Keys that name models name agents among them, as ``a2a/NAME``.

    Raises:
        HttpError: this one does not.
    """
    if not caller.identity.may("call") or not caller.identity.may_use_model(f"a2a/{name}"):
        raise HttpError(403, "agent_not_allowed", f"This key may not call the agent {name}.")


def _agent(name: str, settings: A2aSettings) -> A2aAgent:
    try:
        return A2aAgent(settings)
    except ProviderError as error:
        raise ConfigError(
            f"[a2a.{name}] cannot be used: {error.message}.",
            next_step="Give its url (and card, where it has one) with http:// or https://.",
        ) from error
