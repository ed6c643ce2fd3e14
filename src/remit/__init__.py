"""Remit: an accountable runtime for LLM agents.

Every model call is authenticated, budgeted, recorded before it is sent and whole after, in
an append-only ledger that can be verified. Start with :class:`Runtime`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remit._version import __version__ as __version__
from remit.kernel import lazy_names
from remit.kernel.errors import RemitError as RemitError

if TYPE_CHECKING:
    from remit.agents import File as File
    from remit.agents.supervisor import TurnFailedError as TurnFailedError, TurnResult as TurnResult
    from remit.agents.tools import (
        Context as Context,
        Tool as Tool,
        current_call as current_call,
        tool as tool,
    )
    from remit.kernel.exchange import (
        PromptRequest as PromptRequest,
        PromptResponse as PromptResponse,
        RouteOutcome as RouteOutcome,
    )
    from remit.ledger import LedgerClient as LedgerClient, LedgerEntry as LedgerEntry
    from remit.runtime import Runtime as Runtime, Schedule as Schedule
else:
    # A command that reads the ledger starts fast: it imports none of the others.
    __getattr__ = lazy_names(__name__)
