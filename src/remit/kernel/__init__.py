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


def lazy_names(door: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a door, which imports a module at the first use of its names.

    A door exports the names that its file imports as ``from module import Name as Name``; those
    under ``if TYPE_CHECKING:`` are lazy. The file is parsed at the first use. The returned function
    takes a name, sets it in the door's module and returns its value; ``__all__`` is the list of the
    exported names. It raises AttributeError for other names, and ImportError if the module cannot
    be imported.

    Args:
        door: the name of the door's module.
    """
    places: dict[str, str] = {}

    def imported(name: str) -> Any:
        if not places:
            places.update(_exports(Path(str(sys.modules[door].__file__))))
        if name != "__all__" and name not in places:
            raise AttributeError(f"module {door!r} has no attribute {name!r}")
        if name == "__all__":
            value: Any = sorted(places)
        else:
            value = getattr(importlib.import_module(places[name]), name)
        setattr(sys.modules[door], name, value)
        return value

    return imported


def _exports(file: Path) -> dict[str, str]:
    """Return the module of each name that a file imports under an alias equal to the name."""
    return {
        alias.name: str(node.module)
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
