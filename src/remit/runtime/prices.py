"""What the models of a root cost: what packages say, under what its operator says."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from remit.kernel.errors import RemitError
from remit.kernel.installed import InstalledFiles
from remit.kernel.root import Root
from remit.ledger import LedgerClient
from remit.packages import (
    PriceChange,
    PriceFile,
    change_prices,
    check_prices,
    is_staged,
    package_lock,
    recorded_prices,
)
from remit.providers.prices import Overlay, Price, PriceTable, differences, price_data


class RootPrices(NamedTuple):
    """The prices of a root.

    Attributes:
        base: those that packages brought.
        table: those in force.
        own: the operator's; empty where there are none.
        file: what holds these, as it was read.
        packaged: whether a package brought that file, which then is no operator's.
    """

    base: PriceTable
    table: PriceTable
    own: Overlay
    file: PriceFile
    packaged: bool = False

    @property
    def versions(self) -> dict[str, str]:
        """Which prices these are."""
        return {"version": self.table.version, "base_version": self.base.version}

    def shown(self, price: Price) -> dict[str, Any]:
        """One price in force as :func:`price_data` gives it, the model by the provider's own name;
        ``origin`` is ``own`` or ``shipped``."""
        return {
            **price_data(price),
            "model": bare_name(price),
            "origin": "own" if self._is_own(price) else "shipped",
        }

    def chosen(
        self, *, provider: str | None = None, pattern: str = "*", own: bool = False
    ) -> list[Price]:
        """Prices in force, by provider and model: of a provider, of models that match, as
        ``gpt-4o*``, only the operator's."""
        return [
            one
            for one in self.table
            if (provider is None or one.provider == provider)
            and (not own or self._is_own(one))
            and (fnmatchcase(one.model, pattern) or fnmatchcase(bare_name(one), pattern))
        ]

    def _is_own(self, price: Price) -> bool:
        entry = self.own.models.get(price.model)
        return entry is not None and entry["provider"] == price.provider

    def behind(self, root: Root, ledger: LedgerClient) -> bool:
        """Whether the operator changed them since: the file is as recorded, or can be made so, and
        this is not."""
        recorded = recorded_prices(ledger)
        if self.packaged or self.file.is_as(recorded):
            return False
        now = PriceFile.read(root.path, self.file.name)
        return now.is_as(recorded) or is_staged(root.path, now.name)


def prices_of(root: Root, named: str, *, create: bool = False) -> RootPrices:
    """The prices of a root.

    Args:
        root: the installation.
        named: the setting ``budget.prices``.
        create: the file that it names is about to be made, where it is missing.

    Raises:
        RemitError: a file cannot be read, or a key in it is wrong.
        ChangedFileError: what a package brought is not as it was installed.
    """
    files = InstalledFiles(root.path)
    base, file = PriceTable.installed(files), PriceFile.read(root.path, named)
    packaged = bool(files.owner(file.name))
    if packaged:  # what a package brought counts only as it brought it
        file = PriceFile(file.name, files.read(file.name))
    missing = isinstance(file.error, FileNotFoundError)
    if file.error and not (missing and (create or not named)):
        raise RemitError(
            f"The price table {root.path / file.name} cannot be read: {file.error.strerror}.",
            next_step="Put a copy of it back, or correct the setting budget.prices.",
        ) from file.error
    own = Overlay({}) if packaged else Overlay.read(file.data, file.name, base)
    table = base
    if file.data:
        table = base.overlaid(PriceTable.overlay(file.data, file.name, base))
    return RootPrices(base, table, own, file, packaged)


def recorded_prices_of(
    root: Root, ledger: LedgerClient, named: str, *, wait_s: float
) -> RootPrices:
    """The prices of a root, to charge calls by: the operator's as they are on record.

    A file that never was on record is let pass; G3 finds it.

    Args:
        root: the installation.
        ledger: its record.
        named: the setting ``budget.prices``.
        wait_s: how long to wait for another operation.

    Raises:
        RemitError: the file is not what is on record, or as :func:`prices_of`.
        ChangedFileError: what a package brought is not as it was installed.
        PackageError: another operation goes on.
    """
    found, recorded = prices_of(root, named), recorded_prices(ledger)
    if found.packaged or not recorded.entry_id or found.file.is_as(recorded):
        return found
    with package_lock(root.path, wait_s):  # it may just be changed
        for problem in check_prices(root.path, ledger, named):
            raise RemitError(problem.message, next_step=problem.next_step)
        return prices_of(root, named)


def bare_name(price: Price) -> str:
    """What the provider itself calls a model."""
    return price.model.removeprefix(f"{price.provider}/")


def change_own_prices(
    root: Root,
    ledger: LedgerClient,
    named: str,
    change: Callable[[RootPrices], Overlay],
    *,
    wait_s: float,
    by: str,
    reason: str = "",
) -> tuple[PriceChange, str]:
    """Change the operator's prices of a root, on record.

    Args:
        root: the installation.
        ledger: its record.
        named: the setting ``budget.prices``.
        change: makes the operator's prices of those there are.
        wait_s: how long to wait for another operation.
        by: who changes them.
        reason: why.

    Returns:
        The change, and the id of its entry; empty where nothing had to be changed.

    Raises:
        RemitError: what comes of it is no table; nothing was changed.
        PackageError: another operation goes on, or the disk does not accept it.
        LedgerError: it could not be recorded; nothing was changed.
    """
    file = PriceFile.read(root.path, named).name
    if owner := InstalledFiles(root.path).owner(file):
        raise RemitError(
            f"budget.prices names {file}, which {owner} brought: it changes with that package.",
            next_step="Take the setting out to keep prices of your own, or upgrade the package.",
        )

    def call(data: bytes) -> PriceChange:
        before = prices_of(root, named, create=True)
        return planned(before, change(before), data)

    return change_prices(root.path, ledger, file, call, wait_s=wait_s, by=by, reason=reason)


def planned(before: RootPrices, own: Overlay, data: bytes = b"") -> PriceChange:
    """What it comes to that the operator's prices become ``own``.

    Args:
        before: the prices now.
        own: the operator's to be.
        data: the file's bytes, which stay where it says the same.

    Raises:
        RemitError: what comes of it is no table.
    """
    if own.empty:
        data = b""
    elif own != before.own or not data:
        data = own.to_toml()
    base = before.base
    table = base.overlaid(PriceTable.overlay(data, before.file.name, base)) if data else base
    versions = before.table.version, table.version
    return PriceChange(data, differences(before.table, table), versions)
