"""Without the extra ``index``, everything else works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_RUN = """
import sys
sys.modules["tuf"] = sys.modules["urllib3"] = None
from remit.cli import main
main()
"""


def remit(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _RUN, *arguments],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def test_only_indexes_need_the_extra(tmp_path: Path) -> None:
    root = ("--root", str(tmp_path / "root"))
    for words in (("init", str(tmp_path / "root")), ("package", "list", *root)):
        done = remit(*words)
        assert done.returncode == 0, done.stderr
    assert "PKG-KERNEL-001" in done.stdout
    for words in (("package", "index", "list"), ("package", "install", "PKG-NONE-001")):
        done = remit(*words, *root)
        assert done.returncode == 1
        assert "pip install 'remit[index]'" in done.stderr
        assert "Traceback" not in done.stderr
