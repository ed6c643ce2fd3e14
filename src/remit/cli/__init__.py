"""The ``remit`` command: arguments, printed lines, JSON output and exit codes.

The room owns no state and no rule: each command opens a root and calls a room below. The names of
commands, flags, exit codes and JSON keys do not change between versions. A command imports what it
needs when it runs, so that ``remit --help`` stays fast.

Start reading in :mod:`remit.cli.main`. Doors: ``main`` holds the commands; ``options``, ``output``
and ``roots`` help the commands that other distributions add.
"""

from remit.cli.main import main

__all__ = ["main"]
