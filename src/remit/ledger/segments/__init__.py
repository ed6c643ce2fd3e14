"""Segments: closed ranges of the ledger in files of their own.

A segment is a ledger file with the entries of ended sessions before a cut. The ordinary store,
reader, verifier, eraser and exporter read it (:meth:`LedgerClient.attach`). No entry is added to a
segment; an erasure removes content in it.

Invariant: rows leave the database only after the segment was opened, verified and compared with
them, under one lease.

Start reading in ``run``; ``segment`` defines the file. ``conversion`` reads archives of earlier
versions.
"""

from remit.ledger.segments.conversion import convert
from remit.ledger.segments.copies import interrupted_copies, remove_copies
from remit.ledger.segments.move import SegmentReport, cut_at, finish, move_to_segment
from remit.ledger.segments.removal import Guard
from remit.ledger.segments.segment import check_segments, open_segments, purge, purge_all

__all__ = [
    "Guard",
    "SegmentReport",
    "check_segments",
    "convert",
    "cut_at",
    "finish",
    "interrupted_copies",
    "move_to_segment",
    "open_segments",
    "purge",
    "purge_all",
    "remove_copies",
]
