"""``docs/trail.md`` for an independent reader: its example holds without Remit."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[3]
PAGE = (TOP / "docs/trail.md").read_text()


def _program() -> str:
    program = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    assert "remit" not in program
    return str(program)


def test_the_example_is_checked_by_the_page_s_own_program() -> None:
    program = _program()
    subprocess.run([sys.executable, "-I", "-c", program], check=True, timeout=60)
    for old, new in (
        ("Ask which", "Ask who"),
        ('"THT-2"', '"THT-3"'),
        ('"hash":"b7', '"hash":"b8'),
    ):
        assert program.count(old) == 1
        broken = subprocess.run(
            [sys.executable, "-I", "-c", program.replace(old, new)],
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert b"AssertionError: THT-" in broken.stderr


def test_the_bytes_of_the_page_have_the_hash_of_the_page() -> None:
    (hashed,) = re.findall(r'```json\n(\{"content".*?)\n```', PAGE)
    lines = re.search(r'LINES = """\n(.*?)"""', _program(), re.DOTALL)
    assert lines is not None
    first = json.loads(lines[1].splitlines()[0])
    assert hashlib.sha256(hashed.encode()).hexdigest() == first["hash"]
