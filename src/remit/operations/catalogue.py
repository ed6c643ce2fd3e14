"""The catalogue of all operations."""

from __future__ import annotations

import importlib
from functools import cache

from remit.operations.operation import DECLARED, Operation

_MODULES: dict[str, tuple[str, ...]] = {
    "keys": ("key",),
    "owners": ("user", "team", "organisation"),
    "budgets": ("budget",),
    "orders": ("order",),
    "workers": ("worker",),
    "usage": ("usage",),
    "prices": ("price",),
    "price_changes": ("price",),
    "entries": ("ledger",),
    "proofs": ("ledger", "receipt"),
    "checkpoints": ("ledger",),
    "ledger": ("ledger",),
    "verification": ("ledger",),
    "exports": ("ledger",),
    "trail": ("trail",),
    "witness": ("witness",),
    "learning": ("learn",),
    "proposals": ("learn",),
    "approvals": ("mcp",),
    "packages": ("package",),
    "package_archives": ("package",),
    "trust": ("package",),
    "feedback": ("feedback",),
    "health": (),
    "settings": ("config",),
    "report": (),
    "sessions": (),
    "journeys": ("trace",),
    "governance": (),
    "deploy": ("deploy",),
}
"""The groups of commands that each module declares, in the order in which routes are matched."""


@cache
def operations(
    group: str = "", more: tuple[tuple[str, tuple[str, ...]], ...] = ()
) -> tuple[Operation, ...]:
    """Return the declared operations, by module and then in the order of declaration.

    Args:
        group: first word of the wanted commands, whose modules alone are imported; empty for all
            operations.
        more: modules of a higher room that declare operations, each with its groups.
    """
    known = [*((f"remit.operations.{name}", groups) for name, groups in _MODULES.items()), *more]
    modules = [name for name, groups in known if not group or group in groups]
    places = [importlib.import_module(name).__name__ for name in modules]
    return tuple(
        kind
        for place in places
        for kind in DECLARED
        if kind.function.__module__ == place and (not group or kind.command.split(" ")[0] == group)
    )
