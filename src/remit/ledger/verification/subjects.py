"""Checks of the persons that content belongs to, against the record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from remit.ledger.contents import StoredValue
from remit.ledger.entry_reader import chunks, marks
from remit.ledger.store import Store
from remit.ledger.subjects import subjects_before
from remit.ledger.verification_report import VerificationReport


def check_subjects(report: VerificationReport, store: Store, subjects: Mapping[int, int]) -> None:
    """Report recorded names of subjects that differ from their rows in ``content_subjects``.

    Each of these values is the name of the subject itself. A missing row, another subject and a
    second row are each reported. A value that is itself missing is not reported here.

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
        report: receives the problems, of the kind ``content``, at the entries that show the values.
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
