"""Approvals: what waits for a person, and what the person said (SPEC 8.3)."""

from remit.agents.approvals.queue import Approval, ApprovalError, ApprovalQueue

__all__ = ["Approval", "ApprovalError", "ApprovalQueue"]
