"""``/a2a/NAME``: other agents over the Agent2Agent protocol, under keys and budgets, on record.

JSON-RPC is passed on in both directions byte for byte, streams included. So is the agent's card:
a signature covers all of it, the addresses too, so nothing in it can be changed.
"""

from __future__ import annotations

from collections.abc import Iterator

from remit.gateway import LLMGateway
from remit.kernel.budget_values import Amount, nano_of
from remit.kernel.errors import ConfigError
from remit.kernel.exchange import PromptRequest, RouteOutcome
from remit.kernel.settings import Settings
from remit.providers import Body, Outgoing, ProviderError, Timeouts
from remit.server.extensions import (
    Answer,
    AuthenticatedRequest,
    Authenticator,
    Handler,
    HttpError,
    Receive,
    Relay,
    Request,
    Scope,
    Send,
    failure,
    reply,
    upstream_answer,
)
from remit_interop.a2a_agent import A2aAgent

_PREFIX = "/a2a/"
_CARD = "/.well-known/agent-card.json"
_PASSED_ON = (b"a2a-version", b"a2a-extensions", b"x-a2a-extensions")
_OF_CARD = ("etag", "cache-control", "last-modified")
_WORK = frozenset({"SendMessage", "SendStreamingMessage", "message/send", "message/stream"})


class Agents:
    """The agents that the configuration names.

    Args:
        gateway: what is said to them goes through it.
        authenticator: of who asks for a card.
        settings: their addresses and prices.

    Raises:
        ConfigError: one of them cannot be reached by what is configured.
    """

    def __init__(
        self, gateway: LLMGateway, authenticator: Authenticator, settings: Settings
    ) -> None:
        self._gateway = gateway
        self._authenticator = authenticator
        limits = settings.gateway
        self._timeouts = Timeouts(
            limits.connect_timeout_ms / 1000, limits.timeout_ms / 1000,
            limits.idle_timeout_ms / 1000,
        )  # fmt: skip
        self._prices = {name: nano_of(agent.price_usd) for name, agent in settings.a2a.items()}
        self._agents: dict[str, A2aAgent] = {}
        for name, agent in settings.a2a.items():
            try:
                self._agents[name] = A2aAgent(agent)
            except ProviderError as error:
                raise ConfigError(
                    f"[a2a.{name}] cannot be used: {error.message}.",
                    next_step="Give its url (and card, where it has one) with http:// or https://.",
                ) from error

    def paths(self) -> Iterator[str]:
        """Where they are spoken to, by ``POST``."""
        for name in self._agents:
            yield f"{_PREFIX}{name}"
            yield f"{_PREFIX}{name}/"

    def cards(self) -> dict[tuple[str, str], Handler]:
        """By method and path, what answers with their cards."""
        return {("GET", f"{_PREFIX}{name}{_CARD}"): self._card for name in self._agents}

    async def answer(
        self, caller: AuthenticatedRequest, body: Body, asked: PromptRequest, request: Request
    ) -> None:
        """Pass a request on, and its answer as it comes.

        Raises:
            HttpError: it may not be, or there is no answer.
        """
        name = request.path.removeprefix(_PREFIX).rstrip("/")
        _permit(caller, name)
        asked.idempotency_key = None  # only the agent knows what the same message twice means
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

    async def aclose(self) -> None:
        """Close their connections."""
        for agent in self._agents.values():
            await agent.aclose()

    async def _card(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = await self._authenticator.caller(scope)
        name = scope["path"].removeprefix(_PREFIX).removesuffix(_CARD)
        _permit(caller, name)
        try:
            came, body = await self._agents[name].card(self._timeouts)
        except ProviderError as error:
            raise HttpError(502, error.code, "The agent's card cannot be had.") from error
        headers = [(header.encode(), came.headers[header].encode("latin-1", "replace"))
                   for header in _OF_CARD if header in came.headers]  # fmt: skip
        kind = came.headers.get("content-type", "application/json")
        await reply(send, Answer(came.status, body, kind.encode("latin-1", "replace"), headers))


def _permit(caller: AuthenticatedRequest, name: str) -> None:
    """Keys that name models name agents among them, as ``a2a/NAME``.

    Raises:
        HttpError: this one does not.
    """
    if not caller.identity.may("call") or not caller.identity.may_use_model(f"a2a/{name}"):
        raise HttpError(403, "agent_not_allowed", f"This key may not call the agent {name}.")
