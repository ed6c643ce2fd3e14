"""The documentation is held to the code."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.cli.main import _COMMANDS
from remit.ledger import EVENTS
from tests.docs import python_api, served_paths, verbs
from tools.doors import Checkout

TOP = Path(__file__).parents[2]
PAGES = [*TOP.glob("*.md"), *TOP.glob("docs/**/*.md"), *TOP.glob("benchmarks/*.md")]
WITH_EXAMPLES = [page for page in PAGES if "```python\n" in page.read_text()]


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if not target.startswith(("http://", "https://")):
                assert (page.parent / target).exists(), f"{page}: {target}"


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: str(page.relative_to(TOP)))
def test_python_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)):
        exec(compile(code, f"{page.name}#{number}", "exec"), {"__name__": "example"})


def test_every_threat_has_a_test_that_exists() -> None:
    page = (TOP / "docs/threat-model.md").read_text()
    rows = [row.split("|")[1:-1] for row in page.splitlines() if row.startswith("| ")]
    held = [cells for cells in rows if len(cells) == 3 and cells[1].strip()][1:]
    assert len(held) > 25
    for threat, _, tests in held:
        named = re.findall(r"`([a-z_/]+(?:\.py)?)`", tests)
        assert named, threat
        for name in named:
            assert any(TOP.glob(f"{place}/{name}") for place in ("tests", "extras/*/tests")), name


def test_the_table_of_events_is_the_one_in_the_code() -> None:
    rows = {}
    for line in (TOP / "docs/events.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0].startswith("`"):
            rows[cells[0].strip("`")] = cells
    assert list(rows) == list(EVENTS)
    for name, event in EVENTS.items():
        _, writer, keys, meaning = rows[name]
        assert writer == (event.writer or "\u2013")
        assert meaning == event.meaning
        assert tuple(re.findall(r"(?<!\[)`(\w+)`", keys)) == event.keys
        assert tuple(re.findall(r"\[`(\w+)`\]", keys)) == event.optional


def test_the_picture_of_the_architecture_is_the_folders() -> None:
    page = (TOP / "docs/architecture.md").read_text()
    picture = page.split("```text")[1].split("```")[0]
    rooms = re.findall(r"^ │ (\w+)", picture, re.MULTILINE)
    layers = tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert rooms == [layer.strip("()") for layer in layers["contracts"][0]["layers"]]
    source = TOP / "src/remit"
    there = {path.parent for path in source.rglob("__init__.py")} - {source}
    assert {path.name for path in there if path.parent == source} == set(rooms)
    for path in there:
        assert re.search(rf"\b{path.name}\b", picture), path
    for module in re.findall(r"`([a-z_]+(?:/[a-z_]+)+\.py)`", page):
        assert (source / module).exists(), module


def test_the_page_of_verbs_is_what_the_operations_say() -> None:
    again = "`python -m tests.docs.verbs` writes docs/verbs.md again"
    assert (TOP / verbs.PAGE).read_text("utf-8") == verbs.page(), again


def test_the_page_of_the_python_api_is_what_the_code_says() -> None:
    page = (TOP / python_api.PAGE).read_text("utf-8")
    again = "`python -m tests.docs.python_api` writes docs/python.md again"
    assert page == python_api.page(), again


def test_the_readme_names_every_command() -> None:
    text = (TOP / "README.md").read_text()
    for command in _COMMANDS:
        assert f"remit {command}" in text, command


def test_public_names_are_importable_and_documented() -> None:
    import importlib
    import inspect
    import pkgutil

    import remit

    for info in pkgutil.iter_modules(remit.__path__, "remit."):
        if info.name in ("remit.__main__", "remit._version"):
            continue
        module = importlib.import_module(info.name)
        assert module.__doc__, info.name
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                assert value.__doc__, f"{info.name}.{name}"
    assert {"Runtime", "tool"} <= set(remit.__all__)
    earlier: dict[str, object] = {}
    exec("from remit.trail import *", earlier)
    assert not [name for name, value in earlier.items() if inspect.ismodule(value)]


def test_the_interface_that_scripts_rely_on() -> None:
    from remit import (  # noqa: F401
        LedgerClient,
        LedgerEntry,
        PromptRequest,
        PromptResponse,
        RemitError,
        RouteOutcome,
        Runtime,
    )
    from remit.gateway import (  # noqa: F401
        CircuitBreakerConfig,
        LLMGateway,
        PromptRouter,
        RouterConfig,
    )
    from remit.providers import MockProvider, Provider, ProviderError, ProviderResponse  # noqa: F401
    from tests.support.requests import provider_request

    answer = MockProvider().send(provider_request())
    assert (answer.content, answer.input_tokens, answer.output_tokens) == ("Mock response", 100, 50)


def test_the_names_of_a_door_are_listed_before_their_modules_are_imported() -> None:
    code = "import remit, sys; print('Runtime' in dir(remit), 'remit.runtime' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["True", "False"]


def test_a_breach_is_named_with_its_line_and_the_door_to_use(tmp_path: Path) -> None:
    files = {
        "pyproject.toml": '[tool.remit.doors]\nlow = ["shelf"]\nattic = []\n',
        "src/remit/__init__.py": "",
        "src/remit/kernel/__init__.py": '"""The kernel."""',
        "src/remit/kernel/durable_files.py": "x = 1",
        "src/remit/low/__init__.py": (
            '"""The lower room."""\n'
            "if TYPE_CHECKING:\n    from remit.low.inner import late\nelse:\n"
            "    __getattr__ = lazy_names(__name__)\n"
            '__all__ = ["late"]\n'
        ),
        "src/remit/low/inner.py": "from remit.low import late",
        "src/remit/low/shelf/__init__.py": '__all__ = ["Shelf"]',
        "src/remit/low/shelf/board.py": "class Shelf: ...",
        "src/remit/high/__init__.py": "",
        "src/remit/high/user.py": (
            "from remit.kernel.durable_files import x\n"
            "from remit.low import late, shelf\n"
            "from remit.low.shelf import Shelf\n"
            "from remit.low.shelf.board import Shelf\n"
            "def use():\n    from remit.low.inner import late, unknown\n"
            "    import remit.low.inner\n"
        ),
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    doors = "remit.low, remit.low.shelf."
    user = "src/remit/high/user.py"
    assert list(Checkout(tmp_path).problems()) == [
        "pyproject.toml: [tool.remit.doors] lists attic, which is no room.",
        "src/remit/high/__init__.py:1: the room's docstring has 0 lines; it needs 1 to 25.",
        f"{user}:4: remit.low.shelf.board is private to low; import Shelf from remit.low.shelf.",
        f"{user}:6: remit.low.inner is private to low; import late from remit.low.",
        f"{user}:6: remit.low.inner is private to low; export unknown from one of {doors}",
        f"{user}:7: remit.low.inner is private to low; export its names from one of {doors}",
        "src/remit/low/inner.py:1: late comes through the door of its own room; "
        "import it from the module that defines it.",
    ]


PAGE = (TOP / "docs/concepts.md").read_text("utf-8")
ORIGINAL = """
HOT | HO2 | HO1 | plane root | plane | tier | FMWK- | SPEC- | PKG-
G0A | G0B | G1-COMPLETE | G2 | G5 | 8/8 gates
install.sh --root R --dev | gate_check.py --root R --all --enforce | tar czf | CP_BOOTSTRAP.tar.gz
results files | 13 packages | LedgerEntry | layer 0 | metadata | LED- | HO1/ledger/ho1m.jsonl
HO2/ledger/ho2m.jsonl | HOT/ledger/governance.jsonl | HOT/ledger/packages.jsonl | `write` | `append`
prompt_router.py | llm_gateway.py | PromptRouter | LLMGateway | PromptRequest | PromptResponse
RouterConfig | RouteOutcome | context hash | DISPATCH | three metadata keys | circuit breaker
EXCHANGE | 16 metadata keys | PROMPT_REJECTED | PROMPT_SENT | PROMPT_RECEIVED | finish_reason
content_blocks | PRC-CLASSIFY-001 | PRC-SYNTHESIZE-001 | PRC-EXECUTE-001 | PRM- | boundary
HO1Executor.execute(work_order)
ToolDispatcher | ContractLoader | LLM_CALL | TOOL_CALL | work order
attention | quality gate | session host | SessionManager.add_turn | TURN_RECORDED | degradation
agents do not remember, they read | shell
HOT/admin/main.py --root R --dev | read_file | query_ledger
list_packages | echo hello | list all installed packages | PKG-GENESIS-000 | what did I just say?
three learning loops | operational | governance loop | meta loop | was the question right
TokenBudgeter | routeRequest | ensemble | pipeline | FallbackChainExhaustedError | ζ | zeta
RoutingDecisionRecord | zetaEmitter | κ | rv:sha256:unavailable | thought_record
thought_record_list | router_* | read-only verifier | 64 zeros | reflection | dispatch | exchange
sequence number | frozen value | decision_emitter | remit chat | remit gate check
remit bootstrap build | framework | contract | ledger
"""
WORDS = [word.strip() for line in ORIGINAL.split("\n") for word in line.split("|") if word.strip()]


def test_the_page_maps_every_word_of_the_original_design() -> None:
    assert [word for word in WORDS if word not in PAGE] == []


@pytest.mark.parametrize("word", ["plane", "quality gate", "attention", "learning loop"])
def test_the_glossary_explains_the_word(word: str) -> None:
    assert f"| {word} |" in (TOP / "docs/glossary.md").read_text("utf-8")


def test_the_page_lists_the_served_paths() -> None:
    page = served_paths.PAGE.read_text()
    assert served_paths.with_list(page) == page, "run python -m tests.docs.served_paths"


_ROOT = Path(__file__).parents[2]
_SOURCE = _ROOT / "src" / "remit"
_PAGES = _ROOT / "docs" / "operations"

# An imperative at the beginning of a clause. `remit package remove` keeps the archive and can be
# undone, so it is no such step; the verb in a command is otherwise one, too.
_DESTROYS = re.compile(
    r"(?:^|[.:;,(] |\b(?:or|and|then|first) |`remit (?!package (?:index )?remove)[\w ]*)"
    r"(restore|remove|delete|drop|erase|overwrite|reset|discard|truncate|destroy)\b"
    r"|\brm -|\bbackup\b.*\b(?:back|restore)|new-ledger",
    re.IGNORECASE,
)
_VERB = re.compile("restore|remove|delete|drop|erase|overwrite|reset|discard|truncate|destroy|"
                   "rm -|backup|new-ledger", re.IGNORECASE)  # fmt: skip
_SPARES = re.compile(r"\bcop(?:y|ies)\b", re.IGNORECASE)

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_HELP = ("option", "argument", "field", "confirm")
# Texts that state what a command or an operation of the API does, and advise nothing.
_DESCRIPTIONS = ("server/api/call_paths.py", "ledger/events.py")
_DESCRIBED = {
    "ledger/client_erasure.py: Nothing was erased. Name the segments: `remit ledger erase … "
    "--archive DIR`.",
    "views/report_entries.py: RESET: a new window of an unchanged limit began.",
    "cli/operations.py: Query, verify, prove, move to segments and erase the ledger.",
    "runtime/operations/roots.py: --bare and --new-ledger exclude each other.",
    "remit_index/errors.py: Ask who publishes it: a backup may have been put back. If not, "
    "somebody shows you an old state.",
}


def test_no_message_advises_to_destroy_before_a_copy_is_kept() -> None:
    found = [
        f"{where}: {text}"
        for file in sorted([*_SOURCE.rglob("*.py"), *_ROOT.glob("extras/*/src/**/*.py")])
        if (where := _place(file)) not in _DESCRIPTIONS
        if _VERB.search(source := file.read_text("utf-8"))
        for text in _messages(ast.parse(source))
        if _DESTROYS.search(text) and not _SPARES.search(text)
    ]
    assert sorted(set(found) - _DESCRIBED) == []
    assert set(found) >= _DESCRIBED  # else the list above names what is gone


def test_no_page_on_operations_advises_to_destroy_before_a_copy_is_kept() -> None:
    found = [
        f"{page.name}: {part}"
        for page in sorted(_PAGES.glob("*.md"))
        for part in re.split(r"\n(?=#)", page.read_text("utf-8"))
        if _DESTROYS.search(part) and not _SPARES.search(part) and "backup" not in part
    ]
    assert found == []


def _place(file: Path) -> str:
    top = _SOURCE if file.is_relative_to(_SOURCE) else file.parents[1]
    return file.relative_to(top).as_posix()


def _messages(tree: ast.AST) -> Iterator[str]:
    """Return the sentences in a module's strings: not docstrings, SQL, or help of the options."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.Call) and _name(node.func) in _HELP:
            continue
        if isinstance(tree, _FUNCTIONS) and node in tree.decorator_list:
            continue
        if not isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp):
            yield from _messages(node)
            continue
        text = _text(node)
        if re.search(r"[a-z]\.? [\w`]", text) and not re.match(r"\s*[A-Z]{4,} ", text):
            yield text


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "{}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return ""
