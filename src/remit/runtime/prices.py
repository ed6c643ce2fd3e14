"""What the models of a root cost: what packages say, under what its operator says."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from remit.kernel.installed import InstalledFiles
from remit.kernel.root import Root
from remit.ledger import LedgerClient
from remit.packages import (
    PRICES_FILE,
    PriceChange,
    change_prices,
    prices_sha256,
    recorded_prices,
)
from remit.providers.prices import Overlay, PriceError, PriceTable, differences


class RootPrices(NamedTuple):
    """The prices of a root.

    Attributes:
        base: those that packages brought.
        table: those in force.
        own: the operator's; empty where there are none.
        file: where these are, relative to the root.
        sha256: of that file as it was read; empty where there is none.
    """

    base: PriceTable
    table: PriceTable
    own: Overlay
    file: str
    sha256: str = ""

    @property
    def versions(self) -> dict[str, str]:
        """Which prices these are."""
        return {"version": self.table.version, "base_version": self.base.version}

    def behind(self, root: Root, ledger: LedgerClient) -> bool:
        """Whether the operator changed them since: the file is as recorded, and this is not."""
        recorded = recorded_prices(ledger)
        return (
            recorded.file in ("", self.file)
            and recorded.sha256 != self.sha256
            and recorded.sha256 == prices_sha256(root.path, self.file)
        )


def prices_of(root: Root, named: str, *, create: bool = False) -> RootPrices:
    """The prices of a root.

    Args:
        root: the installation.
        named: the setting ``budget.prices``.
        create: the file that it names is about to be made, where it is missing.

    Raises:
        PriceError: a file cannot be read, or a key in it is wrong.
        ChangedFileError: what a package brought is not as it was installed.
    """
    files = InstalledFiles(root.path)
    base, file = PriceTable.installed(files), named or PRICES_FILE
    if files.owner(file):  # what a package brought counts only as it brought it
        data = files.read(file)
        return RootPrices(
            base, base.overlaid(PriceTable.overlay(data, file, base)), Overlay({}), file
        )
    data = _read(root.path / file, required=bool(named) and not create)
    own = Overlay.read(data, file, base)
    if not data:
        return RootPrices(base, base, own, file)
    table = base.overlaid(PriceTable.overlay(data, file, base))
    return RootPrices(base, table, own, file, hashlib.sha256(data).hexdigest())


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
        PriceError: what comes of it is no table; nothing was changed.
        PackageError: another operation goes on, or the disk does not accept it.
        LedgerError: it could not be recorded; nothing was changed.
    """
    file = named or PRICES_FILE
    if owner := InstalledFiles(root.path).owner(file):
        raise PriceError(
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
        PriceError: what comes of it is no table.
    """
    if own.empty:
        data = b""
    elif own != before.own or not data:
        data = own.to_toml()
    base = before.base
    table = base.overlaid(PriceTable.overlay(data, before.file, base)) if data else base
    versions = before.table.version, table.version
    return PriceChange(data, differences(before.table, table), versions)


def _read(file: Path, *, required: bool) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not required:
            return b""
        raise PriceError(
            f"The price table {file} cannot be read: {error.strerror}.",
            next_step="Restore it, or correct the setting budget.prices.",
        ) from error
