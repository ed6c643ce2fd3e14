"""The reader of the lines of exports and archives.

:class:`LineReader` checks each line by the conditions of ``docs/ledger-format.md``, section 12. An
error names the condition in parentheses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from remit.kernel.canonical import sha256_hex
from remit.kernel.json_text import load_exact
from remit.ledger.contents import (
    EXACT,
    NO_STEP,
    commit,
    commitments_in,
    is_canonical,
    is_given_exact,
    next_step,
)
from remit.ledger.entry import entry_id, parse_entry_id
from remit.ledger.record import (
    MAX_RECORD_BYTES,
    Columns,
    columns_of,
    content_scope,
    encode_record,
    inspect_record,
    is_erasure_of,
    is_plain_text,
)
from remit.ledger.subjects import BEFORE, commitment_in
from remit.ledger.tlog.note import parse_base64

MAX_LINE_BYTES = 1 << 28
"""The longest line of an export or archive that is written or read: 256 MiB."""


_HASH = re.compile(r"[0-9a-f]{64}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)


class Known(NamedTuple):
    """A value or a message step in a line that was read; its bytes are not held.

    Attributes:
        number: the place among all values, or all steps, from 1.
        scope: the session, or the entry, that may show it.
        size: for a value the bytes that its commitment covers; for a step the messages up to it.
        is_canonical: True if the bytes, or all messages up to the step, are in RFC 8785 form. An
            erased message counts as canonical.
    """

    number: int
    scope: str
    size: int
    is_canonical: bool


_NewValue = tuple[int, str, str, bytes, bytes, bool, list[str]]
_NewStep = tuple[int, str, int, int | None, str, int]


class CheckedLine(NamedTuple):
    """A checked line of an export or archive, with the rows that the line adds to a ledger.

    The conditions are those of ``docs/ledger-format.md``, section 12. A value is content that the
    record shows as a commitment; a message step is a message and what precedes it in its list.
    Numbers are given by the reader, and are the same for the same value or step in all lines.

    Attributes:
        seq: sequence number.
        entry_hash: of the record.
        text: the canonical record.
        record: the parsed record.
        columns: the record's columns.
        values: values that no earlier line contained: number, commitment, scope, nonce, bytes,
            whether the bytes are the exact ones, and subjects.
        steps: message steps that no earlier line contained: number, step, number of the preceding
            step or 0, number of the message or ``None`` if it was erased, commitment, and position.
        shown: numbers of the values that the entry shows.
        ends: numbers of the last steps of its message lists.
    """

    seq: int
    entry_hash: str
    text: bytes
    record: dict[str, Any]
    columns: Columns
    values: list[_NewValue]
    steps: list[_NewStep]
    shown: set[int]
    ends: set[int]

    @property
    def is_kernels(self) -> bool:
        """True if no worker wrote the entry: it has the tier ``hot`` or none."""
        return self.columns.tier in (None, "hot")


def require(holds: object, condition: str, otherwise: str) -> None:
    """Raise ValueError unless a condition of the format holds; the message ends with the
    condition's name in parentheses.

    Args:
        holds: true if the condition holds; any truth value.
        condition: name of the condition in ``docs/ledger-format.md``, for the message.
        otherwise: the fault, for the message.
    """
    if not holds:
        raise ValueError(f"{otherwise} ({condition})")


def require_members(
    value: Any, condition: str, what: str, needed: Mapping[str, type], more: Mapping[str, type] = {}
) -> None:
    """Raise ValueError unless ``value`` is a dict with all required and no other than the allowed
    members.

    Types must be equal: a bool is no int.

    Args:
        value: the value.
        condition: name of the condition, for the error.
        what: name of the value, for the error.
        needed: type of each required member.
        more: type of each optional member.
    """
    require(type(value) is dict, condition, f"{what} is not an object")
    for name in needed:
        require(name in value, condition, f"{what} has no member {name!r}")
    for name, item in value.items():
        kind = needed.get(name) or more.get(name)
        require(kind is not None, condition, f"{what} has a member {name[:60]!r}")
        require(type(item) is kind, condition, f"{name} of {what} is of another type")


def is_hash(value: Any) -> bool:
    """Return True for 64 lower-case hex digits."""
    return type(value) is str and _HASH.fullmatch(value) is not None


class LineReader:
    """A reader of the entry lines of an export, or of a range of an archive, in ledger order.

    A line that breaks a condition of the format raises ValueError, which names the condition; the
    reader cannot be used further then. Links between records, and their places in the tree, are not
    checked.

    Args:
        subjects_before: sequence number of the first entry whose record names its subject; the
            subjects of earlier entries are taken from the lines.
        is_stated: True if the checkpoint signs the statement of the export, or the order of the
            archive: items and steps must then be in the one order that the format gives them.
            Earlier versions wrote them in others.
        is_early_archive: True for an archive that an earlier version wrote. An erased message may
            have a content item there, and only the first line that names an erased value needs one.

    Attributes:
        values: number, scope, size and form of each value read so far, by commitment. The bytes of
            a value are not stored.
        erased: by commitment, the sequence number of the ``ERASURE`` entry.
        unvouched: commitments and subjects for which no record vouches.
    """

    def __init__(
        self, subjects_before: int, *, is_stated: bool = False, is_early_archive: bool = False
    ) -> None:
        self._before = subjects_before
        self._is_stated = is_stated
        self._is_early_archive = is_early_archive
        self._steps: dict[str, Known] = {}
        self.values: dict[str, Known] = {}
        self.erased: dict[str, int] = {}
        self.unvouched: list[tuple[str, list[str]]] = []

    def read(
        self, seq: int, entry_hash: Any, text: bytes, contents: Any, steps: Any
    ) -> CheckedLine:
        """Check a line; return its record and rows.

        Checked are hash, form and place of the record, its content items and subjects, and its
        message steps and lists. The member ``erased`` is left to :meth:`note_erased_under`, and the
        link to the entry before to the caller. The reader remembers values, steps and erasures for
        later lines, also those of a line that is then refused.

        Args:
            seq: expected sequence number.
            entry_hash: the member of that name, of any type.
            text: the member ``record``, in UTF-8.
            contents: the member of that name, of any type.
            steps: the member of that name, of any type.

        Raises:
            ValueError: a condition does not hold.
        """
        fits = sha256_hex(text) == entry_hash
        require(fits, "record-hash", "the record does not match entry_hash")
        record = read_record(text)
        require(record["seq"] == seq, "record-place", f"it is not entry {seq}")
        items = commitments_in([record["metadata"], record["reason"]])
        columns = columns_of(record["metadata"])
        scope = content_scope(columns.session_id, seq)
        subject = commitment_in(record["metadata"])
        require(
            subject is None or seq >= self._before, "item-subjects",
            f"it names a subject, and {BEFORE} says that none does",
        )  # fmt: skip
        named = {
            item["$content"][12:]: content_scope(None, seq) if item is subject else scope
            for item in items
            if "$content" in item
        }
        _check_items(contents, steps)
        messages = {item["commitment"] for item in steps}
        order = [item["commitment"] for item in contents]
        require(len(set(order)) == len(order), "item-once", "a commitment is there twice")
        if self._is_stated:
            require(order == sorted(order), "item-order", "content items are not in order")
        values = []
        for item in contents:
            mac = item["commitment"]
            is_needed = mac in named or (
                mac in messages and (self._is_early_archive or "erased" not in item)
            )
            require(is_needed, "item-needed", "a content item belongs to no commitment of the line")
            if "erased" in item:
                self._note_erased(item, seq)
            else:
                values.append(self._value(item, seq, named.get(mac, scope), subject))
                if self._is_stated:
                    fits = ("json" in item) == is_given_exact(
                        mac, items, self.values[mac].is_canonical
                    )
                    require(fits, "item-form", "a value has the member of another form")
        for mac, where in named.items():
            known = self.values.get(mac)
            if known is None:
                is_told = mac in (order if self._is_stated else self.erased)
                require(is_told, "item-missing", "content is missing and was not erased")
            else:
                require(known.scope == where, "item-scope", "a value is of another session")
        new = [self._step(item, scope) for item in steps]
        ends = self._ends(items, scope, steps)
        for item in items:
            if "$content" in item and (known := self.values.get(item["$content"][12:])):
                require(
                    known.size == item["bytes"], "item-length",
                    "a value is of another length than its record says",
                )  # fmt: skip
                is_fit = known.is_canonical or item.get("form") == EXACT
                require(is_fit, "item-form", "a value is not in canonical form")
        shown = {number for number, *_ in values}
        shown |= {self.values[mac].number for mac in named if mac in self.values}
        return CheckedLine(seq, entry_hash, text, record, columns, values, new, shown, ends)

    def note_erased_under(self, line: CheckedLine, commitments: Any) -> None:
        """Check that a line's member ``erased`` lists the values that its ``ERASURE`` erased; note
        each as erased.

        Args:
            line: the checked line of an ``ERASURE`` entry.
            commitments: the member ``erased``.

        Raises:
            ValueError: the list is empty, unsorted or not of the entry; or a value in it was read
                or erased otherwise.
        """
        is_list = (
            type(commitments) is list
            and all(map(is_hash, commitments))
            and sorted(set(commitments)) == commitments
            and commitments
        )
        require(is_list, "line-erased", "erased is not a sorted list of commitments")
        fits = is_erasure_of(line.record, commitments)
        require(fits, "line-erased", "erased is not what the entry says that it erased")
        for mac in commitments:
            self._note_erased({"commitment": mac, "erased": entry_id(line.seq)}, -1)

    # -- content ---------------------------------------------------------------------------

    def _value(
        self, item: dict[str, Any], seq: int, scope: str, subject: dict[str, Any] | None
    ) -> _NewValue:
        mac, is_exact = item["commitment"], "json" in item
        is_once = mac not in self.values and mac not in self.erased
        require(is_once, "item-once", "a value is there twice, or was erased")
        nonce = parse_base64(item["nonce"], 32)
        require(nonce is not None, "item-nonce", "a nonce is not base64 of 32 bytes")
        assert nonce is not None
        encoded = _utf8(item["json" if is_exact else "jcs"])
        fits = commit(nonce, encoded) == mac
        require(fits, "item-commitment", "a content value does not match its commitment")
        canonical = is_canonical(encoded)
        require(canonical or is_exact, "item-form", "a content value is not in canonical form")
        if not canonical:
            load_exact(encoded)
        is_subject = subject is not None and subject["$content"] == f"hmac-sha256:{mac}"
        whose = item.get("subjects")
        if seq >= self._before:
            expected = [orjson.loads(encoded)] if is_subject else None
            require(whose == expected, "item-subjects", "a subject is not the record's")
        elif whose is not None:
            is_list = whose and all(type(name) is str and is_plain_text(name) for name in whose)
            is_list = is_list and len(set(whose)) == len(whose)
            require(is_list, "item-subjects", "subjects are not a list of names, each once")
            self.unvouched.append((mac, whose))
        number = len(self.values) + 1
        self.values[mac] = Known(number, scope, len(encoded), canonical)
        return number, mac, scope, nonce, encoded, is_exact, whose or []

    def _note_erased(self, item: Mapping[str, Any], seq: int) -> None:
        mac, by = item["commitment"], parse_entry_id(item["erased"])
        is_id = by is not None and entry_id(by) == item["erased"] and by > seq
        require(is_id, "item-erased", "an erasure names no later entry")
        assert by is not None
        require(mac not in self.values, "item-once", "a value that is there is said to be erased")
        require(
            self.erased.setdefault(mac, by) == by, "item-erased", "a value was erased twice"
        )  # fmt: skip

    # -- message lists ---------------------------------------------------------------------

    def _step(self, item: dict[str, Any], scope: str) -> _NewStep:
        parent, mac, name = item["parent"], item["commitment"], item["step"]
        before = Known(0, scope, 0, True) if parent == NO_STEP else self._steps.get(parent)
        require(before is not None, "step-order", "a message step comes before its parent")
        assert before is not None
        own = before.scope == scope
        require(own, "step-scope", "a message list reaches into another session")
        require(name not in self._steps, "step-once", "a message step is there twice")
        require(next_step(parent, mac) == name, "step-hash", "a message step does not hold")
        known = self.values.get(mac)
        if "erased" in item:
            self._note_erased(item, -1)
        else:
            is_own = known is not None and known.scope == scope
            require(is_own, "step-message", "a message is missing and was not erased")
        canonical = before.is_canonical and (known is None or known.is_canonical)
        number, place = len(self._steps) + 1, before.size + 1
        self._steps[name] = Known(number, scope, place, canonical)
        return number, name, before.number, known and known.number, mac, place

    def _ends(
        self, items: list[dict[str, Any]], scope: str, steps: list[dict[str, Any]]
    ) -> set[int]:
        """Return the numbers of the lists' last steps; require the new steps to be theirs."""
        parents = {item["step"]: item["parent"] for item in steps}
        expected: dict[str, None] = {}
        ends = set()
        for item in items:
            if "$messages" not in item:
                continue
            end = self._steps.get(item["$messages"])
            fits = end is not None and (end.size, end.scope) == (item["count"], scope)
            require(fits, "list-count", "a message list is not the one committed to")
            assert end is not None
            is_fit = end.is_canonical or item.get("form") == EXACT
            require(is_fit, "list-form", "a message of a list is not in canonical form")
            ends.add(end.number)
            chain, step = [], item["$messages"]
            while step in parents and step not in expected:
                chain.append(step)
                step = parents[step]
            expected.update(dict.fromkeys(reversed(chain)))
        is_all = expected.keys() == parents.keys()
        require(is_all, "step-needed", "a message step belongs to no list of the entry")
        if self._is_stated:
            require([*expected] == [*parents], "step-order", "message steps are not in order")
        return ends


def read_record(data: bytes) -> dict[str, Any]:
    """Return the parsed record; raise ValueError if its form is wrong.

    The record must be JSON in canonical form of at most 65,535 bytes, have exactly the members of a
    record, an ``id`` that belongs to its ``seq``, and a UTC timestamp: conditions 17, 18 and 20 of
    ``docs/ledger-format.md``, section 12, whose name the message ends with. Its hash and its place
    in a ledger are not checked.

    Args:
        data: the canonical record.
    """
    is_short = len(data) <= MAX_RECORD_BYTES
    require(is_short, "record-text", f"the record is longer than {MAX_RECORD_BYTES:,} bytes")
    try:
        record: dict[str, Any] = orjson.loads(data)
    except ValueError as error:
        raise ValueError(f"the record is not JSON: {error} (record-text)") from error
    problem, _, odd = inspect_record(record)
    require(not problem, "record-members", problem)
    is_own = encode_record(record, odd) == data
    require(is_own, "record-text", "the record is not in canonical form")
    is_it = record["seq"] >= 0 and record["id"] == entry_id(record["seq"])
    require(is_it, "record-place", "its id is not that of its number")
    is_time = _TIME.fullmatch(record["timestamp"])
    require(is_time, "record-members", "its timestamp is not a time in UTC")
    return record


def _check_items(contents: Any, steps: Any) -> None:
    """Raise ValueError unless all items have their members."""
    for items, what in ((contents, "contents"), (steps, "steps")):
        require(type(items) is list, "line-members", f"{what} is not a list")
    for item in contents:
        is_object = type(item) is dict
        require(is_object, "item-members", "a content item is not an object")
        form = "json" if "json" in item else "jcs"
        if "erased" in item:
            needed: dict[str, type] = {"commitment": str, "erased": str}
            require_members(item, "item-members", "an erased item", needed)
        else:
            needed = {"commitment": str, "nonce": str, form: str}
            require_members(item, "item-members", "a content item", needed, {"subjects": list})
        is_mac = is_hash(item["commitment"])
        require(is_mac, "item-members", "a commitment is not 64 hex digits")
    for item in steps:
        kinds: dict[str, type] = {"step": str, "parent": str, "commitment": str}
        require_members(item, "step-members", "a message step", kinds, {"erased": str})
        is_step = all(is_hash(item[name]) for name in kinds)
        require(is_step, "step-members", "a hash of a message step is not 64 hex digits")


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("a text holds a lone surrogate (json-text)") from error
