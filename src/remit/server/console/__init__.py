"""The console: what happened and what waits, as pages for people."""

from remit.server.console.application import PREFIX, Console

__all__ = ["PREFIX", "Console"]
