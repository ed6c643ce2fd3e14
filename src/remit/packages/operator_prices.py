"""The operator's own prices: changes of the file, and its comparison with the ledger."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from remit.kernel.durable_files import fsync
from remit.ledger import LedgerClient, LedgerEntry, is_authentic
from remit.packages.checks import Finding
from remit.packages.config_changes import fitting
from remit.packages.errors import PackageError
from remit.packages.journal import disk_errors, package_lock, write_new

PRICES_FILE = "prices.toml"
"""The operator's price file in the root, unless ``budget.prices`` names another."""

_SUBJECT = "prices"
# The staged content of a change that removes the file.
_EMPTY_FILE = b"# No prices of this root's own.\n"


class PriceFile(NamedTuple):
    """The file of the operator's prices, as read.

    Attributes:
        name: relative to the root.
        data: the file's bytes; empty if the file does not exist or cannot be read.
        error: the OSError of reading, FileNotFoundError if there is no file; ``None`` if the file
            was read.
    """

    name: str
    data: bytes
    error: OSError | None = None

    @classmethod
    def read(cls, root: Path, named: str = "") -> Self:
        """Read the price file of a root; a failure is returned in ``error`` and not raised.

        Args:
            root: the root's directory.
            named: the setting ``budget.prices``; empty for ``prices.toml``.
        """
        name = named or PRICES_FILE
        try:
            return cls(name, (root / name).read_bytes())
        except OSError as error:
            return cls(name, b"", error)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the bytes as 64 hex digits; empty if there are no bytes."""
        return hashlib.sha256(self.data).hexdigest() if self.data else ""

    def matches(self, recorded: RecordedPrices) -> bool:
        """Return True if name and content are those that the ledger records.

        A missing or empty file matches if the ledger records a removal, or nothing. So does an
        unreadable one, whose :attr:`error` tells.

        Args:
            recorded: the latest record.
        """
        present = (self.name if self.data else "", self.sha256)
        return present == (recorded.file, recorded.sha256)


class RecordedPrices(NamedTuple):
    """The operator's prices as recorded in the ledger.

    Attributes:
        entry_id: the latest ``CONFIG_CHANGED`` entry of prices; empty if there never was one.
        file: the price file, relative to the root; empty if it was removed.
        sha256: the SHA-256 of the file's bytes as 64 hex digits; empty if the file was removed.
    """

    entry_id: str = ""
    file: str = ""
    sha256: str = ""


class PriceChange(NamedTuple):
    """The effect of a change of the operator's prices, computed before it is made.

    Attributes:
        data: the file's new bytes; empty to remove the file.
        changes: for each model with another price, ``provider``, ``model``, ``before`` and
            ``after``.
        versions: the versions of the price table before and after.
    """

    data: bytes
    changes: Sequence[Mapping[str, Any]]
    versions: tuple[str, str]


def recorded_prices(ledger: LedgerClient) -> RecordedPrices:
    """Return the operator's prices as last recorded; all fields are empty if they never were.

    Entries of writers without permission are ignored.

    Args:
        ledger: ledger of the root. Read-only.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    found = ledger.query(
        event_type="CONFIG_CHANGED", submission_id=_SUBJECT, order="desc", with_content=False
    )
    for entry in filter(is_authentic, found):
        data = entry.metadata
        return RecordedPrices(entry.id, str(data.get("file", "")), str(data.get("sha256", "")))
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
    """Change the operator's prices: first in the ledger, then in the file.

    Holds the packages' lock meanwhile. An interrupted earlier change is finished or undone first.
    The new file waits next to the old one until the entry is written. If the process is killed
    between the two, :func:`finish_prices` finishes or undoes the change. The file is written with
    mode 0600. An unchanged file that is not recorded is recorded.

    Args:
        root: the root's directory.
        ledger: the root's ledger.
        file: the price file, relative to the root.
        change: returns the change for the file's present bytes; empty bytes mean no file. Its error
            is raised, and nothing is changed.
        wait_s: seconds to wait for another operation on packages.
        by: the acting person or program.
        reason: the reason to record; a general one if empty.

    Returns:
        The change, and the id of its ``CONFIG_CHANGED`` entry; empty if the file is unchanged and
        recorded.

    Raises:
        PackageError: ``busy``: another operation did not end in time; ``unwritable``: the file
            cannot be read, or the disk does not accept the change, and nothing was changed;
            ``unfinished``: this or an earlier change is recorded, but the file could not be
            replaced.
        LedgerError: the change could not be recorded. The staged file stays, and the next change or
            :func:`finish_prices` reads from the ledger whether the entry was written.
    """
    place = root / file
    with package_lock(root, wait_s), disk_errors():
        recorded = recorded_prices(ledger)
        _finish(root, file, recorded)
        now = PriceFile.read(root, file)
        if now.error and not isinstance(now.error, FileNotFoundError):
            raise now.error
        made = change(now.data)
        wanted = PriceFile(file, made.data)
        if made.data == now.data and now.matches(recorded):
            return made, ""
        write_new(_staged(place), made.data or _EMPTY_FILE, 0o600)
        fsync(place.parent)  # The staged file must survive a power loss once it is recorded.
        metadata = {
            "by": by,
            "file": file if made.data else "",
            "sha256": wanted.sha256,
            "prices": list(made.versions),
            "price_changes": fitting(list(made.changes)),
        }
        reason = reason or "The operator's prices were changed"
        entry = LedgerEntry("CONFIG_CHANGED", _SUBJECT, "CHANGED", reason, metadata=metadata)
        # If the write fails, the next command reads from the ledger whether it was committed.
        entry_id = ledger.write(entry)
        _finish(root, file, RecordedPrices(entry_id, metadata["file"], wanted.sha256))
    return made, entry_id


def finish_prices(root: Path, ledger: LedgerClient, file: str, wait_s: float) -> str:
    """Finish a recorded change of prices whose process was killed; undo an unrecorded one.

    Nothing is done, and no lock is taken, if no change waits.

    Args:
        root: the root's directory.
        ledger: the root's ledger.
        file: the price file, relative to the root.
        wait_s: seconds to wait for another operation on packages.

    Returns:
        The id of the ``CONFIG_CHANGED`` entry whose change was finished; empty if there was none,
        or an unrecorded one was undone.

    Raises:
        PackageError: ``busy``, ``unwritable`` or ``unfinished``, as :func:`change_prices`.
        LedgerError: the ledger cannot be read.
    """
    if not is_staged(root, file):
        return ""
    with package_lock(root, wait_s), disk_errors():
        recorded = recorded_prices(ledger)
        return recorded.entry_id if _finish(root, file, recorded) else ""


def is_staged(root: Path, file: str) -> bool:
    """Return True if a change of the operator's prices is running, or its process was killed.

    A file ``.NAME.new`` next to the price file shows this. No lock is taken.

    Args:
        root: the root's directory.
        file: the price file, relative to the root.
    """
    return _staged(root / file).exists()


def _finish(root: Path, file: str, recorded: RecordedPrices) -> bool:
    """Replace the price file by the staged one if that is recorded; else delete the staged one.

    Returns True if the file was replaced or removed. Raises PackageError (``unfinished``).
    """
    place = root / file
    staged = _staged(place)
    try:
        data = staged.read_bytes()
    except FileNotFoundError:
        return False
    # A killed write leaves an empty file, whose hash is never recorded.
    digest = "" if data == _EMPTY_FILE else hashlib.sha256(data).hexdigest()
    wanted = (recorded.file, recorded.sha256)
    if not recorded.entry_id or wanted != (file if digest else "", digest):
        staged.unlink()
        return False
    try:
        if digest:
            os.replace(staged, place)
        else:
            place.unlink(missing_ok=True)
            staged.unlink()
        fsync(place.parent)
    except OSError as error:
        raise PackageError(
            "unfinished",
            f"The change of prices is recorded as {recorded.entry_id}, but {place} could not be "
            f"replaced: {error.strerror or error}.",
            next_step="Make its folder writable; `remit price list` then finishes the change.",
        ) from error
    return True


def _staged(place: Path) -> Path:
    return place.with_name(f".{place.name}.new")


def check_prices(root: Path, ledger: LedgerClient, named: str) -> Iterator[Finding]:
    """Yield a finding if the operator's prices are missing or not the recorded ones (gate G3); at
    most one.

    A file that cannot be read counts as missing. The prices themselves are not validated. Nothing
    is written.

    Args:
        root: the root's directory.
        ledger: the root's ledger.
        named: the setting ``budget.prices``, of which a missing file is a finding; empty for
            ``prices.toml``, which may be missing if no prices are recorded.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    recorded, found = recorded_prices(ledger), PriceFile.read(root, named)
    file = found.name
    if found.matches(recorded) and (found.data or not named):
        return
    keep = f"`remit price diff` shows the change; `remit price import {file}` records it."
    if is_staged(root, file):
        problem = f"A change of the prices in {file} was interrupted; the last recorded version is "
        yield Finding(f"{problem}{recorded.entry_id or 'none'}.",
                      "`remit price list` finishes or undoes it.")  # fmt: skip
    elif not found.data and recorded.sha256:
        problem = f"The prices in {recorded.file}, which {recorded.entry_id} recorded, are missing."
        yield Finding(problem, "Put a copy of the file back, or `remit price unset --all`.")
    elif recorded.sha256:
        problem = f"The prices in {file} differ from the prices recorded in {recorded.entry_id}."
        yield Finding(problem, keep)
    elif named:
        problem = f"The setting budget.prices names {named}, which no package contains, and "
        yield Finding(f"{problem}its prices are not recorded.", keep)
    else:
        yield Finding(f"The prices in {file} are not recorded.", keep)
