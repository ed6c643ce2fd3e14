"""From an entry to its canonical record and back: the frozen format of SPEC 3.2.

``prepare`` does in the caller's thread all that needs no knowledge of the chain; ``seal``
does the rest inside the transaction that gives the entry its place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import rfc8785

from remit.kernel.canonical import (
    MAX_SAFE_INTEGER,
    NotCanonicalError,
    encode_odd,
    is_fast,
    number,
    sha256_hex,
    surrogate_error,
)
from remit.kernel.errors import InvalidInputError
from remit.ledger.content import (
    Content,
    ContentText,
    Encoded,
    EncodedValue,
    encode_content,
    is_commitment,
)
from remit.ledger.entry import LedgerEntry, entry_id
from remit.ledger.errors import RecordTooLargeError

MAX_RECORD_BYTES = 65_535
"""The largest record, in bytes: the limit of an entry in C2SP tlog-tiles."""

INDEXED = (
    "session_id",
    "work_order_id",
    "agent_id",
    "tier",
    "contract_id",
    "framework_id",
    "model_id",
    "outcome",
)
"""Columns: ``metadata[k]``, else ``metadata.provenance[k]``, else ``metadata.scope[k]``."""


_FIELD_TYPES: Mapping[str, type] = {
    "decision": str,
    "event_type": str,
    "id": str,
    "metadata": dict,
    "previous_hash": str,
    "prompts_used": list,
    "reason": str,
    "seq": int,
    "submission_id": str,
    "timestamp": str,
}
_ALWAYS_FAST = frozenset({str, bool, type(None)})
_DEEPEST = 150  # levels; no writer goes beyond 100


@dataclass(slots=True)
class _Slot:
    """Where a commitment will be put."""

    holder: Any
    key: Any
    encoded: Encoded


@dataclass(slots=True)
class Prepared:
    """An entry checked and encoded as far as it can be before its place is known.

    Attributes:
        values: by digest, every content value, the messages of lists included.
        direct: digests of those that are in the record by themselves.
    """

    fields: dict[str, Any]
    slots: list[_Slot]
    fast: bool
    columns: dict[str, str | None]
    subject_id: str | None = None
    values: dict[bytes, EncodedValue] = field(default_factory=dict)
    direct: set[bytes] = field(default_factory=set)

    @property
    def session_id(self) -> str | None:
        """The session whose content this entry shares, when it has one."""
        return self.columns["session_id"]


@dataclass(frozen=True, slots=True)
class Sealed:
    """A finished record."""

    seq: int
    id: str
    timestamp: str
    previous_hash: str
    entry_hash: str
    record: bytes


def prepare(
    entry: LedgerEntry, content_keys: Collection[str], subject_id: str | None = None
) -> Prepared:
    """Check ``entry``, take its content out, encode it.

    Raises:
        NotCanonicalError: a value has no canonical form.
        InvalidInputError: a field has the wrong type, or an object key starts with ``$``.
    """
    for name in ("event_type", "submission_id", "decision", "reason"):
        if not isinstance(getattr(entry, name), str):
            raise InvalidInputError(f"The entry's {name} is not a text.")
        if name != "reason" and isinstance(getattr(entry, name), ContentText):
            raise InvalidInputError(f"The entry's {name} cannot be content; only its reason can.")
    if not entry.event_type:
        raise InvalidInputError("The entry has no event_type.")
    if not isinstance(entry.metadata, dict):
        raise InvalidInputError("The entry's metadata is not a dict.")
    prompts = list(entry.prompts_used) if isinstance(entry.prompts_used, (list, tuple)) else [0]
    if not all(type(item) is str for item in prompts):
        raise InvalidInputError("The entry's prompts_used is not a list of texts.")
    if subject_id is not None and not is_plain_text(subject_id):
        raise InvalidInputError(
            "The subject_id is not a text, or holds a NUL character or a lone surrogate."
        )
    slots: list[_Slot] = []
    metadata, fast = _extract(entry.metadata, content_keys, slots, 0)
    fields: dict[str, Any] = {
        "decision": str(entry.decision),
        "event_type": str(entry.event_type),
        "id": "",
        "metadata": metadata,
        "previous_hash": "",
        "prompts_used": prompts,
        "reason": entry.reason,
        "seq": 0,
        "submission_id": str(entry.submission_id),
        "timestamp": "",
    }
    if isinstance(entry.reason, ContentText):
        fields["reason"] = None
        slots.append(_Slot(fields, "reason", encode_content(Content(str(entry.reason)))))
    prepared = Prepared(fields, slots, fast, columns_of(fields), subject_id)
    for name, value in (
        ("event_type", entry.event_type),
        ("submission_id", entry.submission_id),
        *prepared.columns.items(),
    ):
        if value is not None and "\x00" in value:
            raise InvalidInputError(f"The entry's {name} holds a NUL character.")
    try:
        # A lone surrogate must show here, not inside a shared transaction.
        orjson.dumps(fields, default=encode_odd)
    except TypeError as error:
        raise surrogate_error() from error
    for slot in slots:
        parts = slot.encoded.parts
        if isinstance(parts, list):
            prepared.values.update((item.digest, item) for item in parts)
        else:
            prepared.values[parts.digest] = parts
            prepared.direct.add(parts.digest)
    return prepared


def seal(
    prepared: Prepared,
    *,
    seq: int,
    timestamp: str,
    previous_hash: str,
    commitments: Mapping[bytes, str],
    steps: Callable[[list[str]], str],
) -> Sealed:
    """Give ``prepared`` its place in the chain.

    Args:
        seq: index in the ledger, from 0.
        timestamp: ISO 8601, UTC, microseconds, ``Z``.
        previous_hash: the entry before's hash, or the empty string.
        commitments: by digest, the commitment of each of ``prepared.values``.
        steps: from the commitments of a list of messages to the list's own.

    Raises:
        RecordTooLargeError: the record would exceed :data:`MAX_RECORD_BYTES`.
    """
    fields = prepared.fields
    for slot in prepared.slots:
        parts, form = slot.encoded
        commitment: dict[str, Any]
        if isinstance(parts, list):
            head = steps([commitments[item.digest] for item in parts])
            commitment = {"$messages": head, "count": len(parts)}
        else:
            mac = commitments[parts.digest]
            commitment = {"$content": f"hmac-sha256:{mac}", "bytes": len(parts.encoded)}
        if form:
            commitment["form"] = form
        slot.holder[slot.key] = commitment
    fields["seq"] = seq
    fields["id"] = entry_id(seq)
    fields["timestamp"] = timestamp
    fields["previous_hash"] = previous_hash
    if prepared.fast:
        record = orjson.dumps(fields, encode_odd, orjson.OPT_SORT_KEYS)
    else:
        record = rfc8785.dumps(fields)
    if len(record) > MAX_RECORD_BYTES:
        raise RecordTooLargeError(
            f"The record of this {fields['event_type']} would be {len(record):,} bytes; the limit "
            f"is {MAX_RECORD_BYTES:,}.",
            next_step="Wrap its large values in remit.ledger.content(), or name their keys in "
            "[ledger] content_keys.",
        )
    return Sealed(seq, fields["id"], timestamp, previous_hash, sha256_hex(record), record)


def is_plain_text(value: Any) -> bool:
    """Whether ``value`` is a text that every database keeps: no NUL, no lone surrogate."""
    return (
        isinstance(value, str)
        and "\x00" not in value
        and not any("\ud800" <= char <= "\udfff" for char in value)
    )


def record_problem(record: Any) -> str:
    """Why a parsed record is not of this format; empty when it is."""
    return inspect_record(record)[0]


def inspect_record(record: Any) -> tuple[str, list[dict[str, Any]], bool]:
    """Check a parsed record in one walk, as verification reads millions.

    Returns:
        Why it is not of this format (empty when it is), the commitments in it, and whether
        ``orjson`` with sorted keys is sure to give its canonical form.
    """
    found: list[dict[str, Any]] = []
    if type(record) is not dict or record.keys() != _FIELD_TYPES.keys():
        return "it does not have exactly the ten members of a record", found, False
    for name, kind in _FIELD_TYPES.items():
        value = record[name]
        if type(value) is not kind:
            if name != "reason" or not is_commitment(value):
                return f"its {name} is not a {kind.__name__}", found, False
            found.append(value)
    if any(type(item) is not str for item in record["prompts_used"]):
        return "its prompts_used is not a list of texts", found, False
    fast = True
    level: list[Any] = [record["metadata"]]
    for _ in range(_DEEPEST):
        below: list[Any] = []
        for item in level:
            if type(item) is dict:
                for key in item:
                    if key[:1] == "$":
                        if not is_commitment(item):
                            return "a commitment is malformed", [], False
                        found.append(item)
                        break
                    if not key.isascii():
                        fast = False
                else:
                    below.extend(
                        [value for value in item.values() if type(value) not in _ALWAYS_FAST]
                    )
            elif type(item) is list:
                below.extend([value for value in item if type(value) not in _ALWAYS_FAST])
            elif type(item) is not int or not -MAX_SAFE_INTEGER <= item <= MAX_SAFE_INTEGER:
                fast = False
        if not below:
            return "", found, fast
        level = below
    return f"its metadata is nested more than {_DEEPEST} deep", [], False


def columns_of(fields: Mapping[str, Any]) -> dict[str, str | None]:
    """The indexed columns of a record: non-empty texts only, else ``None``."""
    metadata = fields["metadata"]
    places = [metadata]
    for name in ("provenance", "scope"):
        if isinstance(place := metadata.get(name), dict):
            places.append(place)
    columns: dict[str, str | None] = {}
    for key in INDEXED:
        columns[key] = None
        for place in places:
            if key in place:
                value = place[key]
                columns[key] = value if isinstance(value, str) and value else None
                break
    return columns


def content_scope(session_id: str | None, seq: int) -> str:
    """Where an entry's values are looked for again: its session, or itself alone."""
    return f"s:{session_id}" if session_id else f"e:{seq}"


def _extract(value: Any, keys: Collection[str], slots: list[_Slot], depth: int) -> tuple[Any, bool]:
    """A copy of ``value`` in which content is replaced by ``None`` and noted in ``slots``.

    With it, whether ``orjson`` with sorted keys is exact for the copy.
    """
    if depth > 100:
        raise NotCanonicalError("The metadata is nested more than 100 deep.")
    copy: Any
    pairs: Iterable[tuple[Any, Any]]
    if isinstance(value, dict):
        copy = {}
        pairs = value.items()
    else:
        copy = [None] * len(value)
        pairs = enumerate(value)
    fast = True
    for key, item in pairs:
        if type(key) is str:
            if key[:1] == "$":
                raise InvalidInputError(
                    f"The metadata key {key!r} starts with '$', which is kept for commitments.",
                    next_step="Rename it, or mark the object that holds it as content.",
                )
            fast = fast and key.isascii()
        elif type(key) is not int or type(copy) is dict:
            is_fast({key: None})  # says what is wrong with it
            fast = False
        kind = type(item)
        if kind is Content:
            copy[key] = None
            slots.append(_Slot(copy, key, encode_content(item)))
        elif kind is ContentText or key in keys:
            copy[key] = None
            plain = str(item) if kind is ContentText else item
            slots.append(_Slot(copy, key, encode_content(Content(plain))))
        elif kind is str or item is None or kind is bool:
            copy[key] = item
        elif kind is int:
            if not -MAX_SAFE_INTEGER <= item <= MAX_SAFE_INTEGER:
                is_fast({str(key): item})  # says what is wrong with it
            copy[key] = item
        elif kind is float:
            copy[key] = number(item)
        elif isinstance(item, (dict, list, tuple)):  # subclasses too: content may be inside
            copy[key], within = _extract(item, keys, slots, depth + 1)
            fast = fast and within
        elif isinstance(item, (str, int, float)):
            plain = next(base(item) for base in (str, int, float) if isinstance(item, base))
            copy[key], within = plain, is_fast({str(key): plain})
            fast = fast and within
        else:
            is_fast({str(key): item})  # says what is wrong with it
            copy[key] = item
    return copy, fast
