"""Extracts: the records of a range, a run or an action, with the proof that none is missing.

An extract is one JSON object: a signed checkpoint, canonical records, and the tree hashes that lead
from the records to the checkpoint's root. A range of sequence numbers is complete if each number
is there. A run is complete by its index (:mod:`remit.ledger.run_index`), which is one of the
records. :func:`read_extract` needs only the file and the log's verifier key. The conditions are in
``docs/ledger-format.md``, section 12.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from remit.kernel.errors import InvalidInputError, RemitError
from remit.kernel.json_text import load_unique
from remit.ledger.entry import entry_id, parse_entry_id
from remit.ledger.errors import LedgerFormatError
from remit.ledger.export_reader import MAX_LINE_BYTES, read_record, require, require_members
from remit.ledger.record import columns_of
from remit.ledger.run_index import ACTIONS, RUNS, actions_of, index_run, read_index, run_of
from remit.ledger.tlog import (
    EMPTY_ROOT,
    Checkpoint,
    SignedCheckpoint,
    VerifierKey,
    leaf_hash,
    node_hash,
    split_point,
    unlisted_subtrees,
)
from remit.ledger.tlog.note import parse_base64

if TYPE_CHECKING:
    from remit.ledger.client import LedgerClient

EXTRACT_FORMAT = "remit-extract/1"
"""The ``format`` of an extract."""

MAX_RANGE = 100_000
"""The largest number of entries of a range."""

MEMBERS = {"format": str, "of": dict, "checkpoint": str, "verifier_key": str, "records": list,
           "hashes": list}  # fmt: skip
"""The members of an extract and their types."""


@dataclass(frozen=True, slots=True)
class Extract:
    """An extract that was verified.

    Attributes:
        of: ``first`` and ``end`` of a range, or ``session_id`` or ``work_order_id`` of a run, or
            ``entry``, the id of an action.
        signed: the checkpoint.
        records: the parsed records by sequence number, without the index of the run.
        end: the first sequence number that the extract does not cover.
        run: the run of an action or of a run; empty for a range.
        actions: the run's actions, as :func:`~remit.ledger.run_index.actions_of` returns them.
        members: the file's members.
        nodes: roots of subtrees of the log's tree, by first leaf and the leaf after the last one;
            a leaf is a subtree too.
    """

    of: Mapping[str, Any]
    signed: SignedCheckpoint
    records: Mapping[int, dict[str, Any]]
    end: int
    run: Mapping[str, str]
    actions: Sequence[Sequence[int]]
    members: Mapping[str, Any]
    nodes: Mapping[tuple[int, int], bytes]

    def shows(self, kept: Checkpoint) -> bool:
        """Return True if the file proves that its log continues a checkpoint, and False if the file
        alone does not show it.

        Args:
            kept: the checkpoint, of the same log.

        Raises:
            LedgerFormatError: the log has another root at that size (``tree-root``).
        """
        is_older = kept.size <= self.signed.checkpoint.size
        root = _root(self.nodes, 0, kept.size) if is_older else None
        if root not in (None, kept.root):
            raise LedgerFormatError(
                f"The first {kept.size} entries do not lead to the checkpoint that you kept "
                "(tree-root)."
            )
        return root is not None

    @property
    def statement(self) -> str:
        """A sentence for people: the entries that are proven to be complete, and the head.

        An example: ``verified: all entries from 4 to 15 (12), in the 40 entries that ORIGIN
        signed``. For a run or an action, ``of SES-… before LED-…`` takes the place of the range.
        """
        head = self.signed.checkpoint
        what = f"from {self.of['first']} to {self.end - 1}" if "end" in self.of else ""
        for name, value in {**self.run, **self.of}.items() if not what else ():
            kind = "the action " if name == "entry" else ""
            plain = value if value.replace("-", "").isalnum() else repr(value)
            what = f"of {kind}{plain} before {entry_id(self.end)}"
        return (f"verified: all entries {what} ({len(self.records)}), in the {head.size} entries "
                f"that {head.origin} signed")  # fmt: skip


def make_extract(
    ledger: LedgerClient, of: Mapping[str, Any], *, later: Callable[[int], None] | None = None
) -> dict[str, Any]:
    """Return an extract of the ledger, as JSON values without content.

    A run gets an ``INDEXED`` entry, unless its last one names all entries. If no stored checkpoint
    covers all records, a new one is signed and stored.

    Args:
        ledger: the ledger; its segments have to be attached if records were archived.
        of: as in :class:`Extract`; ``end`` is exclusive.
        later: called with the number of the run's entries that the extract lacks because the ledger
            is read-only and the last index does not name them.

    Returns:
        ``format``, ``of``, ``checkpoint`` (signed note), ``verifier_key`` (empty without one),
        ``records`` (canonical texts in ledger order, the index of a run included) and ``hashes``
        (the multiproof, in base64).

    Raises:
        EntryNotFoundError: an entry or a run does not exist; EntryArchivedError if it is in a
            segment that is not attached.
        InvalidInputError: the range is empty, not in the ledger or above :data:`MAX_RANGE`
            (100,000); or the entry is no tool action or model call of a run.
        NoSignerError: a new checkpoint is needed, and the client holds no key.
        LedgerError: the index cannot be written, only some segments are attached, a new checkpoint
            is refused, or the ledger cannot be read.
        KeyError: ``of`` has ``end`` without ``first``. Other members are not checked.
    """
    records = _range(ledger, of) if "end" in of else _run(ledger, of, later)
    seqs = sorted(records)
    signed = ledger.checkpoints.covering(seqs[-1])
    if signed is None:
        signed = SignedCheckpoint.parse(ledger.checkpoint())
    hashes = ledger.checkpoints.multiproof(seqs, signed.checkpoint.size)
    return {
        "format": EXTRACT_FORMAT,
        "of": dict(of),
        "checkpoint": str(signed),
        "verifier_key": str(ledger.verifier_key or ledger.checkpoints.owner()),
        "records": [records[seq].decode() for seq in seqs],
        "hashes": [base64.b64encode(one).decode() for one in hashes],
    }


def _range(ledger: LedgerClient, of: Mapping[str, Any]) -> dict[int, bytes]:
    first, end = of["first"], of["end"]
    if not 0 <= first < end <= ledger.count():
        raise InvalidInputError(
            f"The ledger has no entries from {first} to before {end}; it has {ledger.count()}.",
            next_step="Name a range with at least one entry.",
        )
    if end - first > MAX_RANGE:
        raise InvalidInputError(
            f"The range has {end - first:,} entries; an extract has at most {MAX_RANGE:,}.",
            next_step="Take several ranges, or `remit ledger export` for the whole ledger.",
        )
    found = ledger.records_where("seq >= ? AND seq < ?", (first, end))
    for seq in range(first, end):
        if seq not in found:
            found[seq] = ledger.read_record(entry_id(seq))  # raises: archived, or missing
    return found


def _run(
    ledger: LedgerClient, of: Mapping[str, Any], later: Callable[[int], None] | None
) -> dict[int, bytes]:
    """Return the records of a run or of an action, with the parts of the run's index."""
    run = of
    if "entry" in of:
        run = run_of(orjson.loads(ledger.read_record(of["entry"])))
    seq = parse_entry_id(of["entry"]) if "entry" in of else None
    parts, records = index_run(ledger, run, seq, later=later)
    index = {seq: ledger.read_record(entry_id(seq)) for seq in parts}
    if "entry" in of:
        actions = (
            row for one in index.values() for row in orjson.loads(one)["metadata"]["actions"]
        )
        related = next((row for row in actions if row[0] == seq), None)
        if related is None:
            raise InvalidInputError(
                f"{of['entry']} ends no tool action or model call.",
                next_step=f"Name an entry of one of these types: {', '.join(ACTIONS)}.",
            )
        records = {seq: records[seq] for seq in related}
    return {**records, **index}


def read_extract(
    data: bytes | str, key: VerifierKey | None, *, more: Mapping[str, type] = {}
) -> Extract:
    """Return an extract if it meets every condition; an error names a missing entry.

    Args:
        data: the file.
        key: the log's verifier key, from another source than the file. ``None`` uses the key that
            the file states, which anybody can replace.
        more: further members that the file must have, for formats that contain an extract; their
            values are not checked, and ``format`` is not.

    Raises:
        LedgerFormatError: the file is malformed, or a condition does not hold; the message ends
            with the condition's name in parentheses.
    """
    try:
        return _read(data, key, more)
    except (ValueError, RemitError) as error:
        said = error.message if isinstance(error, RemitError) else f"{error}."
        raise LedgerFormatError(
            f"The extract does not verify: {said}",
            next_step="Request the file again from its maker, and compare the verifier key.",
        ) from error


def _read(data: bytes | str, key: VerifierKey | None, more: Mapping[str, type]) -> Extract:
    require(len(data) <= MAX_LINE_BYTES, "extract-members", "the file is too long")
    members: Any = load_unique(data)
    require_members(members, "extract-members", "the extract", {**MEMBERS, **more})
    is_one = bool(more) or members["format"] == EXTRACT_FORMAT
    require(is_one, "extract-members", "this is not an extract")
    stated = VerifierKey.parse(members["verifier_key"])
    is_own = stated == (key or stated) and str(stated) == members["verifier_key"]
    require(is_own, "head-key", "the file names another verifier key, or not exactly this one")
    signed = SignedCheckpoint.parse(members["checkpoint"])
    head = signed.verify(stated)
    of, texts = members["of"], members["records"]
    is_list = all(type(one) is str for one in [*texts, *members["hashes"]])
    require(is_list, "extract-members", "records or hashes are not lists of texts")
    records: dict[int, dict[str, Any]] = {}
    nodes = {(0, 0): EMPTY_ROOT}
    before, before_hash = -1, ""
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        record = read_record(encoded)
        seq = record["seq"]
        require(seq > before, "extract-order", f"{record['id']} is not in order, or there twice")
        is_next = seq != before + 1 or before < 0 or record["previous_hash"] == before_hash
        require(is_next, "record-link", f"{record['id']} does not follow the entry before it")
        is_covered = seq < head.size
        require(is_covered, "extract-root", f"the checkpoint does not cover {record['id']}")
        records[seq], nodes[seq, seq + 1] = record, leaf_hash(encoded)
        before, before_hash = seq, hashlib.sha256(encoded).hexdigest()
    seqs = sorted(records)
    own, run, actions, end = _complete(of, records)
    hashes = [parse_base64(one, 32) for one in members["hashes"]]
    roots = dict(zip(unlisted_subtrees(seqs, 0, head.size), hashes, strict=False))
    is_fit = None not in hashes and len(roots) == len(hashes)
    is_fit = is_fit and len([*unlisted_subtrees(seqs, 0, head.size)]) == len(hashes)
    require(is_fit, "extract-root", "a tree hash is missing, malformed or not needed")
    nodes |= {place: one for place, one in roots.items() if one is not None}
    is_root = _root(nodes, 0, head.size) == head.root
    require(is_root, "extract-root", "records and hashes do not lead to the checkpoint's root")
    return Extract(of, signed, own, end, run, actions, members, nodes)


def _root(nodes: Mapping[tuple[int, int], bytes], start: int, end: int) -> bytes | None:
    """Return the root of a subtree; None if it does not follow from the nodes."""
    if end - start < 2 or (start, end) in nodes:
        return nodes.get((start, end))
    middle = start + split_point(end - start)
    left = _root(nodes, start, middle)
    right = left and _root(nodes, middle, end)
    return node_hash(left, right) if left and right else None


def _complete(
    of: Mapping[str, Any], records: dict[int, dict[str, Any]]
) -> tuple[dict[int, dict[str, Any]], dict[str, str], list[list[int]], int]:
    """Return the records without the index, the run, its actions and the end; or raise."""
    if of.keys() == {"first", "end"}:
        is_range = all(type(one) is int for one in of.values())
        is_range = is_range and 0 <= of["first"] < of["end"] <= of["first"] + MAX_RANGE
        require(is_range, "extract-members", "the range is not one")
        _require_all(range(of["first"], of["end"]), records)
        return records, {}, [], of["end"]
    name = next(iter(of), "")
    is_run = len(of) == 1 and name in (*RUNS, "entry") and type(of[name]) is str
    require(is_run, "extract-members", "the file does not say which entries it has")
    run, listed, actions, parts = _index_in(of, records)
    wanted = sorted(listed)
    if name == "entry":
        chosen = [row for row in actions if entry_id(row[0]) == of[name]]
        require(chosen, "extract-index", f"the index names no action {of[name]!r}")
        wanted = sorted(chosen[0])
    own = {seq: record for seq, record in records.items() if seq not in parts}
    _require_all(wanted, own)
    ((column, value),) = run.items()
    for record in own.values():
        is_own = getattr(columns_of(record["metadata"]), column) == value
        require(is_own, "extract-other", f"{record['id']} is of another run")
    is_same = actions_of(own) == [row for row in actions if row[0] in own]
    require(is_same, "index-actions", "the index names other actions than the records are")
    return own, run, actions, parts[0]


def _index_in(
    of: Mapping[str, Any], records: Mapping[int, dict[str, Any]]
) -> tuple[dict[str, str], list[int], list[list[int]], list[int]]:
    """Return the run of the index in a file, its entries and actions, and its parts."""
    found = {
        seq: index for seq, record in records.items() if (index := read_index(record)) is not None
    }
    require(found, "extract-index", "the index of the run is missing")
    parts = sorted(found)
    last = found[parts[-1]]
    expected = [*range(last["first"], last["first"] + last["parts"])]
    for seq in expected:
        require(seq in found, "extract-index", f"{entry_id(seq)}, a part of the index, is missing")
    is_one = parts == expected and all(
        (one["of"], one["parts"], one["first"]) == (last["of"], last["parts"], parts[0])
        for one in found.values()
    )
    require(is_one, "extract-index", "the file has more than one index, or parts of several")
    is_it = "entry" in of or last["of"] == of
    require(is_it, "extract-index", "the index is of another run")
    listed = [seq for part in parts for seq in found[part]["entries"]]
    actions = [row for part in parts for row in found[part]["actions"]]
    ends = [row[0] for row in actions]
    is_sorted = listed == sorted({*listed}) and ends == sorted({*ends})
    require(is_sorted, "extract-index", "the index is not in order")
    return last["of"], listed, actions, parts


def _require_all(wanted: Sequence[int], records: Mapping[int, Any]) -> None:
    """Raise ValueError that names the first entries which are missing, or should not be there."""
    missing = [seq for seq in wanted if seq not in records]
    said = f"{_named(missing)} missing"
    require(not missing, "extract-missing", said)
    others = sorted(records.keys() - {*wanted})
    require(not others, "extract-other", f"{_named(others)} not part of what the file says it has")


def _named(seqs: Sequence[int]) -> str:
    shown = ", ".join(entry_id(seq) for seq in seqs[:10])
    more = f" and {len(seqs) - 10} more" if len(seqs) > 10 else ""
    return f"{shown}{more} {'is' if len(seqs) == 1 else 'are'}"
