"""The ADMIN agent: what it can look at (SPEC 9.3)."""

from remit.agents.admin.tools import admin_tools

__all__ = ["admin_tools"]
