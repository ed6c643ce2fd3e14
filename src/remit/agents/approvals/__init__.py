"""Approvals: what waits for a person, and what the person said (SPEC 8.3)."""

from remit.agents.approvals.desk import ApprovalDesk, ApprovalError
from remit.agents.approvals.request import Approval

__all__ = ["Approval", "ApprovalDesk", "ApprovalError"]
