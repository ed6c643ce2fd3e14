"""HTTP: the endpoints for OpenAI and Anthropic clients, and Remit's own API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remit.kernel.errors import RemitError
from remit.server.serving import serve

if TYPE_CHECKING:
    from remit.server.loopback import LoopbackServer

__all__ = ["LoopbackServer", "serve"]

# Earlier names, for programs that catch them; they end with version 1.0.
ServerError = RemitError


def __getattr__(name: str) -> Any:
    if name != "LoopbackServer":
        raise AttributeError(f"module 'remit.server' has no attribute {name!r}")
    from remit.server.loopback import LoopbackServer  # takes long to import

    return LoopbackServer
