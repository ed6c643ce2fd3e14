"""``/v1/responses/{id}``: reads, cancels and deletes a response by its id."""

from __future__ import annotations

import asyncio
import functools
import re
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, quote

from remit.gateway import Identity, TooLongError, entries_of_call, owner_of
from remit.kernel.exchange import PromptRequest
from remit.kernel.json_text import load
from remit.kernel.settings import ServerSettings
from remit.ledger import ErasureError, LedgerClient
from remit.providers import Body
from remit.providers.wire import STORED_RESPONSES, ObjectBody, is_reference
from remit.server.asgi import Answer, Receive, Scope, Send, disconnected, reply, reply_json
from remit.server.authentication import Authenticator
from remit.server.paths import ObjectHandler, paths_of
from remit.server.provider_objects import ProviderDoor
from remit.server.refusals import HttpError, invalid
from remit.server.request_context import AuthenticatedRequest
from remit.server.responses.background import Background
from remit.server.responses.call import ResponseCall, ids_in
from remit.server.responses.chain import Turns, check_size, text_of
from remit.server.responses.chain_turn import Turn, unanswered
from remit.server.responses.conversations import Conversations, caller_of, too_long
from remit.server.responses.items import ErasedItemsError, page
from remit.server.responses.response_stream import stream_of

_NUMBER = re.compile(r"-1|[0-9]{1,9}")
_EVENTS = b"text/event-stream; charset=utf-8"
_POLL_S = 0.25
_OPEN = ("queued", "in_progress")
_FORGOTTEN = (200, 204, 404)
_DELETE_IDS = "DELETE FROM response_ids WHERE response_id = ? AND entry_id = ?"


class Responses:
    """The stored responses of a root, and the turns that new calls continue.

    :meth:`kept` and :meth:`require_own` check the ids that a new call names; :meth:`templates`
    gives the handlers of stored responses and conversations. Each handler takes the ids of the
    path, then scope, ``receive`` and ``send`` of ASGI, sends the answer, and raises HttpError for a
    refusal.

    Args:
        ledger: holds the recorded turns.
        authenticator: authenticates the caller.
        background: runs calls whose clients do not wait for the answer.
        door: passes deletions to providers.
        settings: limits of bodies.

    Attributes:
        background: the argument; callers begin background calls with it.
    """

    def __init__(
        self,
        ledger: LedgerClient,
        authenticator: Authenticator,
        background: Background,
        door: ProviderDoor,
        settings: ServerSettings,
    ) -> None:
        self._door = door
        self.background = background
        self._ledger = ledger
        self._turns = Turns(ledger)
        self._authenticator = authenticator
        self._conversations = Conversations(ledger, self._turns, authenticator, settings)

    async def kept(self, request: PromptRequest, identity: Identity) -> PromptRequest:
        """Return ``request`` with a :class:`ResponseCall` as its keeper. Nothing is written.

        The keeper holds the turns and items that the request continues or refers to, all checked.

        Args:
            request: the gateway's request, whose body may name a response, a conversation or items.
            identity: the caller, who must own them.

        Raises:
            HttpError: 400, the request is invalid or continues too much, or a turn or item that it
                names does not exist, has failed, still runs or was erased; 404, the conversation
                does not exist, or the turn is archived.
            LedgerError: the ledger cannot be read.
        """
        body: Body = request.body
        owner, previous, referred = owner_of(identity), None, {}
        named, conversation = body.value.get("previous_response_id"), ""
        if body.value.get("conversation") is not None:
            conversation = _conversation_id(body.value["conversation"])
            if named is not None:
                raise invalid(
                    "previous_response_id", "Send previous_response_id or conversation, not both."
                )
            previous = await asyncio.to_thread(self._conversations.head, conversation, identity)
        elif named is not None:
            previous = await self._previous(named, owner, identity.session_id)
        asked = body.value.get("input")
        if type(asked) is list and any(map(is_reference, asked)):
            referred = await asyncio.to_thread(self._referred, body, owner, identity.session_id)
        if body.value.get("background") is True and body.value.get("store") is False:
            raise invalid(
                "store",
                "A background response must be stored, so that its client can read it later.",
            )
        call = ResponseCall(
            self._turns, body, owner, request.session_id, previous, referred, conversation
        )
        return replace(request, keeper=call)

    async def require_own(self, request: PromptRequest, identity: Identity) -> None:
        """Check the stored things that a compaction or a count of tokens names.

        Nothing is written. The call is sent as it is, so that only the provider's own memory can be
        continued.

        Args:
            request: the gateway's request.
            identity: the caller, who must own them.

        Raises:
            HttpError: 400, the body names a conversation, which only Remit stores, or a response or
                an item that does not exist for this caller, has failed, still runs or was erased,
                or items of more than 32 MiB; 404, the response or the turn of an item is archived.
            LedgerError: the ledger cannot be read.
        """
        body, owner = request.body, owner_of(identity)
        if body.value.get("conversation") is not None:
            message = "A conversation is stored by Remit, not by the provider; send its items."
            raise HttpError(400, "invalid_request", message, param="conversation")
        if (named := body.value.get("previous_response_id")) is not None:
            await self._previous(named, owner, identity.session_id)
        asked = body.value.get("input")
        if type(asked) is list and any(map(is_reference, asked)):
            await asyncio.to_thread(self._referred, body, owner, identity.session_id)

    async def _previous(self, named: Any, owner: str, session_id: str) -> Turn:
        param = "previous_response_id"
        if type(named) is not str:
            raise invalid(param, f"{param} is not a text.")
        turn = await asyncio.to_thread(self._turns.response, named, owner, session_id)
        if turn is None:
            raise _no_previous(f"{named[:100]} does not exist; send its items in input instead")
        if turn.state == "out":
            message = "The previous response is still running; wait until GET shows its end."
            raise HttpError(400, "previous_response_in_progress", message, param=param)
        if turn.state == "lost" or turn.failed:
            raise _no_previous("has failed; continue from an earlier one")
        try:
            await asyncio.to_thread(self._turns.items, turn)
        except ErasedItemsError as error:
            raise _no_previous("has been erased; continue from another one, or none") from error
        return turn

    def _referred(self, body: Body, owner: str, session_id: str) -> dict[str, tuple[Turn, bytes]]:
        found: dict[str, tuple[Turn, bytes]] = {}
        size = 0
        for at, item in enumerate(body.value["input"]):
            if not is_reference(item):
                continue
            name = text_of(item.get("id"))
            named = found.get(name) or self._turns.item(name, owner, session_id)
            if named is None:
                message = (
                    f"input[{at}] refers to an item that does not exist; send the item itself."
                )
                raise HttpError(400, "item_not_found", message, param=f"input[{at}].id")
            found[name] = named
            size += len(named[1])
            try:
                check_size(size, "input")
            except TooLongError as error:
                raise too_long(error) from error
        return found

    def templates(self) -> dict[tuple[str, str], ObjectHandler]:
        """Return the handlers of responses and conversations, keyed by (method, path template).

        A response can be read, deleted and cancelled, and its input items listed.
        """
        found = self._conversations.templates()
        for path in paths_of("/responses/{id}", "openai"):
            for method, template, action in (
                ("GET", path, "read"),
                ("DELETE", path, "delete"),
                ("GET", f"{path}/input_items", "list"),
                ("POST", f"{path}/cancel", "cancel"),
            ):
                found[method, template] = functools.partial(self._serve, action)
        return found

    async def _serve(
        self, action: str, response_id: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer a request for a response.

        Args:
            action: ``read``, ``delete``, ``list`` (input items) or ``cancel``.
            response_id: id of the response.
            scope: ASGI's scope.
            receive: ASGI's function.
            send: ASGI's function.

        Raises:
            HttpError: 401 or 403, the caller may not call models; 404, the caller owns no such
                response, or it was erased; 400 or 409, the response is in the wrong state.
        """
        caller = await caller_of(self._authenticator, scope)
        identity = caller.identity
        turn = await asyncio.to_thread(
            self._turns.response, response_id, owner_of(identity), identity.session_id
        )
        if turn is None:
            raise _not_found()
        query = scope.get("query_string", b"").decode("latin-1")
        try:
            if action == "list":
                body = await asyncio.to_thread(self._input_items, turn, query)
            elif action == "cancel":
                body = await self._cancel(turn, response_id, identity)
            elif action == "delete":
                body = await self._delete(turn, response_id, caller)
            elif parse_qs(query).get("stream") == ["true"]:
                await self._stream(response_id, identity, query, receive, send)
                return
            else:
                body, _ = await asyncio.to_thread(self._read, turn, response_id)
        except ErasedItemsError as error:
            raise _not_found() from error
        await reply_json(send, body)

    def _read(self, turn: Turn, identity: str) -> tuple[bytes, str]:
        """Return the object of a response and its status; the status is empty if it has ended.

        Raises:
            HttpError: 404, the response has no object.
            ErasedItemsError: the object was erased.
        """
        if turn.state == "ended" and not turn.failed:
            text = self._turns.object_of(turn)
            if text is None:
                raise _not_found()
            return text, ""
        if turn.state == "out" or self.background.runs(identity):  # Another attempt may follow.
            return unanswered(turn, identity, "in_progress"), "in_progress"
        text = self._turns.object_of(turn) if turn.state == "ended" else None
        # The object of an interrupted stream still says that it is open.
        if text is None or load(text).get("status") in _OPEN:
            text = unanswered(turn, identity, "failed")
        return text, ""

    async def _stream(
        self, response_id: str, identity: Identity, query: str, receive: Receive, send: Send
    ) -> None:
        """Send a response as a stream after its end; nothing is sent before.

        Raises:
            HttpError: 400, ``starting_after`` is not a number; 404, the response was deleted
                meanwhile.
        """
        after = parse_qs(query).get("starting_after", ["-1"])[-1]
        if not _NUMBER.fullmatch(after):
            raise invalid("starting_after", "starting_after must be the number of an event.")
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            while True:
                text, status = await asyncio.to_thread(self._now, response_id, identity)
                if not status:
                    break
                await asyncio.wait({gone}, timeout=_POLL_S)
                if gone.done():
                    return
        finally:
            gone.cancel()
        await reply(send, Answer(200, stream_of(text, int(after)), _EVENTS))

    def _now(self, response_id: str, identity: Identity) -> tuple[bytes, str]:
        turn = self._turns.response(response_id, owner_of(identity), identity.session_id)
        if turn is None:
            raise _not_found()
        return self._read(turn, response_id)

    async def _cancel(self, turn: Turn, response_id: str, identity: Identity) -> bytes:
        """Stop a background response and return its object; unchanged if the response has ended.

        Raises:
            HttpError: 400, the response does not run in the background.
        """
        text, status = await asyncio.to_thread(self._read, turn, response_id)
        if status:
            stopped = await self.background.cancel(response_id)
            text, status = await asyncio.to_thread(self._now, response_id, identity)
            if not stopped and status:
                raise _not_in_background()
        elif load(text).get("background") is not True:
            raise _not_in_background()
        return text

    async def _forget(self, provider_id: str, kept: str, caller: AuthenticatedRequest) -> None:
        """Have a provider delete its copy of a response; a missing copy or provider is no error.

        Raises:
            HttpError: 502, the provider did not delete it.
        """
        if not self._door.has(provider_id):
            return
        path = f"{STORED_RESPONSES.path}/{quote(kept, safe='')}"
        about = ObjectBody.without_text(STORED_RESPONSES, {"method": "DELETE", "path": path})
        response = await self._door.change(caller, provider_id, about, method="DELETE", path=path)
        if response.reply is not None and response.reply.status not in _FORGOTTEN:
            message = "The provider did not delete its copy, so nothing is deleted yet."
            raise HttpError(502, "provider_error", message)

    def _input_items(self, turn: Turn, query: str) -> bytes:
        if turn.state != "ended":
            raise _not_found()
        return page(self._turns.listed([turn], with_last_output=False), query)

    async def _delete(self, turn: Turn, response_id: str, caller: AuthenticatedRequest) -> Any:
        """Delete a response at its provider, then erase the content that only its call shows.

        The rows of its id and of its items' ids are deleted.

        Raises:
            HttpError: 409, the response still runs, or its content is archived; 502, the provider
                did not delete its copy.
        """
        text, status = await asyncio.to_thread(self._read, turn, response_id)
        if status:
            raise HttpError(
                409,
                "response_in_progress",
                "This response is still running; cancel it, or wait for its end.",
            )
        if kept := self._turns.kept_by_provider(turn):
            await self._forget(turn.provider_id, kept, caller)
        ids = [(name, turn.entry.id) for name in ids_in(response_id, load(text))]

        def erase() -> None:
            self._ledger.withdraw(
                entries_of_call(self._ledger, turn.entry),
                reason=f"DELETE /v1/responses/{response_id}",
                requested_by=caller.identity.name,
                also=lambda tx: tx.execute_many(_DELETE_IDS, ids),
            )
            self._conversations.erase_unshown(turn.entry, caller)

        try:
            await asyncio.to_thread(erase)
        except ErasureError as error:
            raise HttpError(409, "archived", error.message) from error
        return {"id": response_id, "object": "response", "deleted": True}


def _conversation_id(given: Any) -> str:
    """Return the id in a text or in an object with an ``id``; raise HttpError 400 otherwise."""
    found = given.get("id") if type(given) is dict else given
    if type(found) is not str:
        raise invalid("conversation", "conversation must be an id or an object with an id.")
    return found


def _not_found() -> HttpError:
    return HttpError(
        404,
        "response_not_found",
        "There is no response with this id; send an id that a call returned.",
        param="id",
    )


def _not_in_background() -> HttpError:
    message = "Cannot cancel a synchronous response; end its connection instead."
    return HttpError(400, "not_in_background", message, param="response_id")


def _no_previous(what: str) -> HttpError:
    return HttpError(
        400, "previous_response_not_found", f"The previous response {what}.",
        param="previous_response_id",
    )  # fmt: skip
