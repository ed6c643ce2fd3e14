"""The persons whom keys and sessions represent, by the record of how the keys were made."""

from __future__ import annotations

import math

from remit.agents.workorders import start_of
from remit.ledger import LedgerClient, LedgerEntry, is_authentic, parse_entry_id

_KEY_ID_PREFIX = "KEY-"


def person_of_session(ledger: LedgerClient, session_id: str) -> str:
    """Return the person on whose behalf a session was started; empty if it names nobody.

    The person of the session's key takes precedence over the user that the session names. A key
    that names no person counts by its id if the session names no user.

    Args:
        ledger: contains the session.
        session_id: the session; empty also if it was never started.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    start = start_of(ledger, session_id)
    if start is None:
        return ""
    user_id, key_id = (str(start.metadata.get(name) or "") for name in ("user_id", "key_id"))
    person = key_person(ledger, key_id)
    return user_id if person == key_id and user_id else person


def key_person(ledger: LedgerClient, key_id: str) -> str:
    """Return the person whom a key represents.

    A key represents the person who received its secret. If another key requested the secret over
    the network, the person of that key received it, whatever user the new key names. A secret made
    on the machine, or requested by a key that is not recorded, belongs to the user that the key
    names; if it names none, that key's id is returned. An unrecorded ``key_id`` is returned itself.

    Args:
        ledger: ledger of the root, which records how keys were made. Read-only.
        key_id: id of the key.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    person, maker, before = key_id, key_id, math.inf
    while made := key_creation(ledger, maker, before):
        before = made.seq
        person = str(made.metadata.get("user_id") or "") or maker
        maker = str(made.metadata.get("requested_by") or "")
    return person


def key_creation(ledger: LedgerClient, key_id: str, before: float = math.inf) -> LedgerEntry | None:
    """Return the ``KEY_CREATED`` entry of a key's latest secret; None if there is none.

    None also if ``key_id`` is not in the form of a key's id. An entry that only changes the key's
    permissions gave nobody a secret, so it does not count. Entries whose writer was not permitted
    to make keys are ignored.

    Args:
        ledger: the ledger.
        key_id: the key's id.
        before: a sequence number; only earlier entries are considered.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    if not key_id.startswith(_KEY_ID_PREFIX):
        return None
    entries = ledger.query(
        event_type="KEY_CREATED", submission_id=key_id, order="desc", with_content=False
    )
    return next(
        (
            entry
            for entry in entries
            if is_authentic(entry)
            and entry.decision != "CHANGED"
            and (parse_entry_id(entry.id) or 0) < before
        ),
        None,
    )
