"""Remit: an accountable runtime for LLM agents.

Every model call is authenticated, budgeted, recorded before it is sent and whole after, in
an append-only ledger that can be verified. Start with :class:`Runtime`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remit._version import __version__
from remit.kernel import lazy_names
from remit.kernel.errors import RemitError

if TYPE_CHECKING:
    from remit.agents import File
    from remit.agents.supervisor import TurnFailedError, TurnResult
    from remit.agents.tools import Context, Tool, current_call, tool
    from remit.kernel.exchange import PromptRequest, PromptResponse, RouteOutcome
    from remit.ledger import LedgerClient, LedgerEntry
    from remit.runtime import Runtime, Schedule
else:
    # A command that reads the ledger starts fast: it imports none of the others.
    __getattr__ = lazy_names(__name__)

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
