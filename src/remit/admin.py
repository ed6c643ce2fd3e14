"""The earlier name of what :mod:`remit.agents` lets an administrator see; it stays until 1.0."""

from remit.agents import HIDDEN, RECALL, Fitted, Redactor, admin_tools
from remit.agents import cut_to_fit as fit
from remit.agents import plain_value as plain

__all__ = ["HIDDEN", "RECALL", "Fitted", "Redactor", "admin_tools", "fit", "plain"]
