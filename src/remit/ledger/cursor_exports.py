"""Exports by cursor: batches of JSON lines, each with the proof that none is missing.

A batch has one line for each entry, then its extract (:mod:`remit.ledger.extracts`) without the
member ``records``: the lines before it have them. The line of an entry is its canonical record, or
the record with content in place and the exact record as the member ``record``. A batch that was
sent again, with the same or another end, is read like the first one. The conditions are in
``docs/ledger-format.md``, section 13.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from remit.kernel.canonical import sha256_hex
from remit.kernel.durable_files import read_regular
from remit.kernel.errors import RemitError
from remit.kernel.json_text import JsonTextError, dump, load_unique
from remit.ledger.contents import Erased
from remit.ledger.entry import LedgerEntry, entry_id
from remit.ledger.errors import LedgerFormatError, LedgerRollbackError
from remit.ledger.export_reader import read_record, require, require_members
from remit.ledger.extracts import EXTRACT_FORMAT, MEMBERS, Extract, make_extract, read_extract
from remit.ledger.tlog import Checkpoint, VerifierKey

if TYPE_CHECKING:
    from remit.ledger.client import LedgerClient

_MAX_ENTRIES = 200  # A request of them is below the 20 MB that receivers of OTLP accept.
# A record, a record with content, and a proof each begin a line with one of these texts.
_STARTS = (b'{"decision":', b'{"event_type":', b'{"format":')
_LINE = re.compile(b"|".join(map(re.escape, _STARTS)))
_MAX_STARTS = 20  # Each of them is read to the end of the line.


@dataclass(frozen=True, slots=True)
class Cursor:
    """The place of the next entry to export, stored in a file between exports; immutable.

    Attributes:
        next: sequence number of that entry.
        entry_hash: ``entry_hash`` of the entry before it; empty for the first entry.
    """

    next: int = 0
    entry_hash: str = ""

    @classmethod
    def read(cls, path: Path) -> Cursor:
        """Return the cursor in a file; the beginning (entry 0) if the file does not exist.

        Args:
            path: the file, or a symbolic link to it.

        Raises:
            LedgerFormatError: the file cannot be read, is not JSON with ``next`` and ``entry_hash``
                of the right types, has a negative number, or only one of number and hash.
        """
        try:
            found = load_unique(read_regular(path, follow=True))
            cursor = cls(found["next"], found["entry_hash"])
            if type(cursor.next) is not int or type(cursor.entry_hash) is not str:
                raise ValueError("a member has another type")
            if cursor.next < 0 or (not cursor.next) != (not cursor.entry_hash):
                raise ValueError("it names no entry")
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, TypeError, KeyError, RemitError) as error:
            raise LedgerFormatError(
                f"{path} is not a cursor of an export: {error}.",
                next_step="Name another file; a file that does not exist begins at entry 0.",
            ) from error
        return cursor

    def require_in(self, ledger: LedgerClient) -> None:
        """Check that the entry before the cursor belongs to the ledger.

        If the ledger has later entries, nothing is compared: :func:`make_batch` checks the link to
        that entry. The cursor of the beginning belongs to any ledger.

        Args:
            ledger: the ledger.

        Raises:
            LedgerRollbackError: the ledger ends before the cursor.
            LedgerFormatError: the ledger's last entry is another one.
            LedgerError: the ledger cannot be read.
        """
        size = ledger.count()
        if size < self.next:
            raise LedgerRollbackError(
                f"The ledger has {size} entries, and the cursor is at {self.next}: entries were "
                "lost, or the cursor is of another ledger.",
                next_step="Run `remit ledger verify`. The exported entries are evidence.",
            )
        if 0 < size == self.next:
            last = ledger.read_record(entry_id(size - 1))
            self._require_after(sha256_hex(last))

    def _require_after(self, entry_hash: str) -> None:
        if entry_hash != self.entry_hash:
            raise LedgerFormatError(
                f"{entry_id(self.next)} does not follow the entry that the cursor names: the "
                "cursor is of another ledger, or entries were lost.",
                next_step="Run `remit ledger verify`; if it reports no problem, name a new cursor.",
            )

    def to_bytes(self) -> bytes:
        """Return the text that :meth:`read` reads from a file."""
        return dump({"next": self.next, "entry_hash": self.entry_hash})


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive entries as exported, with their proof, by :func:`make_batch`; immutable.

    Attributes:
        records: the canonical records.
        lines: the lines of the entries, without line breaks.
        proof: the line with the proof, without its line break.
        cursor: the cursor after the batch.
    """

    records: Sequence[str]
    lines: Sequence[bytes]
    proof: bytes
    cursor: Cursor

    def to_bytes(self) -> bytes:
        """Return the batch as JSON lines, each ended by a line break."""
        return b"".join(line + b"\n" for line in (*self.lines, self.proof))

    @staticmethod
    def is_line(text: bytes) -> bool:
        """Return True if ``text`` has the form of a line that :meth:`to_bytes` writes; nothing is
        verified.

        That is JSON that begins as such a line does, and is a proof without ``records``, has a
        member ``record``, or is a record itself. Other JSON and no JSON give False.

        Args:
            text: a line without its line break.
        """
        try:
            found = load_unique(text)
        except JsonTextError:
            return False
        if not text.startswith(_STARTS):
            return False
        is_proof = found.get("format") == EXTRACT_FORMAT and "records" not in found
        return is_proof or "record" in found or {"seq", "previous_hash"} <= found.keys()

    @staticmethod
    def is_start(text: bytes) -> bool:
        """Return True if ``text`` may be the beginning of a line; an empty text may."""
        return any(one.startswith(text[: len(one)]) for one in _STARTS)


def make_batch(
    ledger: LedgerClient, cursor: Cursor, end: int, hide: Callable[[Any], Any] | None = None
) -> Batch:
    """Return the next batch of an export, at most 200 entries.

    If no stored checkpoint covers the batch, a new one is signed and stored.

    Args:
        ledger: the ledger; its segments have to be attached if the entries were archived.
        cursor: the place of the first entry.
        end: the sequence number before which the batch ends; greater than the cursor's.
        hide: takes an entry as JSON values, and returns it without secrets; the lines then have
            content. ``None`` leaves content out.

    Raises:
        LedgerFormatError: the cursor belongs to another ledger, or to entries that were lost.
        InvalidInputError: the ledger ends before the batch would, or ``end`` is not greater than
            the cursor's.
        LedgerError: as by :func:`~remit.ledger.extracts.make_extract`.
    """
    last = min(end, cursor.next + _MAX_ENTRIES)
    proof = make_extract(ledger, {"first": cursor.next, "end": last})
    records: list[str] = proof.pop("records")
    cursor._require_after(json.loads(records[0])["previous_hash"])
    lines = [record.encode() for record in records]
    if hide is not None:
        found = ledger.query(after=cursor.next - 1, limit=len(records))
        shown = [hide(_values(entry)) for entry in found]
        lines = [
            dump({**one, "record": record}) for one, record in zip(shown, records, strict=True)
        ]
    after = Cursor(last, sha256_hex(records[-1].encode()))
    return Batch(records, lines, dump(proof), after)


def _values(entry: LedgerEntry) -> Any:
    """Return an entry as JSON values, with ``$erased`` in place of erased content."""

    def plain(value: Erased) -> dict[str, Any]:
        return {"$erased": value.erasure_id}

    return json.loads(dump(entry.to_dict(), plain, orjson.OPT_PASSTHROUGH_DATACLASS))


@dataclass(frozen=True, slots=True)
class ProvenLines:
    """The verified batches of an export, as :func:`read_batches` returns them; immutable.

    Attributes:
        first: the first sequence number with a proof.
        end: the sequence number after the last entry with a proof.
        last: the last extract.
        unproven: the number of lines after the last batch, whose proof is not there (yet), cut
            lines included.
        shows_kept: True if a batch proves that the log continues the checkpoint that was kept.
    """

    first: int
    end: int
    last: Extract
    unproven: int
    shows_kept: bool

    @property
    def statement(self) -> str:
        """A sentence for people: which entries are complete, and under which head."""
        head = self.last.signed.checkpoint
        count = self.end - self.first
        return (f"verified: all entries from {self.first} to {self.end - 1} ({count}), "
                f"in the {head.size} entries that {head.origin} signed")  # fmt: skip


def read_batches(
    lines: Iterable[bytes], key: VerifierKey | None, kept: Checkpoint | None = None
) -> ProvenLines:
    """Return the range of exported lines if each batch meets every condition.

    A batch may come again with the same or another end, and a line that was cut off must come again
    whole before the next proof. Lines after the last proof are counted; their form is checked, and
    their place in the log is not.

    Args:
        lines: the lines of one file, or of several in the order in which they were written.
        key: the log's verifier key, from another source than the file. ``None`` takes the key that
            the first proof states, which must sign all batches.
        kept: a checkpoint of the log that the reader kept; ``None`` for none.

    Raises:
        LedgerFormatError: a line is malformed, a batch does not verify or is of another key (as
            after a fork), entries between two batches are missing, there is no batch, or the lines
            contradict the checkpoint.
    """
    reader = _Reader(key, kept)
    try:
        for line in lines:
            reader.read(line.rstrip(b"\n"))
        reader.finish()
    except (ValueError, RemitError) as error:
        said = error.message if isinstance(error, RemitError) else f"{error}."
        raise LedgerFormatError(f"Line {reader.number} does not verify: {said}") from error
    if reader.last is None:
        raise LedgerFormatError("The file has no proof of a batch (extract-members).")
    unproven = len(reader.pending) + len(reader.cut)
    return ProvenLines(reader.first, reader.end, reader.last, unproven, reader.shows_kept)


class _Reader:
    """The state between two lines.

    Attributes:
        number: the number of lines.
        pending: records without a proof yet, by sequence number.
        cut: beginnings of lines that a killed export left, and that did not come again yet.
        first: the first sequence number with a proof.
        end: the sequence number after the last one with a proof.
        last: the last extract.
        shows_kept: as in :class:`ProvenLines`.
    """

    def __init__(self, key: VerifierKey | None, kept: Checkpoint | None) -> None:
        self.pending: dict[int, str] = {}
        self.cut: list[bytes] = []
        self.number = self.first = self.end = 0
        self.last: Extract | None = None
        self._start, self._key = 0, key  # Lines of the last batch, from _start, may come again.
        self.shows_kept, self._kept = False, kept
        self._hashes = bytearray()  # 32 bytes for each proven record

    def read(self, line: bytes) -> None:
        """Take a line; raise an error if a condition does not hold."""
        self.number += 1
        try:
            value = load_unique(line, keep_halves=True)  # content may have them
        except JsonTextError:
            before, line, value = _cut_line(line)
            self.cut.append(before)
        # The lines of entries come again; a new proof may differ.
        self.cut = [
            one for one in self.cut if not (line.startswith(one) or one.startswith(_STARTS[-1]))
        ]
        if not line:
            return
        require(type(value) is dict, "extract-members", "it is not an object")
        if value.get("format") == EXTRACT_FORMAT:
            self._take_proof(value)
            return
        text = value["record"] if "record" in value else line.decode()
        require(type(text) is str, "extract-members", "its member 'record' is not a text")
        data = text.encode("utf-8", "surrogatepass")
        seq = read_record(data)["seq"]
        place = 32 * (seq - self.first)
        proven = self._hashes[place : place + 32] if place >= 0 else b""
        is_same = proven in (b"", sha256(data).digest())
        is_same = is_same and self.pending.setdefault(seq, text) == text
        require(is_same, "record-link", f"{entry_id(seq)} is there with two records")

    def finish(self) -> None:
        """Raise an error if a line without a proof is older than the last batch."""
        oldest = min(self.pending, default=self.end)
        require(
            oldest >= self._start,
            "extract-order",
            f"{entry_id(oldest)} comes again without a proof",
        )

    def _take_proof(self, value: dict[str, Any]) -> None:
        require("records" not in value, "extract-members", "a proof has records of its own")
        require_members({**value, "records": []}, "extract-members", "the proof", MEMBERS)
        require_members(value["of"], "extract-members", "the range", {"first": int, "end": int})
        start, end = value["of"]["first"], value["of"]["end"]
        texts = [self.pending.pop(seq) for seq in sorted(self.pending) if start <= seq < end]
        lost = min(self.pending, default=start)
        require(lost >= start, "extract-missing", f"the proof of {entry_id(lost)} is missing")
        require(not self.cut, "record-link", "a line that was cut off does not come again whole")
        stated = VerifierKey.parse(value["verifier_key"])
        is_fork = self._key and stated != self._key and stated.public_key == self._key.public_key
        said = f"the log was forked, and {stated.name} signed this batch: verify its lines alone"
        require(not is_fork, "head-key", said)
        found = read_extract(dump({**value, "records": texts}), self._key)
        if self.last is None:
            self.first = self.end = start
            self._key = stated
        elif start > self.end:
            said = f"{entry_id(self.end)} to {entry_id(start - 1)} are missing"
            require(False, "extract-missing", said)
        elif start == self.end:
            is_next = json.loads(texts[0])["previous_hash"] == self._hashes[-32:].hex()
            require(is_next, "record-link", "the lines before are of another ledger")
        require(start >= self.first, "extract-order", f"the file begins at {entry_id(self.first)}")
        self.last, self._start = found, start
        self.shows_kept |= self._kept is not None and found.shows(self._kept)
        for text in texts[max(0, self.end - start) :]:
            self._hashes += sha256(text.encode()).digest()
        self.end = max(self.end, end)


def _cut_line(text: bytes) -> tuple[bytes, bytes, Any]:
    """Split a text into the beginning of a line that a kill cut off, and the next line.

    Such a text arises if the file was rotated before the export went on, and the files are joined.
    The line is empty if no whole line ends the text.
    """
    for place in itertools.islice(_LINE.finditer(text, 1), _MAX_STARTS):
        cut, line = text[: place.start()], text[place.start() :]
        with contextlib.suppress(JsonTextError):
            return cut, line, load_unique(line, keep_halves=True)
    require(Batch.is_start(text), "json-text", "it is not JSON, and not the beginning of a line")
    return text, b"", None
