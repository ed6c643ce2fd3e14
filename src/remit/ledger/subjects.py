"""Subjects of content: the persons whom content is about, stored for erasure.

An entry with a subject commits to the subject under ``metadata.subject_id`` as to any content, in a
scope of its own. The record does not reveal the subject, and the commitments of one person's
entries have nothing in common. ``content_subjects`` finds the values of a person. Rows of entries
before ``subjects_before`` name every value of an entry, and no record confirms them.

An erasure deletes the name. A row of ``ledger_info`` (:func:`erased_name`) then recognises a
repeated erasure of the person; only the holder of the ledger's private key can compute its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

from remit.ledger.entry_reader import info_number
from remit.ledger.tlog import Signer

KEY = "subject_id"
"""The metadata key of the commitment."""

BEFORE = "subjects_before"
"""The row of ``ledger_info`` with the number of entries that an older layout wrote."""

ERASED = "erased_person "
"""The prefix of names of rows of ``ledger_info`` about erased persons; the value is an id."""

BY_SUBJECT = """
    WITH RECURSIVE named(seq) AS (
        SELECT s.seq FROM content_subjects AS p JOIN contents AS c ON c.content_id = p.content_id
        JOIN shown_contents AS s ON s.content_id = p.content_id
        WHERE p.subject_id = ? AND c.scope = 'e:' || s.seq
    ), walk(step_id) AS (
        SELECT l.step_id FROM named JOIN shown_lists AS l ON l.seq = named.seq
        UNION
        SELECT s.parent_id FROM walk JOIN message_steps AS s ON s.step_id = walk.step_id
    )
    SELECT content_id FROM content_subjects WHERE subject_id = ?
    UNION
    SELECT s.content_id FROM named JOIN shown_contents AS s ON s.seq = named.seq
    UNION
    SELECT s.content_id FROM walk JOIN message_steps AS s ON s.step_id = walk.step_id
    WHERE s.content_id IS NOT NULL"""
"""The content of a person, given twice: all that an entry shows which names that person."""


def erased_name(signer: Signer, subject_id: str) -> str:
    """Return the name of the row of ``ledger_info`` about the erasure of a person.

    Nobody without the private key can confirm a guess of the person by the row.

    Args:
        signer: the ledger's key.
        subject_id: the person.
    """
    signature = signer.sign(f"remit erased person\n{subject_id}".encode())  # Deterministic.
    return f"{ERASED}{sha256(signature).hexdigest()}"


def commitment_in(metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the commitment to the subject in a record's metadata.

    ``None`` if ``subject_id`` is missing or no object with ``$content``. The form is not checked
    further.

    Args:
        metadata: metadata of a record, as stored.
    """
    item = metadata.get(KEY)
    return item if isinstance(item, dict) and "$content" in item else None


def subjects_before(select: Callable[..., Any]) -> int:
    """Return the sequence number from which on records confirm their entries' persons.

    The number is 0 if all do, and if the recorded number is not 1 to 18 digits.

    Args:
        select: runs a query on ``ledger_info``; its errors are raised.
    """
    return info_number(select, BEFORE)
