"""Names for distributions that answer paths of their own (entry points ``remit.routes``).

Remit calls an entry point with the gateway, the authenticator and the settings of a root; the entry
point returns :class:`ExtensionRoutes`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol

from remit.kernel.exchange import PromptRequest
from remit.providers import Body
from remit.server.answers import failure, upstream_answer
from remit.server.asgi import Answer, Receive, Scope, Send, reply
from remit.server.authentication import Authenticator
from remit.server.refusals import HttpError
from remit.server.relay import Relay
from remit.server.request import Request
from remit.server.request_context import AuthenticatedRequest

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
    """The endpoints of a distribution.

    The distribution's entry point makes the object; the server asks for the paths once.
    :meth:`answer` answers the ``POST`` requests to :meth:`paths`, the handlers of :meth:`cards` all
    others. :meth:`aclose` comes last.
    """

    def paths(self) -> Iterator[str]:
        """Yield the paths for which :meth:`answer` answers ``POST``."""

    def cards(self) -> dict[tuple[str, str], Handler]:
        """Return the ASGI handlers of all other requests, keyed by (method, path)."""

    async def answer(
        self, caller: AuthenticatedRequest, body: Body, asked: PromptRequest, request: Request
    ) -> None:
        """Write the answer to a counted request, whose caller was authenticated before.

        Errors other than HttpError are answered with 500 or 503.

        Args:
            caller: the authenticated request.
            body: the parsed body.
            asked: the gateway's request made from both.
            request: the place where the answer is written.

        Raises:
            HttpError: the request is refused; the caller of this method answers the error.
        """

    async def aclose(self) -> None:
        """Close all open connections."""
