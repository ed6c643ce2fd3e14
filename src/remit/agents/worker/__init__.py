"""HO1, the worker: executes one order with what it was given, and nothing else (SPEC 8.3)."""

from remit.agents.worker.executor import HO1Executor

__all__ = ["HO1Executor"]
