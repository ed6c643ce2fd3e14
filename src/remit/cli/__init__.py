"""The ``remit`` command."""

from remit.cli.main import main

__all__ = ["main"]
