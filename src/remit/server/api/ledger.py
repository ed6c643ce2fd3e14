"""Routes of the ledger."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query

from remit.ledger import LedgerClient, LedgerEntry, LedgerKeyError
from remit.operations.results import Flag
from remit.server.api.requests import EntryQuery
from remit.server.api.routes import Routes, page_of
from remit.server.refusals import HttpError


def ledger_routes(ledger: LedgerClient) -> Routes:
    """Return the routes of entries, proofs, checkpoints, the verifier key and statistics of
    ``ledger``.

    Only the signing of a checkpoint writes.
    """
    routes = Routes("ledger")

    @routes.add("GET", "/ledger/entries", "Query entries", needs="read", shape="EntryPage")
    def entries(query: Annotated[EntryQuery, Query()]) -> dict[str, Any]:
        """Return the entries that match all conditions, without content unless it is asked for."""
        conditions = query.model_dump(exclude={"limit", "cursor", "content"})
        found = ledger.query(
            **conditions,
            after=query.cursor,
            # With content it streams in small batches: the page may be full before its number is.
            limit=None if query.content else query.limit + 1,
            with_content=query.content,
        )
        listed = ((entry.id, "entries", entry) for entry in found)
        return page_of(listed, query.limit, "entries")

    @routes.add(
        "GET",
        "/ledger/entries/{entry_id}",
        "One entry",
        needs="read",
        shape="EntryShape",
    )
    def entry(
        entry_id: str,
        content: Annotated[
            Flag, Query(description="Return the content; if false, its commitments.")
        ] = True,
    ) -> LedgerEntry:
        """Return one entry with its content."""
        if content:
            return ledger.read(entry_id)
        ledger.read_record(entry_id)  # raises when there is none
        before = int(entry_id[4:], 16) - 1
        return next(ledger.query(after=before, limit=1, with_content=False))

    @routes.add(
        "GET", "/ledger/entries/{entry_id}/record", "Canonical record",
        needs="read", media_type="application/octet-stream",
    )  # fmt: skip
    def record(entry_id: str) -> bytes:
        """Return the canonical record: the exact bytes that the entry's hash and the tree cover."""
        return ledger.read_record(entry_id)

    @routes.add("GET", "/ledger/entries/{entry_id}/proof", "Proof of inclusion", needs="verify")
    def proof(entry_id: str) -> str:
        """Return a C2SP tlog-proof that the record is in the ledger, for offline verification."""
        return ledger.prove(entry_id)

    @routes.add("GET", "/ledger/checkpoint", "Latest checkpoint", needs="verify", fails=[404])
    def checkpoint() -> str:
        """Return the latest signed checkpoint (C2SP tlog-checkpoint) with its cosignatures."""
        latest = ledger.checkpoints.latest()
        if latest is None:
            raise HttpError(
                404, "not_found", "No checkpoint was signed yet. POST to this path signs one."
            )
        return str(latest)

    @routes.add("POST", "/ledger/checkpoint", "Sign a checkpoint", needs="manage_keys", status=201)
    def sign() -> str:
        """Sign a checkpoint of the ledger now. Operators only."""
        return ledger.checkpoint()

    @routes.add("GET", "/ledger/key", "Verifier key", needs="verify", fails=[404])
    def key() -> str:
        """Return the key that verifies checkpoints and proofs (`origin+hash+key`).

        For independent proof, get the key from a place that the operator cannot change.
        """
        if ledger.verifier_key is None:
            raise HttpError(
                404, "not_found", "This ledger has no signing key."
            ) from LedgerKeyError(
                "This ledger has no signing key.", next_step="`remit init` makes one."
            )
        return f"{ledger.verifier_key}\n"

    @routes.add("GET", "/ledger/stats", "Number of entries", needs="read", shape="Stats")
    def stats() -> dict[str, Any]:
        """Return the number of entries of each event type, and the last entry."""
        head = ledger.head()
        return {
            "entries": head[0] + 1 if head else 0,
            "events": ledger.count_by_event(),
            "head": {"seq": head[0], "entry_hash": head[1]} if head else None,
            "location": ledger.location,
        }

    return routes
