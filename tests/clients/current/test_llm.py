"""``llm``, the program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import Side


def _llm(side: Side, home: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "llm", *arguments], capture_output=True, text=True, check=False,
        env={**os.environ, **side.variables(), "LLM_USER_PATH": str(home)}, timeout=60,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("more", [[], ["--no-stream"]], ids=["stream", "whole"])
def test_prompt(side: Side, tmp_path: Path, more: list[str]) -> Any:
    return _llm(side, tmp_path, "-m", "gpt-4o-mini", "-s", "Be brief.", *more, "hello")


def test_default_model(side: Side, tmp_path: Path) -> Any:
    return _llm(side, tmp_path, "hello")


def test_schema(side: Side, tmp_path: Path) -> Any:
    return _llm(side, tmp_path, "-m", "gpt-4o-mini", "--schema", "name, age int", "Ann is 41.")


def test_tool(side: Side, tmp_path: Path) -> Any:
    code = "def get_weather(city: str) -> str:\n    'Weather of a city.'\n    return 'sunny'\n"
    return _llm(side, tmp_path, "-m", "gpt-4o-mini", "--functions", code,
                '[[call get_weather {"city": "Bern"}]]')  # fmt: skip


def test_embed(side: Side, tmp_path: Path) -> Any:
    return _llm(side, tmp_path, "embed", "-m", "3-small", "-c", "hello")
