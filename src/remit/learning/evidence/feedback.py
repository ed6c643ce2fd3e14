"""Feedback of a person, a program or a judge on an exchange, work order, turn or decision.

All feedback stays recorded. If a party gives feedback on the same target twice, the later counts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from remit.gateway import owner_of
from remit.gateway.auth import Identity
from remit.kernel.errors import ConflictError, InvalidInputError, NotFoundError
from remit.kernel.json_text import sound_text
from remit.ledger import (
    Content,
    EntryNotFoundError,
    Erased,
    LedgerClient,
    LedgerEntry,
    LedgerReader,
    Transaction,
    is_plain_text,
)
from remit.routing import find_decision

TargetType = Literal["exchange", "work_order", "turn", "decision"]

_ORDER_EVENTS = frozenset({
    "WO_PLANNED", "WO_DISPATCHED", "WO_EXECUTING", "WO_COMPLETED", "WO_FAILED",
})  # fmt: skip
_NEXT_STEP = (
    "Give an entry (LED-…), a work order (WO-…), a routing decision (DEC-…), a turn (SES-…/3), "
    "or a session (SES-…) for its latest turn. `remit trace --last` shows the ids."
)


Target = tuple[LedgerEntry, TargetType]
"""An `EXCHANGE`, `WO_PLANNED`, `TURN_RECORDED` or a decision's `THOUGHT_RECORD`, and its kind."""


def find_target(ledger: LedgerReader, name: str) -> Target:
    """Return the entry that an id names as a target of feedback, and its kind.

    The entry is the ``EXCHANGE``, ``TURN_RECORDED``, ``WO_PLANNED`` or, of a decision, the
    ``THOUGHT_RECORD``, with its content.

    Args:
        name: `LED-…` of an exchange, its `DISPATCH` or `LLM_CALL`, a turn, an event of a work order
            or a decision; `WO-…`; `DEC-…`; a session's id for its latest turn, or the id with `/N`
            for turn N.

    Raises:
        EntryNotFoundError: the id names nothing that can have feedback.
        TrailError: the record of a decision is damaged.
        LedgerError: the ledger cannot be read.
    """
    found = _found(ledger, name)
    if found is None:
        raise not_found(name)
    return found


def _may_rate(tx: Transaction, identity: Identity, entry: LedgerEntry, session_id: str) -> bool:
    """Return True if a caller may give feedback on a target.

    A session's key may do so in that session, an agent's key on its own exchanges, and any other
    role everywhere.
    """
    if identity.session_id and identity.session_id != session_id:
        return False
    if identity.role != "agent":
        return True
    rows = tx.execute("SELECT owner FROM session_owners WHERE session_id = ?", (session_id,))
    if rows:
        return str(rows[0][0]) == owner_of(identity)
    return bool(identity.key_id) and entry.metadata.get("key_id") == identity.key_id


def not_found(name: str) -> EntryNotFoundError:
    """Return (not raise) the error for a missing target, or equally for a target of another
    caller. Its next step lists the forms of ids.
    """
    return EntryNotFoundError(
        f"{name!r} is not an exchange, work order, turn or decision, so it cannot be rated.",
        next_step=_NEXT_STEP,
    )


def _found(ledger: LedgerReader, name: str) -> Target | None:
    try:
        if name.startswith("LED-"):
            return _of_entry(ledger, ledger.read(name))
        if name.startswith("DEC-"):
            return find_decision(ledger, name), "decision"
    except NotFoundError:
        return None
    if "\x00" in name or not name.isprintable():
        return None
    if name.startswith("WO-"):
        return _order(ledger, name)
    session, slash, number = name.partition("/")
    if not slash:
        turns = ledger.query(session_id=session, event_type="TURN_RECORDED", order="desc", limit=1)
        return next(((entry, "turn") for entry in turns), None)
    for entry in ledger.query(session_id=session, event_type="TURN_RECORDED", with_content=False):
        if str(entry.metadata.get("turn_number")) == number:
            return ledger.read(entry.id), "turn"
    return None


def _of_entry(ledger: LedgerReader, entry: LedgerEntry) -> Target | None:
    event, metadata = entry.event_type, entry.metadata
    if event == "EXCHANGE":
        return entry, "exchange"
    if event == "TURN_RECORDED":
        return entry, "turn"
    if event == "THOUGHT_RECORD" and "decision_id" in metadata:
        return entry, "decision"
    if event == "LLM_CALL":
        return _found(ledger, str(metadata["exchange_entry_id"]))
    if event in _ORDER_EVENTS:
        return _order(ledger, entry.submission_id)
    if event == "DISPATCH":
        exchanges = ledger.query(
            session_id=metadata["session_id"], event_type="EXCHANGE", after=entry.id,
            with_content=False,
        )  # fmt: skip
        for exchange in exchanges:
            if exchange.metadata["dispatch_entry_id"] == entry.id:
                return ledger.read(exchange.id), "exchange"
    return None


def _order(ledger: LedgerReader, wo_id: str) -> Target | None:
    planned = ledger.query(work_order_id=wo_id, event_type="WO_PLANNED", limit=1)
    return next(((entry, "work_order") for entry in planned), None)


Source = Literal["person", "program", "judge", "reference", "schema", "test"]
SOURCES: tuple[Source, ...] = ("person", "program", "judge", "reference", "schema", "test")

_DECIMALS = 6
_LABEL = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
_MAX_REASON = 2_000  # characters
_MAX_NAME = 256
_MAX_WORDS = 100  # Each further feedback of a party on a target reads all earlier ones.
_BATCH = 400  # Parameters of a statement.

Execute = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""Executes a statement of a transaction or of the ledger, and returns the rows."""

_ON = "SELECT record FROM entries WHERE submission_id = ? AND event_type || '' = 'FEEDBACK'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """Feedback as recorded in a ``FEEDBACK`` entry.

    Attributes:
        entry_id: id of the `FEEDBACK` entry.
        score: 0 to 1; None if there is only a label.
        reason: free text; empty without one, an ``Erased`` value if it was erased.
        by: name of the giver.
        rater: the party that counts once: :func:`rater_of`.
        replaces: id of the party's earlier feedback of the same source on the target, which no
            longer counts; empty if there is none.
        again: True if the idempotency key was used before; this is the feedback recorded then.
        target_entry_id: id of the entry of the target.
        target_type: kind of the target.
        source: kind of the party.
        label: the word for counting; may be empty.
        key_id: id of the key that was used; empty without one.
        session_id: the target's session; may be empty.
        at: time of the entry.
    """

    entry_id: str
    target_entry_id: str
    target_type: TargetType
    source: Source
    score: float | None
    label: str
    reason: str | Erased
    by: str
    key_id: str
    rater: str
    session_id: str
    at: str
    replaces: str = ""
    again: bool = False


def give_feedback(
    ledger: LedgerClient, target: str, *, by: str, score: float | None = None, label: str = "",
    reason: str = "", source: Source = "person", identity: Identity | None = None,
    idempotency_key: str = "", subject_id: str = "",
) -> Feedback:  # fmt: skip
    """Record feedback as a ``FEEDBACK`` entry, and return it.

    Earlier feedback of the same party and source on the same target no longer counts.

    Args:
        target: an id of any form that :func:`find_target` takes.
        by: name of the giver, for the record; it cannot be erased.
        score: 0 (bad) to 1 (good), rounded to 6 decimals; ``None`` if there is only a label.
        label: a word for counting, such as `wrong_unit`: up to 64 lower-case letters, digits, `_`,
            `.`, `-`.
        reason: free text of up to 2,000 characters; content of the target's session and subject.
        identity: owner of the key that was used; ``None`` for no limit. A session's key may rate
            only in that session, an agent only in its sessions and its key's own exchanges.
        idempotency_key: two calls of one party on a target with the same key record feedback once;
            the later returns the recorded one with ``again`` True.
        subject_id: the person whom the reason concerns; the target's person if empty.

    Raises:
        InvalidInputError: a value cannot be used, or neither score nor label is given.
        EntryNotFoundError: there is no such target, or it belongs to another caller.
        ConflictError: the target was erased, the idempotency key was used for another score or
            label, or the party gave feedback on the target 100 times already.
        LedgerError: the ledger cannot be read or written.
    """
    entry = _entry(score, label, reason, source, by, identity, idempotency_key)
    rated, kind = find_target(ledger, target)
    provenance = rated.metadata.get("provenance")
    place = provenance if isinstance(provenance, dict) else {}
    session_id = str(rated.metadata.get("session_id") or place.get("session_id") or "")
    entry.submission_id = entry.metadata["target_entry_id"] = rated.id
    entry.metadata |= {"target_type": kind, "session_id": session_id}
    shown = [orjson.loads(ledger.read_record(rated.id))["metadata"]]
    person = subject_id or rated.metadata.get("subject_id")

    def write(tx: Transaction) -> tuple[str, bool]:
        if identity is not None and not _may_rate(tx, identity, rated, session_id):
            raise not_found(target)
        if erased_of(tx.execute, shown):
            raise ConflictError(
                f"The content of {rated.id} was erased, so it cannot be rated.",
                next_step="Rate another exchange.",
            )
        metadata = entry.metadata
        me = rater_of(metadata)
        said_before = 0
        for (stored,) in tx.execute(_ON, (rated.id,)):
            earlier = orjson.loads(stored)
            said = earlier["metadata"]
            if rater_of(said) != me:
                continue
            said_before += 1
            if idempotency_key and said.get("idempotency_key") == idempotency_key:
                if any(said.get(name) != metadata.get(name) for name in ("score", "label")):
                    raise ConflictError(
                        f"This idempotency key was used for other feedback, {earlier['id']}.",
                        next_step="To change the feedback, send another key.",
                    )
                return str(earlier["id"]), True
            if said["source"] == source:
                metadata["replaces"] = str(earlier["id"])
        if said_before >= _MAX_WORDS:
            raise ConflictError(
                f"{by} already gave feedback {said_before} times on {rated.id}, which is "
                "the limit.",
                next_step="The latest feedback counts.",
            )
        subject = person if isinstance(person, str) and person else None
        return tx.append(ledger.prepare(entry, subject_id=subject)), False

    entry_id, again = ledger.transact(write)
    return _feedback(ledger.read(entry_id), again=again)


def feedback_on(
    ledger: LedgerReader, target: str | None = None, *, after: str | None = None
) -> Iterator[Feedback]:
    """Yield recorded feedback in ledger order, replaced feedback included.

    Args:
        target: an id as for :func:`find_target`; ``None`` for all.
        after: id of an entry; only later feedback is read.

    Raises:
        EntryNotFoundError: at the call, if ``target`` names nothing that can have feedback.
        InvalidInputError: at the call, if ``after`` is not an entry id; the entry need not exist.
        LedgerError: the ledger cannot be read; raised by the iteration too.
    """
    where: dict[str, Any] = {"event_type": "FEEDBACK", "after": after}
    if target is not None:
        where["submission_id"] = find_target(ledger, target)[0].id
    return (_feedback(entry) for entry in ledger.query(**where))


def rater_of(metadata: dict[str, Any]) -> str:
    """Return the party of feedback: the id of the user, else of the key, else the name.

    The text is empty if none is recorded. A party counts once for each target.
    """
    return str(metadata.get("user_id") or metadata.get("key_id") or metadata.get("by") or "")


RANKS: tuple[frozenset[str], ...] = (
    frozenset({"reference", "schema", "test"}), frozenset({"person", "program"}),
    frozenset({"judge"}),
)  # fmt: skip
"""Sources by rank: checks, opinions, judges. A score counts only if none of a higher rank exists,
so that no number of opinions outweighs a check."""

JUDGES = 2
"""The rank of judges."""


def reward_of(
    said: Mapping[tuple[str, str], float | None],
) -> tuple[int, float | None, tuple[str, ...]]:
    """Return the rank of the scores that count, their mean, and the parties that gave them, sorted.

    The rank is the place in :data:`RANKS`, from 0. Each party counts once, with the mean of its
    scores from several sources. Without a score, the rank is 3, the mean None, and no party named.

    Args:
        said: latest score by source and party; None for a label alone, which does not count.
    """
    for rank, sources in enumerate(RANKS):
        by_party: dict[str, list[float]] = defaultdict(list)
        for (source, party), score in said.items():
            if score is not None and source in sources:
                by_party[party].append(score)
        if by_party:
            means = [sum(scores) / len(scores) for scores in by_party.values()]
            return rank, sum(means) / len(means), tuple(sorted(by_party))
    return len(RANKS), None, ()


def _entry(
    score: float | None, label: str, reason: str, source: str, by: str,
    identity: Identity | None, idempotency_key: str,
) -> LedgerEntry:  # fmt: skip
    """Return the entry of feedback without its target; raise InvalidInputError."""
    if source not in SOURCES:
        raise InvalidInputError(
            f"Unknown feedback source {source!r}.", next_step=f"Use one of {', '.join(SOURCES)}."
        )
    metadata: dict[str, Any] = {"source": source, "by": by}
    if score is not None:
        if not isinstance(score, (int, float)) or isinstance(score, bool) or not 0 <= score <= 1:
            raise InvalidInputError(
                f"The score {score!r} is not a number from 0 to 1.",
                next_step="0 is bad, 1 is good, 0.5 is in between.",
            )
        metadata["score"] = round(float(score), _DECIMALS)
    if label:
        if not isinstance(label, str) or not _LABEL.fullmatch(label):
            raise InvalidInputError(
                f"The label {label!r} is not valid.",
                next_step="Use up to 64 characters of a-z, 0-9, _ . -, such as wrong_unit. Give "
                "details in the reason, which can be erased.",
            )
        metadata["label"] = label
    if score is None and not label:
        raise InvalidInputError("Feedback requires a score or a label.")
    reason = sound_text(reason) if isinstance(reason, str) else reason
    for name, text, most in (
        ("reason", reason, _MAX_REASON), ("by", by, _MAX_NAME),
        ("idempotency key", idempotency_key, _MAX_NAME),
    ):  # fmt: skip
        if not is_plain_text(text) or len(text) > most:
            raise InvalidInputError(
                f"The {name} of feedback is not a text of at most {most:,} characters."
            )
    if not by.strip():
        raise InvalidInputError("Feedback requires an author.", next_step="Give by=….")
    if reason.strip():
        metadata["reason"] = Content(reason)
    if identity is not None:
        for name in ("key_id", "user_id"):
            if value := getattr(identity, name):
                metadata[name] = value
    if idempotency_key:
        metadata["idempotency_key"] = idempotency_key
    return LedgerEntry("FEEDBACK", "", "RECORDED", f"Feedback by a {source}", metadata=metadata)


def erased_of(select: Execute, metadatas: Iterable[dict[str, Any]]) -> set[str]:
    """Return the commitments (64 hex digits) in metadata, as stored, whose content was erased.

    Only values at the top level are examined.

    Args:
        select: executes the statements that read the table ``erasures``; its errors are raised.
        metadatas: metadata of entries, with commitments in place of content.
    """
    items = (item for metadata in metadatas for item in metadata.values())
    macs = {
        item["$content"][12:] for item in items if isinstance(item, dict) and "$content" in item
    }
    found: set[str] = set()
    for part in parts(macs):
        sql = f"SELECT commitment FROM erasures WHERE commitment IN ({marks(part)})"
        found.update(str(row[0]) for row in select(sql, part))
    return found


def parts(values: Iterable[str]) -> Iterator[list[str]]:
    """Yield the values sorted, in lists of at most 400, as many as a statement may have."""
    wanted = sorted(values)
    for start in range(0, len(wanted), _BATCH):
        yield wanted[start : start + _BATCH]


def marks(values: Collection[str]) -> str:
    """Return the parameter marks of as many values in an SQL statement."""
    return ", ".join("?" * len(values))


def _feedback(entry: LedgerEntry, *, again: bool = False) -> Feedback:
    data = entry.metadata
    score = data.get("score")
    return Feedback(
        entry_id=entry.id,
        **{name: data[name] for name in ("target_entry_id", "target_type", "source", "by")},
        score=None if score is None else float(score),
        **{name: data.get(name, "") for name in ("label", "reason", "key_id", "replaces")},
        rater=rater_of(data), session_id=data["session_id"], at=entry.timestamp, again=again,
    )  # fmt: skip
