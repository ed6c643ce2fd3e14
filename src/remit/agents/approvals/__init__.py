"""Approvals: what waits for a person, and what the person said (SPEC 8.3)."""

from remit.agents.approvals.queue import ApprovalError, ApprovalQueue
from remit.agents.approvals.request import Approval

__all__ = ["Approval", "ApprovalError", "ApprovalQueue"]
