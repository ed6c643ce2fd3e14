"""The console: what happened and what waits, as pages for people (SPEC 12)."""

from remit.server.console.application import PREFIX, Console

__all__ = ["PREFIX", "Console"]
