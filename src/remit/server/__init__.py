"""HTTP: the endpoints of OpenAI's and Anthropic's clients, Remit's own API, the console and MCP.

The room owns connections, authentication of requests, limits on requests, and the form of answers.
The room owns no call: the gateway admits, records and settles each one.

Invariants:

- No request reaches a model except through the gateway.
- No answer contains a secret.
- A client cannot use up the memory or the connections of all others.

Start reading in :mod:`remit.server.app`, which lists the steps of a request. Doors: ``extending``
is for distributions that add endpoints, ``mcp`` serves MCP clients, ``telemetry`` gives metrics,
traces and logs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remit.kernel import lazy_names
from remit.kernel.errors import RemitError
from remit.server.serving import serve

if TYPE_CHECKING:
    from remit.server.local_server import LoopbackServer
    from remit.server.replay_server import ReplayServer
else:
    __getattr__ = lazy_names(__name__)

__all__ = ["LoopbackServer", "ReplayServer", "serve"]

# Earlier names, for programs that catch them; they end with version 1.0.
ServerError = RemitError
