"""The bottom room: errors, canonical JSON, settings, roots, JSON Schema checks, background loops.

The room owns what every other room needs and no other room's data. Every room may import any module
of the kernel; the kernel imports no other room. Nothing here opens a ledger, calls a model or knows
a provider.

Invariants: every deliberate error is a ``RemitError`` with a next step; settings are immutable; a
file that is replaced survives a loss of power.

Start reading in ``errors``, ``settings`` (all of ``remit.toml``) and ``exchange`` (a call and its
answer, as agents and the gateway see them).
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(door: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a door, which imports a module at the first use of its names.

    The names are those that the door's file imports under ``if TYPE_CHECKING:``; the file is parsed
    at the first use. The returned function takes a name, sets it in the door's module and returns
    its value. It raises AttributeError for other names, and ImportError if the module cannot be
    imported.

    Args:
        door: the name of the door's module.
    """
    places: dict[str, tuple[str, str]] = {}

    def imported(name: str) -> Any:
        if not places:
            places.update(_typed_imports(Path(str(sys.modules[door].__file__))))
        if name not in places:
            raise AttributeError(f"module {door!r} has no attribute {name!r}")
        module, defined = places[name]
        value = getattr(importlib.import_module(module), defined)
        setattr(sys.modules[door], name, value)
        return value

    return imported


def _typed_imports(file: Path) -> dict[str, tuple[str, str]]:
    """Return the module and its name for each name that a file imports for type checkers."""
    return {
        alias.asname or alias.name: (str(node.module), alias.name)
        for block in ast.parse(file.read_bytes()).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
