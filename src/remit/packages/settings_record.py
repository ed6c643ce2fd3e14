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
_LONGEST = 8192  # bytes of JSON that stand in a record itself


def record_settings(
    ledger: LedgerClient, settings: EffectiveSettings, *, by: str, prices: str = ""
) -> str:
    """Put the settings in force on record, unless the last on record are the same.

    Where none are on record, those that packages brought count: their packages are on record.

    Args:
        ledger: the record.
        settings: in force in this process from now on.
        by: who started it, or had it read them again.
        prices: version of the prices in force; empty where they are not known.

    Returns:
        the id of the ``CONFIG_CHANGED``; empty where nothing differs.

    Raises:
        LedgerError: it could not be written.
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
    """The entries that say which settings came into force, the latest first."""
    found = ledger.query(event_type="CONFIG_CHANGED", submission_id=_SUBJECT, order="desc")
    for entry in filter(is_authentic, found):
        if "settings_sha256" in entry.metadata:
            yield entry


def fitting(value: Any) -> Any:
    """A value as it stands in a record; as content where it is too long for that."""
    return content(value) if len(canonical_json(value)) > _LONGEST else value


def record_waiver(
    ledger: LedgerClient, kind: str, reason: str, *, by: str, **more: Any
) -> LedgerEntry:
    """Write and return the entry that waives a check.

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
    """Return the id of the entry that waives a check; empty if the check is not waived now."""
    found = ledger.query(event_type="CONFIG_CHANGED", submission_id=f"waiver:{kind}", order="desc")
    newest = next(filter(is_authentic, found), None)
    return newest.id if newest is not None and newest.decision == "WAIVED" else ""


def _entry(
    last: LedgerEntry | None, settings: EffectiveSettings, by: str, prices: str
) -> LedgerEntry | None:
    """What goes on record after ``last``; ``None`` where nothing differs."""
    stated = last.metadata if last is not None else {}
    then = stated.get("prices", [None, None])[1]
    if last is None and not settings.changed:
        return None
    if stated.get("settings_sha256") == settings.sha256 and then == (prices or then):
        return None
    was, now = stated.get("overrides"), settings.changed
    was = was if isinstance(was, Mapping) else {}  # of which content was erased
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
    said = "The settings in force differ from the last on record"
    return LedgerEntry("CONFIG_CHANGED", _SUBJECT, "CHANGED", said, metadata=metadata)
