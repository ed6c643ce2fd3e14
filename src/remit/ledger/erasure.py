"""The values of an erasure in one database: found, reported and deleted with their nonces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from remit.ledger.contents import Erased, StoredValue
from remit.ledger.entry_reader import EntryRow, as_bytes, chunks, decode_record, marks
from remit.ledger.errors import ErasureError
from remit.ledger.quotes import quotable, quotes
from remit.ledger.search import TextIndex
from remit.ledger.store import Execute, Transaction

CACHED = "cached"
"""Token of the rows of ``idempotency`` that belong to the answer cache; an erasure deletes them."""


COMPACTION_DUE = "compaction_due"
"""The row of ``ledger_info`` with the last ``ERASURE`` whose bytes may still be in the files."""

COMPACTED = "DELETE FROM ledger_info WHERE name = ? AND value = ?"
"""Deletes the row, given as :func:`compaction_due` returned it; that of a later erasure stays."""

_WIRE_ANSWER = ("answer", "replied", "stream")
_NEUTRAL_ANSWER = ("content_blocks", "response")
_SHOWING = """
    SELECT DISTINCT e.seq, e.record FROM shown_contents AS s JOIN entries AS e ON e.seq = s.seq
    WHERE s.content_id IN ({marks})"""
_SHOWN = """
    SELECT c.commitment, c.content_id FROM shown_contents AS s
    JOIN contents AS c ON c.content_id = s.content_id WHERE s.seq = ?"""


def first_erased(values: Iterable[Any]) -> Erased | None:
    """Return the first marker among values and the items of lists; None if there is none."""
    items = (one for value in values for one in (value if isinstance(value, list) else [value]))
    return next((one for one in items if isinstance(one, Erased)), None)


def compaction_due(select: Execute) -> list[Any]:
    """Return the row of an erasure whose bytes may still be in the files; empty if there is none.

    Args:
        select: runs a query on ``ledger_info``; its errors are raised.
    """
    rows = select("SELECT name, value FROM ledger_info WHERE name = ?", (COMPACTION_DUE,))
    return [*rows[0]] if rows else []


@dataclass(slots=True)
class Found:
    """The values of an erasure that a single database contains.

    Attributes:
        commitments: commitments of the values.
        scopes: scopes of the values.
        persons: persons whom the values are about.
        entries: number of entries that showed one of the values first.
    """

    commitments: set[str] = field(default_factory=set)
    scopes: set[str] = field(default_factory=set)
    persons: set[str] = field(default_factory=set)
    entries: int = 0


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """The result of an erasure, or with ``dry_run`` the expected result.

    Attributes:
        erasure_id: id of the ``ERASURE`` entry, for a repeated erasure of the earlier one. Empty
            with ``dry_run`` if there is content to erase.
        values: number of erased content values; 0 for a withdrawal that found none, and for a
            repeated erasure.
        entries: number of entries that showed one of them first.
        sessions: sessions of the values, sorted; values outside sessions add none.
        remainder: reason why erased bytes are still in the database's files, and the number of
            calls in flight that may record more content; empty if neither applies.
    """

    erasure_id: str
    values: int
    entries: int
    sessions: list[str]
    remainder: str = ""


def texts_of(found: Iterable[tuple[Execute, set[int]]]) -> dict[str, set[str]]:
    """Return the texts to erase with their quotes: for each scope, those of the found values.

    A scope is a session (``s:ID``) or a single entry (``e:SEQ``). Texts of fewer than 16 characters
    and names of the protocol are left out, as by :func:`~remit.ledger.quotes.quotable`.

    Args:
        found: for each database, its function that runs a statement, and the ids of its values;
            unknown ids are ignored.

    Raises:
        LedgerFormatError: a value cannot be read.
    """
    texts: dict[str, set[str]] = {}
    for execute, ids in found:
        for chunk in chunks(sorted(ids)):
            inside = f"content_id IN ({marks(chunk)})"
            for scope, codec, value in execute(
                f"SELECT scope, codec, value FROM contents WHERE {inside}", chunk
            ):
                texts.setdefault(str(scope), set()).update(quotable(StoredValue(codec, value)))
    return texts


def containing(execute: Execute, ids: set[int], texts_by_scope: dict[str, set[str]]) -> set[int]:
    """Return the ids of further values that contain one of the texts of their own scope unchanged.

    Every value of each scope that has texts is read. If a value of an answer is found, the answer's
    other texts and its stream are too, whose events may split or encode the text in any way.

    Args:
        execute: runs a statement on the database; its errors are raised.
        ids: ids of values that are found already; they are left out of the result.
        texts_by_scope: the texts, of :func:`texts_of`.

    Raises:
        LedgerFormatError: a value or a record cannot be read.
    """
    found = set()
    for scope, texts in texts_by_scope.items():
        if not texts:
            continue
        for content_id, codec, value in execute(
            "SELECT content_id, codec, value FROM contents WHERE scope = ?", (scope,)
        ):
            if content_id not in ids and quotes(StoredValue(codec, value), texts):
                found.add(int(content_id))
    return found | _answers_with(execute, found) - ids


def _answers_with(execute: Execute, found: set[int]) -> set[int]:
    """Return the ids of the exact texts and streams of the answers that show a found value."""
    answers = set[int]()
    for chunk in chunks(sorted(found)):
        for seq, record in execute(_SHOWING.format(marks=marks(chunk)), chunk):
            metadata = decode_record(EntryRow(seq, "", as_bytes(record)))["metadata"]
            shown = {f"hmac-sha256:{name}": int(one) for name, one in execute(_SHOWN, (seq,))}
            texts = {name: item for name, item in metadata.items() if isinstance(item, dict)}
            ids = {name: shown.get(item.get("$content", "")) for name, item in texts.items()}
            if any(ids.get(name) in found for name in (*_WIRE_ANSWER, *_NEUTRAL_ANSWER)):
                answers.update(one for name in _WIRE_ANSWER if (one := ids.get(name)))
    return answers


def delete_contents(tx: Any, index: TextIndex, ids: list[int]) -> None:
    """Delete values with their nonces, persons and indexed words, in a transaction.

    Message steps stay and refer to no value any more. On SQLite the text index is rewritten without
    the words. The transaction then forgets the stored values that it remembers. No ``ERASURE``
    entry and no row of ``erasures`` is written.

    Args:
        tx: the transaction, which also inserts the rows of ``erasures``.
        index: the text index of the database.
        ids: content ids of the values; unknown ids are ignored.

    Raises:
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """
    index.forget(tx, ids)
    for chunk in chunks(ids):
        inside = f"WHERE content_id IN ({marks(chunk)})"
        tx.execute(f"DELETE FROM shown_contents {inside}", chunk)
        tx.execute(f"DELETE FROM content_subjects {inside}", chunk)
        tx.execute(f"UPDATE message_steps SET content_id = NULL {inside}", chunk)
        tx.execute(f"DELETE FROM contents {inside}", chunk)
    index.lower_mark(tx)
    tx.forget()


def found_in(execute: Execute, ids: Iterable[int]) -> Found:
    """Return commitments, scopes and persons of values of a database, and the number of entries.

    An entry counts once if it was the first to show one of the values. Nothing is changed.

    Args:
        execute: runs a statement on the database; its errors are raised.
        ids: content ids; unknown ids add nothing.
    """
    found, seqs = Found(), set[int]()
    for chunk in chunks(sorted(ids)):
        inside = f"WHERE content_id IN ({marks(chunk)})"
        for commitment, scope in execute(f"SELECT commitment, scope FROM contents {inside}", chunk):
            found.commitments.add(str(commitment))
            found.scopes.add(str(scope))
        sql = f"SELECT DISTINCT subject_id FROM content_subjects {inside}"
        found.persons.update(str(row[0]) for row in execute(sql, chunk))
        sql = f"SELECT min(seq) FROM shown_contents {inside} GROUP BY content_id"
        seqs.update(row[0] for row in execute(sql, chunk))
    found.entries = len(seqs)
    return found


def feedback_of(selects: Sequence[Execute], ids: Sequence[set[int]]) -> list[set[int]]:
    """Return the content ids of feedback on entries that show the given values, a set by database.

    The entries may be in any of the databases, and so may their ``FEEDBACK`` entries, whose
    submission is the entry's id. A value in a message list counts only at the entry that showed it
    first. Nothing is changed.

    Args:
        selects: for each database, its function that runs a statement; errors are raised.
        ids: content ids of the values in the same databases, in the same order.
    """
    rated: set[str] = set()
    for select, own in zip(selects, ids, strict=True):
        for chunk in chunks(sorted(own)):
            sql = (
                "SELECT DISTINCT e.id FROM shown_contents AS s JOIN entries AS e ON e.seq = s.seq "
                f"WHERE s.content_id IN ({marks(chunk)})"
            )
            rated.update(str(row[0]) for row in select(sql, chunk))
    return [
        {
            int(row[0])
            for chunk in chunks(sorted(rated))
            for row in select(
                "SELECT s.content_id FROM entries AS f JOIN shown_contents AS s ON s.seq = f.seq "
                f"WHERE f.submission_id IN ({marks(chunk)}) AND f.event_type || '' = 'FEEDBACK'",
                chunk,
            )
        }
        for select in selects
    ]


def stored_of(tx: Transaction, segments: Sequence[Found]) -> set[int]:
    """Return the content ids in the ledger's database of values that were found in segments.

    Equal values have the same commitment, and are looked for in the scopes of the segments' values.

    Args:
        tx: a transaction of the ledger.
        segments: the values found in each segment; empty for an empty result.
    """
    commitments = set[str]().union(*(one.commitments for one in segments))
    return {
        int(content_id)
        for scope in sorted(set[str]().union(*(one.scopes for one in segments)))
        for content_id, commitment in tx.execute(
            "SELECT content_id, commitment FROM contents WHERE scope = ?", (scope,)
        )
        if commitment in commitments
    }


def content_id_of(value: Any) -> int:
    """Return the id of a content value, as a row of ``content_subjects`` has it.

    Args:
        value: the value of the column ``content_id``.

    Raises:
        ErasureError: the row is damaged, so the value is no number.
    """
    if type(value) is not int:
        raise ErasureError(
            f"A row of content_subjects has the content id {value!r}, so the content of its person "
            "cannot be found.",
            next_step="`remit ledger verify` names the damaged rows.",
        )
    return value
