"""The ``remit`` command (SPEC 13, 15)."""

from remit.cli.main import main

__all__ = ["main"]
