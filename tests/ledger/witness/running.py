"""A witness as a process of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import Program
from tests.support.waiting import until

__all__ = ["witness_server"]


@contextmanager
def witness_server(directory: Path, *arguments: object) -> Iterator[tuple[Program, str]]:
    """Run ``remit witness run`` until the block ends; yield the process and its URL.

    Args:
        directory: the witness's; the file ``errors`` in it gets what the process says.
        arguments: more of the command line.
    """
    errors = directory / "errors"
    errors.write_text("")
    line = map(str, ("-m", "remit", "witness", "run", "--dir", directory, *arguments))
    with Program(*line, environment=os.environ, errors=errors) as process:
        try:
            until(lambda: "\n" in errors.read_text())
            said = errors.read_text().splitlines()[0]
            assert " listens on http://" in said, said
            yield process, said.split()[-1]
        finally:
            process.kill()
