"""Agents at work: orders, the worker (HO1), the supervisor (HO2), sessions, tools, approvals."""
