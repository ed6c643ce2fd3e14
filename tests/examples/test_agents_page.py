"""``docs/agents.md``: its Python runs from top to bottom as one program, its commands after it.

Conventions of the page: ``py`` is Python that continues the block before, or a program of its own
if the first line names its file; ``toml`` is a part of ``remit.toml``, ``sh`` holds commands for a
root in which all that has happened.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remit import LedgerClient
from tests.examples.playing import EXAMPLES, PATIENCE_S, Asked, Use, playing
from tests.support.commands import run_remit

PAGE = EXAMPLES.parent / "docs/agents.md"
TEXT = PAGE.read_text()
FILE = re.compile(r"# (\w+\.py)\n")
LEFT_OUT = re.compile(r"(?:SES|LED)-…")


def blocks(language: str) -> list[str]:
    """The page's blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


WISHES: tuple[tuple[str, Use], ...] = (
    ("Is there any oolong?", ("stock", {"tea": "oolong"})),
    ("Is there any sencha?", ("stock", {"tea": "sencha"})),
    ("Find out what is in stock.", ("stock", {"tea": "oolong"})),
    ("Buy 10 packets of sencha.", ("order_tea", {"tea": "sencha", "packets": 10})),
    ("Ask the expert about oolong.", ("expert", {"task": "Tell about oolong."})),
)
HELD: tuple[tuple[str, dict[str, Any]], ...] = (
    ("How do I brew oolong?", {"tea": "oolong", "minutes": 3}),
    ("Which teas are green?", {"result": ["sencha", "gyokuro"]}),
    ("charged twice", {"topic": "billing", "urgent": True}),
    ("export my data", {"topic": "question", "urgent": False}),
)


def reader(asked: Asked) -> str | Use | dict[str, Any]:
    """The model that the page talks to."""
    if asked.held:
        for phrase, data in HELD:
            if phrase in asked.text:
                return data
        return {"verdict": "accept", "reasons": []}
    if asked.results:
        return f"This is what came of it: {asked.results[-1]}"
    for phrase, use in WISHES:
        if phrase in asked.text and use[0] in asked.tools:
            return use
    return "Tea needs three minutes."


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory with the examples beside it, as in a clone."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(EXAMPLES)
    return tmp_path


def _run(place: Path, environment: dict[str, str]) -> str:
    """The page as one program; what it printed."""
    program = place / "page.py"
    program.write_text("\n".join(block for block in blocks("py") if not FILE.match(block)))
    done = subprocess.run(
        [sys.executable, str(program)], cwd=place, env=environment, capture_output=True, text=True,
        timeout=4 * PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_runs(place: Path) -> None:
    with playing("anthropic", reader) as model:
        printed = _run(place, model.environment)
        assert "[stock …]\nThis is what came of it: 0" in printed
        advice = next(one.text for one in model.asked if "Recommend the tea" in one.text)
        assert "This is what came of it: 3" in advice  # of one step
        assert "three minutes" in advice  # and of the other
    _commands(place)


@pytest.mark.parametrize(("said", "comes"), [("y", "10 packets of sencha are ordered"), ("n", "")])
def test_the_complete_program_runs(place: Path, said: str, comes: str) -> None:
    (block,) = (block for block in blocks("py") if FILE.match(block))
    named = FILE.match(block)
    assert named
    (place / named[1]).write_text(block)
    with playing("openai", reader) as model:
        done = subprocess.run(
            [sys.executable, named[1]], cwd=place, env=model.environment, capture_output=True,
            text=True, timeout=PATIENCE_S, input=f"Buy 10 packets of sencha.\n{said}\n",
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Approve order_tea {'tea': 'sencha', 'packets': 10}? [y/N] This is" in done.stdout
    assert comes in done.stdout
    assert comes or "are ordered" not in done.stdout


def _commands(place: Path) -> None:
    """Every command of the page, in the root that the page left."""
    with LedgerClient(str(place / ".remit/ledger.db")) as ledger:
        (waited,) = ledger.read_by_event_type("APPROVAL_REQUESTED")
    session = waited.metadata["provenance"]["session_id"]
    ran = 0
    for command in "".join(blocks("sh")).splitlines():
        words = shlex.split(command, comments=True)
        assert words[0] == "remit"
        told = [
            {"SES": session, "LED": waited.id}[word[:3]] if LEFT_OUT.fullmatch(word) else word
            for word in words[1:]
        ]
        done = run_remit(*told, cwd=place)
        if words[1:2] == ["approve"] and len(words) > 2:  # the page decided it in Python
            assert " already." in done.stderr
        else:
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        ran += 1
    assert ran, "the page shows no command"


def test_the_first_agent_takes_ten_lines_at_most() -> None:
    lines = [line for line in blocks("py")[0].splitlines() if line.strip()]
    assert len(lines) <= 10


def test_nothing_on_the_page_is_left_untried() -> None:
    assert set(re.findall(r"^```(\w+)$", TEXT, re.MULTILINE)) == {"py", "toml", "sh"}
