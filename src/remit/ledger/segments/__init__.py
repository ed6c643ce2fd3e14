"""Segments: closed ranges of the ledger in files of their own.

A segment is a ledger file with the entries of ended sessions before a cut. The ordinary store,
reader, verifier, eraser and exporter read it (:meth:`LedgerClient.attach`). No entry is added to a
segment; an erasure removes content in it.

Invariant: rows leave the database only after the segment was opened, verified and compared with
them, under one lease.

Start reading in ``run``; ``segment`` defines the file. ``conversion`` reads archives of earlier
versions.
"""

from remit.ledger.segments.conversion import convert as convert
from remit.ledger.segments.copies import (
    interrupted_copies as interrupted_copies,
    remove_copies as remove_copies,
)
from remit.ledger.segments.move import (
    SegmentReport as SegmentReport,
    cut_at as cut_at,
    finish as finish,
    move_to_segment as move_to_segment,
)
from remit.ledger.segments.removal import Guard as Guard
from remit.ledger.segments.segment import (
    check_segments as check_segments,
    open_segments as open_segments,
    purge as purge,
    purge_all as purge_all,
    segments_in as segments_in,
)
