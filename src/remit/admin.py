"""The earlier name of what :mod:`remit.agents` lets an administrator see; it stays until 1.0."""

from remit.agents import RECALL, Redactor, admin_tools
from remit.agents import cut_to_fit as fit
from remit.agents import plain_value as plain
from remit.kernel import lazy_names

__all__ = ["RECALL", "Redactor", "admin_tools", "fit", "plain"]

__getattr__ = lazy_names(__name__, {"remit.agents.admin": "HIDDEN Fitted"})
