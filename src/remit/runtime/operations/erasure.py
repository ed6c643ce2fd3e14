"""Operations that erase content of a ledger, and that settle what dead processes left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import InvalidInputError
from remit.kernel.words import count
from remit.operations import Caller, Note, Operation, RootPort, field, verb
from remit.operations.files import archives
from remit.runtime.operations.segments import attached, require_archive

if TYPE_CHECKING:
    from remit.ledger import ErasureReport


class _Erasure(Operation):
    changes = True

    do: bool = field("Erase. Without --yes, only show what would be erased.", False, flag="--yes")
    archives: list[Path] = archives()

    def shown(self, reports: list[ErasureReport]) -> dict[str, Any]:
        """Return the erasures: one as an object, another number as a list."""
        self.rows: list[dict[str, Any]] = [
            {
                "erased": self.do,
                "erasure_id": report.erasure_id or None,
                "values": report.values,
                "entries": report.entries,
                "sessions": report.sessions,
                "remainder": report.remainder or None,
            }
            for report in reports
        ]
        return self.rows[0] if len(self.rows) == 1 else {"erasures": self.rows}

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield the numbers and sessions of each erasure, and notes on remaining copies."""
        if not self.rows:
            yield "nothing to erase"
        for row in self.rows:
            values, entries = count(row["values"], "content value"), count(row["entries"], "entry")
            what = f"{values} first shown by {entries}"
            yield (f"erased {what} ({row['erasure_id']})" if self.do
                   else f"would erase {what}; add --yes to erase")  # fmt: skip
            yield from (f"  in {session}" for session in row["sessions"])
        yield from (Note(row["remainder"]) for row in self.rows if row["remainder"])


class Erase(_Erasure):
    """Erase content permanently; records, hash chain and old proofs stay valid.

    An erasure of one entry also erases copies of its content in other entries of the session,
    and texts there that quote a longer part of it.
    """

    command = "ledger erase"

    entry_id: str | None = field("Id of an entry.", None, flag="", metavar="[ENTRY_ID]")
    session_id: str | None = field("Erase all content of a session.", None, flag="--session")
    subject_id: str | None = field("Erase all content that belongs to a person.", None,
                                   flag="--subject")  # fmt: skip
    reason: str | None = field(
        "Reason (recorded permanently): name the request, not the person.", None
    )

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Erase, or return what would be erased; proposals learned from the content are removed.

        Raises:
            InvalidInputError: an erasure has no reason, or not exactly one thing is named.
            LeaseBusyError: another process changes the segments.
        """
        from remit.runtime.installation import forget_erased

        if self.do and not self.reason:
            raise InvalidInputError("An erasure requires --reason, which is recorded permanently.")
        gone: list[str] = []
        with attached(root, self.archives) as ledger:
            report = ledger.erase(
                entry_id=self.entry_id, session_id=self.session_id, subject_id=self.subject_id,
                reason=self.reason or "-", requested_by=caller.name, dry_run=not self.do,
            )  # fmt: skip
            if self.do:
                gone = forget_erased(root.place, ledger, root.loaded)
        for proposal_id in gone:
            root.note(f"The proposal {proposal_id} was learned from this content and was removed.")
        return self.shown([report])


class Retain(_Erasure):
    """Erase content older than [ledger.retention_days] for its event class."""

    command = "ledger retain"

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Erase, or return what would be erased.

        Raises:
            InvalidInputError: entries are archived, and no segments are given.
            LeaseBusyError: another process changes the segments.
        """
        from remit.runtime.installation import forget_erased

        with attached(root, self.archives) as ledger:
            require_archive(ledger, self.archives, "this erasure")
            reports = ledger.retain(requested_by=caller.name, dry_run=not self.do)
            if self.do:
                forget_erased(root.place, ledger, root.loaded)
        return self.shown(reports)


def _compact_lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield a note with the result."""
    yield Note(found["remainder"] or "The database files contain no erased content.")


@verb("ledger compact", media_type="text/plain", lines=_compact_lines)
def compact(root: RootPort, caller: Caller) -> dict[str, Any]:
    """Remove erased bytes from the database files, if the erasure could not do so itself."""
    return {"remainder": root.ledger.compact()}


class Recover(Operation):
    """Settle calls of dead processes, and batches that ended."""

    command = "ledger recover"

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Return the settled calls, and the numbers of open calls and batches."""
        from remit.gateway import InFlightCalls

        calls = InFlightCalls(root.ledger, root.budgeter, charging=True)
        settled = calls.recover(root.settings.gateway.orphan_policy)
        found = {"settled": settled, "waiting": calls.count()}
        self.batches = root.ledger.select("SELECT count(*) FROM batches")[0][0]
        if self.batches:
            root.ledger.close()  # The runtime opens the ledger itself.
            found["batches"] = self._settle_batches(root, caller)
        return found

    def _settle_batches(self, root: RootPort, caller: Caller) -> int:
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

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield the numbers of calls and batches."""
        settled, waiting = len(found["settled"]), found["waiting"]
        yield f"{settled} settled, {waiting} not settled yet (lease not expired)"
        if self.batches:
            yield f"{found['batches']} of {count(self.batches, 'batch')} have not ended yet"
