"""Operations that need tenants or a runtime, and the catalogue of all operations.

:func:`all_operations` is what the doors read. The other operations are in :mod:`remit.operations`,
which explains the declarations. Start reading in :mod:`remit.runtime.operations.tenants`.
"""

from __future__ import annotations

from remit.operations import Operation, operations

_MODULES: dict[str, tuple[str, ...]] = {
    "remit.runtime.operations.tenants": ("tenant",),
    "remit.runtime.operations.gates": ("gate",),
    "remit.runtime.operations.routes": ("route",),
    "remit.runtime.operations.fits": ("route",),
    "remit.runtime.operations.route_search": ("route",),
    "remit.runtime.operations.learning": ("learn",),
    "remit.runtime.operations.erasure": ("ledger",),
    "remit.runtime.operations.segments": ("ledger",),
    "remit.runtime.operations.models": ("model",),
    "remit.runtime.operations.sessions": ("session",),
    "remit.runtime.operations.roots": ("init", "bootstrap"),
}


def all_operations(group: str = "") -> tuple[Operation, ...]:
    """Return the declared operations of this room and of :mod:`remit.operations`.

    Args:
        group: first word of the wanted commands, whose modules alone are imported; empty for all
            operations. An unknown word gives an empty tuple.
    """
    return operations(group, tuple(_MODULES.items()))
