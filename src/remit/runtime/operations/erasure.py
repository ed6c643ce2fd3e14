"""Operations that erase content of a ledger, and that settle what dead processes left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import InvalidInputError
from remit.kernel.message_text import count
from remit.operations import Answer, Caller, Note, RootPort, facts, field, verb
from remit.operations.files import archives
from remit.runtime.operations.segments import attached, require_archive

if TYPE_CHECKING:
    from remit.kernel.root import Root
    from remit.ledger import ErasureReport


_DO: Any = field("Erase. Without --yes, only show what would be erased.", False, flag="--yes")


def _erasures(
    root: RootPort, reports: list[ErasureReport], *, is_done: bool, add: str = "--yes"
) -> Answer:
    """Return the erasures, one as an object, another number as a list; ``add`` would do them."""
    left = _old_ledgers(root.place) if is_done else ""
    rows: list[dict[str, Any]] = [
        {
            "erased": is_done,
            "erasure_id": report.erasure_id or None,
            "values": report.values,
            "entries": report.entries,
            "sessions": report.sessions,
            "remainder": f"{report.remainder} {left}".strip() or None,
        }
        for report in reports
    ]
    return Answer(rows[0] if len(rows) == 1 else {"erasures": rows}, _lines(rows, add))


def _old_ledgers(root: Root) -> str:
    """Return a sentence about the ledgers that a tenant was moved away from; empty without any."""
    from remit.runtime.tenants import old_plans, place_of

    places = ", ".join(place_of(plan.aside) for plan in old_plans(root))
    said = f"Ledgers from before a move of this tenant still have all their content: {places}."
    return f"{said} Run `remit tenant clean {root.path.name}`." if places else ""


def _lines(rows: list[dict[str, Any]], add: str) -> Iterator[str]:
    """Yield the numbers and sessions of each erasure, and notes on remaining copies."""
    if not rows:
        yield "nothing to erase"
    for row in rows:
        values, entries = count(row["values"], "content value"), count(row["entries"], "entry")
        what = f"{values} first recorded in {entries}"
        if not row["values"]:
            yield f"no content is left to erase: see {row['erasure_id']}"
        else:
            yield (f"erased {what} ({row['erasure_id']})" if row["erased"]
                   else f"would erase {what}; add {add} to erase")  # fmt: skip
        yield from (f"  in {session}" for session in row["sessions"])
    yield from (Note(row["remainder"]) for row in rows if row["remainder"])


@verb("ledger erase", changes=True)
def erase(
    root: RootPort, caller: Caller, *,
    entry_id: str | None = field("Id of an entry.", None, flag="", metavar="[ENTRY_ID]"),
    session_id: str | None = field("Erase all content of a session.", None, flag="--session"),
    subject_id: str | None = field("Erase all content that belongs to a person.", None,
                                   flag="--subject"),
    reason: str | None = field(
        "Reason (recorded permanently): name the request, not the person.", None
    ),
    do: bool = _DO,
    archives: list[Path] = archives(),
) -> Answer:  # fmt: skip
    """Erase content permanently. Records, hash chain and old proofs stay valid.

    An erasure of an entry also erases copies of its content in other entries of the session. An
    erasure of an entry or a person also erases values of the same sessions that quote an erased
    text of 16 or more characters. Proposals and learned packages lose the content too.

    A repeated command completes an interrupted erasure and finds 0 values.

    Returns:
        ``erased`` (True if it was done), ``erasure_id`` (None without --yes, the earlier one if the
        content was erased before), the numbers of ``values`` and ``entries``, the ``sessions``, and
        ``remainder``: the reason why bytes remain in the database files, the calls in flight that
        may record more content, and the ledgers that the tenant was moved away from; or None.

    Raises:
        InvalidInputError: an erasure has no reason, or not exactly one thing is named.
        LedgerError: there is nothing to erase, the entry is unknown or cannot be erased, content
            may be in a segment outside ``archives``, or the ledger cannot be read or written. If a
            segment cannot be written or files compacted, the erasure is recorded already.
        LeaseBusyError: another process changes the segments.
        PackageError: the content is erased, but a learned package that holds it cannot be
            changed now; the next opening of the root tries again.
    """
    from remit.runtime.installation import forget_erased

    if do and not reason:
        raise InvalidInputError("An erasure requires --reason, which is recorded permanently.")
    gone: list[str] = []
    with attached(root, archives) as ledger:
        report = ledger.erase(
            entry_id=entry_id, session_id=session_id, subject_id=subject_id, reason=reason or "-",
            requested_by=caller.name, dry_run=not do,
        )  # fmt: skip
        if do:
            gone = forget_erased(root.place, ledger, root.loaded)
    for proposal_id in gone:
        root.note(f"The proposal {proposal_id} was learned from this content and was removed.")
    add = "--yes" if reason else "--yes and --reason WHY"
    return _erasures(root, [report], is_done=do, add=add)


@verb("ledger retain", changes=True)
def retain(
    root: RootPort, caller: Caller, *, do: bool = _DO, archives: list[Path] = archives()
) -> Answer:
    """Erase content older than [ledger.retention_days] for its event class.

    Without --yes the numbers are shown, and nothing is erased.

    Returns:
        For a single erasure, the keys of `ledger erase`; else ``erasures``, a list of such
        objects, empty if nothing is old enough.

    Raises:
        InvalidInputError: entries are archived, and no segments are given.
        LeaseBusyError: another process changes the segments.
        LedgerError: the ledger cannot be read or written.
        PackageError: as for `ledger erase`.
    """
    from remit.runtime.installation import forget_erased

    with attached(root, archives) as ledger:
        require_archive(ledger, archives, "this erasure")
        reports = ledger.retain(requested_by=caller.name, dry_run=not do)
        if do:
            forget_erased(root.place, ledger, root.loaded)
    return _erasures(root, reports, is_done=do)


def _compact_lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield a note with the result."""
    yield Note(found["remainder"] or "The database files contain no erased content.")


@verb("ledger compact", media_type="text/plain", lines=_compact_lines)
def compact(root: RootPort, caller: Caller) -> dict[str, Any]:
    """Remove erased bytes from the database files, if the erasure could not do so itself.

    Returns:
        ``remainder``: the reason why bytes remain; empty if none do.

    Raises:
        LedgerError: the ledger cannot be compacted.
    """
    return {"remainder": root.ledger.compact()}


@verb(
    "ledger recover", changes=True, lines=lambda found: [
        *facts({name: one for name, one in found.items() if one})
    ] or ["Nothing to settle."],
)  # fmt: skip
def recover(root: RootPort, caller: Caller) -> dict[str, Any]:
    """Settle calls of dead processes, and batches that ended.

    Returns:
        ``settled``, the ids of the ``EXCHANGE_ORPHANED`` entries; ``waiting``, the number of calls
        whose lease has not expired; and if there are batches, ``batches``, the number that have not
        ended.

    Raises:
        RemitError: the ledger or the root cannot be used.
    """
    from remit.gateway import InFlightCalls

    calls = InFlightCalls(root.ledger, root.budgeter, charging=True)
    settled = calls.recover(root.settings.gateway.orphan_policy)
    found = {"settled": settled, "waiting": calls.count()}
    batches = root.ledger.select("SELECT count(*) FROM batches")[0][0]
    if batches:
        root.ledger.close()  # The runtime opens the ledger itself.
        found["batches"] = _settle_batches(root, caller)
    return found


def _settle_batches(root: RootPort, caller: Caller) -> int:
    """Record the results of finished batches, and return the number of open batches."""
    from remit.kernel.loops import run_blocking
    from remit.runtime.runtime import Runtime

    with Runtime.open(root.path, by=caller.name) as runtime:

        async def poll() -> int:
            try:
                return await runtime.gateway.batches.poll()
            finally:
                await runtime.aclose()

        return run_blocking(poll())
