"""The route of the auditor's report."""

from __future__ import annotations

from collections.abc import Generator
from datetime import datetime
from itertools import chain
from typing import Annotated

from fastapi import Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from remit.ledger import open_root_ledger
from remit.ledger.tlog import SignedCheckpoint
from remit.runtime import Runtime
from remit.server.api.routes import Routes
from remit.server.replies import Receive, Scope, Send
from remit.views import audit_report, instant_of, report_parts

_AT_MOST = 10_000  # entries that a report may read one by one
_PART = 64 * 1024
_HEADERS = {"content-disposition": 'attachment; filename="remit-report.html"'}


class ReportQuery(BaseModel):
    """The range of a report, and the length of its lists. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")

    since: str = Field(
        "", max_length=64,
        description="Start of the range: `today`, `yesterday`, `24h`, or ISO 8601; rounded "
        "down to a quarter of an hour; default: from the beginning",
    )  # fmt: skip
    until: str = Field(
        "",
        max_length=64,
        description="End of the range, exclusive; rounded up to a quarter of an hour.",
    )
    time_zone: str = Field("UTC", max_length=64, description="Time zone of dates and days.")
    most: int = Field(
        500, ge=0, le=_AT_MOST, description="in a range of more than 20,000 entries, list only so "
        "many calls, refusals, charges and budgets, the latest of each event type",
    )  # fmt: skip


class Streamed(StreamingResponse):
    """A streamed file. Reading the ledger ends with the answer, even if the client is gone.

    Args:
        parts: yields the file; its first piece is made at once, and its error is raised then.
    """

    def __init__(self, parts: Generator[str]) -> None:
        first = next(parts)  # a report that cannot be made is refused before the answer begins
        super().__init__(chain([first], parts), media_type="text/html", headers=_HEADERS)
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file (ASGI 3)."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._parts.close()


def report_routes(runtime: Runtime) -> Routes:
    """Return the route of the report that ``remit report --html`` writes.

    Args:
        runtime: the open root. A checkpoint is signed for each report.
    """
    routes = Routes("report")

    @routes.add("GET", "/report", "Report for an auditor", needs="verify", media_type="text/html")
    def report(query: Annotated[ReportQuery, Query()]) -> Response:
        """Return one HTML file that verifies itself offline in a browser.

        The file lists runs, callers, costs, refusals and changes, with proofs.

        The proofs lead to a checkpoint of the whole ledger. The ledger and the gates are not
        checked for this file; `remit report` checks both.
        """
        since, until = (
            instant_of(one, query.time_zone) if one else None for one in (query.since, query.until)
        )
        return Streamed(_file(runtime, since, until, query.most))

    return routes


def _file(
    runtime: Runtime, since: datetime | None, until: datetime | None, most: int
) -> Generator[str]:
    """Yield pieces of the file, read over a connection that no call waits for."""
    checkpoint = SignedCheckpoint.parse(runtime.ledger.checkpoint())
    with open_root_ledger(runtime.root, runtime.loaded.settings.ledger, signing=False) as ledger:
        made = audit_report(
            ledger, checkpoint=checkpoint, since=since, until=until, most=most, at_most=_AT_MOST
        )
        waiting, size = [], 0
        for part in report_parts(ledger, made):
            waiting.append(part)
            size += len(part)
            if size >= _PART:
                yield "".join(waiting)
                waiting, size = [], 0
        yield "".join(waiting)
