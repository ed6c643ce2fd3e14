"""Import of an export into an empty ledger, whole or not at all; every line is checked."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import orjson

from remit.kernel.errors import RemitError
from remit.kernel.json_text import load_unique
from remit.ledger.archived_ranges import ARCHIVED, ARCHIVED_TO, Places
from remit.ledger.contents import EncodedValue, StoredValue
from remit.ledger.entry import entry_id
from remit.ledger.entry_reader import PUT_INFO
from remit.ledger.errors import LedgerError, LedgerFormatError
from remit.ledger.export_head import STATEMENT, ExportHead, read_head, statement_of
from remit.ledger.export_reader import (
    MAX_LINE_BYTES,
    CheckedLine,
    LineReader,
    require,
    require_members,
)
from remit.ledger.record import is_erasure_of
from remit.ledger.run_index import index_faults
from remit.ledger.store import Store
from remit.ledger.subjects import BEFORE
from remit.ledger.tlog import TILE_WIDTH, SignedCheckpoint, TlogError, VerifierKey, leaf_hash
from remit.ledger.tlog.note import parse_base64
from remit.ledger.tree import LedgerTree
from remit.ledger.usage import INSERT
from remit.ledger.usage_tables import archived_usage_problem
from remit.ledger.verification.report import Progress

_ENTRY = {"seq": int, "entry_hash": str, "record": str, "contents": list, "steps": list}
_NOTHING = "Nothing was imported. Get the export again from its source."


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The result of an import, as :meth:`Import.read` returns it; immutable.

    Attributes:
        entries: number of imported entries.
        contents: number of imported content values.
        erased: number of content values erased before the export.
        checkpoint: ``held`` if the entries lead to the export's signed checkpoint, ``unsigned`` if
            there was no checkpoint or no key to check it.
        unsigned_subjects: number of values whose subjects no record and no signature confirms.
    """

    entries: int
    contents: int
    erased: int
    checkpoint: str
    unsigned_subjects: int


@contextlib.contextmanager
def opened(source: str | Path | IO[bytes]) -> Iterator[IO[bytes]]:
    """Yield an export as an open file.

    A file opened from a path is closed after the block; a given open file stays open.

    Args:
        source: path of the export, or an open binary file.

    Raises:
        LedgerError: the file cannot be opened; or, for a path, an OSError is raised in the block.
    """
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
    """The import of an export, within a transaction of an empty ledger. An object reads a single
    export.

    :meth:`read` checks every line and restores the rows. After an error the object cannot be used
    further, and the caller undoes the transaction.

    Args:
        tx: the :class:`~remit.ledger.transaction.Batch` of an empty ledger, which restores rows.
        store: the store of that ledger.
        key: verifier key of the exported log, by which the export's checkpoint is checked. Without
            it a forged export looks like a genuine one.
    """

    def __init__(self, tx: Any, store: Store, key: VerifierKey | None) -> None:
        self._tx = tx
        self._store = store
        self._key = key
        self._reader = LineReader(0)
        self._has_archive = False
        self._next_seq = 0
        self._last_hash: str | None = ""  # None after an archived entry
        self._away: list[int] = []  # archived entries
        self._left = Places(0)  # Archived entries, by the record.
        self._roots: dict[int, str] = {}  # Recorded root hash, keyed by end of the archived range.
        self._hours: dict[str, str] = {}  # Recorded digest of usage, keyed by archived hour.
        self._leaves: list[bytes] = []  # Leaf hashes of the present tile.
        self._digests: set[tuple[str, bytes]] = set()  # Scope and digest of each value.

    def read(self, source: IO[bytes], progress: Progress | None) -> ImportReport:
        """Read an export and restore its rows in the transaction; return the result.

        After an error the caller undoes the transaction. Entries, content, message steps, persons,
        erasures, archived ranges and their usage are restored; checkpoints and other tables are
        not. ``ledger_info`` notes the number of imported entries. Without a key the signature of
        the checkpoint is not checked, only that the entries lead to it.

        Args:
            source: an open file of JSON lines.
            progress: called with the number of entries done and their total; ``None`` for none.

        Raises:
            LedgerFormatError: the ledger is not empty, a line is malformed or does not hold,
                entries are missing, or a key is given and the export has no checkpoint or names
                another key.
            TlogError: the checkpoint is another log's.
            LedgerError: a database statement failed; raised to the submitter of the transaction.
            OSError: the file cannot be read.
        """
        if self._tx.execute("SELECT 1 FROM entries LIMIT 1"):
            raise LedgerFormatError(
                f"The ledger {self._store.location} is not empty.",
                next_step="Import into a new root: `remit init --bare NEW`, `remit ledger import "
                "--root NEW`; then `remit init NEW` installs the shipped packages.",
            )
        lines = _lines(source)
        head = self._read_head(lines)
        signed = self._checkpoint(head)
        stated = [
            line.removeprefix(STATEMENT)
            for line in (signed.checkpoint.extensions if signed else ())
            if line.startswith(STATEMENT)
        ]
        self._reader = LineReader(head.subjects_before, is_stated=bool(stated))
        self._has_archive = head.usage is not None
        for number, data in lines:
            with _refused(f"Line {number} of the export does not hold"):
                self._line(load_unique(data))
            if progress is not None and (
                self._next_seq % 200 == 1 or self._next_seq == head.entries
            ):
                progress(self._next_seq, head.entries)
        if self._next_seq != head.entries:
            raise LedgerFormatError(
                f"The export was cut off: it contains {self._next_seq} of {head.entries} entries.",
                next_step="Nothing was imported. Get the complete export again.",
            )
        with _refused("The export does not hold"):
            self._check_whole(head, signed, stated)
        if head.subjects_before:
            self._tx.execute(PUT_INFO, (BEFORE, str(head.subjects_before)))
        self._tx.execute(PUT_INFO, ("imported", str(head.entries)))
        held = signed is not None and self._key is not None
        return ImportReport(
            head.entries, len(self._reader.values), len(self._reader.erased),
            "held" if held else "unsigned",
            0 if stated and held else len(self._reader.unvouched),
        )  # fmt: skip

    def _check_whole(
        self, head: ExportHead, signed: SignedCheckpoint | None, stated: list[str]
    ) -> None:
        for text in stated:
            fits = parse_base64(text) == statement_of(head.members, self._reader.unvouched)
            require(fits, "head-statement", "the first line or a subject is not as signed")
        require(len(stated) < 2, "head-statement", "the checkpoint has two statements")
        self._check_tree(head, signed)
        self._check_erasures()
        if self._away:
            self._check_archived(head)
        for _, fault in index_faults(self._tx.execute, self._left):
            require(False, "index-entries", fault)

    def _read_head(self, lines: Iterator[tuple[int, bytes]]) -> ExportHead:
        try:
            return read_head(load_unique(next(lines, (0, b""))[1]))
        except (ValueError, RemitError) as error:
            raise LedgerFormatError(
                f"This is not an export of a ledger, or its first line was changed: {_said(error)}",
                next_step="`remit ledger export --format jsonl` writes one.",
            ) from error

    def _checkpoint(self, head: ExportHead) -> SignedCheckpoint | None:
        if head.checkpoint is None:
            if self._key is not None:
                raise LedgerFormatError("The export has no checkpoint to check with the key.")
            return None
        try:
            signed = SignedCheckpoint.parse(head.checkpoint)
        except TlogError as error:
            raise LedgerFormatError(f"The export's checkpoint: {error.message}") from error
        if self._key is not None:
            signed.verify(self._key)
            if head.verifier_key != str(self._key):
                raise LedgerFormatError(
                    "The export's first line names another verifier key, or none (head-key).",
                    next_step=_NOTHING,
                )
        return signed

    # -- lines -----------------------------------------------------------------------------

    def _line(self, line: Any) -> None:
        seq = self._next_seq
        if type(line) is dict and "leaf" in line:
            require(self._has_archive, "leaf-archived", "no entry of this export was archived")
            require_members(line, "leaf-line", "the line", {"seq": int, "leaf": str})
            require(line["seq"] == seq, "line-seq", f"it is not entry {seq}")
            leaf = parse_base64(line["leaf"], 32)
            require(leaf is not None, "leaf-line", "a leaf hash is not base64 of 32 bytes")
            assert leaf is not None
            self._away.append(seq)
            self._next_seq, self._last_hash = seq + 1, None
            self._leaf(seq, leaf)
            return
        require_members(line, "line-members", "the line", _ENTRY, {"erased": list})
        require(line["seq"] == seq, "line-seq", f"it is not entry {seq}")
        data = line["record"].encode("utf-8", "surrogatepass")
        found = self._reader.read(seq, line["entry_hash"], data, line["contents"], line["steps"])
        require(
            self._last_hash in (found.record["previous_hash"], None),
            "record-link",
            "previous_hash is not the hash of the entry before",
        )
        if found.is_kernels and found.record["event_type"] == ARCHIVED:
            self._note_archived(found)
        self._check_erased_member(found, line)
        self._restore(found)
        self._next_seq, self._last_hash = seq + 1, found.entry_hash
        self._leaf(seq, leaf_hash(data))

    def _check_erased_member(self, found: CheckedLine, line: dict[str, Any]) -> None:
        """Check that an erasure lists its commitments if entries were archived, and only then."""
        record = found.record
        count = record["metadata"].get("erased_count")
        is_erasure = record["event_type"] == "ERASURE" and found.is_kernels
        has_list = self._has_archive and is_erasure and type(count) is int and count > 0
        require(("erased" in line) == has_list, "line-erased", "erased is missing, or is too much")
        if has_list:
            self._reader.note_erased_under(found, line["erased"])

    def _restore(self, found: CheckedLine) -> None:
        """Store the rows of a checked line."""
        for table, row in rows_of_line(found, self._tx.compress_above):
            if table == "contents":
                self._require_once(row[2], row[3])
            self._tx.restore(table, row)

    def _require_once(self, scope: str, digest: bytes) -> None:
        """Raise LedgerFormatError if the session has the same value under another commitment.

        A session that continued after its beginning left has new nonces. An export with segments
        contains both copies of a repeated text, and a database can store only one of them.
        """
        if (scope, digest) in self._digests:
            raise LedgerFormatError(
                f"The session {scope.removeprefix('s:')} continued after its beginning moved to a "
                "segment, and repeats a text from there; one database cannot store both copies.",
                next_step="Import an export of the database alone (`remit ledger export`), and "
                "keep the segments.",
            )
        self._digests.add((scope, digest))

    def _leaf(self, seq: int, leaf: bytes) -> None:
        """Store the leaf hashes of a tile with archived entries, and the levels above."""
        self._leaves.append(leaf)
        if (seq + 1) % TILE_WIDTH:
            return
        index, first = seq // TILE_WIDTH, seq + 1 - TILE_WIDTH
        if self._away and self._away[-1] >= first:
            self._tx.restore("tree_hashes", (0, index, b"".join(self._leaves)))
            self._tx.complete_tile(index, self._leaves)
        self._leaves = []

    def _note_archived(self, found: CheckedLine) -> None:
        """Note the range of an ``ARCHIVED`` entry if it continues the ranges before."""
        metadata = found.record["metadata"]
        first, end, count = (metadata.get(name) for name in ("first", "end", "entries"))
        is_range = (
            type(first) is type(end) is type(count) is int
            and first == self._left.end < end <= found.seq
            and end % TILE_WIDTH == 0
        )
        if not is_range:
            return
        encoded = {f"hmac-sha256:{mac}": data for _, mac, _, _, data, *_ in found.values}
        texts = {}
        for name in ("left", "carried"):
            commitment = metadata.get(name)
            mac = commitment["$content"] if isinstance(commitment, dict) else ""
            texts[name] = encoded.get(mac, b"null")
        left = orjson.loads(texts["left"])
        require(type(left) is str, "archived-left", "it does not say which entries were archived")
        places = Places.of_text(end, left)
        is_count = len(places) == count
        require(is_count, "archived-left", "it names another number of entries than were archived")
        places.update(self._left)
        self._left = places
        self._roots[end] = str(metadata.get("root"))
        carried = orjson.loads(texts["carried"])
        if isinstance(carried, dict) and isinstance(carried.get("usage"), dict):
            self._hours |= carried["usage"]

    # -- the whole -------------------------------------------------------------------------

    def _check_tree(self, head: ExportHead, signed: SignedCheckpoint | None) -> None:
        tree = LedgerTree(self._tx.execute, self._store)
        if signed is not None:
            root = tree.root(head.entries)
            if (signed.checkpoint.size, signed.checkpoint.root) != (head.entries, root):
                raise LedgerFormatError(
                    "The entries do not lead to the export's signed checkpoint (tree-root).",
                    next_step="Nothing was imported: the export was changed after it was signed.",
                )
        for end, recorded in self._roots.items():
            is_root = tree.root(end).hex() == recorded
            require(is_root, "archived-root", f"the first {end} entries have another root")

    def _check_erasures(self) -> None:
        """Check that each entry named by an erased value accounts for exactly its erased values."""
        by_entry: dict[int, list[str]] = defaultdict(list)
        for commitment, seq in self._reader.erased.items():
            self._tx.restore("erasures", (commitment, seq))
            by_entry[seq].append(commitment)
        for seq, commitments in by_entry.items():
            rows = self._tx.execute("SELECT record FROM entries WHERE seq = ?", (seq,))
            fits = rows and is_erasure_of(orjson.loads(rows[0][0]), commitments)
            what = f"no ERASURE entry accounts for the values erased under {entry_id(seq)}"
            require(fits, "erasure-account", what)

    def _check_archived(self, head: ExportHead) -> None:
        """Check that the record says which entries are away, and what their usage was."""
        require(
            all(seq in self._left for seq in self._away),
            "leaf-archived",
            "an entry is away, and no ARCHIVED entry says so",
        )
        self._tx.execute(PUT_INFO, (ARCHIVED_TO, str(self._left.end)))
        self._tx.execute_many(INSERT, head.usage or [])
        problem = archived_usage_problem(self._tx.execute, self._left.end, self._hours)
        require(not problem, "archived-usage", problem)


def rows_of_line(found: CheckedLine, compress_above: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the rows that a checked line adds to a database, each with the name of its table.

    Contents and their persons come first, then message steps, what the entry shows, and the entry.
    Ids of contents and steps are the numbers that the reader gave them.

    Args:
        found: the line.
        compress_above: stored values longer than this many bytes are compressed.

    Raises:
        InvalidInputError: an exact text is empty, holds a NUL character, or is not UTF-8.
    """
    seq, record = found.seq, found.record
    for number, commitment, scope, nonce, data, is_exact, subjects in found.values:
        encoded = EncodedValue.of(data, is_exact)
        stored = StoredValue.encode(encoded, compress_above)
        row = (number, commitment, scope, encoded.digest, nonce)
        yield "contents", (*row, len(data), stored.codec, stored.value)
        for subject in subjects:
            yield "content_subjects", (subject, number)
    for step in found.steps:
        yield "message_steps", step
    for content_id in sorted(found.shown):
        yield "shown_contents", (seq, content_id)
    for step_id in sorted(found.ends):
        yield "shown_lists", (seq, step_id)
    own = (record["id"], found.entry_hash, record["timestamp"], record["event_type"])
    columns = (record["submission_id"], *found.columns, found.text.decode())
    yield "entries", (seq, *own, *columns)


def _lines(source: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the bytes of each line; raise LedgerFormatError if one is too long."""
    number = 0
    while line := source.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise LedgerFormatError(
                f"Line {number} of the export is longer than {MAX_LINE_BYTES:,} bytes (json-text).",
                next_step=_NOTHING,
            )
        yield number, line.removesuffix(b"\n")


@contextlib.contextmanager
def _refused(what: str) -> Iterator[None]:
    """Raise LedgerFormatError if a condition fails in the block."""
    try:
        yield
    except (ValueError, RemitError) as error:
        raise LedgerFormatError(f"{what}: {_said(error)}", next_step=_NOTHING) from error


def _said(error: Exception) -> str:
    said = error.message if isinstance(error, RemitError) else str(error)
    return said if said.endswith(".") else f"{said}."
