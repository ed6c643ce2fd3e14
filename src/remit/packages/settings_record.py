"""The settings in force, on record: a ``CONFIG_CHANGED`` entry when they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from remit.kernel.canonical import canonical_json
from remit.kernel.settings import EffectiveSettings
from remit.ledger import LedgerClient, LedgerEntry, Transaction, content, is_authentic

__all__ = ["fitting", "record_settings", "recorded_settings"]

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
