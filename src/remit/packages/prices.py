"""The prices of a root: prices of packages, overridden by the operator's."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from remit.kernel.errors import RemitError
from remit.kernel.installed_files import InstalledFiles
from remit.kernel.root import Root
from remit.ledger import LedgerClient
from remit.packages.journal import package_lock
from remit.packages.operator_prices import (
    PriceChange,
    PriceFile,
    change_prices,
    check_prices,
    is_staged,
    recorded_prices,
)
from remit.providers.prices import Overlay, Price, PriceTable, differences, price_data


class RootPrices(NamedTuple):
    """The prices of a root at the time of reading; immutable.

    :meth:`chosen` selects prices, and :meth:`behind` detects a later change by the operator.

    Attributes:
        base: prices that packages installed.
        table: prices in force.
        own: the operator's prices; empty if there are none.
        file: the file of the operator's prices, as read.
        packaged: True if a package installed that file, so that its prices are not the operator's.
    """

    base: PriceTable
    table: PriceTable
    own: Overlay
    file: PriceFile
    packaged: bool = False

    @property
    def versions(self) -> dict[str, str]:
        """The versions of the table in force (``version``) and of the table below
        (``base_version``), for JSON.
        """
        return {"version": self.table.version, "base_version": self.base.version}

    def shown(self, price: Price) -> dict[str, Any]:
        """Return a price in force as JSON data, with the provider's own name of the model.

        ``origin`` is ``own`` or ``shipped``; the other keys are those of :func:`price_data`.

        Args:
            price: a price of this table.
        """
        return {
            **price_data(price),
            "model": price.bare_name,
            "origin": "own" if self._is_own(price) else "shipped",
        }

    def chosen(
        self, *, provider: str | None = None, pattern: str = "*", own: bool = False
    ) -> list[Price]:
        """Return prices in force, sorted by provider and model; empty if none fits.

        Args:
            provider: only prices of this provider; ``None`` for all.
            pattern: only models that match, for example ``gpt-4o*``, by the name in the table or
                the provider's own. Case counts.
            own: True for only the operator's prices.
        """
        return [
            one
            for one in self.table
            if (provider is None or one.provider == provider)
            and (not own or self._is_own(one))
            and (fnmatchcase(one.model, pattern) or fnmatchcase(one.bare_name, pattern))
        ]

    def _is_own(self, price: Price) -> bool:
        entry = self.own.models.get(price.model)
        return entry is not None and entry["provider"] == price.provider

    def behind(self, root: Root, ledger: LedgerClient) -> bool:
        """Return True if the operator changed the recorded prices after this object was made.

        False if a package installed the file, or if the file differs from the record for another
        reason than a change in progress. A change that is recorded but not yet in the file counts
        too.

        Args:
            root: the installation.
            ledger: the root's ledger.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        recorded = recorded_prices(ledger)
        if self.packaged or self.file.matches(recorded):
            return False
        now = PriceFile.read(root.path, self.file.name)
        return now.matches(recorded) or is_staged(root.path, now.name)


def prices_of(root: Root, named: str, *, create: bool = False) -> RootPrices:
    """Return the prices of a root, whether or not the ledger records the operator's file.

    Files are only read. Without a named file, a missing ``prices.toml`` means no prices of the
    operator's own. A named file of a package is in force too, and ``own`` is then empty.

    Args:
        root: the installation.
        named: the setting ``budget.prices``; empty for the default file.
        create: True if the named file may be missing because it is about to be made.

    Raises:
        RemitError: a file cannot be read, or one of its keys is wrong.
        NotInstalledError: no package installed a price table.
        ChangedFileError: a file of a package differs from the installed one.
    """
    files = InstalledFiles(root.path)
    base, file = PriceTable.installed(files), PriceFile.read(root.path, named)
    packaged = bool(files.owner(file.name))
    if packaged:  # A package's file counts only unchanged.
        file = PriceFile(file.name, files.read(file.name))
    missing = isinstance(file.error, FileNotFoundError)
    if file.error and not (missing and (create or not named)):
        raise RemitError(
            f"The price table {root.path / file.name} cannot be read: {file.error.strerror}.",
            next_step="Restore the file from a copy, or correct the setting budget.prices.",
        ) from file.error
    own = Overlay({}) if packaged else Overlay.read(file.data, file.name, base)
    table = base
    if file.data:
        table = base.overlaid(PriceTable.overlay(file.data, file.name, base))
    return RootPrices(base, table, own, file, packaged)


def recorded_prices_of(
    root: Root, ledger: LedgerClient, named: str, *, wait_s: float
) -> RootPrices:
    """Return the prices with which a root charges calls: the operator's prices must be as recorded.

    A file without any record is accepted; gate G3 reports the file. A package's file is compared
    with the installed one instead. If the file differs from the record, the package lock is taken
    first, because another process may be writing the file, and the prices are read again.

    Args:
        root: the installation.
        ledger: the root's ledger.
        named: the setting ``budget.prices``; empty for the default file.
        wait_s: longest wait for another operation, in seconds.

    Raises:
        RemitError: the file differs from the record, or as for :func:`prices_of`.
        NotInstalledError: no package installed a price table.
        ChangedFileError: a file of a package differs from the installed one.
        PackageError: ``busy``: another operation is running; ``unwritable``: the lock cannot be
            taken.
        LedgerError: the ledger cannot be read.
    """
    found, recorded = prices_of(root, named), recorded_prices(ledger)
    if found.packaged or not recorded.entry_id or found.file.matches(recorded):
        return found
    with package_lock(root.path, wait_s):  # Another process may be writing it.
        for problem in check_prices(root.path, ledger, named):
            raise RemitError(problem.message, next_step=problem.next_step)
        return prices_of(root, named)


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
    """Change the operator's prices and record the change.

    The ``CONFIG_CHANGED`` entry is written first, then the file is replaced. The package lock is
    held for both. An interrupted earlier change is finished or undone first.

    Args:
        root: the installation.
        ledger: the root's ledger.
        named: the setting ``budget.prices``; empty for the default file.
        change: returns the operator's new prices, given the present ones; called under the lock.
            Its error is raised, and nothing is changed.
        wait_s: longest wait for another operation, in seconds.
        by: the person who changes the prices.
        reason: the person's reason; a general one if empty.

    Returns:
        The change and the id of its entry; the id is empty if the file is unchanged and recorded.

    Raises:
        RemitError: a package installed the file, a file of prices or the table of owners cannot be
            used, or the result is not a usable table; nothing was changed.
        PackageError: ``busy``: another operation is running; ``unwritable``: the disk refuses the
            file, and nothing was changed; ``unfinished``: the change is recorded, but the file
            could not be replaced.
        LedgerError: the change could not be recorded. If the outcome of the write is unknown, the
            next change reads from the ledger whether the file is to be replaced.
    """
    file = PriceFile.read(root.path, named).name
    if owner := InstalledFiles(root.path).owner(file):
        raise RemitError(
            f"budget.prices names {file}, which the package {owner} installed.",
            next_step="Unset budget.prices to use prices of your own, or upgrade the package.",
        )

    def call(data: bytes) -> PriceChange:
        before = prices_of(root, named, create=True)
        return planned(before, change(before), data)

    return change_prices(root.path, ledger, file, call, wait_s=wait_s, by=by, reason=reason)


def planned(before: RootPrices, own: Overlay, data: bytes = b"") -> PriceChange:
    """Return the change that would make ``own`` the operator's prices; change nothing.

    Args:
        before: the present prices.
        own: the operator's new prices.
        data: the file's bytes, which stay as they are if ``own`` equals the present prices.

    Returns:
        The file's new bytes, empty if ``own`` is empty; the models whose price changes; and the
        versions of the table before and after.

    Raises:
        RemitError: the result is not a usable table.
    """
    if own.empty:
        data = b""
    elif own != before.own or not data:
        data = own.to_toml()
    base = before.base
    table = base.overlaid(PriceTable.overlay(data, before.file.name, base)) if data else base
    versions = before.table.version, table.version
    return PriceChange(data, differences(before.table, table), versions)
