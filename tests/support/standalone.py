"""The stand-alone verifier: run as a stranger would, in this process, or loaded as a module."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import io
import subprocess
import sys
from pathlib import Path
from types import CodeType
from typing import Any
from unittest import mock

__all__ = ["SCRIPT", "load_standalone", "standalone"]

SCRIPT = Path(__file__).parents[2] / "docs/verify_standalone.py"


def standalone(
    *arguments: str | Path, script: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the script with arguments; return its exit code and output.

    Args:
        arguments: the command line.
        script: the script, in an interpreter of its own without site-packages. Left out,
            ``docs/verify_standalone.py`` runs in this process.
    """
    line = [*map(str, arguments)]
    if script:
        return subprocess.run(
            [sys.executable, "-I", "-S", "-W", "error::SyntaxWarning", str(script), *line],
            capture_output=True, text=True, timeout=60, check=False, env={}, cwd=script.parent,
        )  # fmt: skip
    code: str | int | None = 0
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as errors,
        contextlib.chdir(SCRIPT.parent),
        mock.patch.object(sys, "argv", [str(SCRIPT), *line]),
    ):
        try:
            exec(_compiled(), {"__name__": "__main__"})
        except SystemExit as leave:
            code = leave.code
    said = errors.getvalue()
    if isinstance(code, str):  # printed by the interpreter, which then exits with 1
        code, said = 1, f"{said}{code}\n"
    return subprocess.CompletedProcess(line, code or 0, out.getvalue(), said)


@functools.cache
def _compiled() -> CodeType:
    return compile(SCRIPT.read_text("utf-8"), str(SCRIPT), "exec")


@functools.cache
def load_standalone() -> Any:
    """Return the script as a module, the same in each call; it checks each signature once."""
    spec = importlib.util.spec_from_file_location("verify_standalone", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.check_signature = functools.cache(module.check_signature)
    return module
