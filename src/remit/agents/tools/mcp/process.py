"""A server that is started here: its process, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence

from remit.agents.tools.tool import ToolError

__all__ = ["ServerProcess"]

_LAST_LINES = 5
_LINE_CHARS = 300
_LOOK_S = 0.01
# Asks Linux to end the server when the thread that started it ends, however it ends: after
# SIGKILL nothing of ours is left to do it. Elsewhere the end of its stdin has to do.
_LAUNCH = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class ServerProcess:
    """A child in a process group of its own, with pipes that do not block.

    Args:
        command: program, looked up in the ``PATH`` of ``environment``.
        arguments: its arguments.
        environment: all of its environment.
        directory: where it runs; ours when empty.

    Raises:
        ToolError: there is no such program, or it cannot be started.
    """

    def __init__(
        self,
        command: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        directory: str,
    ) -> None:
        program = _found(command, environment, directory)
        line = [program, *arguments]
        if sys.platform == "linux" and sys.executable:
            line = [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *line]
        try:
            self._child = subprocess.Popen(  # noqa: S603 - the operator's own setting
                line,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(environment),
                cwd=directory or None,
                start_new_session=True,
                bufsize=0,
            )
        except (OSError, ValueError) as error:
            raise ToolError(
                f"{command} cannot be started: {type(error).__name__}.",
                next_step="Check command, args and cwd.",
            ) from error
        pipes = (self._child.stdin, self._child.stdout, self._child.stderr)
        self._pipes = [pipe for pipe in pipes if pipe is not None]
        self.stdin, self.stdout, self.stderr = (pipe.fileno() for pipe in self._pipes)
        for number in (self.stdin, self.stdout, self.stderr):
            os.set_blocking(number, False)
        self._said: deque[str] = deque(maxlen=_LAST_LINES)
        self._saying = b""

    def listen(self, chunk: bytes) -> None:
        """Keep the last lines of what it writes to stderr."""
        *lines, rest = (self._saying + chunk).split(b"\n")
        self._saying = rest[-4 * _LINE_CHARS :]
        for line in lines[-_LAST_LINES:]:
            self._keep(line)

    def last_words(self) -> str:
        """The last lines of its stderr; empty when it wrote nothing. They may hold secrets."""
        if self._saying:
            self._keep(self._saying)
            self._saying = b""
        return "\n".join(self._said)

    def _keep(self, line: bytes) -> None:
        if text := line.decode("utf-8", "replace").strip():
            self._said.append(text[:_LINE_CHARS])

    async def stop(self, patience_s: float) -> None:
        """Close its stdin, wait, SIGTERM to the group, wait, SIGKILL to the group.

        Args:
            patience_s: each of the two waits, seconds.
        """
        self._pipes[0].close()
        for sent in (None, signal.SIGTERM):
            if sent is not None:
                self._signal(sent)
            if await self._ended(patience_s):
                break
        self._signal(signal.SIGKILL)  # whoever of its group is left
        await self._ended(patience_s)

    def close(self) -> None:
        """Close the pipes, when nobody reads from them any more."""
        for pipe in self._pipes:
            pipe.close()

    async def _ended(self, patience_s: float) -> bool:
        loop = asyncio.get_running_loop()
        end = loop.time() + patience_s
        while self._child.poll() is None:
            if loop.time() >= end:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, number)


def _found(command: str, environment: Mapping[str, str], directory: str) -> str:
    here = os.path.join(directory, command) if os.sep in command else command
    program = shutil.which(here, path=environment.get("PATH", os.defpath))
    if program is None:
        raise ToolError(
            f"There is no program {command!r}.",
            next_step="Install it, or write its full path.",
        )
    return os.path.abspath(program)
