"""What the documentation names exists: commands and options, settings, endpoints, names in code."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from remit.cli.main import _remit
from remit.kernel.settings import Settings, default_settings
from tests.docs.test_docs import TOP

# Decisions and the changelog also name what was.
PAGES = [
    path
    for folder in (".", "docs", "docs/operations", "docs/vectors", "deploy")
    for path in TOP.glob(f"{folder}/*.md")
]
PAGES = [page for page in PAGES if page.name != "CHANGELOG.md"]
CODE = (".py", ".toml", ".json", ".sh", ".html", ".js", ".yaml", ".conf", "")
PLACES = [
    "src",
    "extras",
    "tests",
    "examples",
    "benchmarks",
    "tools",
    "deploy",
    "pyproject.toml",
    "Makefile",
]
# Names of other programs, and of a reader's own things.
OTHERS = frozenset(
    {
        "KEY_ID", "MCPToolset", "MY_APP_KEY", "NAME__get_prompt", "NAME__list_prompts",
        "NAME__list_resources", "NAME__read_resource", "NAME__tool", "REMIT_KEY",
        "StdioTransport", "buildah", "claude_desktop_config", "fastmcp", "https_proxy",
        "limit_conn", "limit_req", "multipleOf", "non_idempotent", "pg_checkpoint",
        "pg_read_all_stats", "synchronous_standby_names",
    }
)  # fmt: skip
# Names of the two earlier designs, which docs/concepts.md maps to Remit's.
ORIGINAL = frozenset(
    {
        "prompt_router", "llm_gateway", "gate_check", "routeRequest", "zetaEmitter",
        "PROMPT_SENT", "PROMPT_RECEIVED", "append",
    }
)  # fmt: skip
COMMAND = re.compile(r"(?:\$ )?(?:[A-Z_]+=\S+ )*remit ([a-z-].*)")
OF_ALL = {"--help", "-h", "--version"}


def _spans(text: str) -> Iterator[str]:
    """What stands in backticks on one line, and the lines of blocks for a shell."""
    yield from re.findall(r"`([^`\n]+)`", text)
    for block in re.findall(r"```(?:console|sh)\n(.*?)```", text, re.DOTALL):
        yield from block.replace("\\\n", " ").splitlines()


def _command_problem(line: str) -> str:
    """What a command line names that does not exist; empty when nothing."""
    words = re.split(r"\s+", re.split(r"[|#;&>]", line)[0].strip())
    command: click.Command = _remit
    context = click.Context(_remit)
    while isinstance(command, click.Group) and words and words[0][:1].isalpha():
        found = command.get_command(context, words[0])
        if found is None:
            return f"Unknown command {words[0]!r}"
        command, words = found, words[1:]
    options = {name for one in command.params for name in [*one.opts, *one.secondary_opts]}
    for word in words:
        name = word.split("=")[0].strip("[],.()")
        if re.fullmatch(r"--?[a-z][\w-]*", name) and name not in options | OF_ALL:
            return f"no option {name!r}"
    return ""


@functools.cache
def _words() -> frozenset[str]:
    files = [path for place in PLACES for path in [TOP / place, *(TOP / place).rglob("*")]]
    texts = (path.read_text("utf-8", "ignore") for path in files
             if path.is_file() and (path.suffix in CODE or path.name == "Makefile"))  # fmt: skip
    return frozenset(word for text in texts for word in re.findall(r"[A-Za-z_]\w*", text))


def _variable(word: str) -> bool:
    """Whether a word is a setting as a variable of the environment."""
    section = re.fullmatch(r"REMIT_([A-Z0-9_]+?)__[A-Z0-9_]+", word)
    return section is not None and section[1].lower() in Settings.model_fields


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("ledger query --event-type X | head", ""),
        ("mcp --http", ""),
        ("mcp pins", ""),
        ("ledger fly", "Unknown command 'fly'"),
        ("serve --wings", "no option '--wings'"),
    ],
)
def test_a_command_that_does_not_exist_is_found(line: str, problem: str) -> None:
    assert _command_problem(line) == problem


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    missing = []
    for span in _spans(text):
        if (command := COMMAND.match(span.strip())) and (problem := _command_problem(command[1])):
            missing.append(f"`{span}`: {problem}")
        if re.fullmatch(r"[A-Za-z_][\w.]*(?:\(.*\))?", span):
            for word in re.findall(r"[A-Za-z_]\w*", span.split("(")[0]):
                known = (
                    {word, word.upper()} & _words() or word in OTHERS | ORIGINAL or _variable(word)
                )
                if not known:
                    missing.append(f"`{span}`: nothing is called {word!r}")
    settings = default_settings()
    for section, name in re.findall(r"`\[([a-z_]+)\] ([a-z_]+)`", text):
        fields = type(getattr(settings, section, None)).__dict__.get("model_fields", {})
        if section not in type(settings).model_fields or (fields and name not in fields):
            missing.append(f"`[{section}] {name}`: no such setting")
    assert not missing, "\n".join(missing)


def test_the_endpoints_that_the_pages_name_exist() -> None:
    source = " ".join(path.read_text() for path in (TOP / "src/remit").rglob("*.py"))
    known = set(re.findall(r"\w+", source))
    for page in PAGES:
        for place in re.findall(r"`(?:(?:GET|POST|PUT|PATCH|DELETE) )?/(?:v1|api)/([\w{}/.:…-]+)`",
                                page.read_text()):  # fmt: skip
            for part in place.split("/"):
                is_variable = re.search(r"[{}A-Z…]", part)
                assert is_variable or {*re.findall(r"\w+", part)} <= known, f"{page.name}: {place}"
