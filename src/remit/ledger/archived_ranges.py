"""The archived ranges of a ledger, by its record."""

from __future__ import annotations

import base64
import operator
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from remit.ledger.entry import LedgerEntry
from remit.ledger.entry_reader import info_number
from remit.ledger.errors import LedgerFormatError
from remit.ledger.events import is_authentic
from remit.ledger.filter import Filter
from remit.ledger.store import Store
from remit.ledger.tlog import TILE_WIDTH

ARCHIVED = "ARCHIVED"
"""The event type of the entry that records an archived range."""

ARCHIVED_TO = "archived_to"
"""The row of ``ledger_info`` with the first sequence number after all archived ranges."""

SEGMENT = "segment"
"""The row of ``ledger_info`` that makes a ledger file a segment: its end, and its entries."""

COPY = "segment_copy "
"""The name of a row of ``ledger_info`` about a file that is not a segment yet, before its path."""

LEAVING = (
    "DISPATCH", "EXCHANGE", "EXCHANGE_ORPHANED", "PROMPT_REJECTED", "CONVERSATION_CHANGED",
    "BUDGET_DEBIT", "BUDGET_WARNING", "THOUGHT_RECORD", "TURN_RECORDED", "WO_PLANNED",
    "WO_DISPATCHED", "WO_EXECUTING", "LLM_CALL", "TOOL_INTENT", "TOOL_CALL", "MCP_MESSAGE",
    "WO_COMPLETED", "WO_FAILED", "WO_CHAIN_COMPLETE", "WO_QUALITY_GATE", "ESCALATION",
    "DEGRADATION", "FEEDBACK",
)  # fmt: skip
"""The event types of a session's work, which are archived with the session. Entries of all other
types stay: state in force, the start of sessions, open work, and a program's own types."""


class Places:
    """A set of sequence numbers below ``end``, stored as bits: 125 KB for a million.

    Iteration is ascending; ``len`` counts. ``in`` gives False for negative numbers and for ``end``
    and above.

    Args:
        end: the first number that cannot be in the set.
        bits: the bits, lowest number first, which the set then owns and does not check; ``None``
            for an empty set.
    """

    def __init__(self, end: int, bits: bytearray | None = None) -> None:
        self.end = end
        self._bits = bytearray((end + 7) // 8) if bits is None else bits

    def __contains__(self, seq: int) -> bool:
        return 0 <= seq < self.end and bool(self._bits[seq >> 3] >> (seq & 7) & 1)

    def __len__(self) -> int:
        return int.from_bytes(self._bits, "little").bit_count()

    def __iter__(self) -> Iterator[int]:
        for place, byte in enumerate(self._bits):
            if byte:
                yield from (8 * place + bit for bit in range(8) if byte >> bit & 1)

    def add(self, seq: int) -> None:
        """Add a number; nothing changes if the set has it.

        Args:
            seq: a number from 0 to below the set's end; the bound itself is not checked.

        Raises:
            IndexError: the number is beyond the set's bytes.
        """
        self._bits[seq >> 3] |= 1 << (seq & 7)

    def remove(self, seq: int) -> None:
        """Remove a number; nothing changes if the set lacks it.

        Args:
            seq: a number from 0 to below the set's end; the bound itself is not checked.

        Raises:
            IndexError: the number is beyond the set's bytes.
        """
        self._bits[seq >> 3] &= ~(1 << (seq & 7))

    def update(self, other: Places) -> None:
        """Add the numbers of another set, whose end must not be greater."""
        both = int.from_bytes(self._bits, "little") | int.from_bytes(other._bits, "little")
        self._bits[:] = both.to_bytes(len(self._bits), "little")

    def common(self, other: Places) -> Places:
        """Return the numbers in both sets; the other's end must not be smaller."""
        return Places(self.end, bytearray(map(operator.and_, self._bits, other._bits)))

    def part(self, first: int, last: int) -> Places:
        """Return a copy of the numbers from ``first`` to ``last``, counted from 0.

        Args:
            first: the first number, a multiple of 8, which becomes 0.
            last: the last number; up to seven numbers after it may be included.
        """
        bits = self._bits[first // 8 : last // 8 + 1]
        return Places(8 * len(bits), bits)

    def others(self) -> Places:
        """Return the numbers from 0 to below the end that the set lacks; the end divides by 8."""
        return Places(self.end, bytearray(byte ^ 255 for byte in self._bits))

    def to_text(self) -> str:
        """Return the set as compressed base64, for :meth:`of_text`."""
        return base64.b64encode(zlib.compress(bytes(self._bits), 6)).decode()

    @classmethod
    def of_text(cls, end: int, text: str) -> Places:
        """Return the set in a text of :meth:`to_text`; raise ValueError if it does not fit.

        Unfit are other texts than compressed base64, sets of another length, and sets with a number
        at or above ``end``.

        Args:
            end: the first number that cannot be in the set.
            text: the text; another type raises TypeError or ValueError.
        """
        packed, length = zlib.decompressobj(), (end + 7) // 8
        try:
            bits = bytearray(packed.decompress(base64.b64decode(text, validate=True), length + 1))
        except zlib.error as error:
            raise ValueError(str(error)) from error
        if len(bits) != length or not packed.eof or packed.unused_data:
            raise ValueError("it is of another length")
        if end % 8 and bits[-1] >> end % 8:
            raise ValueError("it names entries from its end on")
        return cls(end, bits)


@dataclass(frozen=True, slots=True)
class ArchivedRange:
    """The content of an ``ARCHIVED`` entry, as recorded: ``root`` and ``count`` are not checked.

    Only the work of sessions was archived (:data:`LEAVING`); other entries of the range, and the
    sessions in use, stayed.

    Attributes:
        seq: sequence number of the entry.
        first: first sequence number of the range; a multiple of 256, like ``end``.
        end: first sequence number after the range.
        root: root hash of the tree of the first ``end`` entries, in hex.
        count: number of entries archived with this entry, some of earlier ranges.
        entry: the entry, with its content.
    """

    seq: int
    first: int
    end: int
    root: str
    count: int
    entry: LedgerEntry

    @property
    def left(self) -> Places:
        """Sequence numbers of the entries archived with the range; some may belong to earlier
        ranges.

        Each access decodes them anew.

        Raises:
            LedgerFormatError: the ``ARCHIVED`` entry does not name them, or names another number of
                them than ``count``.
        """
        try:
            places = Places.of_text(self.end, self.entry.metadata["left"])
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerFormatError(f"{self.entry.id} does not say what left: {error}.") from error
        if len(places) != self.count:
            raise LedgerFormatError(f"{self.entry.id} says of another number of entries that they "
                                    "left.")  # fmt: skip
        return places

    @property
    def carried(self) -> dict[str, Any]:
        """The sums over the range's entries, from which later checks continue."""
        found = self.entry.metadata.get("carried")
        return found if isinstance(found, dict) else {}


def archived_to(select: Callable[..., Any]) -> int:
    """Return the first sequence number after all archived ranges.

    The number is 0 if nothing was archived, and if the recorded value is not 1 to 18 digits.

    Args:
        select: runs a query on ``ledger_info``; its errors are raised.
    """
    return info_number(select, ARCHIVED_TO)


def places_of_segment(select: Callable[..., Any]) -> Places | None:
    """Return the sequence numbers of the entries in a segment; ``None`` if the database is no
    segment.

    The row ``segment`` of ``ledger_info`` names them; the entries themselves are not read.

    Args:
        select: runs a query on ``ledger_info``; its errors are raised.

    Raises:
        LedgerFormatError: the row exists and is damaged: its end is not a multiple of 256, or its
            numbers cannot be decoded.
    """
    rows = select("SELECT value FROM ledger_info WHERE name = ?", (SEGMENT,))
    if not rows:
        return None
    end, _, text = str(rows[0][0]).partition(" ")
    try:
        if int(end) % TILE_WIDTH or not 0 < int(end) < 1 << 40:
            raise ValueError("its end is not a multiple of 256")
        return Places.of_text(int(end), text)
    except ValueError as error:
        raise LedgerFormatError(
            f"The row {SEGMENT} of ledger_info is damaged: {error}.",
            next_step="If the file is a segment, restore it from a copy; a ledger has no such row.",
        ) from error


def archived_ranges(store: Store) -> list[ArchivedRange]:
    """Return the archived ranges, oldest first, without gaps from entry 0.

    The list is empty if nothing was archived, for a segment, and if the recorded end is damaged.
    Entries ``ARCHIVED`` that are not authentic, are malformed or do not join the next range are
    skipped; the latest that joins counts. Root hash and count are as recorded, and not checked.

    Args:
        store: the store of the ledger.

    Raises:
        LedgerFormatError: no ``ARCHIVED`` entries account for all archived entries.
        LedgerError: the ledger cannot be read.
    """
    wanted = 0 if store.segment is not None else archived_to(store.select)
    found: list[ArchivedRange] = []
    after = None
    while wanted > 0:
        where = Filter(equals={"event_type": ARCHIVED}, after=after, descending=True)
        (row,) = store.page(where, 1) or (None,)
        if row is None:
            raise LedgerFormatError(
                f"No {ARCHIVED} entry says that the entries before {wanted} were archived.",
                next_step="Run `remit ledger verify` to see what is damaged.",
            )
        after = row.seq
        one = _range_of(store.entries([row])[0], row.seq)
        if one is not None and one.end == wanted:
            found.append(one)
            wanted = one.first
    return found[::-1]


def _range_of(entry: LedgerEntry, seq: int) -> ArchivedRange | None:
    if not is_authentic(entry):
        return None
    names = ("first", "end", "entries")
    first, end, count = (entry.metadata.get(name) for name in names)
    if (
        not (type(first) is type(end) is type(count) is int)
        or not 0 <= first < end <= seq
        or first % TILE_WIDTH
        or end % TILE_WIDTH
    ):
        return None
    return ArchivedRange(seq, first, end, str(entry.metadata.get("root")), count, entry)


def left_of(ranges: Sequence[ArchivedRange]) -> Places:
    """Return the sequence numbers of all archived entries in some ranges, as a new set.

    Args:
        ranges: ranges in order, from the first; empty for an empty set.

    Raises:
        LedgerFormatError: a range does not name its entries, or another number of them.
    """
    places = Places(ranges[-1].end if ranges else 0)
    for one in ranges:
        places.update(one.left)
    return places
