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


def lazy_names(door: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a door, which imports a module at the first use of its names.

    A door exports the names that its file imports as ``from module import Name as Name``; those
    under ``if TYPE_CHECKING:`` are lazy. The file is parsed at the first use. The returned function
    takes a name, sets it in the door's module and returns its value; ``__all__`` is the list of the
    exported names. It raises AttributeError for other names, and ImportError if the module cannot
    be imported. ``dir`` of the door lists the exported names too.

    Args:
        door: the name of the door's module.
    """
    module = sys.modules[door]
    places: dict[str, str] = {}

    def exported() -> dict[str, str]:
        if not places:
            places.update(_exports(module))
        return places

    def imported(name: str) -> Any:
        if name != "__all__" and name not in exported():
            raise AttributeError(f"module {door!r} has no attribute {name!r}")
        if name == "__all__":
            value: Any = sorted(exported())
        else:
            value = getattr(importlib.import_module(places[name]), name)
        setattr(module, name, value)
        return value

    vars(module)["__dir__"] = lambda: sorted({*vars(module), *exported()})
    return imported


def _exports(door: ModuleType) -> dict[str, str]:
    """Return the module of each name that a door imports under an alias equal to the name."""
    loader = getattr(door.__spec__, "loader", None)
    source = loader.get_source(door.__name__) if loader is not None else ""
    return {
        alias.name: str(node.module)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
