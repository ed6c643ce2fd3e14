"""Without the extra ``index``, everything else works."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_RUN = """
import json, sys
sys.modules["tuf"] = sys.modules["urllib3"] = None
from click.testing import CliRunner
from remit.cli.main import _remit as cli
done = []
for words in json.loads(sys.argv[1]):
    ran = CliRunner().invoke(cli, words)
    done.append([ran.exit_code, ran.output, str(ran.exception)])
print(json.dumps(done))
"""


def test_only_indexes_need_the_extra(tmp_path: Path) -> None:
    root = ("--root", str(tmp_path / "root"))
    commands = [
        ["init", "--bare", str(tmp_path / "root")],
        ["package", "list", *root],
        ["package", "install", str(tmp_path / "none.tar.gz"), *root],
        ["package", "index", "list", *root],
        ["package", "install", "PKG-NONE-001", *root],
    ]
    ran = subprocess.run(
        [sys.executable, "-c", _RUN, json.dumps(commands)],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    made, listed, installed, *indexes = json.loads(ran.stdout)
    assert (made[0], listed[0]) == (0, 0), ran.stdout
    assert "cannot be read" in installed[2]
    for code, _, error in indexes:
        assert code == 1
        assert "the extra 'index'" in error
