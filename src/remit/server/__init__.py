"""HTTP: the endpoints for OpenAI and Anthropic clients, and Remit's own API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remit.kernel import lazy_names
from remit.kernel.errors import RemitError
from remit.server.serving import serve

if TYPE_CHECKING:
    from remit.server.loopback import LoopbackServer
else:
    __getattr__ = lazy_names(__name__, {"loopback": "LoopbackServer"})  # takes long to import

__all__ = ["LoopbackServer", "serve"]

# Earlier names, for programs that catch them; they end with version 1.0.
ServerError = RemitError
