"""Approvals: what waits for a person, what people said, and the one action that it lets begin."""

from remit.agents.approvals.approval import Approval, ApprovalError
from remit.agents.approvals.permit import Permit, arguments_hash
from remit.agents.approvals.queue import ApprovalQueue, asked

__all__ = ["Approval", "ApprovalError", "ApprovalQueue", "Permit", "arguments_hash", "asked"]
