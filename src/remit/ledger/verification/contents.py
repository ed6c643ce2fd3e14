"""Checks of content, its persons and message steps, range by range, trusting no stored byte.

Each function reads one range of ids and returns plain data, so ranges can be checked in several
processes at once.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import orjson

from remit.ledger.contents import NO_STEP, StoredValue, commit, next_step
from remit.ledger.entry_reader import chunks, marks, pages
from remit.ledger.errors import LedgerFormatError
from remit.ledger.raw_rows import RawContent
from remit.ledger.record import is_erasure_of
from remit.ledger.store import Store
from remit.ledger.subjects import subjects_before
from remit.ledger.table_checks import reason_of
from remit.ledger.verification.report import VerificationReport

_NONCE_BYTES = 32
_UNSHOWN = "no entry is noted to show the stored value"
_STEPS = """
    SELECT s.step_id, s.step, s.parent_id, s.content_id, s.commitment, s.position,
           p.step, p.position, c.commitment, c.scope, pc.scope
    FROM message_steps AS s
    LEFT JOIN message_steps AS p ON p.step_id = s.parent_id
    LEFT JOIN contents AS c ON c.content_id = s.content_id
    LEFT JOIN contents AS pc ON pc.content_id = p.content_id
    WHERE s.step_id BETWEEN ? AND ? ORDER BY s.step_id"""


IdRange = tuple[int, dict[int, str], VerificationReport]
"""The result of checking a range of ids.

The number of rows; the problems by id, each with the table and the id; and a report, which contains
a problem if the range could not be read to its end.
"""


def check_contents(store: Store, first: int, last: int) -> IdRange:
    """Check the content rows in a range of ids, and that an entry shows each.

    A value must match its commitment, digest, length and codec. Errors of the database are problems
    of the report, not raised.

    Args:
        store: the store of the ledger.
        first: the lowest id.
        last: the greatest id.

    Returns:
        The number of rows; one problem of each bad row by id, as a clause with table and id; and a
        report of what could not be read.
    """
    count, bad, report = 0, dict[int, str](), VerificationReport()
    with report.guard(f"contents {first} to {last}"):
        for row in store.scan_contents(first, last):
            count += 1
            if problem := _content_problem(row):
                bad[row.content_id] = f"contents: row {row.content_id}: {problem}"
        for (content_id,) in store.select(
            "SELECT c.content_id FROM contents AS c WHERE c.content_id BETWEEN ? AND ? "
            "AND NOT EXISTS (SELECT 1 FROM shown_contents AS s WHERE s.content_id = c.content_id)",
            (first, last),
        ):
            bad.setdefault(content_id, f"contents: row {content_id}: {_UNSHOWN}")
    return count, bad, report


def check_steps(store: Store, first: int, last: int) -> IdRange:
    """Check the message steps in a range of ids: hash, position, session, and the message or its
    erasure.

    Errors of the database are problems of the report, not raised.

    Args:
        store: the store of the ledger.
        first: the lowest id.
        last: the greatest id.

    Returns:
        The number of rows; one problem of each bad row by id, as a clause with table and id; and a
        report of what could not be read.
    """
    count, bad, report = 0, dict[int, str](), VerificationReport()
    with report.guard(f"message_steps {first} to {last}"):
        for rows in pages(store.select, _STEPS, first, last):
            count += len(rows)
            # Columns 4 and 8: the step's commitment, and that of its message if it is stored.
            erased = store.erasures({str(row[4]) for row in rows if row[8] is None})
            for row in rows:
                if problem := _step_problem(row, row[4] in erased):
                    bad[row[0]] = f"message_steps: row {row[0]}: {problem}"
    return count, bad, report


def _content_problem(row: RawContent) -> str:
    if row.problem:
        return row.problem
    stored = StoredValue(row.codec, row.value)
    try:
        encoded = stored.encoded()
    except Exception as error:  # noqa: BLE001 - a damaged value can fail in any way
        return reason_of(error)
    if (row.kind != "blob") == stored.is_packed:
        return "the stored value is not of the type that its codec has"
    if len(row.nonce) != _NONCE_BYTES or commit(row.nonce, encoded) != row.commitment:
        return "the stored value does not match its commitment"
    if len(encoded) != row.length:
        return "the stored length is not the value's"
    if hashlib.sha256(encoded).digest() != row.digest:
        return "the digest that finds the value is not the value's"
    if not stored.is_exact and not stored.is_of(encoded):
        return "the stored value's codec is not the one that it is kept in"
    return ""


def _step_problem(row: tuple[Any, ...], is_erased: bool) -> str:
    """Return the fault of a row of ``_STEPS``; empty if there is none."""
    _, step, parent_id, content_id, commitment, position, parent, before, stored, *scopes = row
    if parent_id == 0:
        parent, before = NO_STEP, 0
    try:
        sound = (
            parent is not None
            and before is not None
            and next_step(parent, commitment) == step
            and position == before + 1
        )
    except (ValueError, TypeError):
        sound = False
    if not sound:
        return "a step of the message list is not the hash of the one before and its message"
    if None not in scopes and scopes[0] != scopes[1]:
        return "the messages of a list are of different sessions"
    if stored is None:
        if is_erased and content_id is None:
            return ""
        return "a message of the list is missing and no ERASURE says why"
    if stored != commitment:
        return "a message of the list is not the one committed to"
    return ""


def erasure_is_sound(store: Store, seq: int) -> bool:
    """Return True if the entry at ``seq`` is an ``ERASURE`` of exactly its erased values.

    False also means that the entry is missing or damaged. For a segment, which has no ``ERASURE``
    entries, the result is always True; its erasures are compared with those of its ledger.

    Args:
        store: the store of the ledger.
        seq: sequence number that erased values name.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    if store.segment is not None:
        return True
    row = store.get(seq)
    under = store.erased_under(seq)
    try:
        record = orjson.loads(row.record) if row else {}
        return row is not None and is_erasure_of(record, under)
    except (ValueError, KeyError, TypeError, AttributeError, LedgerFormatError):
        return False


def check_subjects(report: VerificationReport, store: Store, subjects: Mapping[int, int]) -> None:
    """Report recorded names of subjects that differ from their rows in ``content_subjects``.

    Each of these values is the name of the subject itself. A value without a row, with a row of
    another subject, or with several rows gives one problem. A value that is itself missing gives
    none here.

    Args:
        report: receives the problems, of the kind ``content``, at the entries.
        store: the store of the ledger.
        subjects: by content id of such a name, the sequence number of its entry.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    found: dict[int, list[bool]] = defaultdict(list)
    for chunk in chunks([*subjects]):
        for content_id, codec, value, subject_id in store.select(
            "SELECT c.content_id, c.codec, c.value, p.subject_id FROM contents AS c "
            "LEFT JOIN content_subjects AS p ON p.content_id = c.content_id "
            f"WHERE c.content_id IN ({marks(chunk)})",
            chunk,
        ):
            found[content_id].append(_value(codec, value) == subject_id)
    for content_id, matches in found.items():
        if matches != [True]:
            problem = f"content_subjects: the person of content {content_id} is not the record's"
            report.add(subjects[content_id], "content", problem)


def _value(codec: str, value: Any) -> Any:
    try:
        return StoredValue(codec, value).decode()
    except Exception:  # noqa: BLE001 - the check of contents reports it
        return None


def check_unnamed_subjects(
    report: VerificationReport, store: Store, first: int, last: int, named: set[int]
) -> None:
    """Report rows of ``content_subjects`` that no entry commits to.

    Rows of entries from before records committed to subjects are not reported. If there are no more
    rows than named values, nothing is compared: :func:`check_subjects` then finds the fault.

    Args:
        report: receives the problems, of the kind ``content``, at the first entry that shows the
            value, or without a sequence number if none does.
        store: the store of the ledger.
        first: the lowest content id.
        last: the greatest content id.
        named: content ids of the values by which entries name a person.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    where = "WHERE content_id >= ? AND content_id <= ?"
    ((number,),) = store.select(f"SELECT count(*) FROM content_subjects {where}", (first, last))
    if number <= sum(first <= content_id <= last for content_id in named):
        return
    before = subjects_before(store.select)
    for content_id, seq in store.select(
        "SELECT p.content_id, (SELECT min(s.seq) FROM shown_contents AS s "
        f"WHERE s.content_id = p.content_id) FROM content_subjects AS p {where}",
        (first, last),
    ):
        if content_id not in named and not (isinstance(seq, int) and seq < before):
            problem = f"content_subjects: no entry names the person of content {content_id}"
            report.add(seq if isinstance(seq, int) else None, "content", problem)
