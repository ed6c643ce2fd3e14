"""Imports: an export is read into an empty ledger, every line checked, all or nothing."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson

from remit.kernel.canonical import canonical_json, sha256_hex
from remit.ledger.content import NO_STEP, StoredValue, commit, commitments_in, next_step
from remit.ledger.entry import entry_id, parse_entry_id
from remit.ledger.erasure import is_erasure_of
from remit.ledger.errors import ExportFormatError, LedgerError, LedgerFormatError
from remit.ledger.exports import EXPORT_FORMAT
from remit.ledger.record import columns_of, content_scope, record_problem
from remit.ledger.report import Progress
from remit.ledger.store import Store
from remit.ledger.tlog import SignedCheckpoint, TlogError, VerifierKey
from remit.ledger.tree import LedgerTree

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


@dataclass(slots=True)
class _State:
    seq: int = -1
    entry_hash: str = ""
    contents: int = 0
    steps: dict[str, tuple[int, int, str]] = field(default_factory=dict)  # id, position, scope
    values: dict[str, dict[str, int]] = field(default_factory=dict)  # scope → commitment → id
    erased: dict[str, int] = field(default_factory=dict)


class Importer:
    """Imports one export."""

    def __init__(
        self,
        store: Store,
        run: Callable[[Callable[[Any], Any]], Any],
        key: VerifierKey | None = None,
    ) -> None:
        self._store = store
        self._run = run
        self._key = key

    def read(self, source: str | Path | IO[bytes], progress: Progress | None) -> ImportReport:
        """Import JSON lines from a file, all or nothing.

        Raises:
            ExportFormatError: a line is malformed or does not hold; nothing was imported.
            CheckpointError: the checkpoint is another log's or another key's.
            LedgerError: the file cannot be read.
        """
        if isinstance(source, (str, Path)):
            try:
                with Path(source).open("rb") as file:
                    return self.read(file, progress)
            except OSError as error:
                raise LedgerError(
                    f"The export {source} cannot be read: {error.strerror or error}."
                ) from error
        report: ImportReport = self._run(lambda tx: self._import(tx, source, progress))
        return report

    def _import(self, tx: Any, source: IO[bytes], progress: Progress | None) -> ImportReport:
        if tx.execute("SELECT 1 FROM entries LIMIT 1"):
            raise ExportFormatError(
                f"The ledger {self._store.location} is not empty.",
                next_step="Import into a new root: `remit init --bare NEW`, import with --root "
                "NEW; then `remit init NEW` installs what comes with Remit.",
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
        state = _State()
        for number, line in lines:
            try:
                self._line(tx, state, line)
            except (KeyError, TypeError, ValueError, AttributeError, LedgerFormatError) as error:
                raise ExportFormatError(
                    f"Line {number} of the export does not hold: {_detail(error)}.",
                    next_step="Nothing was imported. Get the export again from its source.",
                ) from error
            if progress is not None and (state.seq % 200 == 0 or state.seq + 1 == total):
                progress(state.seq + 1, total)
        if state.seq + 1 != total:
            raise ExportFormatError(
                f"The export was cut off: {state.seq + 1} of {total} entries are there.",
                next_step="Nothing was imported. Get all of the export again.",
            )
        if signed is not None:
            root = LedgerTree(tx.execute, self._store).root(total)
            head = signed.checkpoint
            if (head.size, head.root) != (total, root):
                raise ExportFormatError(
                    "The entries do not lead to the export's signed checkpoint.",
                    next_step="Nothing was imported: the export was changed after it was signed.",
                )
        for commitment, seq in state.erased.items():
            tx.restore("erasures", (commitment, seq))
        self._check_erasures(tx, state)
        held = signed is not None and self._key is not None
        return ImportReport(
            total, state.contents, len(state.erased), "held" if held else "unsigned"
        )

    @staticmethod
    def _check_erasures(tx: Any, state: _State) -> None:
        """Each entry named by an erased value must account for exactly what it erased."""
        by_entry: dict[int, list[str]] = defaultdict(list)
        for commitment, seq in state.erased.items():
            by_entry[seq].append(commitment)
        for seq, commitments in by_entry.items():
            rows = tx.execute("SELECT record FROM entries WHERE seq = ?", (seq,))
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

    def _line(self, tx: Any, state: _State, line: dict[str, Any]) -> None:
        text = line["record"]
        data = text.encode()
        record = orjson.loads(data)
        if problem := record_problem(record):
            raise ValueError(problem)
        seq = state.seq + 1
        _require(canonical_json(record) == data, "the record is not in canonical form")
        _require(sha256_hex(data) == line["entry_hash"], "the record does not match entry_hash")
        _require(record["seq"] == seq and record["id"] == entry_id(seq), f"it is not entry {seq}")
        _require(
            record["previous_hash"] == state.entry_hash,
            "previous_hash is not the hash of the entry before",
        )
        columns = columns_of(record)
        scope = content_scope(columns["session_id"], seq)
        known = state.values.setdefault(scope, {}) if columns["session_id"] else {}
        shown: set[int] = set()
        for item in line["contents"]:
            if "erased" in item:
                self._erased(state, item)
            else:
                shown.add(self._content(tx, state, scope, known, item))
        items = commitments_in([record["metadata"], record["reason"]])
        for item in items:
            if "$content" in item:
                mac = item["$content"][12:]
                if mac in known:
                    shown.add(known[mac])
                else:
                    _require(mac in state.erased, "content is missing and was not erased")
        ends = self._steps(tx, state, scope, known, line["steps"], items)
        for content_id in sorted(shown):
            tx.restore("shown_contents", (seq, content_id))
        for step_id in sorted(ends):
            tx.restore("shown_lists", (seq, step_id))
        own = (record["id"], line["entry_hash"], record["timestamp"], record["event_type"])
        tx.restore("entries", (seq, *own, record["submission_id"], *columns.values(), text))
        state.seq, state.entry_hash = seq, line["entry_hash"]

    def _content(
        self, tx: Any, state: _State, scope: str, known: dict[str, int], item: dict[str, Any]
    ) -> int:
        encoded = item["jcs"].encode()
        try:
            nonce = base64.b64decode(item["nonce"], validate=True)
        except binascii.Error as error:
            raise ValueError("a nonce is not base64") from error
        mac = commit(nonce, encoded)
        _require(
            len(nonce) == 32 and mac == item["commitment"] and mac not in known,
            "a content value does not match its commitment",
        )
        _require(
            canonical_json(orjson.loads(encoded)) == encoded,
            "a content value is not in canonical form",
        )
        state.contents += 1
        content_id = known[mac] = state.contents
        stored = StoredValue.encode(encoded, tx.compress_above)
        digest = hashlib.sha256(encoded).digest()
        tx.restore(
            "contents",
            (content_id, mac, scope, digest, nonce, len(encoded), stored.codec, stored.value),
        )
        for subject in item.get("subjects", ()):
            _require(isinstance(subject, str), "a subject is not a text")
            tx.restore("content_subjects", (subject, content_id))
        return content_id

    def _steps(
        self,
        tx: Any,
        state: _State,
        scope: str,
        known: dict[str, int],
        steps: list[dict[str, Any]],
        items: list[dict[str, Any]],
    ) -> set[int]:
        """Store new message steps; returns the ids of the lists' last steps."""
        for item in steps:
            parent, mac = item["parent"], item["commitment"]
            parent_id, position, parent_scope = (
                (0, 0, scope) if parent == NO_STEP else state.steps[parent]
            )
            _require(parent_scope == scope, "a message list reaches into another session")
            _require(next_step(parent, mac) == item["step"], "a message step does not hold")
            if "erased" in item:
                self._erased(state, item)
            content_id = known.get(mac)
            _require(
                content_id is not None or mac in state.erased,
                "a message is missing and was not erased",
            )
            step_id = len(state.steps) + 1
            state.steps[item["step"]] = (step_id, position + 1, scope)
            tx.restore(
                "message_steps",
                (step_id, item["step"], parent_id, content_id, mac, position + 1),
            )
        ends = set()
        for item in items:
            if "$messages" in item:
                step_id, position, step_scope = state.steps[item["$messages"]]
                _require(
                    position == item["count"] and step_scope == scope,
                    "a message list is not the one committed to",
                )
                ends.add(step_id)
        return ends

    @staticmethod
    def _erased(state: _State, item: dict[str, Any]) -> None:
        seq = parse_entry_id(item["erased"])
        if seq is None or len(item["commitment"]) != 64:
            raise ValueError("an erasure names no entry")
        _require(
            state.erased.setdefault(item["commitment"], seq) == seq, "a value was erased twice"
        )


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


def _detail(error: BaseException) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)
