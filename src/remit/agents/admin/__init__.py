"""The ADMIN agent's tools: read-only views of ledger, sessions, usage, files, packages and gates.

Tool methods return plain data. Their docstrings are the descriptions that models read. Secrets are
redacted, erased content is marked, long texts are cut. Start reading in ``tools.py``.
"""

from remit.agents.admin.output import Fitted, GatePort, cut_to_fit, plain_value
from remit.agents.admin.recall import RECALL
from remit.agents.admin.redaction import HIDDEN, Redactor
from remit.agents.admin.root import RootTools
from remit.agents.admin.tools import admin_tools

__all__ = [
    "HIDDEN",
    "RECALL",
    "Fitted",
    "GatePort",
    "Redactor",
    "RootTools",
    "admin_tools",
    "cut_to_fit",
    "plain_value",
]

GateTools = RootTools
"""The earlier name of the tools of gates; it ends with version 1.0."""
