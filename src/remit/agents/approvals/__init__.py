"""Approvals: requests for a person's decision, people's answers, and permits for one action each.

Owns the entries ``APPROVAL_REQUESTED``, ``APPROVAL_SIGNED``, ``APPROVAL_GRANTED`` and
``APPROVAL_DENIED``, and the webhook. Does not run tools. A grant lets
exactly one action begin: the permit and the ``TOOL_INTENT`` are checked and written in one
transaction. Start reading at :class:`ApprovalQueue`.
"""

from remit.agents.approvals.approval import (
    Approval as Approval,
    ApprovalError as ApprovalError,
    Permit as Permit,
    arguments_hash as arguments_hash,
)
from remit.agents.approvals.queue import (
    ApprovalQueue as ApprovalQueue,
    action_fields as action_fields,
)
