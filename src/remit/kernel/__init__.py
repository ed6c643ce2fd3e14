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

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(door: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a door, which imports a module at the first use of its names.

    The function then sets the name in the door's module. It raises AttributeError for other names,
    and ImportError if the module cannot be imported.

    Args:
        door: the name of the door's module.
        modules: the exported names, separated by spaces, by the module that defines them:
            ``worker`` is a submodule of the door, ``remit.kernel.exchange`` any module.
    """
    places = {name: module for module, names in modules.items() for name in names.split()}

    def imported(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {door!r} has no attribute {name!r}")
        place = places[name]
        module = place if place.startswith("remit.") else f"{door}.{place}"
        value = getattr(importlib.import_module(module), name)
        setattr(sys.modules[door], name, value)
        return value

    return imported
