"""The earlier name of what :mod:`remit.agents` lets an administrator see; it stays until 1.0."""

from remit.agents import HIDDEN, RECALL, Fitted, Redactor, admin_tools, cut_to_fit, plain_value

__all__ = ["HIDDEN", "RECALL", "Fitted", "Redactor", "admin_tools", "fit", "plain"]

fit = cut_to_fit
plain = plain_value
