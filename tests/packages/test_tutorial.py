"""docs/packages.md, followed to the letter."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import run_program
from tests.support.upstream import Upstream
from tests.support.upstream import upstream as running_upstream

PAGE = Path(__file__).parents[2] / "docs" / "packages.md"
_BLOCK = re.compile(r"(?:`([\w./-]+)`:\n\n```json\n(.*?)```)|```console\n(.*?)```", re.DOTALL)


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with running_upstream() as server:
        yield server


def test_the_page_does_what_it_says(tmp_path: Path, upstream: Upstream) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "remit").write_text(f'#!/bin/sh\nexec {sys.executable} -m remit "$@"\n')
    (programs / "remit").chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith("REMIT_")}
    environment = {
        **kept,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "OPENAI_BASE_URL": f"{upstream.url}/v1",
        "OPENAI_API_KEY": "test",
    }
    commands = 0
    for found in _BLOCK.finditer(PAGE.read_text()):
        path, content, console = found.groups()
        if path:
            (work / path).write_text(content)
            continue
        for step in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
            command, _, told = step.partition("\n")
            if re.fullmatch(r"remit [^|<>$&;]*", command):  # forked: it begins with its imports
                arguments = shlex.split(command)[1:]
                run = run_program("-m", "remit", *arguments, environment=environment, cwd=work)
            else:
                run = subprocess.run(
                    ["sh", "-c", command], cwd=work, env=environment, capture_output=True, text=True
                )
            said = run.stdout + run.stderr
            expected = [line for line in told.splitlines() if line.strip("… ")]
            fails = any(line.startswith(("error:", "FAIL")) for line in expected)
            assert (run.returncode != 0) == fails, (command, said)
            for line in expected:
                wanted = re.escape(line).replace("…", ".*")
                assert re.search(wanted, said), (command, line, said)
            commands += 1
    assert commands > 20
