"""The command line, run in the test's own process."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from remit.cli import main

__all__ = ["remit_json", "require_said", "run_remit"]


def run_remit(
    *arguments: object,
    cwd: Path | None = None,
    stdin: str = "",
    environment: Mapping[str, str | None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run ``remit ARGUMENTS``.

    Args:
        arguments: the command line, without the program.
        cwd: the directory to run in; the present one when left out.
        stdin: what is typed.
        environment: changed variables; ``None`` removes one.

    Returns:
        Exit code and output, as of a process.
    """
    code: str | int | None = 0
    with (
        contextlib.chdir(cwd or Path.cwd()),
        CliRunner().isolation(stdin, env=environment) as (out, error, _),
    ):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as leave:
            code = leave.code
        sys.stdout.flush()
        sys.stderr.flush()
        texts = [stream.getvalue().decode() for stream in (out, error)]
    assert isinstance(code, int | None)
    return subprocess.CompletedProcess(arguments, code or 0, *texts)


def remit_json(*arguments: object, code: int = 0) -> Any:
    """Run ``remit ARGUMENTS --json`` to its exit code; return what it printed."""
    done = run_remit(*arguments, "--json")
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def require_said(done: subprocess.CompletedProcess[str], *said: str, code: int = 1) -> None:
    """Require an exit code of a command, and these texts in its standard error."""
    assert done.returncode == code, done
    for text in said:
        assert text in done.stderr
