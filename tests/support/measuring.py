"""Coverage of the processes that run tests side by side: each measures itself, from the first.

Loaded by ``-p tests.support.measuring``, before anything that is measured is imported. SlipCover
removes its probes as lines are reached; a tracer would make the tests take half as long again.
"""

from __future__ import annotations

import atexit
import json
import os
from pathlib import Path

from slipcover import FileMatcher, ImportManager, Slipcover

_SOURCE = ["src/remit"]

if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    _file = Path(f".coverage.{worker}.json").resolve()
    _measured = Slipcover(source=_SOURCE)
    ImportManager(_measured, FileMatcher(sources=_SOURCE)).__enter__()
    atexit.register(lambda: _file.write_text(json.dumps(_measured.get_coverage())))
