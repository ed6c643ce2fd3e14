"""The stand-alone verifier, run as a stranger would: no package of ours, no site-packages."""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["SCRIPT", "load_standalone", "standalone"]

SCRIPT = Path(__file__).parents[2] / "docs/verify_standalone.py"


def standalone(*arguments: str | Path, script: Path = SCRIPT) -> subprocess.CompletedProcess[str]:
    """Run it."""
    return subprocess.run(
        [sys.executable, "-I", "-S", "-W", "error::SyntaxWarning", str(script),
         *map(str, arguments)],
        capture_output=True, text=True, timeout=60, check=False, env={}, cwd=script.parent,
    )  # fmt: skip


def load_standalone() -> Any:
    """Return the script as a module; it checks each signature once."""
    spec = importlib.util.spec_from_file_location("verify_standalone", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.check_signature = functools.cache(module.check_signature)
    return module
