"""Imports: an export is read into an empty ledger, every line checked, all or nothing."""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import orjson

from remit.kernel.canonical import canonical_json, sha256_hex
from remit.kernel.json_text import load_exact
from remit.ledger.archived import ARCHIVED, ARCHIVED_TO, Places
from remit.ledger.content import (
    NO_STEP,
    EncodedValue,
    StoredValue,
    commit,
    commitments_in,
    next_step,
)
from remit.ledger.entry import entry_id, parse_entry_id
from remit.ledger.erasure import is_erasure_of
from remit.ledger.errors import ExportFormatError, LedgerError, LedgerFormatError
from remit.ledger.exports import EXPORT_FORMAT
from remit.ledger.record import columns_of, content_scope, record_problem
from remit.ledger.report import Progress
from remit.ledger.store import Store
from remit.ledger.subjects import BEFORE, commitment_in
from remit.ledger.tlog import TILE_WIDTH, SignedCheckpoint, TlogError, VerifierKey, leaf_hash
from remit.ledger.tree import LedgerTree
from remit.ledger.usage import DIMENSIONS, INSERT, SUMS

_MAX_LINE = 1 << 30


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What was imported.

    Attributes:
        entries: how many.
        contents: content values that came with them.
        erased: content values that were erased before the export.
        checkpoint: ``held`` when the entries lead to the export's signed checkpoint,
            ``unsigned`` when there was none or no key to check it by.
    """

    entries: int
    contents: int
    erased: int
    checkpoint: str


@contextlib.contextmanager
def opened(source: str | Path | IO[bytes]) -> Iterator[IO[bytes]]:
    """An export to read: the file at a path, or an open one. Raises :class:`LedgerError`."""
    if not isinstance(source, (str, Path)):
        yield source
        return
    try:
        with Path(source).open("rb") as file:
            yield file
    except OSError as error:
        raise LedgerError(
            f"The export {source} cannot be read: {error.strerror or error}."
        ) from error


class Import:
    """The import of one export, within a transaction.

    Args:
        tx: of an empty ledger; the :class:`~remit.ledger.batch.Batch`, which restores rows.
        store: of that ledger.
        key: the verifier key of the log that was exported, to hold the export's own checkpoint
            against. Without one a forged export looks like a real one.
    """

    def __init__(self, tx: Any, store: Store, key: VerifierKey | None) -> None:
        self._tx = tx
        self._store = store
        self._key = key
        self._next_seq = 0
        self._subjects_before = 0
        self._last_hash: str | None = ""  # None where that entry is away
        self._away: list[int] = []  # entries that were archived
        self._said = Places(0)  # those that the record says of
        self._leaves: list[bytes] = []  # of the present tile
        self._contents = 0
        # By step: its id, position and scope; by scope: ids by commitment; by commitment: seq.
        self._steps: dict[str, tuple[int, int, str]] = {}
        self._values: dict[str, dict[str, int]] = defaultdict(dict)
        self._erased: dict[str, int] = {}

    def read(self, source: IO[bytes], progress: Progress | None) -> ImportReport:
        """Read all of it.

        Raises:
            ExportFormatError: the ledger is not empty, or a line is malformed or does not hold.
            CheckpointError: the export is another log's.
        """
        tx = self._tx
        if tx.execute("SELECT 1 FROM entries LIMIT 1"):
            raise ExportFormatError(
                f"The ledger {self._store.location} is not empty.",
                next_step="Import into a new root: `remit init --bare NEW`, `remit ledger import "
                "--root NEW`; then `remit init NEW` installs what comes with Remit.",
            )
        lines = _lines(source)
        header: Any = next(lines, (0, None))[1]
        if not isinstance(header, dict) or header.get("format") != EXPORT_FORMAT:
            raise ExportFormatError(
                "This is not an export of a ledger.",
                next_step="`remit ledger export --format jsonl` writes one.",
            )
        total = header.get("entries")
        if type(total) is not int or total < 0:
            raise ExportFormatError("The export's first line names no number of entries.")
        signed = self._checkpoint(header)
        # Of an export of before, no record vouches for any subject.
        self._subjects_before = header.get(BEFORE, total)
        if type(self._subjects_before) is not int or not 0 <= self._subjects_before <= total:
            raise ExportFormatError(f"The export's first line has no number in {BEFORE}.")
        for number, line in lines:
            try:
                self._line(line)
            except (KeyError, TypeError, ValueError, AttributeError, LedgerFormatError) as error:
                detail = f"{error} is missing" if isinstance(error, KeyError) else str(error)
                raise ExportFormatError(
                    f"Line {number} of the export does not hold: {detail}.",
                    next_step="Nothing was imported. Get the export again from its source.",
                ) from error
            if progress is not None and (self._next_seq % 200 == 1 or self._next_seq == total):
                progress(self._next_seq, total)
        if self._next_seq != total:
            raise ExportFormatError(
                f"The export was cut off: {self._next_seq} of {total} entries are there.",
                next_step="Nothing was imported. Get all of the export again.",
            )
        if signed is not None:
            root = LedgerTree(tx.execute, self._store).root(total)
            if (signed.checkpoint.size, signed.checkpoint.root) != (total, root):
                raise ExportFormatError(
                    "The entries do not lead to the export's signed checkpoint.",
                    next_step="Nothing was imported: the export was changed after it was signed.",
                )
        self._check_erasures()
        if self._away:
            try:
                self._check_left()
                self._restore_usage(header.get("usage", ()))
            except (ValueError, KeyError, TypeError) as error:
                raise ExportFormatError(
                    f"The export does not hold: {error}.", next_step="Nothing was imported."
                ) from error
        if self._subjects_before:
            tx.execute(
                f"INSERT INTO ledger_info VALUES ('{BEFORE}', ?) ON CONFLICT (name) DO UPDATE "
                "SET value = excluded.value",
                (str(self._subjects_before),),
            )
        tx.execute(
            "INSERT INTO ledger_info VALUES ('imported', ?) ON CONFLICT (name) DO UPDATE "
            "SET value = excluded.value",
            (str(total),),
        )
        held = signed is not None and self._key is not None
        return ImportReport(
            total, self._contents, len(self._erased), "held" if held else "unsigned"
        )

    def _check_erasures(self) -> None:
        """Each entry named by an erased value must account for exactly what it erased."""
        by_entry: dict[int, list[str]] = defaultdict(list)
        for commitment, seq in self._erased.items():
            self._tx.restore("erasures", (commitment, seq))
            by_entry[seq].append(commitment)
        for seq, commitments in by_entry.items():
            rows = self._tx.execute("SELECT record FROM entries WHERE seq = ?", (seq,))
            if not rows or not is_erasure_of(orjson.loads(rows[0][0]), commitments):
                raise ExportFormatError(
                    f"No ERASURE entry accounts for what is erased under {entry_id(seq)}.",
                    next_step="Nothing was imported: the export was changed.",
                )

    def _checkpoint(self, header: dict[str, Any]) -> SignedCheckpoint | None:
        note = header.get("checkpoint")
        if not note:
            if self._key is not None:
                raise ExportFormatError("The export has no checkpoint to hold against the key.")
            return None
        try:
            signed = SignedCheckpoint.parse(str(note))
        except TlogError as error:
            raise ExportFormatError(f"The export's checkpoint: {error.message}") from error
        if self._key is not None:
            signed.verify(self._key)
        return signed

    def _line(self, line: dict[str, Any]) -> None:
        if "leaf" in line:
            self._left(line)
            return
        text = line["record"]
        data = text.encode()
        record = orjson.loads(data)
        if problem := record_problem(record):
            raise ValueError(problem)
        seq = self._next_seq
        _require(canonical_json(record) == data, "the record is not in canonical form")
        _require(sha256_hex(data) == line["entry_hash"], "the record does not match entry_hash")
        _require(record["seq"] == seq and record["id"] == entry_id(seq), f"it is not entry {seq}")
        _require(
            self._last_hash in (record["previous_hash"], None),
            "previous_hash is not the hash of the entry before",
        )
        columns = columns_of(record["metadata"])
        scope = content_scope(columns.session_id, seq)
        known = self._values[scope] if columns.session_id else {}
        subject = commitment_in(record["metadata"])
        _require(
            subject is None or seq >= self._subjects_before,
            f"it names a subject, and {BEFORE} says that none does",
        )
        named = subject["$content"][12:] if subject is not None else ""
        for item in line["contents"] if seq >= self._subjects_before else ():
            whose = (
                [orjson.loads(item["jcs"])]
                if named == item["commitment"] and ("jcs" in item)
                else None
            )
            _require(item.get("subjects") == whose, "a subject is not the record's")
        apart: dict[str, int] = {}  # in the entry's own scope
        shown = {
            self._content(content_scope(None, seq), apart, item)
            if item["commitment"] == named
            else self._content(scope, known, item)
            for item in line["contents"]
            if not self._gone(item)
        }
        items = commitments_in([record["metadata"], record["reason"]])
        for item in items:
            if "$content" in item:
                mac = item["$content"][12:]
                if mac in known:
                    shown.add(known[mac])
                elif mac not in apart:
                    _require(mac in self._erased, "content is missing and was not erased")
        for step in line["steps"]:
            self._step(scope, known, step)
        ends = {self._end(scope, item) for item in items if "$messages" in item}
        for content_id in sorted(shown):
            self._tx.restore("shown_contents", (seq, content_id))
        for step_id in sorted(ends):
            self._tx.restore("shown_lists", (seq, step_id))
        own = (record["id"], line["entry_hash"], record["timestamp"], record["event_type"])
        if record["event_type"] == ARCHIVED and columns.tier in (None, "hot"):
            self._note_left(record["metadata"], line["contents"])
        for mac in line.get("erased", ()):
            self._gone({"commitment": mac, "erased": record["id"]})
        self._tx.restore("entries", (seq, *own, record["submission_id"], *columns, text))
        self._next_seq, self._last_hash = seq + 1, line["entry_hash"]
        self._leaf(seq, leaf_hash(data))

    def _left(self, line: dict[str, Any]) -> None:
        """An entry that was archived before the export: of it there is the leaf hash."""
        seq = self._next_seq
        _require(line["seq"] == seq, f"it is not entry {seq}")
        leaf = base64.b64decode(line["leaf"], validate=True)
        _require(len(leaf) == 32, "a leaf hash is not 32 bytes long")
        self._away.append(seq)
        self._next_seq, self._last_hash = seq + 1, None
        self._leaf(seq, leaf)

    def _leaf(self, seq: int, leaf: bytes) -> None:
        """Store the leaf hashes of a tile from which entries are away, and what is above them."""
        self._leaves.append(leaf)
        if (seq + 1) % TILE_WIDTH:
            return
        index, first = seq // TILE_WIDTH, seq + 1 - TILE_WIDTH
        if self._away and self._away[-1] >= first:
            self._tx.restore("tree_hashes", (0, index, b"".join(self._leaves)))
            self._tx.complete_tile(index, self._leaves)
        self._leaves = []

    def _note_left(self, metadata: dict[str, Any], contents: list[dict[str, Any]]) -> None:
        """What an ``ARCHIVED`` entry says that left."""
        for item in contents:
            if metadata["left"]["$content"] == f"hmac-sha256:{item['commitment']}":
                said = Places.of_text(metadata["end"], orjson.loads(item["jcs"]))
                said.update(self._said)
                self._said = said

    def _restore_usage(self, rows: list[list[Any]]) -> None:
        """What the entries that are away added up to; verification holds it against the record."""
        width = 1 + len(DIMENSIONS) + len(SUMS)
        for row in rows:
            numbers = [row[0], *row[-len(SUMS) :]]
            _require(
                len(row) == width
                and all(type(number) is int for number in numbers)
                and all(isinstance(name, str) for name in row[1 : -len(SUMS)]),
                "a row of usage is none",
            )
        self._tx.execute_many(INSERT, rows)

    def _check_left(self) -> None:
        """What is not there must be what the ``ARCHIVED`` entries say."""
        end = self._said.end
        _require(
            all(seq in self._said for seq in self._away),
            "an entry is away, and no ARCHIVED entry says so",
        )
        self._tx.execute(
            f"INSERT INTO ledger_info VALUES ('{ARCHIVED_TO}', ?) ON CONFLICT (name) DO UPDATE "
            "SET value = excluded.value",
            (str(end),),
        )

    def _content(self, scope: str, known: dict[str, int], item: dict[str, Any]) -> int:
        """Store a new value; returns its id."""
        is_exact = "jcs" not in item
        encoded = item["json" if is_exact else "jcs"].encode()
        try:
            nonce = base64.b64decode(item["nonce"], validate=True)
        except binascii.Error as error:
            raise ValueError("a nonce is not base64") from error
        mac = commit(nonce, encoded)
        _require(
            len(nonce) == 32 and mac == item["commitment"] and mac not in known,
            "a content value does not match its commitment",
        )
        if is_exact:
            load_exact(encoded)
        else:
            _require(
                canonical_json(orjson.loads(encoded)) == encoded,
                "a content value is not in canonical form",
            )
        self._contents += 1
        content_id = known[mac] = self._contents
        value = EncodedValue.of(encoded, is_exact)
        stored = StoredValue.encode(value, self._tx.compress_above)
        row = (content_id, mac, scope, value.digest, nonce, len(encoded))
        self._tx.restore("contents", (*row, stored.codec, stored.value))
        for subject in item.get("subjects", ()):
            _require(isinstance(subject, str), "a subject is not a text")
            self._tx.restore("content_subjects", (subject, content_id))
        return content_id

    def _step(self, scope: str, known: dict[str, int], item: dict[str, Any]) -> None:
        """Store a new message step."""
        parent, mac = item["parent"], item["commitment"]
        first = (0, 0, scope)
        parent_id, position, its_scope = first if parent == NO_STEP else self._steps[parent]
        _require(its_scope == scope, "a message list reaches into another session")
        _require(next_step(parent, mac) == item["step"], "a message step does not hold")
        self._gone(item)
        content_id = known.get(mac)
        _require(
            content_id is not None or mac in self._erased,
            "a message is missing and was not erased",
        )
        step_id = len(self._steps) + 1
        self._steps[item["step"]] = (step_id, position + 1, scope)
        self._tx.restore(
            "message_steps", (step_id, item["step"], parent_id, content_id, mac, position + 1)
        )

    def _end(self, scope: str, item: dict[str, Any]) -> int:
        """The id of the last step of a list that a record commits to."""
        step_id, position, its_scope = self._steps[item["$messages"]]
        _require(
            position == item["count"] and its_scope == scope,
            "a message list is not the one committed to",
        )
        return step_id

    def _gone(self, item: dict[str, Any]) -> bool:
        """Whether a value was erased; notes under which entry."""
        if "erased" not in item:
            return False
        seq = parse_entry_id(item["erased"])
        if seq is None or len(item["commitment"]) != 64:
            raise ValueError("an erasure names no entry")
        _require(
            self._erased.setdefault(item["commitment"], seq) == seq, "a value was erased twice"
        )
        return True


def _lines(source: IO[bytes]) -> Iterator[tuple[int, Any]]:
    number = 0
    while line := source.readline(_MAX_LINE):
        number += 1
        try:
            yield number, orjson.loads(line)
        except ValueError as error:
            raise ExportFormatError(
                f"Line {number} of the export is not JSON, or was cut off.",
                next_step="Nothing was imported. Get all of the export again.",
            ) from error


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ValueError(otherwise)
