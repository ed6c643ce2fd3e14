"""Preparation of an entry: its canonical record in the frozen format.

:func:`prepare` checks an entry in the caller's thread and encodes its record, with holes for its
place in the chain and its commitments. :meth:`Prepared.seal` fills them inside the transaction that
gives the entry its place. :func:`new_commitment` makes the commitments.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import orjson
from msgspec import Struct

from remit.kernel.canonical import MAX_SAFE_INTEGER, NotCanonicalError, is_fast, surrogate_error
from remit.kernel.errors import InvalidInputError
from remit.ledger import subjects
from remit.ledger.contents import EXACT, Content, ContentText, EncodedValue, commit, encode_content
from remit.ledger.entry import LedgerEntry
from remit.ledger.errors import RecordTooLargeError
from remit.ledger.record import (
    MAX_RECORD_BYTES,
    Columns,
    columns_of,
    content_scope,
    number_text,
    require_plain_text,
)
from remit.ledger.usage import key_of, usage_of

_MAX_DEPTH = 100
_HOLE = b"\xff"  # This byte never occurs in UTF-8.
_PLACE = orjson.Fragment(b"\xff\xff")
_PLACE_TEXT = orjson.Fragment(b'"\xff\xff"')


def _content(number: int) -> orjson.Fragment:
    return orjson.Fragment(b'"hmac-sha256:\xff%d\xff"' % number)


_CONTENT = [_content(number) for number in range(16)]


_new = tuple.__new__  # A named tuple's own constructor is a function in Python.

Key = tuple[str, bytes]
"""Scope and digest of a content value."""


class Sealed(NamedTuple):
    """A finished record, made by :meth:`Prepared.seal`; immutable.

    Attributes:
        seq: sequence number of the entry, from 0.
        id: id of the entry, ``LED-`` and its number in hex.
        timestamp: time of the entry, ISO 8601 in UTC.
        previous_hash: ``entry_hash`` of the entry before; empty for the first.
        entry_hash: SHA-256 of ``record``, 64 hex digits.
        record: canonical JSON of the entry, with commitments in place of content.
    """

    seq: int
    id: str
    timestamp: str
    previous_hash: str
    entry_hash: str
    record: bytes


class Prepared(Struct):
    """A checked and encoded entry without its place in the chain, used for a single append.

    Attributes:
        event_type: kind of the entry.
        submission_id: id of the contract, session or work order that the entry belongs to.
        columns: the indexed columns.
        subject_id: id of the person; ``None`` or empty without one.
        subject: the value that names a person, the last of ``contents``; ``None`` without one.
        contents: content values in the order of their holes; a list stands for its messages.
        values: each distinct value by digest, messages included, the subject excluded.
        keys: keys under which the entry's session reuses ``values``; empty without a session.
        usage: the row that the entry adds to the table ``usage``; ``None`` for none.
        made_key: the row that the entry adds to ``usage_keys``; ``None`` for none.
    """

    event_type: str
    submission_id: str
    columns: Columns
    subject_id: str | None
    subject: EncodedValue | None
    contents: Sequence[EncodedValue | list[EncodedValue]]
    values: Mapping[bytes, EncodedValue]
    keys: Sequence[Key]
    usage: tuple[Any, ...] | None
    made_key: tuple[Any, ...] | None
    _pieces: list[bytes]  # Parts of the record; every other one fills a hole.
    _holes: Sequence[int]  # Indexes of the commitments among the parts.
    _previous: int  # the place of the previous hash

    def seal(
        self, seq: int, timestamp: str, previous_hash: str, commitments: Iterable[str]
    ) -> Sealed:
        """Return the finished record at its place in the chain.

        The arguments are written into this object too; sealing it again, as after an error,
        replaces them. Their forms are not checked.

        Args:
            seq: sequence number, from 0.
            timestamp: ISO 8601, UTC, microseconds, ``Z``.
            previous_hash: hash of the entry before, or the empty string.
            commitments: commitment of each of ``contents``, 64 hex digits; another number of them
                raises ValueError.

        Raises:
            RecordTooLargeError: the record would exceed 65,535 bytes.
        """
        pieces, name = self._pieces, f"LED-{seq:08x}"  # `entry_id`, in line: every entry is sealed.
        pieces[1] = name.encode()
        pieces[self._previous] = previous_hash.encode()
        pieces[-4] = b"%d" % seq
        pieces[-2] = timestamp.encode()
        for place, commitment in zip(self._holes, commitments, strict=True):
            pieces[place] = commitment.encode()
        record = b"".join(pieces)
        if len(record) > MAX_RECORD_BYTES:
            raise RecordTooLargeError(
                f"The record of this {self.event_type} would be {len(record):,} bytes; the limit "
                f"is {MAX_RECORD_BYTES:,}.",
                next_step="Wrap its large values in remit.ledger.content(), or name their keys in "
                "[ledger] content_keys.",
            )
        entry_hash = sha256(record).hexdigest()
        return _new(Sealed, (seq, name, timestamp, previous_hash, entry_hash, record))


def prepare(
    entry: LedgerEntry, content_keys: Collection[str], subject_id: str | None = None
) -> Prepared:
    """Check and encode ``entry``, with its content separated; write nothing.

    Content is each marked value, each value of a content key, a marked reason, and the subject. The
    size of the record is not checked here, nor are exact JSON texts in it.

    Args:
        entry: the entry, which is not changed.
        content_keys: metadata keys, at any depth, whose values are content.
        subject_id: the person that the content is about; ``None`` or empty for none.

    Raises:
        NotCanonicalError: a value has no canonical form (NaN, an integer beyond ±(2**53 - 1), a
            lone surrogate outside of content, a key that is no text, another type), or the metadata
            is nested more than 100 deep.
        InvalidInputError: a field has the wrong type or is marked as content, except the reason;
            ``event_type`` is empty, an object key starts with ``$``, an indexed text or
            ``subject_id`` holds a NUL character, or the metadata uses the subject's key.
    """
    event_type, reason = entry.event_type, entry.reason
    stands: Any = reason
    submission_id, decision = entry.submission_id, entry.decision
    if not type(event_type) is type(submission_id) is type(decision) is type(reason) is str:
        event_type, submission_id, decision = _texts(entry)
    if not event_type:
        raise InvalidInputError("The entry has no event_type.")
    if not isinstance(entry.metadata, dict):
        raise InvalidInputError("The entry's metadata is not a dict.")
    prompts = entry.prompts_used
    if not isinstance(prompts, (list, tuple)) or (prompts and {*map(type, prompts)} != {str}):
        raise InvalidInputError("The entry's prompts_used is not a list of texts.")
    if subject_id is not None:
        require_plain_text("subject_id", subject_id)
    walk = _Walk(content_keys)
    metadata = walk.object(entry.metadata, 0)
    columns = columns_of(metadata)
    if subjects.KEY in metadata and (subject_id or subjects.commitment_in(metadata)):
        raise InvalidInputError(
            f"The metadata has a {subjects.KEY!r}, which is where the record names the subject.",
            next_step="Give it as subject_id= of the write, or under another key.",
        )
    if isinstance(reason, ContentText):
        stands = walk.hole(Content(str(reason)))
    subject = None
    if subject_id:
        subject = EncodedValue.of(orjson.dumps(subject_id))
        metadata[subjects.KEY] = walk.subject(subject)
    try:
        record = orjson.dumps(
            {
                "decision": decision,
                "event_type": event_type,
                "id": _PLACE_TEXT,
                "metadata": _in_order(metadata) if walk.is_odd else metadata,
                "previous_hash": _PLACE_TEXT,
                "prompts_used": [*prompts],
                "reason": stands,
                "seq": _PLACE,
                "submission_id": submission_id,
                "timestamp": _PLACE_TEXT,
            },
            option=orjson.OPT_SORT_KEYS,
        )
    except (TypeError, UnicodeEncodeError) as error:
        _refuse_keys(entry.metadata)
        raise surrogate_error() from error
    if b"\\" in record and b"\\u0000" in record:  # The first search is a fifth of the second.
        named = {"event_type": event_type, "submission_id": submission_id, **columns._asdict()}
        for name, value in named.items():
            if value is not None and "\x00" in value:
                raise InvalidInputError(f"The entry's {name} contains a NUL character.")
    pieces = record.split(_HOLE)
    holes = [0] * len(walk.contents)
    if holes:
        for place in range(3, len(pieces), 2):
            if number := pieces[place]:
                holes[int(number)] = place
    values = walk.values
    keys: Sequence[Key] = ()
    if values and columns.session_id:
        scope = content_scope(columns.session_id, 0)
        keys = [*zip(itertools.repeat(scope), values)]
    usage = usage_of(event_type, metadata, entry.metadata)
    return Prepared(
        event_type, submission_id, columns, subject_id, subject, walk.contents, values, keys, usage,
        key_of(event_type, metadata) if usage is None else None, pieces, holes,
        -6 if stands is reason else -8,
    )  # fmt: skip


def _texts(entry: LedgerEntry) -> tuple[str, str, str]:
    """Return the entry's text fields as plain ``str``; raise InvalidInputError for others."""
    for name in ("event_type", "submission_id", "decision", "reason"):
        if not isinstance(getattr(entry, name), str):
            raise InvalidInputError(f"The entry's {name} is not a text.")
        if name != "reason" and isinstance(getattr(entry, name), ContentText):
            raise InvalidInputError(f"The entry's {name} cannot be content; only its reason can.")
    return str(entry.event_type), str(entry.submission_id), str(entry.decision)


def _refuse_keys(value: Any) -> None:
    """Raise NotCanonicalError if an object's key is not a plain text."""
    if isinstance(value, dict):
        is_fast(dict.fromkeys(value))
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, (dict, list, tuple)):
            _refuse_keys(item)


def _refuse_reserved(value: dict[Any, Any]) -> None:
    """Raise NotCanonicalError for a key that is no text, InvalidInputError for one with a ``$``
    in front.
    """
    for key in value:
        is_fast({key: None})  # This call raises the fitting error.
        if key[:1] == "$":
            raise InvalidInputError(
                f"The metadata key {key!r} starts with '$', which is reserved for commitments.",
                next_step="Rename the key, or mark the object that contains it as content.",
            )


class _Walk(Struct):
    """The copy of an entry's metadata with holes in place of content.

    Attributes:
        keys: metadata keys whose values are content.
        contents: content values in the order of their holes; a list stands for its messages.
        values: each distinct value by digest.
        is_odd: True if a key is not ASCII, so that ``orjson`` sorts its object differently.
    """

    keys: Collection[str]
    contents: list[EncodedValue | list[EncodedValue]] = []
    values: dict[bytes, EncodedValue] = {}
    is_odd: bool = False

    def object(self, value: dict[str, Any], depth: int) -> dict[str, Any]:
        if depth > _MAX_DEPTH:
            raise NotCanonicalError("The metadata is nested more than 100 deep.")
        try:
            names = "".join(value)
        except TypeError:
            names = "$"
        if "$" in names:
            _refuse_reserved(value)
        if not names.isascii():
            self.is_odd = True
        keys, copy = self.keys, {**value}
        for key, item in value.items():
            kind = type(item)
            if kind is str and key not in keys:
                continue  # Most values, as they are.
            if kind is Content:
                copy[key] = self.hole(item)
            elif key in keys:
                copy[key] = self.hole(Content(str(item) if kind is ContentText else item))
            elif not (
                item is None
                or kind is bool
                or (kind is int and -MAX_SAFE_INTEGER <= item <= MAX_SAFE_INTEGER)
                or (kind is float and 1e-5 <= item < 1e15 and not item.is_integer())
            ):  # orjson writes all other numbers as RFC 8785 does.
                copy[key] = self._value(key, item, depth)
        return copy

    def _value(self, key: str, item: Any, depth: int) -> Any:
        kind = type(item)
        if kind is str or item is None or kind is bool:
            return item
        if kind is int and -MAX_SAFE_INTEGER <= item <= MAX_SAFE_INTEGER:
            return item
        if kind is float and -1e15 < item < 1e15:
            if abs(item) >= 1e-5 and not item.is_integer():
                return item  # orjson writes this number as RFC 8785 does.
            return orjson.Fragment(number_text(item))
        if kind is Content:
            return self.hole(item)
        if kind is ContentText:
            return self.hole(Content(str(item)))
        if isinstance(item, dict):  # subclasses too: content may be inside
            return self.object(item, depth + 1)
        if isinstance(item, (list, tuple)):
            if depth >= _MAX_DEPTH:
                raise NotCanonicalError("The metadata is nested more than 100 deep.")
            copy = []
            for inner in item:
                kind = type(inner)
                is_plain = kind is str or (kind is int and 0 <= inner <= MAX_SAFE_INTEGER)
                copy.append(inner if is_plain else self._value(key, inner, depth + 1))
            return copy
        if is_fast({key: item}):  # or says what is wrong with it
            return item
        if kind is float:
            return orjson.Fragment(number_text(item))
        plain = next(base(item) for base in (str, int, float) if isinstance(item, base))
        return self._value(key, plain, depth)

    def hole(self, content: Content) -> dict[str, Any]:
        """Return the member for a content value: its commitment, with the digits left open."""
        known, form = content.encoded, content.form
        parts: EncodedValue | list[EncodedValue]
        if form == EXACT and type(known) is bytes:  # In line: every call has two of these.
            parts = EncodedValue(known, sha256(known).digest(), True)
        else:
            parts, form = encode_content(content)
        number = len(self.contents)
        self.contents.append(parts)
        stands: dict[str, Any]
        if isinstance(parts, list):
            for part in parts:
                self.values[part.digest] = part
            hole = orjson.Fragment(b'"\xff%d\xff"' % number)
            stands = {"$messages": hole, "count": len(parts)}
        else:
            self.values[parts.digest] = parts
            hole = _CONTENT[number] if number < len(_CONTENT) else _content(number)
            stands = {"$content": hole, "bytes": len(parts.encoded)}
        if form:
            stands["form"] = form
        return stands

    def subject(self, value: EncodedValue) -> dict[str, Any]:
        """Return the member for the entry's subject, which is not added to ``values``."""
        self.contents.append(value)
        return {"$content": _content(len(self.contents) - 1), "bytes": len(value.encoded)}


def _in_order(value: Any) -> Any:
    """Return ``value`` with encoded objects whose keys are sorted by UTF-16 (RFC 8785)."""
    if isinstance(value, list):
        return [_in_order(item) for item in value]
    if not isinstance(value, dict):
        return value
    members = sorted(value.items(), key=lambda member: member[0].encode("utf-16-be"))
    # Sorted already; members are encoded, so that the outer encoder sorts no more.
    return orjson.Fragment(orjson.dumps({key: _in_order(item) for key, item in members}))


_MAX_COMMITMENTS = 2048
COMMITMENTS: dict[tuple[bytes, bytes], str] = {}
"""The latest commitments of this process, keyed by nonce and digest: a history that is sent again
is not hashed again. Clear the dictionary after rows of content were deleted."""


def new_commitment(nonce: bytes, digest: bytes, encoded: bytes) -> str:
    """Return the commitment to a value, 64 hex digits, and remember it in :data:`COMMITMENTS`.

    At most 2,048 commitments are remembered; the next one first empties the memory.

    Args:
        nonce: the random bytes of the commitment.
        digest: the hash by which the value is found.
        encoded: the value's bytes.
    """
    if len(COMMITMENTS) >= _MAX_COMMITMENTS:
        COMMITMENTS.clear()
    commitment = COMMITMENTS[(nonce, digest)] = commit(nonce, encoded)
    return commitment
