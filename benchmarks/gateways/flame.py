"""``python -m benchmarks.gateways.flame FILE.svg``: a flame graph of ``remit serve`` under load.

py-spy, in an environment of its own, looks at the server so many times a second while 64 callers
ask: its threads, native functions too. Samples of a thread that waits for the interpreter, a lock
or a socket are left out, so that a box is as wide as its share of the work (and of waiting for
the disk). ``--python`` takes the Remit that another interpreter has.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import threading
from pathlib import Path

from benchmarks.flames import Flame, svg
from benchmarks.gateways import environments, ours, processes, rig
from benchmarks.gateways.environments import UnavailableError
from benchmarks.gateways.launch import running
from benchmarks.gateways.options import parser_of, run_of
from benchmarks.gateways.progress import tell
from benchmarks.gateways.report import number
from benchmarks.gateways.target import Target

environments.PYTHON_PACKAGES["profiler"] = ("py-spy==0.4.3",)
WARM_S = 3.0
STARTING_S = 10.0  # py-spy reads the symbols of all libraries first

_WAITS = re.compile(r"pthread_cond_|acquire_lock|epoll_p?wait|sem_|nanosleep|poll \(|select \(")
_NAMELESS = re.compile(r"0x[0-9a-f]+ ")
_THREAD = re.compile(r"thread \([^)]*\): ?")
_BEGINNINGS = ("_run_once", "uv__run_idle", "uv__io_poll", "uv__stream_io", "Thread.run ")
_TRIVIAL = re.compile(r"Py_X?DECREF|Py_IS_TYPE|Py_TYPE|_impl \(|Vectorcall|FastCall|queue_empty")


def record(folded: Path, scratch: Path, given: argparse.Namespace) -> None:
    """Start, load, and watch.

    Raises:
        UnavailableError: py-spy cannot be installed here, or may not watch another process.
    """
    watch: list[str | Path] = [environments.python_environment("profiler") / "py-spy", "record"]
    watch += ["--native", "--threads", "--nolineno", "--format", "raw", "--output", folded]
    watch += ["--rate", str(given.rate), "--duration", str(given.seconds)]
    core, others = processes.cores()

    def ask(target: Target) -> None:
        seconds = WARM_S + STARTING_S + given.seconds
        measured = rig.measure(target, given.callers, core=others, seconds=seconds)
        tell(f"{number(measured.rate)} calls/s while it was watched, {measured.errors} errors")

    with rig.upstream(others) as upstream:
        launch = ours.remit(upstream.url, scratch, python=given.python)
        with running(launch, scratch, core) as gateway:
            asking = threading.Thread(target=ask, args=(gateway.target,))
            asking.start()
            asking.join(WARM_S)
            command = [str(part) for part in (*watch, "--pid", str(gateway.pid))]
            done = subprocess.run(command, capture_output=True, text=True)
            asking.join()
    if done.returncode:
        raise UnavailableError(f"py-spy failed: {done.stderr.strip()[-500:]}")


def flame_of(folded: str) -> Flame:
    """What worked, by thread; from the loop or the thread's function on."""
    root = Flame()
    for line in folded.splitlines():
        stack, _, samples = line.rpartition(" ")
        thread, *frames = stack.split(";")
        named = [name for name in frames if not _NAMELESS.match(name)]
        if not named or any(_WAITS.search(name) for name in named[-2:]):
            continue
        begins = [at for at, name in enumerate(named) if name.startswith(_BEGINNINGS)]
        named = named[begins[0] + 1 if begins else 0 :]
        useful = [name for name in named if not _TRIVIAL.search(name)]
        root.add([_THREAD.sub("", thread) or "a thread", *useful], int(samples))
    return root


def main() -> None:
    """Draw."""
    parser = parser_of("benchmarks.gateways.flame")
    parser.add_argument("file", type=Path, help="to write")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--rate", type=int, default=100, help="samples a second")
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--python", default=sys.executable, help="of the Remit to watch")
    given = parser.parse_args()
    with run_of(given) as (scratch, _):
        folded = scratch / "folded"
        record(folded, scratch, given)
        flame = flame_of(folded.read_text())
    title = f"remit serve, {given.callers} callers, {flame.samples} samples of threads that work"
    given.file.write_text(svg(flame, title), "utf-8")
    tell(f"{given.file}: {given.file.stat().st_size / 1000:.0f} KB, {flame.samples} samples")


if __name__ == "__main__":
    main()
