"""Another agent, reached over the Agent2Agent protocol (A2A): its calls, and its card."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from remit.kernel.settings import A2aSettings
from remit.providers import (
    HttpUpstream,
    Outgoing,
    ProviderError,
    ProviderReply,
    ProviderRequest,
    Timeouts,
    UpstreamReply,
    refusal,
)

__all__ = ["A2aAgent"]

_CARD = "/.well-known/agent-card.json"
_MOST_CARD_BYTES = 1024 * 1024


class A2aAgent:
    """One agent of the configuration (``[a2a.NAME]``), for :meth:`LLMGateway.pass_on`.

    Args:
        settings: its addresses and its key.
    """

    def __init__(self, settings: A2aSettings) -> None:
        headers: dict[str, str] = {}
        if key := settings.api_key.get_secret_value():
            headers["authorization"] = f"Bearer {key}"
        self._http, self._path = _address(settings.url, headers)
        parts = urlsplit(settings.url)
        card = settings.card or urlunsplit((parts.scheme, parts.netloc, _CARD, "", ""))
        self._card, self._card_path = _address(card, headers)

    def __repr__(self) -> str:
        return f"A2aAgent({self._http!r})"

    async def aclose(self) -> None:
        """Close the connections of the running loop."""
        await self._http.aclose()
        await self._card.aclose()

    def outgoing(self, request: ProviderRequest) -> Outgoing:
        """Nothing: no call of a model goes to an agent.

        Raises:
            ProviderError: always.
        """
        raise ProviderError("INVALID_REQUEST", "an A2A agent is no model")

    async def send(self, outgoing: Outgoing, timeouts: Timeouts) -> ProviderReply:
        """Send it; returns when the answer begins.

        Raises:
            ProviderError: there is no answer, or its status is an error's.
        """
        body = outgoing.body
        headers = {"content-type": body.content_type, **outgoing.headers}
        reply = await self._http.send(
            "POST", self._path, body.raw, headers, timeouts, reconnect=outgoing.reconnect
        )
        if 200 <= reply.status < 300:
            return reply
        raise await refusal(body.endpoint.name, reply, self._http.secrets)

    async def card(self, timeouts: Timeouts) -> tuple[UpstreamReply, bytes]:
        """Its card as it is served: the reply, and the body byte for byte.

        Raises:
            ProviderError: there is none, or it is too long.
        """
        came = await self._card.send("GET", self._card_path, b"", {}, timeouts)
        async with came:
            return came, await came.read(_MOST_CARD_BYTES)


def _address(url: str, headers: dict[str, str]) -> tuple[HttpUpstream, str]:
    """What reaches an origin, and the path with its query there.

    Raises:
        ProviderError: it is no HTTP address.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ProviderError("INVALID_REQUEST", "the address of an A2A agent is no HTTP address")
    origin = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
    return HttpUpstream(origin, headers), urlunsplit(("", "", parts.path or "/", parts.query, ""))
