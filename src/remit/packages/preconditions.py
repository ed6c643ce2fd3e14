"""The gates that an operation has to pass before it changes anything (SPEC 10)."""

from __future__ import annotations

from collections.abc import Collection

from remit.packages.checks.acceptance import check_acceptance
from remit.packages.checks.ceilings import check_ceilings
from remit.packages.checks.completeness import check_completeness, check_places
from remit.packages.checks.files import Files, Overlay, RootDisk
from remit.packages.checks.finding import Checked
from remit.packages.checks.ownership import check_ownership, check_registries
from remit.packages.checks.resolution import check_resolution, resolve
from remit.packages.errors import PackageError
from remit.packages.registry import REGISTRY_FOLDER, Registry
from remit.providers.prices import PriceTable

__all__ = ["check_after", "check_before"]

_PRICES = "HOT/prices/prices.toml"


def check_before(registry: Registry, disk: RootDisk, changing: Collection[str] = ()) -> None:
    """G0B of what is installed: nothing is built on a root whose files were changed.

    Args:
        registry: what is installed.
        disk: the root's files.
        changing: paths of the files that come or go now, which were checked already.

    Raises:
        PackageError: ``gate_failed``, with the first thing that is wrong.
    """
    if registry.packages:
        found = check_ownership(registry, disk)
        there = set(disk.paths())
        # The operation repairs what gets an owner now, and what is missing and comes or goes.
        repaired = {path for path in changing if path not in registry.owners or path not in there}
        kept = [finding for finding in found.findings if finding.path not in repaired]
        _require("G0B", Checked(kept, found.counts))
        names = disk.names(REGISTRY_FOLDER)
        if names or there:  # a ledger that was imported into a bare root has neither
            _require("G0B", check_registries(registry, disk.read, names))


def check_after(
    after: Registry, files: Overlay, tool_ids: Collection[str], routes: Collection[str]
) -> None:
    """G1, G1-COMPLETE, the ceilings of G3, and G4, of everything as it would be.

    Args:
        after: the registry as it would be.
        files: the files as they would be.
        tool_ids: of all tools that there are.
        routes: names that mean a choice of models.

    Raises:
        PackageError: ``gate_failed``.
    """
    found = resolve(after, files)
    _require("G1", check_resolution(after, files, found))
    _require("G1-COMPLETE", check_places(after, found))
    _require("G3", check_ceilings(after, found))
    # What goes or comes may be what another package relies on.
    _require("G1-COMPLETE", check_completeness(after, files, tool_ids=tool_ids, routes=routes))
    if any(after.by_classification(kind) for kind in ("contract", "acceptance")):
        _require("G4", check_acceptance(after, files, _prices(after, files)))


def _prices(after: Registry, files: Files) -> PriceTable:
    if _PRICES in after.owners:
        return PriceTable.from_bytes(files.read(_PRICES), _PRICES)
    return PriceTable.shipped()


def _require(gate: str, checked: Checked) -> None:
    if checked.findings:
        first = checked.findings[0]
        more = len(checked.findings) - 1
        raise PackageError(
            "gate_failed",
            f"Gate {gate} does not pass: {first.message}" + (f" (and {more} more)" if more else ""),
            next_step=first.next_step,
        )
