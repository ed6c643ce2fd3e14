"""Names for distributions that answer paths of their own (entry points ``remit.routes``).

An entry point is called with the gateway, the authenticator and the settings of a root, and returns
:class:`ExtensionRoutes`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol

from remit.kernel.exchange import PromptRequest
from remit.providers import Body
from remit.server.answers import failure, upstream_answer
from remit.server.authentication import AuthenticatedRequest, Authenticator
from remit.server.refusals import HttpError
from remit.server.relay import Relay
from remit.server.replies import Answer, Receive, Scope, Send, reply
from remit.server.request import Request

__all__ = [
    "Answer",
    "AuthenticatedRequest",
    "Authenticator",
    "ExtensionRoutes",
    "Handler",
    "HttpError",
    "Receive",
    "Relay",
    "Request",
    "Scope",
    "Send",
    "failure",
    "reply",
    "upstream_answer",
]

Handler = Callable[[Scope, Receive, Send], Awaitable[None]]


class ExtensionRoutes(Protocol):
    """The paths of one distribution."""

    def paths(self) -> Iterator[str]:
        """Yield the paths whose ``POST`` goes to :meth:`answer`."""

    def cards(self) -> dict[tuple[str, str], Handler]:
        """Return the handlers of all other requests, by method and path."""

    async def answer(
        self, caller: AuthenticatedRequest, body: Body, asked: PromptRequest, request: Request
    ) -> None:
        """Answer a request whose caller is known.

        Raises:
            HttpError: the caller may not send it, or there is no answer.
        """

    async def aclose(self) -> None:
        """Close all open connections."""
