"""The strict provider as a process of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.processes import Program

__all__ = ["running"]


@contextmanager
def running() -> Iterator[str]:
    """Its URL, until the block ends."""
    with Program("-m", "tests.support.strict", environment=os.environ) as process:
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()
