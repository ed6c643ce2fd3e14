"""The stand-alone verifier, run as a stranger would: no package of ours, no site-packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

__all__ = ["SCRIPT", "standalone"]

SCRIPT = Path(__file__).parents[2] / "docs/verify_standalone.py"


def standalone(*arguments: str | Path, script: Path = SCRIPT) -> subprocess.CompletedProcess[str]:
    """Run it."""
    return subprocess.run(
        [sys.executable, "-I", "-S", "-W", "error::SyntaxWarning", str(script),
         *map(str, arguments)],
        capture_output=True, text=True, timeout=60, check=False, env={}, cwd=script.parent,
    )  # fmt: skip
