"""The console: HTML pages for people who operate and audit a root."""

from remit.server.console.application import Console

__all__ = ["Console"]
