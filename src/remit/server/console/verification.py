"""The page of checkpoints, witnesses and gates, and the proof of an entry for the browser."""

from __future__ import annotations

import contextlib
import json
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from remit.ledger import LedgerError, LedgerWriteError, is_authentic, proof_bundle
from remit.operations import name_of
from remit.packages.gates import GATES, TITLES, check_gates, latest_result
from remit.server.asgi import Answer
from remit.server.console.forms import see
from remit.server.console.pages import Asked, Page, Sources, View
from remit.server.console.rows import problems_of
from remit.views.entries import place_of

_ERASURES = 5
_INTEGRITY = "G6"  # the gate that verifies the whole ledger


def show(sources: Sources, asked: Asked) -> Page | Answer:
    """Return the page of soundness, checkpoints, gates and erasures; with an id also a proof.

    Nothing is verified or recorded: the first sentence states the latest result of the gate that
    verifies the ledger, and the browser checks the proof. For a proof of a new entry, the ledger
    signs a checkpoint if none covers the entry yet.

    Args:
        sources: the data sources.
        asked: the request; ``rest`` is an entry id or empty. A query ``id`` is redirected to its
            page.

    Raises:
        EntryNotFoundError: the entry does not exist, or is archived.
        LedgerError: the ledger cannot be read, or a new checkpoint cannot be signed.
    """
    if wanted := asked.query.get("id", "").strip():
        return see(f"/console/verify/{quote(wanted, safe='')}")
    ledger = sources.ledger
    bundle = None
    if asked.rest:
        # The runtime's ledger signs a checkpoint if none covers the entry yet.
        bundle = proof_bundle(sources.runtime.ledger, asked.rest)
    gates = [latest_result(ledger, gate) for gate in GATES]
    for one in gates:
        if one["passed"] is False:
            with contextlib.suppress(LedgerError):
                one["message"] = problems_of(ledger.read(one["entry_id"])) or one["message"]
    (integrity,) = [one for one in gates if one["gate"] == _INTEGRITY]
    checked = place_of(integrity["entry_id"]) + 1 if integrity["entry_id"] else 0
    entries = ledger.count()
    erasures = ledger.query(event_type="ERASURE", order="desc", limit=_ERASURES, with_content=False)
    return Page(
        "verify.html.j2",
        {
            "entries": entries,
            "integrity": integrity,
            "later": entries - checked,
            "location": ledger.location,
            "vkey": str(ledger.verifier_key or ""),
            "checkpoint": _checkpoint(ledger.checkpoints.latest()),
            "gates": gates,
            "titles": TITLES,
            "erasures": [
                {"id": one.id, "at": one.timestamp} for one in filter(is_authentic, erasures)
            ],
            "bundle": bundle,
            "bundle_json": _in_page(bundle),
        },
    )


def change(sources: Sources, asked: Asked) -> Answer:
    """Run all gates, record their results in the person's name, and redirect to the page.

    A gate that raises an error has failed. Blocks until all gates have ended.

    Args:
        sources: the data sources, through whose runtime the results are written.
        asked: the request, whose identity gives the person.

    Raises:
        LedgerError: the ledger cannot be read.
        LedgerWriteError: the results cannot be recorded.
    """
    report = check_gates(sources.runtime.gate_context(), None, by=name_of(asked.identity))
    if report.unrecorded:
        raise LedgerWriteError(f"The results could not be recorded: {report.unrecorded}")
    return see("/console/verify")


def _checkpoint(latest: Any) -> dict[str, Any] | None:
    if latest is None:
        return None
    names = [line.name for line in latest.note.signatures]
    return {"size": latest.checkpoint.size, "origin": latest.checkpoint.origin, "text": str(latest),
            "witnesses": names[1:]}  # fmt: skip


def _in_page(value: Any) -> Markup:
    """Return JSON that is safe inside a script element and reads back unchanged."""
    return Markup(json.dumps(value).replace("<", "\\u003c"))  # noqa: S704 - ASCII without a tag


VIEWS = (View("/console/verify", show, change, "manage_keys"),)
