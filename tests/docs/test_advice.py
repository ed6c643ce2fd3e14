"""No message or page on operations advises a step that destroys data before a copy is kept."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

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
