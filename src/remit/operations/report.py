"""The operation that writes the auditor's report."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from remit.operations.operation import field, verb
from remit.operations.ports import Caller, RootPort

if TYPE_CHECKING:
    from datetime import datetime

_AT_MOST = 10_000  # entries that a report may read one by one
_PART_CHARS = 64 * 1024


@verb(
    route="GET /report", summary="Report for an auditor", needs="verify", media_type="text/html",
    endpoint="report",
)  # fmt: skip
def write_report(
    root: RootPort, caller: Caller, *,
    since: str = field(
        "Start of the range: `today`, `yesterday`, `24h`, or ISO 8601; rounded down to a quarter "
        "of an hour. By default, from the beginning.", "", most=64,
    ),
    until: str = field(
        "End of the range, exclusive; rounded up to a quarter of an hour.", "", most=64
    ),
    time_zone: str = field("Time zone of dates and days.", "UTC", most=64),
    most: int = field(
        "In a range of more than 20,000 entries, list only so many calls, refusals, charges and "
        "budgets, the latest of each event type.", 500, least=0, most=_AT_MOST,
    ),
) -> Generator[str]:  # fmt: skip
    """Return one HTML file that verifies itself offline in a browser.

    The file lists runs, callers, costs, refusals and changes, with proofs.

    The proofs lead to a checkpoint of the whole ledger. The ledger and the gates are not
    checked for this file; `remit report` checks both.

    Returns:
        The pieces of the file. The first piece signs a new checkpoint; errors of the ledger are
        raised while the pieces are read.

    Raises:
        InvalidInputError: a time cannot be read, or the time zone is unknown. While the pieces are
            read: the range is empty, or over 10,000 entries would be read one by one.
        LedgerError: the ledger cannot be read, or no key can sign the checkpoint.
    """
    from remit.views import instant_of

    begin, end = (instant_of(one, time_zone) if one else None for one in (since, until))
    return _parts(root, begin, end, most)


def _parts(
    root: RootPort, since: datetime | None, until: datetime | None, most: int
) -> Generator[str]:
    """Yield pieces of the file, read over a connection that no call waits for."""
    from remit.ledger import open_root_ledger
    from remit.ledger.tlog import SignedCheckpoint
    from remit.views import audit_report, report_parts

    checkpoint = SignedCheckpoint.parse(root.ledger.checkpoint())
    with open_root_ledger(root.place, root.settings.ledger, signing=False) as ledger:
        made = audit_report(
            ledger, checkpoint=checkpoint, since=since, until=until, most=most,
            at_most=_AT_MOST,
        )  # fmt: skip
        waiting, size = [], 0
        for part in report_parts(ledger, made):
            waiting.append(part)
            size += len(part)
            if size >= _PART_CHARS:
                yield "".join(waiting)
                waiting, size = [], 0
        yield "".join(waiting)
