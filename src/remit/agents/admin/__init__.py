"""The ADMIN agent: what it can look at."""

from remit.agents.admin.output import Fitted, GatePort, cut_to_fit, plain_value
from remit.agents.admin.recall import RECALL
from remit.agents.admin.redaction import HIDDEN, Redactor
from remit.agents.admin.root import GateTools
from remit.agents.admin.tools import admin_tools

__all__ = [
    "HIDDEN",
    "RECALL",
    "Fitted",
    "GatePort",
    "GateTools",
    "Redactor",
    "admin_tools",
    "cut_to_fit",
    "plain_value",
]
