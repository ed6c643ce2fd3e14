"""Processes that start warm: each is forked from a server that has imported Remit already."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

__all__ = ["run_forked"]

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["remit.runtime", "remit.packages", "remit.agents.supervisor"])


def run_forked(
    function: Callable[..., object],
    *arguments: object,
    environment: Mapping[str, str],
    timeout_s: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Call a function of a module in a process of its own, which begins with nothing but imports.

    Args:
        function: what is called; importable by its name.
        arguments: for it.
        environment: all variables of the process.
        timeout_s: after that it is killed, seconds.

    Returns:
        Its exit code (negative: the signal that ended it), and what it printed.
    """
    with tempfile.TemporaryDirectory() as directory:
        files = (Path(directory, "stdout"), Path(directory, "stderr"))
        process = _CONTEXT.Process(
            target=_child, args=(function, arguments, dict(environment), files)
        )
        process.start()
        process.join(timeout_s)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise TimeoutError(f"{function.__name__} took over {timeout_s} s.")
        texts = [file.read_text() if file.exists() else "" for file in files]
        assert process.exitcode is not None
        code = process.exitcode
        process.close()
    return subprocess.CompletedProcess([function.__name__], code, *texts)


def _child(
    function: Callable[..., object],
    arguments: tuple[object, ...],
    environment: dict[str, str],
    files: tuple[Path, Path],
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for stream, file in zip((sys.stdout, sys.stderr), files, strict=True):
        stream.flush()
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), stream.fileno())
    function(*arguments)
