"""Why a model was chosen: candidates, scores, the hash of the rules, and a recomputation."""

from __future__ import annotations

from typing import Any

from remit.kernel.errors import RemitError
from remit.routing import explain, find_decision, replay
from remit.server.console.pages import Asked, Page, Sources, View
from remit.server.console.rows import call_row

_READ_CALLS = 200
_LISTED = 25


def show(sources: Sources, asked: Asked) -> Page:
    """Return the page of routing decisions and fallbacks, or the explanation of a call.

    A routing decision is computed again from its record; no model is called. The list has at most
    25 calls that a route or a fallback decided, newest first, among the latest 200 calls. An error
    of the computation is shown on the page.

    Args:
        sources: the data sources.
        asked: the request; ``rest`` is the id of a decision or call, and ``before`` of its query an
            entry id before which older calls are listed.

    Raises:
        NotFoundError: the path names no decision and no call, or an archived one.
        InvalidInputError: ``before`` is not an entry id.
        LedgerError: the ledger cannot be read.
    """
    ledger = sources.ledger
    if not asked.rest:
        found = ledger.query(
            event_type="EXCHANGE", order="desc", limit=_READ_CALLS + 1, with_content=False,
            after=asked.query.get("before"),
        )  # fmt: skip
        rows: list[dict[str, Any]] = []
        last = before = ""
        for number, entry in enumerate(found):
            data = entry.metadata
            if number == _READ_CALLS or len(rows) == _LISTED:
                before = last
                break
            last = entry.id
            if data.get("decision_id") or data.get("fallback_from"):
                passed = data.get("fallback_from")
                passed = passed if isinstance(passed, list) else ()
                why = [f'{one.get("model_id")}: {one.get("error_code")}' for one in passed
                       if isinstance(one, dict)]  # fmt: skip
                rows.append({**call_row(entry), "why": ", ".join(why) or "chosen by the router"})
        return Page(
            "decisions.html.j2", {"calls": rows, "before": before, "looked_at": _READ_CALLS}
        )
    prefixes = sources.runtime.loaded.settings.model.prefixes
    found_why = explain(ledger, asked.rest, prefixes)
    again: dict[str, Any] | None = None
    if decision_id := found_why.get("decision_id"):
        try:
            again = replay(find_decision(ledger, decision_id), ledger)
        except RemitError as error:
            again = {"agrees": None, "notes": [error.message], "checks": {}}
    return Page("decision.html.j2", {"asked_for": asked.rest, "found": found_why, "again": again})


VIEWS = (View("/console/why", show),)
