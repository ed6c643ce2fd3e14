"""The gates that an operation has to pass before it changes anything."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from remit.packages.checks import (
    Finding,
    PackageView,
    RootDisk,
    check_acceptance,
    check_ceilings,
    check_completeness,
    check_installed,
    check_ownership,
    check_places,
    check_registries,
    check_resolution,
)
from remit.packages.errors import PackageError
from remit.packages.registry import REGISTRY_FOLDER, Registry
from remit.providers.prices import PriceTable

_PRICES = "HOT/prices/prices.toml"


def check_before(registry: Registry, disk: RootDisk, changing: Collection[str] = ()) -> None:
    """G0B of what is installed: nothing is built on a root whose files were changed.

    ``changing`` are paths of the files that come or go now, which were checked already.
    """
    if registry.packages:
        _require("G0B", check_ownership(registry, disk, changing))
        # A ledger that was imported into a bare root has neither registries nor files.
        if disk.names(REGISTRY_FOLDER) or any(disk.walk()):
            _require("G0B", check_registries(registry, disk))


def check_after(
    after: Registry, files: RootDisk, tool_ids: Collection[str], routes: Collection[str]
) -> None:
    """G1, G1-COMPLETE, the ceilings of G3, and G4, of everything as it would be."""
    view = PackageView(after, files, tool_ids, routes)
    _require("G1", [*check_installed(after), *check_resolution(view)])
    _require("G1-COMPLETE", check_places(view))
    _require("G3", check_ceilings(view))
    # What goes or comes may be what another package relies on.
    _require("G1-COMPLETE", check_completeness(view))
    if any(after.by_classification(kind) for kind in ("contract", "acceptance")):
        _require("G4", check_acceptance(view, _prices(view)))


def _prices(view: PackageView) -> PriceTable:
    if _PRICES in view.registry.owners:
        return PriceTable.from_bytes(view.files.read(_PRICES), _PRICES)
    return PriceTable.shipped()


def _require(gate: str, findings: Iterable[Finding]) -> None:
    if found := list(findings):
        first, more = found[0], len(found) - 1
        raise PackageError(
            "gate_failed",
            f"Gate {gate} does not pass: {first.message}" + (f" (and {more} more)" if more else ""),
            next_step=first.next_step,
        )
