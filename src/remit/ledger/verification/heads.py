"""Checks of signed tree heads, stored or given by the caller, against the records."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from remit.ledger.key_files import known_as
from remit.ledger.tlog import (
    EMPTY_ROOT,
    TILE_WIDTH,
    SignedCheckpoint,
    TlogError,
    VerifierKey,
    node_hash,
)
from remit.ledger.verification.report import VerificationReport

TreeHead = tuple[bool, SignedCheckpoint]
"""A signed tree head, and True if the caller gave it; False if it is stored in the ledger."""


def read_heads(
    report: VerificationReport,
    notes: list[tuple[int, str]],
    outside: str | bytes | SignedCheckpoint | None,
    key: VerifierKey | None,
) -> list[TreeHead]:
    """Return the readable tree heads by growing size.

    A head that is malformed, not signed by ``key``, or stored under another size is reported and
    left out. Nothing is raised. A key signs under an origin that it had before a fork, too.

    Args:
        report: receives the problems; its ``checkpoint`` becomes ``failed`` at the first.
        notes: size and note of each stored checkpoint.
        outside: the checkpoint that the caller gave; ``None`` if there is none.
        key: the log's key; ``None`` leaves signatures unchecked.

    Returns:
        Pairs: True if the caller gave the head, and the head. Of equal sizes stored heads come
        first.
    """
    heads: list[TreeHead] = []
    given: list[tuple[int | None, str | bytes | SignedCheckpoint]] = [*notes]
    if outside is not None:
        given.append((None, outside))
    for column, note in given:
        try:
            signed = note if isinstance(note, SignedCheckpoint) else SignedCheckpoint.parse(note)
            if key is not None:  # under an origin that it had before a fork, too
                signed.verify(known_as(key, signed.checkpoint.origin) or key)
            if column not in (None, signed.checkpoint.size):
                raise TlogError("Its size is not that of its row.")
        except TlogError as error:
            which = f"checkpoints: the row of {column}" if column is not None else "the given one"
            report.add(None, "checkpoint", f"{which}: {error.message}")
            report.checkpoint = "failed"
        else:
            heads.append((column is None, signed))
    return sorted(heads, key=lambda head: (head[1].checkpoint.size, head[0]))


def check_heads(
    report: VerificationReport,
    heads: list[TreeHead],
    roots: list[bytes],
    partials: dict[int, bytes],
    size: int,
    *,
    is_signed: bool,
    witnesses: Sequence[VerifierKey],
) -> None:
    """Compare the records with the tree heads, and set the report's ``checkpoint``,
    ``checkpoint_size`` and ``witnesses``.

    Nothing is raised for a head that does not hold: it is a problem, ``checkpoint`` becomes
    ``failed``, and the other two stay unset. Without any head to compare, all three stay as they
    are. The best head is the caller's, or else the greatest stored head. A bad cosignature on the
    best head is a problem too, which leaves ``witnesses`` unset. A ``checkpoint`` that is
    ``failed`` before the call stays so.

    Args:
        report: receives the problems and the assurance.
        heads: the heads by growing size.
        roots: roots of the complete subtrees of 256 leaves.
        partials: by tree size, the root over the leaves after those.
        size: number of entries in the ledger.
        is_signed: True if the signatures of ``heads`` were checked. If not, ``checkpoint`` becomes
            ``unchecked`` at best; else ``outside`` for the caller's head, or ``stored``.
        witnesses: keys whose cosignatures on the best head are reported.
    """
    peaks: list[bytes] = []  # roots of the growing tree's complete subtrees, greatest first
    count = 0  # subtrees of 256 leaves under them
    failed = report.checkpoint == "failed"
    best: TreeHead | None = None
    for head in heads:
        is_outside, signed = head
        head_size = signed.checkpoint.size
        where = "the given checkpoint" if is_outside else "checkpoints: a stored checkpoint"
        if head_size > size:
            report.add(
                size,
                "checkpoint",
                f"{where} covers {head_size} entries, but there are {size}: the ledger was cut off",
            )
            failed = True
            continue
        index = head_size // TILE_WIDTH
        for root in roots[count:index]:
            count += 1
            _grow(peaks, root, count)
        partial = partials.get(head_size, b"")
        nodes = [*peaks, partial] if partial else peaks
        if count != index or signed.checkpoint.root != _joined(nodes):
            report.add(
                None,
                "checkpoint",
                f"{where} of {head_size} entries has another root than the records: history "
                "before it was rewritten",
                0 if is_outside else head_size,
            )
            failed = True
        elif best is None or is_outside or not best[0]:
            best = head
    if failed:
        report.checkpoint = "failed"
    elif best is not None:
        _assure(report, best, is_signed, witnesses)


def _assure(
    report: VerificationReport, best: TreeHead, is_signed: bool, witnesses: Sequence[VerifierKey]
) -> None:
    is_outside, signed = best
    report.checkpoint = "outside" if is_outside else "stored"
    if not is_signed:
        report.checkpoint = "unchecked"
    report.checkpoint_size = signed.checkpoint.size
    try:
        report.witnesses = [key.name for key, _ in signed.cosignatures(witnesses)]
    except TlogError as error:
        report.add(None, "checkpoint", error.message)


def _grow(peaks: list[bytes], root: bytes, count: int) -> None:
    """Add the ``count``-th subtree of 256 leaves to the peaks of a tree."""
    peaks.append(root)
    for _ in range((count & -count).bit_length() - 1):
        right = peaks.pop()
        peaks[-1] = node_hash(peaks[-1], right)


def _joined(nodes: list[bytes]) -> bytes:
    """Return the root over complete subtrees, greatest first."""
    if not nodes:
        return EMPTY_ROOT
    return functools.reduce(lambda right, left: node_hash(left, right), reversed(nodes))
