"""Remit: an accountable runtime for LLM agents.

Every model call is authenticated, budgeted, recorded before it is sent and whole after, in
an append-only ledger that can be verified. Start with :class:`Runtime`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from remit._version import __version__
from remit.kernel.errors import RemitError

if TYPE_CHECKING:
    from remit.agents.files import File
    from remit.agents.supervisor import TurnFailedError, TurnResult
    from remit.agents.tools import Context, Tool, current_call, tool
    from remit.kernel.exchange import PromptRequest, PromptResponse, RouteOutcome
    from remit.ledger import LedgerClient, LedgerEntry
    from remit.runtime import Runtime, Schedule

__all__ = [
    "Context",
    "File",
    "LedgerClient",
    "LedgerEntry",
    "PromptRequest",
    "PromptResponse",
    "RemitError",
    "RouteOutcome",
    "Runtime",
    "Schedule",
    "Tool",
    "TurnFailedError",
    "TurnResult",
    "__version__",
    "current_call",
    "tool",
]

_PLACES = {
    "Context": "remit.agents.tools",
    "File": "remit.agents.files",
    "LedgerClient": "remit.ledger",
    "LedgerEntry": "remit.ledger",
    "PromptRequest": "remit.kernel.exchange",
    "PromptResponse": "remit.kernel.exchange",
    "RouteOutcome": "remit.kernel.exchange",
    "Runtime": "remit.runtime",
    "Schedule": "remit.runtime",
    "Tool": "remit.agents.tools",
    "TurnFailedError": "remit.agents.supervisor",
    "TurnResult": "remit.agents.supervisor",
    "current_call": "remit.agents.tools",
    "tool": "remit.agents.tools",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: a command that reads the ledger starts fast."""
    if name not in _PLACES:
        raise AttributeError(f"module 'remit' has no attribute {name!r}")
    value = getattr(importlib.import_module(_PLACES[name]), name)
    globals()[name] = value
    return value
