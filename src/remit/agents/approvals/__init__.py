"""Approvals: requests for a person's decision, people's answers, and permits for one action each.

Owns the entries ``APPROVAL_REQUESTED``, ``APPROVAL_SIGNED``, ``APPROVAL_GRANTED`` and
``APPROVAL_DENIED``, and the webhook. Does not run tools. A grant lets
exactly one action begin: the permit and the ``TOOL_INTENT`` are checked and written in one
transaction. Start reading at :class:`ApprovalQueue`.
"""

from remit.agents.approvals.approval import Approval, ApprovalError, Permit, arguments_hash
from remit.agents.approvals.queue import ApprovalQueue, action_fields

__all__ = [
    "Approval",
    "ApprovalError",
    "ApprovalQueue",
    "Permit",
    "action_fields",
    "arguments_hash",
]
