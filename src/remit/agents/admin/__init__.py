"""The ADMIN agent's own tools: read-only views of journeys, sessions, usage and files.

The other tools are made of operations, see :mod:`remit.operations.agent_tools`.

Tool methods return plain data. Their docstrings are the descriptions that models read. Secrets are
redacted, erased content is marked, long texts are cut. Start reading in ``tools.py``.
"""

from remit.agents.admin.output import Fitted, caller_session, cut_to_fit, plain_value
from remit.agents.admin.recall import RECALL
from remit.agents.admin.redaction import HIDDEN, Redactor
from remit.agents.admin.tools import admin_tools

__all__ = [
    "HIDDEN",
    "RECALL",
    "Fitted",
    "Redactor",
    "admin_tools",
    "caller_session",
    "cut_to_fit",
    "plain_value",
]
