"""Each verb once: its request, its result, its permission, and how it runs.

An operation is a function that :func:`verb` declares. Its fields have types, limits and
descriptions. The doors derive the rest: ``remit.cli`` the command, ``remit.server.api`` the route
and its OpenAPI entry, the console a form. :func:`make_tools` makes the tools of ADMIN and of MCP
clients. Verbs that need tenants or a runtime are declared in :mod:`remit.runtime.operations`, whose
catalogue contains all verbs. The room owns no rule of keys, budgets or owners; an operation calls
the room that does.

Invariants: an operation has one validation and one description for all doors; a door checks the
permission before ``run``; importing the declarations does not import pydantic or a ledger, so
that the help of a command stays fast.

Start reading in :mod:`remit.operations.operation`, then :mod:`remit.operations.keys`. The forms of
results are in :mod:`remit.operations.results`.
"""

from __future__ import annotations

from remit.operations.agent_tools import (
    AgentTool,
    ToolCall,
    argument,
    list_schema,
    make_tools,
    session_argument,
)
from remit.operations.catalogue import operations
from remit.operations.limits import limits_line
from remit.operations.operation import (
    Answer,
    Column,
    Document,
    Feed,
    Field,
    Operation,
    feed_of,
    field,
    limit,
    verb,
)
from remit.operations.orders import by
from remit.operations.package_archives import package_settings
from remit.operations.ports import Caller, ForbiddenError, RootPort, name_of
from remit.operations.proposals import PROPOSED, proposal_reason
from remit.operations.requests import checked, request_model, result_form
from remit.operations.text import Drawn, Note, Table, facts, json_data, shown, table_of

__all__ = [
    "PROPOSED",
    "AgentTool",
    "Answer",
    "Caller",
    "Column",
    "Document",
    "Drawn",
    "Feed",
    "Field",
    "ForbiddenError",
    "Note",
    "Operation",
    "RootPort",
    "Table",
    "ToolCall",
    "argument",
    "by",
    "checked",
    "facts",
    "feed_of",
    "field",
    "json_data",
    "limit",
    "limits_line",
    "list_schema",
    "make_tools",
    "name_of",
    "operations",
    "package_settings",
    "proposal_reason",
    "request_model",
    "result_form",
    "session_argument",
    "shown",
    "table_of",
    "verb",
]
