"""What the gates look at."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from remit.kernel.errors import RemitError
from remit.kernel.settings import Settings
from remit.ledger import LedgerClient
from remit.packages.checks import Resolved, RootDisk, RunningCode, resolve
from remit.packages.distribution import Distribution
from remit.packages.errors import PackageError
from remit.packages.registry import Registry
from remit.providers.prices import PriceTable

__all__ = ["GateContext"]


@dataclass(frozen=True)
class GateContext:
    """One root, open, with what the gates need to know of it.

    What may fail is given as a call, so that its failure is that of the gate which needs it.

    Attributes:
        root: its directory.
        ledger: its record.
        settings: in force; the shipped defaults where those could not be loaded.
        prices: gives the table of prices that is installed; read from its file when left out.
        settings_error: why they could not be loaded; ``None`` when they could. G3 fails with it.
        distribution: gives the running code.
        model: gives provider and model that answer when a call names none.
        tool_ids: of all tools that there are.
        full_entries: a ledger of at most so many entries is always read whole.
        most_errors: how many things that are wrong are reported of one gate.
    """

    root: Path
    ledger: LedgerClient
    settings: Settings
    distribution: Callable[[], RunningCode]
    model: Callable[[], tuple[str, str]]
    tool_ids: Collection[str]
    full_entries: int
    settings_error: RemitError | None = None
    most_errors: int = 20
    prices: Callable[[], PriceTable] | None = None

    @classmethod
    def of(
        cls,
        root: Path,
        ledger: LedgerClient,
        settings: Settings,
        *,
        model: Callable[[], tuple[str, str]],
        tool_ids: Collection[str],
        settings_error: RemitError | None = None,
    ) -> GateContext:
        """The context of a root as it is, with the code that runs.

        Args:
            root: its directory.
            ledger: its record.
            settings: in force.
            model: see the class.
            tool_ids: see the class.
            settings_error: see the class.
        """
        return cls(
            root,
            ledger,
            settings,
            Distribution.current,
            model,
            tool_ids,
            settings.gates.full_entries,
            settings_error,
        )

    @functools.cached_property
    def registry(self) -> Registry:
        """What is installed, as the ledger says.

        Raises:
            PackageError: ``registry_damaged``.
        """
        return Registry.from_ledger(self.ledger)

    @functools.cached_property
    def disk(self) -> RootDisk:
        """The files of the root."""
        return RootDisk(self.root, ledger_path=self.settings.ledger.path)

    @functools.cached_property
    def resolved(self) -> Resolved:
        """The specifications and frameworks that are installed."""
        return resolve(self.registry, self.disk)

    def price_table(self) -> PriceTable:
        """The table of prices that a package brought.

        Raises:
            PackageError: ``no_prices``: there is none, or more than one; or the file cannot be
                read.
            PriceError: it is no table of prices.
        """
        if self.prices is not None:
            return self.prices()
        found = self.registry.by_classification("prices")
        if len(found) != 1:
            raise PackageError(
                "no_prices",
                f"{len(found)} tables of prices are installed, where one has to be.",
                next_step="Run `remit init`, or remove the package that brought another.",
            )
        path = found[0][0]
        try:
            return PriceTable.from_bytes(self.disk.read(path), path)
        except FileNotFoundError as error:
            raise PackageError(
                "no_prices", f"{path} is missing.", next_step="Run `remit init`."
            ) from error
