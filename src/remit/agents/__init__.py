"""Agents at work: orders, worker (HO1), supervisor (HO2), sessions, tools and approvals.

The room owns the turn of an agent: plan, execution, verification, delivery, and the record of each.
It does not own the way to a model: worker and supervisor call ports, which the runtime fills.

Invariants: every step is recorded before its effect; an action that needs approval runs only with
the exact arguments that a person saw; the worker never loads the supervisor, so all names here are
imported on first use.

Start reading in :mod:`remit.agents.supervisor` and :mod:`remit.agents.workorders`. Doors: ``queue``
gives orders to workers; ``sessions``, ``supervisor``, ``tools``, ``workorders``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from remit.kernel import lazy_names

if TYPE_CHECKING:
    from remit.agents.admin import (
        HIDDEN as HIDDEN,
        RECALL as RECALL,
        Fitted as Fitted,
        Redactor as Redactor,
        admin_tools as admin_tools,
        caller_session as caller_session,
        cut_to_fit as cut_to_fit,
        plain_value as plain_value,
    )
    from remit.agents.approvals import (
        Approval as Approval,
        ApprovalError as ApprovalError,
        ApprovalQueue as ApprovalQueue,
        Permit as Permit,
        arguments_hash as arguments_hash,
    )
    from remit.agents.attachments import (
        File as File,
        UserMessage as UserMessage,
        split_message as split_message,
    )
    from remit.agents.output_type import OutputT as OutputT, OutputType as OutputType
    from remit.agents.sessions import SessionManager as SessionManager
    from remit.agents.supervisor import HO2Supervisor as HO2Supervisor, TurnResult as TurnResult
    from remit.agents.tools import (
        Tool as Tool,
        ToolDispatcher as ToolDispatcher,
        ToolError as ToolError,
        ToolResult as ToolResult,
        current_call as current_call,
        tool as tool,
    )
    from remit.agents.worker import (
        IGNORABLE as IGNORABLE,
        AttachedOrder as AttachedOrder,
        HO1Executor as HO1Executor,
        WorkFailedError as WorkFailedError,
        WorkParkedError as WorkParkedError,
        result_text as result_text,
        visible as visible,
    )
    from remit.agents.workorders import (
        WorkOrder as WorkOrder,
        WorkOrderConstraints as WorkOrderConstraints,
    )
else:
    __getattr__ = lazy_names(__name__)
