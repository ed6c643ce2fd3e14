"""Stored rows in the form of a scan, however damaged."""

from __future__ import annotations

from typing import Any, NamedTuple


class RawEntry(NamedTuple):
    """A stored entry as bytes, from a scan that checks nothing.

    Attributes:
        seq: sequence number of the row.
        record: the stored record; empty if it cannot be read.
        columns: every column except ``seq`` and ``record``, in the order of the layout.
        problem: the fault that makes the row unreadable; empty if there is none.
    """

    seq: int
    record: bytes
    columns: tuple[Any, ...]
    problem: str = ""


class RawContent(NamedTuple):
    """A stored content value with the columns of its proof.

    Fields other than ``content_id`` and ``problem`` may be empty if the row is unreadable.

    Attributes:
        content_id: number of the row.
        commitment: the commitment in the record of the entry.
        scope: the session or entry within which equal values are stored once.
        digest: hash of the value, by which a scope finds it.
        nonce: random bytes of the commitment.
        length: length of the value before compression, in bytes.
        codec: form of the value, see :class:`~remit.ledger.contents.StoredValue`.
        value: the stored bytes, compressed if the codec says so.
        kind: the type of the stored ``value``: ``text`` or ``blob``.
        problem: the fault that makes the row unreadable; empty if there is none.
    """

    content_id: int
    commitment: str = ""
    scope: str = ""
    digest: bytes = b""
    nonce: bytes = b""
    length: int = 0
    codec: str = ""
    value: bytes = b""
    kind: str = "text"
    problem: str = ""
