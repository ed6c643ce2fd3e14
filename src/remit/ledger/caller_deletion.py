"""Values that a caller's own deletion erases: values that no remaining entry shows.

An operator's erasure removes a value wherever its session shows it. A caller's deletion, such as
``DELETE /v1/responses/{id}``, withdraws the entries of one call. A value of these entries is erased
if every entry that shows it is withdrawn, now or by an earlier deletion. So a text that several
calls share is erased together with the last of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import orjson

from remit.ledger.entry import entry_id, parse_entry_id
from remit.ledger.entry_reader import chunks, marks
from remit.ledger.record import columns_of
from remit.ledger.store import Transaction

WITHDRAWN = "withdrawn"
"""The metadata key of an ``ERASURE`` that names the entries a caller's deletion withdrew."""

# The parents of message steps, up to the first: everything that the lists ending there show.
_ABOVE = """
    WITH RECURSIVE walk(step_id) AS (
        SELECT step_id FROM message_steps WHERE step_id IN ({marks})
        UNION
        SELECT s.parent_id FROM walk JOIN message_steps AS s ON s.step_id = walk.step_id
    )
    SELECT DISTINCT s.content_id FROM walk JOIN message_steps AS s ON s.step_id = walk.step_id
    WHERE s.content_id IS NOT NULL"""
_ERASURES = (
    "SELECT seq, record FROM entries WHERE event_type = 'ERASURE' AND seq > ? ORDER BY seq DESC"
)
_IN_FLIGHT = "SELECT count(*) FROM in_flight WHERE ? IN ('', session_id)"


def session_of(tx: Transaction, seq: int) -> str:
    """Return the id of an entry's session; empty if the entry has none or does not exist.

    Args:
        tx: the transaction.
        seq: sequence number of the entry.

    Raises:
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """
    rows = tx.execute("SELECT session_id FROM entries WHERE seq = ?", (seq,))
    return str(rows[0][0] or "") if rows else ""


def calls_in_flight(tx: Transaction, erased: Mapping[str, Any]) -> str:
    """Return a sentence with the number of calls in flight that may record more erased content.

    The erasure of a session counts calls of that session, the erasure of a person all calls. The
    text is empty if there are none, and for every other erasure.

    Args:
        tx: the transaction.
        erased: the metadata of the ``ERASURE`` entry, with ``target``.

    Raises:
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """
    session_id = erased.get("erased_session_id", "")
    if not session_id and erased["target"] != "subject":
        return ""
    ((calls,),) = tx.execute(_IN_FLIGHT, (session_id,))
    said = f"Calls in flight: {calls}. They may record more: repeat this when they have ended."
    return said if calls else ""


def erasures_after(tx: Transaction, seq: int, session_id: str) -> list[tuple[int, bool]]:
    """Return all ``ERASURE`` entries of the ledger after an entry, newest first.

    Each has its sequence number, and True if it may reach new content of the session: the erasure
    of the session, of a person, or of an entry that belongs to the session or is not in the
    database. A deletion by a caller and the end of a retention period reach only content that was
    recorded before, so they have False.

    Args:
        tx: the transaction.
        seq: sequence number of the entry.
        session_id: the session.

    Raises:
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """
    found = []
    for erasure_seq, record in tx.execute(_ERASURES, (seq,)):
        erased = orjson.loads(record)["metadata"]
        reached = erased["target"] == "subject" or erased.get("erased_session_id") == session_id
        if named := erased.get("erased_entry_id"):
            rows = tx.execute("SELECT session_id FROM entries WHERE id = ?", (named,))
            reached = not rows or rows[0][0] == session_id  # An archived entry has no row.
        found.append((int(erasure_seq), reached))
    return found


def repeated_erasure(tx: Transaction, erased: Mapping[str, Any], mark: str) -> str:
    """Return the id of the last ``ERASURE`` of the same entry, session or person; empty without
    one, and for the end of a retention period.

    Args:
        tx: the transaction.
        erased: the metadata of the requested ``ERASURE`` entry, with ``target``.
        mark: name of the row of ``ledger_info`` about the person; empty for other targets.

    Raises:
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """
    for (earlier_id,) in tx.execute("SELECT value FROM ledger_info WHERE name = ?", (mark,)):
        return str(earlier_id)
    keys = ("target", "erased_session_id", "erased_entry_id")
    is_named = erased["target"] in ("entry", "session")
    for seq, record in tx.execute(_ERASURES, (-1,)) if is_named else ():
        earlier = orjson.loads(record)["metadata"]
        if all(earlier.get(key) == erased.get(key) for key in keys):
            return entry_id(int(seq))
    return ""


def withdrawn_from(tx: Transaction, session_id: str) -> set[int]:
    """Return the entries of a session that earlier deletions of callers withdrew.

    They are the ids under ``withdrawn`` in the ``ERASURE`` entries whose submission is the session.
    An ``ERASURE`` of a lower tier, and malformed ids, do not count.

    Args:
        tx: the transaction.
        session_id: the session.

    Returns:
        The sequence numbers; empty for none.

    Raises:
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """
    found: set[int] = set()
    for (record,) in tx.execute(
        "SELECT record FROM entries WHERE submission_id = ? AND event_type = 'ERASURE'",
        (session_id,),
    ):
        metadata = orjson.loads(record)["metadata"]
        if columns_of(metadata).tier in (None, "hot"):
            found.update(_numbers(metadata.get(WITHDRAWN)))
    return found


def feedback_on(tx: Transaction, seqs: Collection[int]) -> set[int]:
    """Return the sequence numbers of the ``FEEDBACK`` entries on the given entries.

    Args:
        tx: the transaction that erases the content.
        seqs: sequence numbers of the entries.

    Raises:
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """
    found: set[int] = set()
    for part in chunks([entry_id(seq) for seq in seqs]):
        rows = tx.execute(
            f"SELECT seq FROM entries WHERE submission_id IN ({marks(part)}) "
            "AND event_type || '' = 'FEEDBACK'",
            part,
        )
        found.update(int(row[0]) for row in rows)
    return found


def erasable(
    tx: Transaction,
    session_id: str,
    seqs: Collection[int],
    earlier: Collection[int] = (),
    digests: Collection[bytes] | None = None,
) -> set[int]:
    """Return the content that only the given entries of a session show; nothing is deleted.

    Args:
        tx: the transaction that erases the content.
        session_id: the session of the entries; empty for entries without one.
        seqs: entries that are withdrawn now.
        earlier: entries of the session that were withdrawn before; they show nothing.
        digests: SHA-256 of the only values of the session to consider; None for all values.

    Returns:
        The content ids, messages of lists included. A value that another entry shows, by itself or
        in a list of the session, is left out. Without a session, lists of other entries are not
        searched beyond the messages that they showed first.

    Raises:
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """
    wanted = _column(tx, "SELECT content_id FROM shown_contents WHERE seq IN ({marks})", seqs)
    ends = _column(tx, "SELECT step_id FROM shown_lists WHERE seq IN ({marks})", seqs)
    wanted |= _in_lists(tx, ends)
    if digests is not None:
        wanted &= _with_digests(tx, session_id, digests)
    withdrawn = {*seqs, *earlier}
    shown: set[int] = set()
    for part in chunks(sorted(wanted)):
        for content_id, seq in tx.execute(
            f"SELECT content_id, seq FROM shown_contents WHERE content_id IN ({marks(part)})", part
        ):
            if seq not in withdrawn:
                shown.add(int(content_id))
    wanted -= shown
    # Of a list only its new messages are in shown_contents: the rest is found by its last step.
    if session_id and _are_messages(tx, wanted):
        wanted -= _in_lists(tx, _other_list_ends(tx, session_id, withdrawn))
    return wanted


def _in_lists(tx: Transaction, ends: Collection[int]) -> set[int]:
    return _column(tx, _ABOVE, ends)


def _other_list_ends(tx: Transaction, session_id: str, but: Collection[int]) -> set[int]:
    """Return the last steps of the lists that the other entries of a session show."""
    rows = tx.execute(
        "SELECT l.seq, l.step_id FROM entries AS e JOIN shown_lists AS l ON l.seq = e.seq "
        "WHERE e.session_id = ?",
        (session_id,),
    )
    return {int(step_id) for seq, step_id in rows if seq not in but}


def _are_messages(tx: Transaction, content_ids: Collection[int]) -> bool:
    """Return True if one of these values is a message of a list."""
    sql = "SELECT content_id FROM message_steps WHERE content_id IN ({marks})"
    return bool(_column(tx, sql, content_ids))


def _with_digests(tx: Transaction, session_id: str, digests: Collection[bytes]) -> set[int]:
    rows: list[tuple[Any, ...]] = []
    for digest in digests:
        rows += tx.execute(
            "SELECT content_id FROM contents WHERE scope = ? AND digest = ?",
            (f"s:{session_id}", digest),
        )
    return {int(row[0]) for row in rows}


def _column(tx: Transaction, sql: str, values: Iterable[int]) -> set[int]:
    return {
        int(row[0])
        for part in chunks(sorted(values))
        for row in tx.execute(sql.replace("{marks}", marks(part)), part)
    }


def _numbers(names: Any) -> set[int]:
    listed = names if isinstance(names, list) else []
    return {
        seq
        for name in listed
        if isinstance(name, str) and (seq := parse_entry_id(name)) is not None
    }
