"""``/v1/responses/{id}``: what a client may do with an answer by its id."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any

from remit.gateway import Identity
from remit.gateway.tenancy import owner_of
from remit.kernel.exchange import PromptRequest
from remit.ledger import LedgerClient
from remit.ledger.errors import ErasureError
from remit.providers.wire.body import Body
from remit.server.authentication import Authenticator
from remit.server.refusals import HttpError
from remit.server.replies import Receive, Scope, Send, reply_json
from remit.server.responses.call import ResponseCall, input_of
from remit.server.responses.items import ErasedItemsError, id_of, page, type_of
from remit.server.responses.turns import Turn, Turns

_BASES = ("/v1", "", "/openai/v1", "/openai")
RESPONSE_PATHS = tuple(f"{base}/responses/" for base in _BASES)
"""What the paths begin with."""

_PATH = re.compile(r"/responses/(?P<id>[^/]{1,256})(?:/(?P<part>input_items|cancel))?$")
_METHODS = {None: ("GET", "DELETE"), "input_items": ("GET",), "cancel": ("POST",)}


class Responses:
    """Answers by the id that the client was given, and what new calls go on from.

    Args:
        ledger: where they are on record.
        authenticator: tells whose they are.
    """

    def __init__(self, ledger: LedgerClient, authenticator: Authenticator) -> None:
        self._ledger = ledger
        self._turns = Turns(ledger)
        self._authenticator = authenticator

    async def kept(self, request: PromptRequest, identity: Identity) -> PromptRequest:
        """``request`` with what it goes on from, and the id of its answer.

        Raises:
            HttpError: what it goes on from is not there, or cannot be gone on from.
        """
        body: Body = request.body
        owner, previous, referred = owner_of(identity), None, {}
        named = body.value.get("previous_response_id")
        if named is not None:
            previous = await self._previous(named, owner, identity.session_id)
        if b"item_reference" in body.raw and type(body.value.get("input")) is list:
            referred = await asyncio.to_thread(self._referred, body, owner, identity.session_id)
        call = ResponseCall(self._turns, body, owner, request.session_id, previous, referred)
        return replace(request, keeper=call)

    async def _previous(self, named: Any, owner: str, session_id: str) -> Turn:
        param = "previous_response_id"
        if type(named) is not str:
            raise HttpError(400, "invalid_request", f"{param} is not a text.", param=param)
        turn = await asyncio.to_thread(self._turns.response, named, owner, session_id)
        if turn is None:
            raise _no_previous("is not there")
        if turn.state == "out":
            message = "The previous response is still under way."
            raise HttpError(400, "previous_response_in_progress", message, param=param)
        if turn.state == "lost" or turn.failed:
            raise _no_previous("has failed; there is nothing to go on from")
        try:
            await asyncio.to_thread(self._turns.items, turn)
        except ErasedItemsError as error:
            raise _no_previous("has been erased") from error
        return turn

    def _referred(self, body: Body, owner: str, session_id: str) -> dict[str, tuple[Turn, bytes]]:
        found: dict[str, tuple[Turn, bytes]] = {}
        for at, item in enumerate(input_of(body)):
            if type_of(item) != "item_reference":
                continue
            named = self._turns.item(id_of(item), owner, session_id)
            if named is None:
                message = f"input[{at}] refers to an item that is not there."
                raise HttpError(400, "item_not_found", message, param=f"input[{at}].id")
            found[id_of(item)] = named
        return found

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request with an id in its path.

        Raises:
            HttpError: it is refused.
        """
        caller = await self._authenticator.authenticate(scope["headers"])
        identity, method = caller.identity, scope["method"]
        found = _PATH.search(scope["path"])
        if found is None:
            raise HttpError(404, "not_found", "There is nothing here.")
        part = found["part"]
        if method not in _METHODS[part]:
            raise HttpError(
                405, "method_not_allowed", f"This path does not take {method[:16]}.",
                headers=[(b"allow", ", ".join(_METHODS[part]).encode())],
            )  # fmt: skip
        if not identity.may("call"):
            raise HttpError(403, "forbidden", f"The role {identity.role} makes no calls.")
        turn = await asyncio.to_thread(
            self._turns.response, found["id"], owner_of(identity), identity.session_id
        )
        if turn is None:
            raise _not_found()
        query = scope.get("query_string", b"").decode("latin-1")
        try:
            if part == "input_items":
                body = await asyncio.to_thread(self._input_items, turn, query)
            elif part == "cancel":
                message = "Only a response that runs in the background can be cancelled."
                raise HttpError(400, "not_in_background", message)
            elif method == "DELETE":
                body = await self._delete(turn, found["id"], identity)
            else:
                body = await asyncio.to_thread(self._object, turn, found["id"])
        except ErasedItemsError as error:
            raise _not_found() from error
        await reply_json(send, body)

    def _object(self, turn: Turn, identity: str) -> bytes:
        text = self._turns.object_of(turn) if turn.state == "ended" else None
        if text is None:
            raise _not_found()
        return text

    def _input_items(self, turn: Turn, query: str) -> bytes:
        if turn.state != "ended":
            raise _not_found()
        return page(self._turns.listed([turn], with_last_output=False), query)

    async def _delete(self, turn: Turn, response_id: str, identity: Identity) -> Any:
        if turn.state == "out":
            raise HttpError(409, "response_in_progress", "This response is still under way.")
        try:
            await asyncio.to_thread(
                self._ledger.erase,
                turn.entry.id,
                reason=f"DELETE /v1/responses/{response_id}",
                requested_by=identity.name,
            )
        except ErasureError as error:
            raise _not_found() from error
        return {"id": response_id, "object": "response", "deleted": True}


def _not_found() -> HttpError:
    return HttpError(404, "response_not_found", "There is no response with this id.", param="id")


def _no_previous(what: str) -> HttpError:
    return HttpError(
        400, "previous_response_not_found", f"The previous response {what}.",
        param="previous_response_id",
    )  # fmt: skip
