"""Routes of the ledger."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import PlainTextResponse

from remit.ledger import LedgerClient, LedgerKeyError
from remit.server.api.access import allow, failures
from remit.server.api.pages import answer, page_of
from remit.server.api.requests import EntryQuery, Flag
from remit.server.api.responses import EntryPage, EntryShape, Stats
from remit.server.refusals import HttpError

__all__ = ["ledger_routes"]

_READ = [allow("read")]
_VERIFY = [allow("verify")]
_BINARY = "application/octet-stream"
_BYTES: dict[str, Any] = {
    "description": "The exact bytes.",
    "content": {_BINARY: {"schema": {"type": "string", "format": "binary"}}},
}
_TEXT: dict[str, Any] = {
    "description": "Text.",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}


def ledger_routes(ledger: LedgerClient) -> APIRouter:
    """Entries, proofs, checkpoints of ``ledger``."""
    routes = APIRouter(prefix="/api/ledger", tags=["ledger"])

    @routes.get(
        "/entries", response_model=EntryPage, responses=failures(), dependencies=_READ,
        summary="Query entries",
    )  # fmt: skip
    def entries(query: Annotated[EntryQuery, Query()]) -> Response:
        """Entries that match all that is given. Content is left out unless it is asked for."""
        conditions = query.model_dump(exclude={"limit", "cursor", "content"})
        found = ledger.query(
            **conditions,
            after=query.cursor,
            # With content it streams in small batches: the page may be full before its number is.
            limit=None if query.content else query.limit + 1,
            with_content=query.content,
        )
        listed = ((entry.id, "entries", entry) for entry in found)
        return answer(page_of(listed, query.limit, "entries"))

    @routes.get(
        "/entries/{entry_id}", response_model=EntryShape, responses=failures(404),
        dependencies=_READ, summary="One entry",
    )  # fmt: skip
    def entry(
        entry_id: str,
        content: Annotated[Flag, Query(description="false: commitments instead")] = True,
    ) -> Response:
        """One entry, its content in place."""
        if content:
            return answer(ledger.read(entry_id))
        ledger.read_record(entry_id)  # raises when there is none
        before = int(entry_id[4:], 16) - 1
        return answer(next(ledger.query(after=before, limit=1, with_content=False)))

    @routes.get(
        "/entries/{entry_id}/record", response_class=Response,
        responses={**failures(404), 200: _BYTES}, dependencies=_READ, summary="Canonical record",
    )  # fmt: skip
    def record(entry_id: str) -> Response:
        """The canonical record: the exact bytes that the entry's hash and the tree cover."""
        return Response(ledger.read_record(entry_id), media_type=_BINARY)

    @routes.get(
        "/entries/{entry_id}/proof", response_class=Response,
        responses={**failures(404), 200: _TEXT},
        dependencies=_VERIFY, summary="Proof of inclusion",
    )  # fmt: skip
    def proof(entry_id: str) -> Response:
        """A C2SP tlog-proof that the record is in the ledger, for anybody to verify offline."""
        return PlainTextResponse(ledger.prove(entry_id))

    @routes.get(
        "/checkpoint", response_class=Response,
        responses={**failures(404), 200: _TEXT},
        dependencies=_VERIFY, summary="Latest checkpoint",
    )  # fmt: skip
    def checkpoint() -> Response:
        """The latest signed checkpoint (C2SP tlog-checkpoint), with its cosignatures."""
        latest = ledger.checkpoints.latest()
        if latest is None:
            raise HttpError(404, "not_found", "No checkpoint was signed yet. POST here signs one.")
        return PlainTextResponse(str(latest))

    @routes.post(
        "/checkpoint", response_class=Response,
        responses={**failures(), 201: _TEXT}, status_code=201,
        dependencies=[allow("manage_keys")], summary="Sign a checkpoint",
    )  # fmt: skip
    def sign() -> Response:
        """Sign the ledger as it stands. Operators only."""
        return PlainTextResponse(ledger.checkpoint(), 201)

    @routes.get(
        "/key", response_class=Response,
        responses={**failures(404), 200: _TEXT}, dependencies=_VERIFY,
        summary="Verifier key",
    )  # fmt: skip
    def key() -> Response:
        """The key to check checkpoints and proofs by (`origin+hash+key`).

        Take it from somewhere that the operator cannot reach, where that matters.
        """
        if ledger.verifier_key is None:
            raise HttpError(404, "not_found", "This ledger has no key.") from LedgerKeyError(
                "This ledger has no key.", next_step="`remit init` makes one."
            )
        return PlainTextResponse(f"{ledger.verifier_key}\n")

    @routes.get(
        "/stats", response_model=Stats, responses=failures(), dependencies=_READ,
        summary="How many entries",
    )  # fmt: skip
    def stats() -> Response:
        """How many entries of which event type, and the last of them."""
        head = ledger.head()
        return answer(
            {
                "entries": head[0] + 1 if head else 0,
                "events": ledger.count_by_event(),
                "head": {"seq": head[0], "entry_hash": head[1]} if head else None,
                "location": ledger.location,
            }
        )

    return routes
