"""Peak memory of one piece of work, in a process of its own.

    python -m benchmarks.memory (verify JOBS | export FILE) ADDRESS

prints the peak of the process and the greatest of its children, in MB, and the seconds.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import time
from pathlib import Path

from remit.ledger import LedgerClient


def peak(*arguments: str) -> tuple[float, float, float]:
    """MB of the process, MB of its greatest child, and seconds."""
    command = [sys.executable, "-m", "benchmarks.memory", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    own, child, seconds = done.stdout.split()
    return float(own), float(child), float(seconds)


def own_peak_mb() -> float:
    """Peak of this process; what ``getrusage`` says also holds the parent's before ``exec``."""
    status = Path("/proc/self/status")
    if status.exists() and (found := re.search(r"VmHWM:\s+(\d+) kB", status.read_text())):
        return int(found[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Do the work that the arguments name."""
    what, how, address = sys.argv[1:]
    started = time.perf_counter()
    with LedgerClient(address, create=False) as ledger:
        if what == "verify":
            report = ledger.verify(jobs=int(how))
            assert report.verified, report.problems[:3]
        else:
            ledger.export(how)
    seconds = time.perf_counter() - started
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{own_peak_mb():.1f} {children:.1f} {seconds:.2f}")


if __name__ == "__main__":
    main()
