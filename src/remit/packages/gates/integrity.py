"""G6: the ledger, its checkpoint, the trails and the budgets verify."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from remit.gateway import InFlightCalls
from remit.gateway.budget import TokenBudgeter, audit_budgets
from remit.ledger import LedgerClient
from remit.ledger.tlog import TILE_WIDTH, leaf_hash, tree_root
from remit.packages.checks import Finding
from remit.packages.gates.context import GateContext, GateRun, Summary
from remit.routing.trail import verify_trail

__all__ = ["check_integrity", "rehash"]

_AT_ONCE = 16 * TILE_WIDTH  # entries read together; no result depends on it
_VERIFY = "See `remit ledger verify`; restore the ledger from a copy that verifies."


def check_integrity(context: GateContext) -> GateRun:
    """Gate G6.

    Above ``full_entries``, what an earlier run verified is not read completely again: its records
    are hashed again and held against the tree that leads to the checkpoints, so that no edit of a
    record stays unseen; their content values and columns are not.
    """
    ledger = context.ledger
    entries = context.entries
    mark = context.mark("G6")
    if not entries:
        yield Finding("The ledger has no entry.", "Run `remit init`.")
    # The engine's check of its file takes longer than hashing every record.
    report = ledger.verify(first=mark.verified_entries, deep=not mark.verified)
    for found in report.problems:
        yield Finding(f"The ledger does not verify: {found}.", _VERIFY)
    if mark.verified:
        yield from rehash(ledger, report.first_seq)
    signed = report.checkpoint != "none"
    if ledger.verifier_key is None and signed:
        problem = "There are checkpoints, and no key to check them by."
        yield Finding(problem, "Put the ledger's public key back into HOT/keys.")
    elif ledger.verifier_key and entries and not signed and ledger.checkpoints.latest() is None:
        problem = "No checkpoint is signed: a ledger cut off at its end would look the same."
        yield Finding(problem, "Run `remit ledger checkpoint`.")
    trail = verify_trail(ledger)
    for wrong in trail.problems:
        yield Finding(f"The trail does not verify: {wrong}", "See `remit trail verify`.")
    InFlightCalls(ledger, TokenBudgeter(ledger), charging=False)  # makes what is not there
    audit = audit_budgets(ledger)
    for one in audit.differences:
        problem = f"The budget of {one.scope} says {one.field} {one.live}, and the ledger "
        fix = "See `remit budget check`; with --repair it takes what the ledger says."
        yield Finding(f"{problem}{one.ledger}.", fix)
    message = (
        f"{entries} entries verify ({report.checkpoint_size} under a signed checkpoint), "
        f"{trail.records} thoughts in {trail.tasks} trails, {audit.scopes} budgets"
    )
    if mark.verified:
        message += (
            f"; from entry {report.first_seq} on read completely; of those before, "
            f"{mark.verified}, the records were hashed again"
        )
    return Summary(message, {"verified_entries": entries})


def rehash(ledger: LedgerClient, before: int) -> Iterator[Finding]:
    """Hash the records before a sequence number and hold them against the stored tree.

    Args:
        ledger: whose.
        before: a multiple of 256.
    """
    for low in range(0, before, _AT_ONCE):
        end = min(low + _AT_ONCE, before)
        leaves: dict[int, bytes] = {}
        for seq, stated, record in ledger.select(
            "SELECT seq, entry_hash, record FROM entries WHERE seq >= ? AND seq < ? ORDER BY seq",
            (low, end),
        ):
            data = record.encode() if isinstance(record, str) else bytes(record)
            leaves[seq] = leaf_hash(data)
            if hashlib.sha256(data).hexdigest() != stated:
                problem = f"The record of entry {seq} does not match its hash: it was changed."
                yield Finding(problem, _VERIFY)
        stored = dict(
            ledger.select(
                "SELECT idx, hash FROM tree_hashes WHERE level = 1 AND idx >= ? AND idx < ?",
                (low // TILE_WIDTH, end // TILE_WIDTH),
            )
        )
        for first in range(low, end, TILE_WIDTH):
            tile = [leaves.get(seq, b"") for seq in range(first, first + TILE_WIDTH)]
            if tree_root(tile) != bytes(stored.get(first // TILE_WIDTH) or b""):
                problem = (
                    f"The records {first} to {first + TILE_WIDTH - 1} are not those of the "
                    "ledger's tree: one was changed, or is missing."
                )
                yield Finding(problem, _VERIFY)
