"""Processes that start warm: each is forked from a server that has imported Remit already."""

from __future__ import annotations

import gc
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import IO, Self

__all__ = ["Program", "run_forked", "run_program"]

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["remit.runtime", "remit.packages", "remit.agents.supervisor", "remit.cli.serve",
     "remit.server.current_application", "remit.server.http_server", "remit.server.mcp",
     "aiohttp.web", "tests.support.upstream_answers", "tests.support.frozen"]
)  # fmt: skip


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


class Program:
    """``python ARGUMENTS``, with what tests use of :class:`subprocess.Popen`.

    Entered and left as that is: at the end of the block its pipes are closed, and it is waited for.

    Args:
        arguments: ``-m`` with a module or ``-c`` with a program, and what it is given.
        environment: all its variables. What an interpreter reads as it starts has no effect.
        cwd: the directory to run in; the present one when left out.
        errors: the file that its standard error goes to; left out, that of this process.
        new_session: it leads a session of its own.
    """

    def __init__(
        self,
        *arguments: str,
        environment: Mapping[str, str],
        cwd: Path | None = None,
        errors: Path | None = None,
        new_session: bool = False,
    ) -> None:
        self.args = [sys.executable, *arguments]
        self._exit: int | None = None
        read_in, write_in = _CONTEXT.Pipe(duplex=False)
        read_out, write_out = _CONTEXT.Pipe(duplex=False)
        self._process = _CONTEXT.Process(
            target=_program,
            args=(self.args[1:], dict(environment), cwd or Path.cwd(), read_in, write_out, errors,
                  new_session),
        )  # fmt: skip
        self._process.start()
        read_in.close()
        write_out.close()
        self.stdin: IO[str] = os.fdopen(os.dup(write_in.fileno()), "w", encoding="utf-8")
        self.stdout: IO[str] = os.fdopen(os.dup(read_out.fileno()), encoding="utf-8")
        write_in.close()
        read_out.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; ``None`` until it was seen to have ended."""
        return self._exit

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        if self._exit is None:
            self._exit = self._process.exitcode
        return self._exit

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended; :class:`subprocess.TimeoutExpired`."""
        if self._exit is None:
            self._process.join(timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: object, *_: object) -> None:
        if failure is not None:  # else a test that fails would wait for a program that follows
            self.kill()
        self.stdout.close()
        self.stdin.close()
        self.wait()
        self._process.close()


def run_program(
    *arguments: str, environment: Mapping[str, str], cwd: Path | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a :class:`Program` to its end: its exit code and output."""
    with tempfile.TemporaryDirectory() as directory:
        errors = Path(directory, "stderr")
        with Program(*arguments, environment=environment, cwd=cwd, errors=errors) as program:
            program.stdin.write(stdin)
            program.stdin.close()
            said = program.stdout.read()
            code = program.wait()
        return subprocess.CompletedProcess(program.args, code, said, errors.read_text())


def _program(
    line: list[str],
    environment: dict[str, str],
    cwd: Path,
    given: Connection,
    out: Connection,
    errors: Path | None,
    new_session: bool,
) -> None:
    if new_session:
        os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    for connection, number in ((given, 0), (out, 1)):
        os.dup2(connection.fileno(), number)
        connection.close()
    if errors is not None:
        descriptor = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, 2)
        os.close(descriptor)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", buffering=1, closefd=False)
    kind, what, *sys.argv[1:] = line
    try:
        if kind == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            sys.modules["__main__"] = main = ModuleType("__main__")
            exec(compile(what, "<string>", "exec"), main.__dict__)
    finally:
        gc.collect()  # what was never awaited says so, as at the end of any interpreter


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
