"""Gate G6: the ledger, its checkpoints and its derived tables verify."""

from __future__ import annotations

from functools import partial

from remit.kernel.message_text import count
from remit.ledger import AFTER_DAMAGE
from remit.packages.checks import Finding
from remit.packages.gates.context import GateContext, GateRun


def check_integrity(context: GateContext) -> GateRun:
    """Verify the ledger and its derived tables (gate G6), and yield a finding for each fault.

    An empty ledger, checkpoints without a key, and a key without any checkpoint of a ledger with
    entries are findings too. A ledger above ``full_entries`` is verified from the end of the last
    verification, unless the whole is requested. A ledger that verifies gets a new mark, also if a
    key or checkpoint is missing.

    Args:
        context: the open root.

    Returns:
        One line with the number of verified entries, trails and budgets.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    ledger = context.ledger
    entries = context.entries
    since_mark = context.resumes
    if not entries:
        yield Finding("The ledger is empty.", "Run `remit init`.")
    report = ledger.verify(
        since_mark=since_mark, jobs=context.jobs, progress=partial(context.progress, "G6 ledger")
    )
    for found in report.problems:
        yield Finding(f"The ledger does not verify: {found}.", AFTER_DAMAGE)
    signed = report.checkpoint != "none"
    if ledger.verifier_key is None and signed:
        problem = "The ledger has checkpoints, but there is no key to check them."
        yield Finding(problem, "Put a copy of the ledger's public key into HOT/keys.")
    elif ledger.verifier_key and entries and not signed and ledger.checkpoints.latest() is None:
        problem = "No checkpoint is signed, so a truncated ledger could not be detected."
        yield Finding(problem, "Run `remit ledger checkpoint`.")
    [(thoughts, tasks)] = ledger.select("SELECT count(*), count(DISTINCT task_id) FROM thoughts")
    [(budgets,)] = ledger.select("SELECT count(*) FROM budgets")
    message = (
        f"{entries} entries verify ({report.checkpoint_size} under a signed checkpoint), "
        f"{count(thoughts, 'thought')} in {count(tasks, 'trail')}, {count(budgets, 'budget')}, "
        "keys and owners"
    )
    if report.last_full:
        message += (
            f"; {report.unread} of them were not read again; the last full check was on "
            f"{report.last_full} (--full checks all)"
        )
    return message
