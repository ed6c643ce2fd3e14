"""Coverage of the processes that run tests side by side: each measures itself, from the first.

Loaded by ``-p tests.support.measuring``, before anything that is measured is imported.
"""

from __future__ import annotations

import atexit
import os

import coverage

if os.environ.get("PYTEST_XDIST_WORKER"):
    _measured = coverage.Coverage(data_suffix=True)
    _measured.start()
    atexit.register(_measured.save)
    atexit.register(_measured.stop)
