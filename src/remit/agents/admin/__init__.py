"""The ADMIN agent's own tools: read-only views of journeys, sessions, usage and files.

The other tools are made of operations, see :mod:`remit.operations.agent_tools`.

Tool methods return plain data. Their docstrings are the descriptions that models read. Secrets are
redacted, erased content is marked, long texts are cut. Start reading in ``tools.py``.
"""

from remit.agents.admin.output import (
    Fitted as Fitted,
    caller_session as caller_session,
    cut_to_fit as cut_to_fit,
    plain_value as plain_value,
)
from remit.agents.admin.recall import RECALL as RECALL
from remit.agents.admin.redaction import HIDDEN as HIDDEN, Redactor as Redactor
from remit.agents.admin.root_files import RootTools as RootTools
from remit.agents.admin.tools import admin_tools as admin_tools
