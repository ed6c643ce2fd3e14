"""The earlier name of what :mod:`remit.agents` lets an administrator see; it stays until 1.0."""

from remit.agents import (
    HIDDEN as HIDDEN,
    RECALL as RECALL,
    Fitted as Fitted,
    Redactor as Redactor,
    admin_tools as admin_tools,
    cut_to_fit,
    plain_value,
)

fit = cut_to_fit
plain = plain_value
