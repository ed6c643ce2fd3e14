"""``CONFIG_CHANGED`` entries: the settings in force, and waivers of single checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from remit.kernel.canonical import canonical_json
from remit.kernel.settings import EffectiveSettings
from remit.ledger import LedgerClient, LedgerEntry, Transaction, content, is_authentic

EDITABLE_INSTALL = "editable_install"
"""The waiver for running code that has no hashes to compare it with."""

_SUBJECT = "settings"
_LATEST = "SELECT max(seq) FROM entries WHERE submission_id = ? AND event_type = 'CONFIG_CHANGED'"
_MAX_JSON = 8192  # A longer value is stored as content, outside of the record.


def record_settings(
    ledger: LedgerClient, settings: EffectiveSettings, *, by: str, prices: str = ""
) -> str:
    """Record the settings in force, unless the last recorded ones are equal.

    A known version of the price table that differs from the recorded one is recorded too. Nothing
    is recorded at first if all settings are defaults of packages, which are recorded with their
    package. If another process records settings at the same time, the comparison is repeated. The
    entry has each changed setting with its old and new value, all settings that differ from the
    defaults, and the hash of all settings; it is committed in a transaction of its own.

    Args:
        ledger: the root's ledger.
        settings: the settings of this process.
        by: the person or program that started the process or reloaded the settings.
        prices: the version of the price table in force; empty if unknown.

    Returns:
        The id of the ``CONFIG_CHANGED`` entry; empty if none was written.

    Raises:
        LedgerError: the ledger cannot be read, or the entry could not be written.
    """
    while True:
        ((seen,),) = ledger.select(_LATEST, (_SUBJECT,))
        entry = _entry(next(recorded_settings(ledger), None), settings, by, prices)
        if entry is None:
            return ""

        def write(tx: Transaction, entry: LedgerEntry = entry, seen: int | None = seen) -> str:
            ((latest,),) = tx.execute(_LATEST, (_SUBJECT,))
            return tx.append(entry) if latest == seen else ""

        if entry_id := ledger.transact(write):
            return entry_id


def recorded_settings(ledger: LedgerClient) -> Iterator[LedgerEntry]:
    """Yield the ``CONFIG_CHANGED`` entries of settings, latest first.

    Entries of writers without permission, and other changes of the configuration, are left out. The
    ledger is queried when the first entry is taken.

    Args:
        ledger: ledger of the root. Read-only.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    found = ledger.query(event_type="CONFIG_CHANGED", submission_id=_SUBJECT, order="desc")
    for entry in filter(is_authentic, found):
        if "settings_sha256" in entry.metadata:
            yield entry


def fitting(value: Any) -> Any:
    """Return a value for an entry's metadata: unchanged, or as content if its canonical JSON has
    more than 8,192 bytes.

    Content is stored outside of the record, and can be erased. Nothing is stored here.

    Args:
        value: a JSON value.

    Raises:
        NotCanonicalError: the value is not JSON.
    """
    return content(value) if len(canonical_json(value)) > _MAX_JSON else value


def record_waiver(
    ledger: LedgerClient, kind: str, reason: str, *, by: str, **more: Any
) -> LedgerEntry:
    """Write a ``CONFIG_CHANGED`` entry that waives a check; return the entry with its id.

    The entry has the decision ``WAIVED`` and is committed at once. An earlier waiver does not
    matter.

    Args:
        ledger: the root's ledger.
        kind: the waived check, such as :data:`EDITABLE_INSTALL`.
        reason: one sentence.
        by: the acting person or program.
        more: further keys of the entry.

    Raises:
        LedgerError: the entry cannot be written.
    """
    entry = LedgerEntry(
        event_type="CONFIG_CHANGED",
        submission_id=f"waiver:{kind}",
        decision="WAIVED",
        reason=reason,
        metadata={"waiver": kind, "by": by, **more},
    )
    ledger.write(entry)
    return entry


def waived(ledger: LedgerClient, kind: str) -> str:
    """Return the id of the entry that waives a check; empty if the check is not waived now.

    The newest entry about the check counts, of a writer with permission.

    Args:
        ledger: the root's ledger.
        kind: the check, such as :data:`EDITABLE_INSTALL`.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    found = ledger.query(event_type="CONFIG_CHANGED", submission_id=f"waiver:{kind}", order="desc")
    newest = next(filter(is_authentic, found), None)
    return newest.id if newest is not None and newest.decision == "WAIVED" else ""


def _entry(
    last: LedgerEntry | None, settings: EffectiveSettings, by: str, prices: str
) -> LedgerEntry | None:
    """Return the entry to write after ``last``; ``None`` if settings and prices are equal."""
    stated = last.metadata if last is not None else {}
    then = stated.get("prices", [None, None])[1]
    if last is None and not settings.changed:
        return None
    if stated.get("settings_sha256") == settings.sha256 and then == (prices or then):
        return None
    was, now = stated.get("overrides"), settings.changed
    was = was if isinstance(was, Mapping) else {}  # Content may have been erased.
    defaults = settings.defaults
    changed = {
        key: [was.get(key, defaults.get(key)), settings.values.get(key)]
        for key in sorted({*was, *now})
        if was.get(key, defaults.get(key)) != settings.values.get(key)
    }
    metadata: dict[str, Any] = {
        "by": by,
        "settings": fitting(changed),
        "settings_sha256": settings.sha256,
        "overrides": fitting(dict(now)),
    }
    if prices:
        metadata["prices"] = [then, prices]
    reason = "The settings in force differ from the last on record"
    return LedgerEntry("CONFIG_CHANGED", _SUBJECT, "CHANGED", reason, metadata=metadata)
