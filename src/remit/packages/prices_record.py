"""The operator's own prices: which file holds them, and that it is as it was put on record."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from remit.ledger import LedgerClient, LedgerEntry, is_authentic
from remit.packages.checks import Finding
from remit.packages.files import disk_errors, sync_folder, write_new
from remit.packages.lock import package_lock
from remit.packages.settings_record import fitting

__all__ = [
    "PRICES_FILE",
    "PriceChange",
    "RecordedPrices",
    "change_prices",
    "check_prices",
    "prices_sha256",
    "recorded_prices",
]

PRICES_FILE = "prices.toml"
"""Where the operator's prices are, in the root, unless ``budget.prices`` names another file."""

_SUBJECT = "prices"


class RecordedPrices(NamedTuple):
    """The operator's prices as they are on record.

    Attributes:
        entry_id: of the ``CONFIG_CHANGED``; empty where there never were any.
        file: relative to the root.
        sha256: of the file's bytes, 64 hex digits; empty where it was taken away.
    """

    entry_id: str = ""
    file: str = ""
    sha256: str = ""


class PriceChange(NamedTuple):
    """What a change of the operator's prices comes to.

    Attributes:
        data: the file's new bytes; empty takes it away.
        changes: of each model that is charged otherwise: ``provider``, ``model``, ``before`` and
            ``after``.
        versions: of the prices in force, before and after.
    """

    data: bytes
    changes: Sequence[Mapping[str, Any]]
    versions: tuple[str, str]


def prices_sha256(root: Path, file: str) -> str:
    """The SHA-256 of a file of prices, 64 hex digits; empty where it cannot be read."""
    try:
        return _digest((root / file).read_bytes())
    except OSError:
        return ""


def recorded_prices(ledger: LedgerClient) -> RecordedPrices:
    """What is on record of the operator's prices."""
    found = ledger.query(
        event_type="CONFIG_CHANGED", submission_id=_SUBJECT, order="desc", with_content=False
    )
    for entry in filter(is_authentic, found):
        said = entry.metadata
        return RecordedPrices(entry.id, str(said.get("file", "")), str(said.get("sha256", "")))
    return RecordedPrices()


def change_prices(
    root: Path,
    ledger: LedgerClient,
    file: str,
    change: Callable[[bytes], PriceChange],
    *,
    wait_s: float,
    by: str,
    reason: str = "",
) -> tuple[PriceChange, str]:
    """Change the operator's prices: on record first, then in the file, one process at a time.

    Killed in between, the file is not what is on record, which G3 finds.

    Args:
        root: its directory.
        ledger: the record.
        file: where they are, relative to the root.
        change: makes of the file's bytes, empty where there is none, those that it is to have.
        wait_s: how long to wait for another operation.
        by: who changes them.
        reason: why.

    Returns:
        The change, and the id of its ``CONFIG_CHANGED``; empty where all is so already.

    Raises:
        PackageError: another operation went on for too long, or the disk does not accept it.
        LedgerError: it could not be recorded; nothing was changed.
    """
    place = root / file
    with package_lock(root, wait_s), disk_errors():
        now = place.read_bytes() if place.exists() else b""
        made = change(now)
        recorded = recorded_prices(ledger)
        wanted = _digest(made.data)
        if made.data == now and (recorded.file, recorded.sha256) == (file if now else "", wanted):
            return made, ""
        beside = place.with_name(f".{place.name}.new")
        beside.unlink(missing_ok=True)
        if made.data:
            write_new(beside, made.data, 0o600)
        metadata = {
            "by": by,
            "file": file if made.data else "",
            "sha256": wanted,
            "prices": list(made.versions),
            "price_changes": fitting(list(made.changes)),
        }
        said = reason or "The operator's prices were changed"
        entry = LedgerEntry("CONFIG_CHANGED", _SUBJECT, "CHANGED", said, metadata=metadata)
        try:
            entry_id = ledger.write(entry)
            if made.data:
                os.replace(beside, place)
            else:
                place.unlink(missing_ok=True)
        finally:
            beside.unlink(missing_ok=True)
        sync_folder(place.parent)
    return made, entry_id


def check_prices(root: Path, ledger: LedgerClient, named: str) -> Iterator[Finding]:
    """What G3 says of the operator's prices: they are there, and as they are on record.

    Args:
        root: its directory.
        ledger: the record.
        named: the setting ``budget.prices``, where it names no file of a package.
    """
    there, file = recorded_prices(ledger), named or PRICES_FILE
    found = prices_sha256(root, file)
    if found == there.sha256 and there.file == (file if found else "") and (found or not named):
        return
    keep = f"Look at it with `remit price diff`; `remit price import {file}` puts it on record."
    if not found and there.sha256:
        problem = f"The prices in {there.file}, which {there.entry_id} put on record, are missing."
        yield Finding(problem, "Restore the file, or `remit price unset --all`.")
    elif there.sha256:
        problem = f"The prices in {file} are not those that {there.entry_id} put on record."
        yield Finding(problem, keep)
    elif named:
        problem = f"The setting budget.prices names {named}, which no package brought, and "
        yield Finding(f"{problem}its prices are not on record.", keep)
    else:
        yield Finding(f"The prices in {file} are not on record.", keep)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest() if data else ""
