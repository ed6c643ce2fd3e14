"""Whom content speaks of, against what the record commits to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from remit.ledger.content import StoredValue
from remit.ledger.reader import chunks, marks
from remit.ledger.report import VerificationReport
from remit.ledger.store import Store
from remit.ledger.subjects import subjects_before


def check_subjects(report: VerificationReport, store: Store, subjects: Mapping[int, int]) -> None:
    """Whether the values by which entries name their subjects are found by these.

    Args:
        report: of the verification.
        store: of the ledger.
        subjects: by content id, the sequence number of the entry that it names somebody for.
    """
    found: dict[int, list[bool]] = defaultdict(list)
    for chunk in chunks([*subjects]):
        for content_id, codec, value, subject_id in store.select(
            "SELECT c.content_id, c.codec, c.value, p.subject_id FROM contents AS c "
            "LEFT JOIN content_subjects AS p ON p.content_id = c.content_id "
            f"WHERE c.content_id IN ({marks(chunk)})",
            chunk,
        ):
            found[content_id].append(StoredValue(codec, value).decode() == subject_id)
    for content_id, matches in found.items():
        if matches != [True]:
            problem = "whom it speaks of is noted otherwise than its record has it"
            report.add(subjects[content_id], "content", problem)


def check_unnamed_subjects(
    report: VerificationReport, store: Store, first: int, last: Any, named: set[int]
) -> None:
    """Rows that say of a value in a range of ids whom it speaks of, where no entry names anybody.

    ``named`` are the values that entries name somebody by.
    """
    if not isinstance(last, int):
        report.add(None, "store", f"content_subjects has a row with content_id {last!r}")
        return
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
            report.add(seq, "content", f"content {content_id} is noted to speak of somebody whom "
                                       "no entry names")  # fmt: skip
