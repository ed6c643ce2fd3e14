"""Remit: an accountable runtime for LLM agents.

Every model call is authenticated, budgeted, recorded before it is sent and whole after, in
an append-only ledger that can be verified. Start with :class:`Runtime`.
"""

from remit._version import __version__
from remit.errors import RemitError
from remit.exchange import PromptRequest, PromptResponse, RouteOutcome
from remit.ledger import LedgerClient, LedgerEntry
from remit.runtime import Runtime
from remit.tools import Tool

__all__ = [
    "LedgerClient",
    "LedgerEntry",
    "PromptRequest",
    "PromptResponse",
    "RemitError",
    "RouteOutcome",
    "Runtime",
    "Tool",
    "__version__",
]
