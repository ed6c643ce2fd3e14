"""The canonical record: its members, its columns and its possible faults."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from remit.kernel.canonical import MAX_SAFE_INTEGER, canonical_json, is_plain_float
from remit.kernel.errors import InvalidInputError
from remit.ledger.contents import is_commitment

MAX_RECORD_BYTES = 65_535
"""The largest record, in bytes: the limit of an entry in C2SP tlog-tiles."""


class Columns(NamedTuple):
    """The columns of a record that are indexed: non-empty texts only, else ``None``.

    Each is ``metadata[k]``, else ``metadata.provenance[k]``, else ``metadata.scope[k]``. A member
    that is present counts, whatever it holds: an empty one hides those after it.

    Attributes:
        session_id: the session.
        work_order_id: the work order.
        agent_id: the agent.
        tier: the tier.
        contract_id: the contract.
        framework_id: the framework.
        model_id: the model.
        outcome: the outcome of an exchange.
    """

    session_id: str | None
    work_order_id: str | None
    agent_id: str | None
    tier: str | None
    contract_id: str | None
    framework_id: str | None
    model_id: str | None
    outcome: str | None


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
_PLAIN_TYPES = frozenset({str, bool, type(None)})
_NOT_PLAIN = re.compile("[\x00\ud800-\udfff]")
_MAX_DEPTH = 150  # levels; no writer goes beyond 100


def is_plain_text(value: Any) -> bool:
    """Return True for a text without NUL and lone surrogates, which every database can store.

    Other types give False; the empty text gives True.
    """
    return isinstance(value, str) and _NOT_PLAIN.search(value) is None


def require_plain_text(name: str, value: Any) -> None:
    """Raise InvalidInputError unless ``value`` is a text without NUL and lone surrogates.

    The value itself is not in the message.

    Args:
        name: name of the value, for the message.
        value: the value to check.
    """
    if not is_plain_text(value):
        raise InvalidInputError(
            f"{name} is not a text, or holds a NUL character or a lone surrogate."
        )


def inspect_record(record: Any) -> tuple[str, list[dict[str, Any]], int]:
    """Check the form of a parsed record in a single walk, because verification reads millions.

    The record must have exactly the ten members, of the right types, sound commitments, and at most
    150 levels in its metadata. Hashes, id and timestamp are not checked.

    Args:
        record: the parsed JSON of a record; any value.

    Returns:
        The fault as part of a sentence (empty if there is none); the commitments in the record; and
        the number of values and keys that ``orjson`` may write in another than the canonical form.
        After a fault, the last two mean nothing.
    """
    found: list[dict[str, Any]] = []
    if type(record) is not dict or record.keys() != _FIELD_TYPES.keys():
        return "it does not have exactly the ten members of a record", found, 1
    for name, kind in _FIELD_TYPES.items():
        value = record[name]
        if type(value) is not kind:
            if name != "reason" or not is_commitment(value):
                return f"its {name} is not a {kind.__name__}", found, 1
            found.append(value)
    if any(type(item) is not str for item in record["prompts_used"]):
        return "its prompts_used is not a list of texts", found, 1
    odd = 0
    level: list[Any] = [record["metadata"]]
    for _ in range(_MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            if type(item) is dict:
                for key in item:
                    if key[:1] == "$":
                        if not is_commitment(item):
                            return "a commitment is malformed", [], 1
                        found.append(item)
                        break
                    if not key.isascii():
                        odd += 1
                else:
                    below.extend(
                        [value for value in item.values() if type(value) not in _PLAIN_TYPES]
                    )
            elif type(item) is list:
                below.extend([value for value in item if type(value) not in _PLAIN_TYPES])
            elif type(item) is int:
                odd += not -MAX_SAFE_INTEGER <= item <= MAX_SAFE_INTEGER
            else:
                odd += type(item) is not float or not is_plain_float(item)
        if not below:
            return "", found, odd
        level = below
    return f"its metadata is nested more than {_MAX_DEPTH} deep", [], 1


def encode_record(record: dict[str, Any], odd: int) -> bytes:
    """Return the canonical form (RFC 8785) of a record, in UTF-8.

    The fast encoder writes the record if ``odd`` is 0, or if all odd values are small numbers,
    whose canonical texts it is given; otherwise the slow encoder does. The record is not changed.

    Args:
        record: a sound record.
        odd: number of values and keys that ``orjson`` may write otherwise, from
            :func:`inspect_record`; 0 for a record with some gives another form.

    Raises:
        NotCanonicalError: a number has no canonical form, such as NaN.
    """
    if odd:
        given: list[float] = []
        metadata = _with_texts(record["metadata"], given)
        if len(given) != odd:
            return canonical_json(record)
        record = {**record, "metadata": metadata}
    return orjson.dumps(record, option=orjson.OPT_SORT_KEYS)


def _with_texts(value: Any, given: list[float]) -> Any:
    """Return ``value`` with the canonical text of odd numbers, which are added to ``given``."""
    if type(value) is dict:
        return {
            key: item if type(item) is str else _with_texts(item, given)
            for key, item in value.items()
        }
    if type(value) is list:
        return [_with_texts(item, given) for item in value]
    if type(value) is float and abs(value) < 1e15 and not is_plain_float(value):
        given.append(value)
        return orjson.Fragment(number_text(value))
    return value


def columns_of(metadata: Mapping[str, Any]) -> Columns:
    """Return the indexed columns of an entry with this metadata.

    A column is ``None`` if its value is missing, empty or not a text. ``metadata`` comes before
    ``provenance``, and that before ``scope``: a member counts if it is present, whatever it holds.

    Args:
        metadata: the recorded metadata of an entry.
    """
    get = metadata.get
    for place in (get("provenance"), get("scope")):
        if isinstance(place, dict):
            metadata = {**place, **metadata}
    found: list[str | None] = []
    for value in map(metadata.get, Columns._fields):
        found.append(value if isinstance(value, str) and value else None)
    return tuple.__new__(Columns, found)


def content_scope(session_id: str | None, seq: int) -> str:
    """Return the scope in which an entry's values are reused.

    The scope is ``s:`` and the session, or ``e:`` and the entry's own number.

    Args:
        session_id: the entry's session; ``None`` or empty for none.
        seq: the entry's sequence number.
    """
    return f"s:{session_id}" if session_id else f"e:{seq}"


def erasure_digest(commitments: list[str]) -> str:
    """Return the digest of erased values for an ``ERASURE`` entry: SHA-256 over their commitments.

    The commitments (64 hex digits each) are sorted and concatenated; duplicates count. The result
    has 64 hex digits.
    """
    return hashlib.sha256("".join(sorted(commitments)).encode()).hexdigest()


def is_erasure_of(record: dict[str, Any], commitments: list[str]) -> bool:
    """Return True if a record is the kernel's ``ERASURE`` of exactly these commitments.

    An ``ERASURE`` of a lower tier (``ho1``, ``ho2``) is none of the kernel's. The signature and the
    entry's place are not checked.

    Args:
        record: the parsed record, whose form was checked.
        commitments: commitments of the erased values, in any order.
    """
    metadata = record["metadata"]
    return bool(
        record["event_type"] == "ERASURE"
        and columns_of(metadata).tier in (None, "hot")
        and metadata.get("erased_count") == len(commitments)
        and metadata.get("erased_hash") == erasure_digest(commitments)
    )


def number_text(value: float) -> str:
    """Return the text by RFC 8785 (ECMAScript) of a number that has a canonical form.

    Args:
        value: a finite float; a whole one is within ±(2**53 - 1), or at least 1e21 in size. For
            another the text is not canonical.
    """
    if value.is_integer() and abs(value) <= MAX_SAFE_INTEGER:
        return str(int(value))
    digits, _, exponent = repr(value).partition("e")
    if not exponent:
        return digits
    power = int(exponent)
    if power < -6 or power > 0:
        return f"{digits}e{power:+d}"
    sign = "-" if value < 0 else ""
    return f"{sign}0.{'0' * (-power - 1)}{digits.lstrip('-').replace('.', '')}"
