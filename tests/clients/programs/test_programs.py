"""Coding agents: each is told to make a file, and makes it with its own tools."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import BEDROCK_CLAUDE, VERTEX_CLAUDE, Side, not_bytes

_CLIENTS = Path(__file__).parents[3] / ".venv" / "clients"
BIN = _CLIENTS / "node" / "node_modules" / ".bin"
_AIDER = _CLIENTS / "aider" / "bin" / "aider"
_WORDS = "Make the file hello.txt that says good morning"


def _run(side: Side, place: Path, program: Path, *arguments: str, **variables: str) -> str:
    if not program.exists():
        pytest.skip(f"{program.name} is not installed")
    home, work = place / "home", place / "work"
    home.mkdir(exist_ok=True)
    work.mkdir(exist_ok=True)
    done = subprocess.run(
        [program, *arguments], cwd=work, capture_output=True, text=True, timeout=100, check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **side.variables(), "HOME": str(home), "PWD": str(work),
             "XDG_CONFIG_HOME": str(home),
             "XDG_DATA_HOME": str(home), "XDG_CACHE_HOME": str(home), **variables},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    made = work / "hello.txt"
    assert made.exists(), done.stdout + done.stderr
    assert made.read_text().strip() == "good morning"
    return done.stdout


# Their requests hold dates, places and ids of the run: they are not compared byte for byte.


@not_bytes
@pytest.mark.parametrize("cloud", ["", "bedrock", "vertex"])
def test_claude_code(side: Side, tmp_path: Path, cloud: str) -> Any:
    variables = {
        "": {},
        "bedrock": {"CLAUDE_CODE_USE_BEDROCK": "1", "AWS_BEARER_TOKEN_BEDROCK": side.key,
                    "ANTHROPIC_BEDROCK_BASE_URL": side.url, "AWS_REGION": "us-east-1",
                    "ANTHROPIC_MODEL": BEDROCK_CLAUDE,
                    "ANTHROPIC_SMALL_FAST_MODEL": BEDROCK_CLAUDE},
        "vertex": {"CLAUDE_CODE_USE_VERTEX": "1", "CLAUDE_CODE_SKIP_VERTEX_AUTH": "1",
                   "ANTHROPIC_VERTEX_BASE_URL": f"{side.url}/v1", "CLOUD_ML_REGION": "l",
                   "ANTHROPIC_VERTEX_PROJECT_ID": "p", "ANTHROPIC_MODEL": VERTEX_CLAUDE,
                   "ANTHROPIC_SMALL_FAST_MODEL": VERTEX_CLAUDE,
                   "ANTHROPIC_CUSTOM_HEADERS": f"x-goog-api-key: {side.key}"},
    }[cloud]  # fmt: skip
    said = _run(
        side, tmp_path, BIN / "claude", "-p", _WORDS, "--permission-mode", "acceptEdits",
        "--output-format", "json", DISABLE_TELEMETRY="1", DISABLE_AUTOUPDATER="1",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1", **variables,
    )  # fmt: skip
    told = json.loads(said)
    return [told["result"], told["num_turns"], told["is_error"]]


@not_bytes
def test_codex(side: Side, tmp_path: Path) -> Any:
    _run(
        side, tmp_path, BIN / "codex", "exec", "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox", "-c", f'openai_base_url="{side.url}/v1"',
        _WORDS, CODEX_API_KEY=side.key,
    )  # fmt: skip


@not_bytes
@pytest.mark.parametrize("model", ["openai/gpt-4.1", "anthropic/claude-sonnet-4-5"])
def test_opencode(side: Side, tmp_path: Path, model: str) -> Any:
    there = {"options": {"baseURL": f"{side.url}/v1", "apiKey": side.key}}
    given = {"provider": {"openai": there, "anthropic": there}, "autoupdate": False,
             "share": "disabled"}  # fmt: skip
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "opencode.json").write_text(json.dumps(given))
    _run(side, tmp_path, BIN / "opencode", "run", "-m", model, _WORDS)


@not_bytes
def test_gemini_cli(side: Side, tmp_path: Path) -> Any:
    (tmp_path / "home" / ".gemini").mkdir(parents=True)
    settings = {"security": {"auth": {"selectedType": "gemini-api-key"}},
                "privacy": {"usageStatisticsEnabled": False}}  # fmt: skip
    (tmp_path / "home" / ".gemini" / "settings.json").write_text(json.dumps(settings))
    said = _run(
        side, tmp_path, BIN / "gemini", "-m", "gemini-2.5-flash", "--skip-trust", "--yolo",
        "--output-format", "json", "-p", _WORDS, GEMINI_API_KEY=side.key,
        GOOGLE_GEMINI_BASE_URL=side.url,
    )  # fmt: skip
    return json.loads(said)["response"]


@not_bytes
@pytest.mark.parametrize("model", ["gpt-4o-mini", "gpt-4o", "anthropic/claude-sonnet-4-5"])
def test_aider(side: Side, tmp_path: Path, model: str) -> Any:
    _run(
        side, tmp_path, _AIDER, "--model", model, "--yes", "--no-git", "--no-check-update",
        "--no-show-model-warnings", "--no-analytics", "--no-show-release-notes", "--message",
        _WORDS, "hello.txt",
    )  # fmt: skip
