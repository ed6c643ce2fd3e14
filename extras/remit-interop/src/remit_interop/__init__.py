"""Agents of other frameworks under Remit's record: sessions, orders, approvals, budgets, traces.

A foreign agent is a client of the server's endpoints, so that is where it is met: a
:class:`Door` gives each run a base URL and a key of its own, which say whose calls they are, and
the run's tools are used through its order. Modules for single frameworks are imported by name:
``openai_agents``, ``pydantic_ai``, ``langgraph``, ``claude_agent``.
"""

from remit.agents import WorkParkedError
from remit_interop.door import Door
from remit_interop.run import Run

__all__ = ["Door", "Run", "WorkParkedError"]
