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
from types import ModuleType
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(door: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a door, which imports a module at the first use of its names.

    The names are those that the door's file imports under ``if TYPE_CHECKING:``; the file is parsed
    at the first use. The returned function takes a name, sets it in the door's module and returns
    its value. It raises AttributeError for other names, and ImportError if the module cannot be
    imported. ``dir`` of the door lists the names of its ``__all__`` before their first use.

    Args:
        door: the name of the door's module.
    """
    module = sys.modules[door]
    places: dict[str, str] = {}

    def imported(name: str) -> Any:
        if not places:
            places.update(_typed_imports(module))
        if name not in places:
            raise AttributeError(f"module {door!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(places[name]), name)
        setattr(module, name, value)
        return value

    vars(module)["__dir__"] = lambda: sorted({*vars(module), *module.__all__})
    return imported


def _typed_imports(door: ModuleType) -> dict[str, str]:
    """Return the module of each name that a door imports for type checkers."""
    loader = getattr(door.__spec__, "loader", None)
    source = loader.get_source(door.__name__) if loader is not None else ""
    return {
        alias.name: str(node.module)
        for block in ast.parse(source).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
