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
    AgentTool as AgentTool,
    ToolCall as ToolCall,
    argument as argument,
    list_schema as list_schema,
    make_tools as make_tools,
    session_argument as session_argument,
)
from remit.operations.catalogue import operations as operations
from remit.operations.limits import limits_line as limits_line
from remit.operations.operation import (
    Answer as Answer,
    Column as Column,
    Document as Document,
    Feed as Feed,
    Field as Field,
    Operation as Operation,
    feed_of as feed_of,
    field as field,
    limit as limit,
    verb as verb,
)
from remit.operations.orders import by as by
from remit.operations.package_archives import package_settings as package_settings
from remit.operations.ports import (
    Caller as Caller,
    ForbiddenError as ForbiddenError,
    RootPort as RootPort,
    name_of as name_of,
)
from remit.operations.proposals import PROPOSED as PROPOSED, proposal_reason as proposal_reason
from remit.operations.requests import (
    checked as checked,
    request_model as request_model,
    result_form as result_form,
)
from remit.operations.text import (
    Drawn as Drawn,
    Note as Note,
    Table as Table,
    facts as facts,
    json_data as json_data,
    shown as shown,
    table_of as table_of,
)
