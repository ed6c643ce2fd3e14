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

_SOURCE = ["src/remit", "extras/remit-index/src", "extras/remit-interop/src"]
# How often a line runs before its probe is removed. To remove some, all functions of all modules
# are looked through: at SlipCover's own 50 that took a tenth of the time of all tests.
_RUNS = 10_000

if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    _file = Path(f".coverage.{worker}.json").resolve()
    _measured = Slipcover(source=_SOURCE, d_miss_threshold=_RUNS)
    ImportManager(_measured, FileMatcher(sources=_SOURCE)).__enter__()
    atexit.register(lambda: _file.write_text(json.dumps(_measured.get_coverage())))
