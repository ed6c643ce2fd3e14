"""Erasure of archived content, together with the content in the database.

The ``ERASURE`` entry is written first, then the parts are written again without the bytes. After an
interruption the next erasure, or ``remit ledger archive --finish --archive DIR``, completes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import orjson

from remit.kernel.errors import InvalidInputError
from remit.ledger.archive.files import Line, read_part, unfinished_part, write_part
from remit.ledger.archive.reader import Archive, messages_of
from remit.ledger.archive.removal import Guard
from remit.ledger.client import LedgerClient
from remit.ledger.contents import StoredValue, commitments_in
from remit.ledger.entry import entry_id as format_id
from remit.ledger.entry import parse_entry_id
from remit.ledger.erasure import Beside, ErasureReport
from remit.ledger.errors import LedgerError
from remit.ledger.record import columns_of
from remit.ledger.search import quotable, quotes
from remit.ledger.subjects import BY_SUBJECT

__all__ = ["erase_archived", "purge", "retain_archived"]

_BATCH_COMMITMENTS = 400


def erase_archived(
    ledger: LedgerClient,
    archive: Archive,
    entry_id: str | None = None,
    *,
    session_id: str | None = None,
    subject_id: str | None = None,
    reason: str,
    guard: Guard,
    requested_by: str = "",
    dry_run: bool = False,
) -> ErasureReport:
    """Erase content in the database and in the archive, as :meth:`LedgerClient.erase` does.

    An ``ERASURE`` entry is appended, the database is compacted, and the affected parts are written
    again. Erasures that were interrupted before are completed first.

    Args:
        ledger: the ledger that was archived.
        archive: all of its archive.
        entry_id: the entry whose content is erased. Give this, ``session_id`` or ``subject_id``.
        session_id: the session whose content is erased.
        subject_id: the person whose content is erased.
        reason: recorded for good; name the request, not the person.
        guard: called in a transaction before each part is replaced; raises if the lease is lost.
        requested_by: the person who asked; ``operator`` if empty.
        dry_run: True to report the result without erasing.

    Raises:
        ErasureError: there is nothing to erase, or the entry may not be erased.
        InvalidInputError: there is no such entry, none or several targets were given, or no reason.
        LedgerError: a part of the archive is missing, or cannot be read or written. An erasure that
            was recorded already is completed by the next one.
    """
    archive.require(ledger.archived_ranges())
    if not dry_run:
        purge(ledger, archive.parts(), guard)  # Complete an interrupted erasure.
    seq = parse_entry_id(entry_id) if entry_id is not None else None
    if entry_id is not None and (seq is None or seq >= ledger.count()):
        raise InvalidInputError(f"There is no entry {entry_id!r}.")
    beside = Beside()
    if seq is not None:
        texts = ledger._eraser.quoted("SELECT content_id FROM shown_contents WHERE seq = ?", (seq,))
        session = _session_of(ledger, archive, seq)
        _collect(archive, [session] if session else [], beside, texts, seq=seq)
    elif session_id is not None:
        _collect(archive, [session_id], beside, None)
    elif subject_id is not None:
        texts = ledger._eraser.quoted(BY_SUBJECT, (subject_id, subject_id))
        sessions = {scope[2:] for scope in texts if scope.startswith("s:")}
        sessions |= {name for line in archive.lines() if _is_of(line, subject_id)
                     and (name := _session(line))}  # fmt: skip
        _collect(archive, sorted(sessions), beside, texts, subject_id=subject_id)
    report = ledger._eraser.erase(
        entry_seq=seq,
        session_id=session_id,
        subject_id=subject_id,
        reason=reason,
        requested_by=requested_by or "operator",
        dry_run=dry_run,
        beside=beside,
    )
    if not dry_run:
        purge(ledger, archive.parts(), guard)
    return report


def retain_archived(
    ledger: LedgerClient,
    archive: Archive,
    days_by_event: Mapping[str, float] | None = None,
    *,
    guard: Guard,
    requested_by: str = "retention",
    dry_run: bool = False,
) -> list[ErasureReport]:
    """Erase content older than its retention in the database and in the archive.

    The affected parts are written again. Each event type with old content gets an ``ERASURE`` entry
    and a report. Erasures that were interrupted before are completed first.

    Args:
        ledger: the ledger that was archived.
        archive: all of its archive.
        days_by_event: days by event type, ``*`` for all others; ``None`` for the settings.
        guard: as for :func:`erase_archived`.
        requested_by: the person or program that asked, for the record.
        dry_run: True to report the result without erasing.

    Raises:
        InvalidInputError: an event type is named whose content may not be erased by age.
        LedgerError: a part of the archive is missing, or cannot be read or written.
    """
    archive.require(ledger.archived_ranges())
    if not dry_run:
        purge(ledger, archive.parts(), guard)
    days = dict(ledger.retention_days if days_by_event is None else days_by_event)

    def older(event_type: str, limit: str) -> Beside:
        beside = Beside()
        for line in archive.lines():
            record = orjson.loads(line.record)
            kind = record["event_type"]
            if record["timestamp"] >= limit or not (
                kind == event_type if event_type != "*" else kind not in days
            ):
                continue
            if gone := [item["commitment"] for item in line.contents if "erased" not in item]:
                beside.commitments.update(gone)
                beside.entries += 1
                if name := _session(line):
                    beside.sessions.add(name)
        return beside

    reports = ledger._eraser.retain(
        days, requested_by=requested_by, dry_run=dry_run, archived=older
    )
    if not dry_run:
        purge(ledger, archive.parts(), guard)
    return reports


def purge(ledger: LedgerClient, parts: Iterable[Path], guard: Guard) -> int:
    """Write each part that contains an erased value again without it; return the number of values.

    Files of interrupted writes are deleted.

    Args:
        ledger: the ledger, whose record names the erased values.
        parts: paths of the parts.
        guard: called in a transaction before each part is replaced; raises if the lease is lost.

    Raises:
        LedgerError: a part cannot be read or written, or does not read back as written; the old
            part then stays.
    """
    number = 0
    for part in parts:
        unfinished_part(part).unlink(missing_ok=True)  # erasures do not reach it
        gone = {
            mac: seq
            for macs in _batches(_unerased(read_part(part)))
            for mac, seq in ledger._store.erasures(macs).items()
        }
        if not gone:
            continue
        ledger.transact(guard)
        try:
            write_part(part, (_without(line, gone) for line in read_part(part)))
        except OSError as error:
            raise LedgerError(
                f"{part} cannot be written: {error.strerror or error}.",
                next_step="The erasure is recorded, and the part still has the bytes. Make room, "
                "then `remit ledger archive --finish --archive DIR`.",
            ) from error
        number += len(gone)
    return number


def _unerased(lines: Iterable[Line]) -> Iterator[str]:
    """Yield the commitments in lines that the lines do not mark as erased."""
    for line in lines:
        every = (*line.contents, *line.steps)
        erased = {item["commitment"] for item in every if "erased" in item}
        yield from {*_named(line), *(item["commitment"] for item in every)} - erased


def _named(line: Line) -> Iterator[str]:
    """Yield the commitments of the values that a line's record names."""
    record = orjson.loads(line.record)
    for item in commitments_in([record["metadata"], record["reason"]]):
        if "$content" in item:
            yield item["$content"][12:]


def _batches(macs: Iterator[str]) -> Iterator[set[str]]:
    batch: set[str] = set()
    for mac in macs:
        batch.add(mac)
        if len(batch) >= _BATCH_COMMITMENTS:
            yield batch
            batch = set()
    if batch:
        yield batch


def _without(line: Line, gone: dict[str, int]) -> Line:
    """Return a line as an export has it after the values in ``gone`` are erased.

    A value that the record names gets an erased item. A message that only a list contains gets
    none.
    """
    erased = [{"commitment": mac, "erased": format_id(gone[mac])}
              for mac in set(_named(line)) if mac in gone]  # fmt: skip
    kept = [item for item in line.contents if item["commitment"] not in gone]
    contents = sorted([*kept, *erased], key=lambda item: str(item["commitment"]))
    steps = [
        {**item, "erased": format_id(gone[item["commitment"]])}
        if item["commitment"] in gone
        else item
        for item in line.steps
    ]
    return line._replace(contents=contents, steps=steps)


class _Session:
    """The content of one session in an archive."""

    def __init__(self, lines: list[Line]) -> None:
        self.lines = lines
        # Both are keyed by commitment; ``first`` is the entry that shows the value first.
        self.values: dict[str, StoredValue] = {}
        self.first: dict[str, int] = {}
        self._steps: dict[str, tuple[str, str]] = {}
        for line in lines:
            for item in line.contents:
                if "erased" not in item:
                    mac = item["commitment"]
                    codec, text = (
                        ("exact", item["json"]) if "json" in item else ("json", item["jcs"])
                    )
                    self.values[mac] = StoredValue(codec, text)
                    self.first[mac] = line.seq
            for step in line.steps:
                self._steps[step["step"]] = (step["parent"], step["commitment"])

    def shown_by(self, line: Line) -> set[str]:
        """Return the commitments of the unerased content that an entry shows."""
        record = orjson.loads(line.record)
        found = set(_named(line))
        for item in commitments_in([record["metadata"], record["reason"]]):
            if "$messages" in item:
                found.update(messages_of(self._steps, item["$messages"]))
        return found & self.values.keys()


def _collect(
    archive: Archive,
    sessions: Sequence[str],
    beside: Beside,
    texts: dict[str, set[str]] | None,
    *,
    seq: int | None = None,
    subject_id: str | None = None,
) -> None:
    """Add the content to erase of ``sessions`` to ``beside``.

    Args:
        archive: the archive.
        sessions: ids of sessions.
        beside: receives commitments, sessions, and the number of entries.
        texts: by scope, erased texts of the database. Values that quote one, or quote an erased
            value of the archive, are erased too. ``None`` erases the sessions' whole content.
        seq: the only entry whose content is erased.
        subject_id: the person whose entries' content is erased, unless ``seq`` is given.
    """
    for name in sessions:
        lines = [line for part in archive.parts() for line in read_part(part, {"session_id": name})]
        session = _Session(lines)
        if texts is None:
            gone = set(session.values)
        else:
            chosen = [
                line
                for line in lines
                if (line.seq == seq if seq is not None else _is_of(line, subject_id or ""))
            ]
            gone = {mac for line in chosen for mac in session.shown_by(line)}
            scope = f"s:{name}"
            own: set[str] = set().union(*(quotable(session.values[mac]) for mac in gone))
            beside.texts[scope] = own | beside.texts.get(scope, set())
            sought = own | texts.get(scope, set())
            gone |= {mac for mac, value in session.values.items()
                     if mac not in gone and quotes(value, sought)}  # fmt: skip
            gone |= _feedback_on(session, gone)
        if gone:
            beside.commitments |= gone
            beside.sessions.add(name)
            beside.entries += len({session.first[mac] for mac in gone})


def _feedback_on(session: _Session, gone: set[str]) -> set[str]:
    """Return the content of feedback on entries that show a value in ``gone``."""
    notes: dict[str, list[Line]] = defaultdict(list)
    for line in session.lines:
        record = orjson.loads(line.record)
        if record["event_type"] == "FEEDBACK":
            notes[record["submission_id"]].append(line)
    return {
        mac
        for line in session.lines
        if (about := notes.get(format_id(line.seq))) and session.shown_by(line) & gone
        for one in about
        for mac in session.shown_by(one)
    }


def _session(line: Line) -> str | None:
    return columns_of(orjson.loads(line.record)["metadata"]).session_id


def _session_of(ledger: LedgerClient, archive: Archive, seq: int) -> str | None:
    rows = ledger.select("SELECT session_id FROM entries WHERE seq = ?", (seq,))
    if rows:
        return str(rows[0][0]) if rows[0][0] is not None else None
    record = archive.read_record(format_id(seq))
    return columns_of(orjson.loads(record)["metadata"]).session_id


def _is_of(line: Line, subject_id: str) -> bool:
    """Return True if a line's content belongs to a person."""
    return any(subject_id in item.get("subjects", ()) for item in line.contents)
