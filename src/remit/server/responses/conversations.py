"""``/v1/conversations``: conversations that Remit stores itself, for every provider.

A conversation is a chain of entries: an ``EXCHANGE`` for each call, and a ``CONVERSATION_CHANGED``
for each change of items or labels. The row of its id in ``response_ids`` leads to the last entry.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from remit.gateway import Identity, NotYoursError, TooLongError, check_session, owner_of
from remit.kernel.json_splice import elements, spans
from remit.kernel.settings import ServerSettings
from remit.ledger import (
    Content,
    EntryArchivedError,
    ErasureError,
    LedgerClient,
    LedgerEntry,
    Transaction,
)
from remit.providers.wire import BodyError, object_in
from remit.server.asgi import Receive, Scope, reply_json
from remit.server.authentication import Authenticator
from remit.server.content_encoding import read_decoded
from remit.server.paths import ObjectHandler, paths_of
from remit.server.refusals import HttpError, invalid
from remit.server.request_context import AuthenticatedRequest
from remit.server.responses.chain import Turns
from remit.server.responses.chain_turn import Turn
from remit.server.responses.items import ErasedItemsError, id_of, page

_MAX_ITEMS = 20  # The API's limit of items in one request.
_PUT = (
    "INSERT INTO response_ids (response_id, owner, session_id, entry_id) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (response_id) DO UPDATE SET session_id = excluded.session_id, "
    "entry_id = excluded.entry_id"
)


class Conversations:
    """The endpoints of conversations.

    :meth:`templates` gives the handlers for the server's table of paths. Each handler takes the ids
    of the path, then scope, ``receive`` and ``send`` of ASGI, sends the answer, and raises
    HttpError for a refusal. Each change appends a ``CONVERSATION_CHANGED``. The object holds no
    state of conversations, so any process may serve them.

    Args:
        ledger: holds their entries.
        turns: reads the entries.
        authenticator: gives the session of requests that name none.
        settings: limits of bodies.
    """

    def __init__(
        self,
        ledger: LedgerClient,
        turns: Turns,
        authenticator: Authenticator,
        settings: ServerSettings,
    ) -> None:
        self._ledger = ledger
        self._turns = turns
        self._authenticator = authenticator
        self._settings = settings

    def templates(self) -> dict[tuple[str, str], ObjectHandler]:
        """Return the handlers of conversations, keyed by (method, path template).

        A conversation can be created, shown, changed and deleted; its items can be listed, added,
        shown and removed. A request may bring at most 20 items. Paths with the prefix ``/openai``
        are included.
        """
        found: dict[tuple[str, str], ObjectHandler] = {}
        for path in paths_of("/conversations", "openai"):
            one, items = f"{path}/{{id}}", f"{path}/{{id}}/items"
            for method, template, work in (
                ("POST", path, self._create),
                ("GET", one, self._show),
                ("POST", one, self._update),
                ("DELETE", one, self._delete),
                ("GET", items, self._list_items),
                ("POST", items, self._add),
                ("GET", f"{items}/{{id}}", self._show_item),
                ("DELETE", f"{items}/{{id}}", self._remove),
            ):
                found[method, template] = functools.partial(self._serve, work)
        return found

    async def _serve(self, work: Callable[..., Any], *given: Any) -> None:
        """Answer a request with the result of ``work``, which runs in a thread.

        Args:
            work: called with the caller, the body, the URL's query and the ids of the path.
            given: the ids of the path, then scope, ``receive`` and ``send`` of ASGI.

        Raises:
            HttpError: 401 or 403, the caller may not call models, or the session belongs to
                another caller; 400, the request is invalid; 404, the conversation or item does
                not exist or was erased; 409, content is archived.
        """
        *ids, scope, receive, send = given
        caller = await caller_of(self._authenticator, scope)
        raw = await self._body(caller, receive) if scope["method"] == "POST" else b"{}"
        query = scope.get("query_string", b"").decode("latin-1")
        try:
            answer = await asyncio.to_thread(work, caller, raw, query, *ids)
        except NotYoursError as error:
            raise HttpError(403, "session_not_yours", error.message) from error
        except ErasureError as error:
            raise HttpError(409, "archived", error.message) from error
        except ErasedItemsError as error:
            message = "Part of this conversation was erased; create a new one."
            raise HttpError(404, "conversation_erased", message) from error
        except TooLongError as error:
            raise too_long(error) from error
        await reply_json(send, answer)

    async def _body(self, caller: AuthenticatedRequest, receive: Receive) -> bytes:
        settings = self._settings
        return await read_decoded(
            receive, caller.headers, settings.max_body_bytes, settings.body_timeout_s, caller.share
        )

    def head(self, name: str, identity: Identity) -> Turn:
        """Return the last entry of a caller's conversation, as a turn. Blocks.

        Args:
            name: id of the conversation.
            identity: the caller; an identity of one session finds only conversations of that
                session.

        Raises:
            HttpError: 404, there is no such conversation, another caller owns it, or its last entry
                is archived.
            LedgerError: the ledger cannot be read.
        """
        turn = None
        if name.startswith("conv_"):
            turn = self._turns.find(name, owner_of(identity), identity.session_id)
        if turn is None:
            raise _not_found()
        return turn

    def _create(self, caller: AuthenticatedRequest, raw: bytes, query: str) -> dict[str, Any]:
        value = read_object(raw)
        name = f"conv_{secrets.token_hex(24)}"
        more: dict[str, Any] = {}
        if items := _items_of(raw, value):
            more["items"] = Content.exact_list(items)
        if metadata := metadata_of(value):
            more["labels"] = Content(metadata)
        self._change(caller, name, "CREATED", more)
        return self._show(caller, raw, query, name)

    def _show(
        self, caller: AuthenticatedRequest, raw: bytes, query: str, name: str
    ) -> dict[str, Any]:
        return self._told(self.head(name, caller.identity), name)

    def _update(
        self, caller: AuthenticatedRequest, raw: bytes, query: str, name: str
    ) -> dict[str, Any]:
        self.head(name, caller.identity)  # Only the owner may change the labels.
        metadata = metadata_of(read_object(raw)) or {}
        self._change(caller, name, "UPDATED", {"labels": Content(metadata)})
        return self._show(caller, raw, query, name)

    def _list_items(self, caller: AuthenticatedRequest, raw: bytes, query: str, name: str) -> bytes:
        return page(self._turns.in_conversation(self.head(name, caller.identity)), query)

    def _add(self, caller: AuthenticatedRequest, raw: bytes, query: str, name: str) -> bytes:
        self.head(name, caller.identity)  # Only the owner may add items.
        items = _items_of(raw, read_object(raw))
        if not items:
            raise invalid("items", "items must be a list of items.")
        self._change(caller, name, "ADDED", {"items": Content.exact_list(items)})
        head = self.head(name, caller.identity)
        return page(self._turns.listed([head], with_last_output=False), "order=asc&limit=100")

    def _show_item(
        self, caller: AuthenticatedRequest, raw: bytes, query: str, name: str, item: str
    ) -> bytes:
        return self._item(self.head(name, caller.identity), item)

    def _item(self, head: Turn, item: str) -> bytes:
        for text in self._turns.in_conversation(head):
            if id_of(text) == item:
                return text
        raise HttpError(
            404,
            "item_not_found",
            "There is no item with this id; list the items of the conversation.",
            param="item_id",
        )

    def _told(self, head: Turn, name: str) -> dict[str, Any]:
        chain = self._turns.chain(head)
        labels: Any = {}
        for turn in reversed(chain):
            if "labels" in turn.entry.metadata:
                labels = self._ledger.read(turn.entry.id).metadata["labels"]
                break
        began = datetime.fromisoformat(chain[0].entry.timestamp)
        return {
            "id": name,
            "object": "conversation",
            "created_at": int(began.timestamp()),
            "metadata": labels if isinstance(labels, dict) else {},
        }

    def _remove(
        self, caller: AuthenticatedRequest, raw: bytes, query: str, name: str, item_id: str
    ) -> dict[str, Any]:
        """Remove an item from a conversation, and erase its text unless another item has the same.

        An item of a call belongs to that call: its text is erased when the response is deleted.
        """
        head = self.head(name, caller.identity)
        self._item(head, item_id)
        places = self._turns.places_of(head, item_id)
        removed: dict[str, Any] = {"removed": [item_id]}
        entries, texts = list[str](), list[bytes]()
        if places:
            removed["removed_at"] = places
            entries, texts = self._turns.unshown(head, places)
        if texts:
            self._ledger.withdraw(
                entries,
                texts=texts,
                reason=f"DELETE /v1/conversations/{name}/items/{item_id}",
                requested_by=caller.identity.name,
                also=self._changing(caller, name, "REMOVED", removed),
            )
        else:  # The item belongs to a call, or another item has the same text.
            self._change(caller, name, "REMOVED", removed)
        return self._show(caller, raw, query, name)

    def erase_unshown(self, call: LedgerEntry, caller: AuthenticatedRequest) -> None:
        """Erase deleted items of a conversation that a deleted call was the last to show. Blocks.

        Items that are archived or already erased are skipped. Nothing is done if the call belongs
        to no conversation of the caller, or the conversation's last entry is archived. The erasure
        is recorded in the caller's name.

        Args:
            call: the ``EXCHANGE`` of the deleted call.
            caller: the caller who deleted it.

        Raises:
            LedgerError: the ledger cannot be read or written.
        """
        name = call.metadata.get("conversation_id", "")
        skipped = (ErasedItemsError, ErasureError, EntryArchivedError, HttpError)
        with contextlib.suppress(*skipped):  # The HttpError says that the last entry is archived.
            head = self._turns.find(name, owner_of(caller.identity)) if name else None
            entries, texts = self._turns.unshown(head) if head is not None else ([], [])
            if texts:
                self._ledger.withdraw(
                    entries, texts=texts, requested_by=caller.identity.name,
                    reason=f"DELETE of items in /v1/conversations/{name}",
                )  # fmt: skip

    def _delete(
        self, caller: AuthenticatedRequest, raw: bytes, query: str, name: str
    ) -> dict[str, Any]:
        """Delete a conversation, and erase all its items that no call shows.

        Repeats if another request changes the conversation meanwhile.
        """
        while True:
            head = self.head(name, caller.identity)
            changes = self._ledger.query(
                event_type="CONVERSATION_CHANGED", submission_id=name, with_content=False
            )
            try:
                self._ledger.withdraw(
                    [entry.id for entry in changes],
                    reason=f"DELETE /v1/conversations/{name}",
                    requested_by=caller.identity.name,
                    also=self._changing(caller, name, "DELETED", {}, head.entry.id),
                )
            except InterruptedError:  # Withdraw the new entry of the other request too.
                continue
            return {"id": name, "object": "conversation.deleted", "deleted": True}

    def _change(
        self, caller: AuthenticatedRequest, name: str, decision: str, more: Mapping[str, Any]
    ) -> None:
        """Record a change of a conversation, and have the conversation's id lead to the entry.

        Raises:
            NotYoursError: the session of the request belongs to another caller.
            HttpError: 404, another request has deleted the conversation.
        """
        self._ledger.transact(self._changing(caller, name, decision, more))

    def _changing(
        self, caller: AuthenticatedRequest, name: str, decision: str, more: Mapping[str, Any],
        last: str = "",
    ) -> Callable[[Transaction], None]:  # fmt: skip
        """Return the transaction of :meth:`_change`, as a function.

        The function raises InterruptedError if ``last`` is given and is not the last entry.
        """
        context, owner = self._authenticator.context(caller), owner_of(caller.identity)

        def write(tx: Transaction) -> None:
            check_session(tx, caller.identity, context.session_id)
            rows = tx.execute("SELECT entry_id FROM response_ids WHERE response_id = ?", (name,))
            if not rows and decision != "CREATED":  # Another request has deleted the conversation.
                raise _not_found()
            if last and rows[0][0] != last:
                raise InterruptedError
            before = {"continues": rows[0][0]} if rows else {}
            entry = LedgerEntry(
                event_type="CONVERSATION_CHANGED",
                submission_id=name,
                decision=decision,
                reason=_REASONS[decision],
                metadata={"conversation_id": name, **before, **more},
            )
            entry_id = tx.append(context.prepare(self._ledger, entry))
            if decision == "DELETED":
                tx.execute("DELETE FROM response_ids WHERE response_id = ?", (name,))
            else:
                tx.execute(_PUT, (name, owner, context.session_id, entry_id))

        return write


_REASONS = {
    "CREATED": "A conversation was begun",
    "ADDED": "Items were put into a conversation",
    "REMOVED": "An item was taken out of a conversation",
    "UPDATED": "The labels of a conversation were changed",
    "DELETED": "A conversation was deleted; its calls stay",
}


async def caller_of(authenticator: Authenticator, scope: Scope) -> AuthenticatedRequest:
    """Authenticate a request for stored things, and return its headers with the caller.

    The request is counted under the caller's key.

    Args:
        authenticator: finds the caller.
        scope: ASGI's scope of the request.

    Raises:
        HttpError: the caller is refused, as by :meth:`Authenticator.caller`; 403, the caller's role
            may not call models.
    """
    caller = await authenticator.caller(scope)
    if not caller.identity.may("call"):
        role = caller.identity.role
        message = f"The role {role} may not make calls; use a key of the role agent."
        raise HttpError(403, "forbidden", message)
    return caller


def _not_found() -> HttpError:
    message = "There is no conversation with this id; create one with POST /v1/conversations."
    return HttpError(404, "conversation_not_found", message, param="conversation")


def too_long(error: TooLongError) -> HttpError:
    """Return (not raise) the 400 for a context that is longer than the limit.

    Args:
        error: the error that states the limit.
    """
    return HttpError(400, "context_length_exceeded", error.message, param=error.param)


def read_object(raw: bytes) -> dict[str, Any]:
    """Return the members of a body; none for an empty body.

    The members are parsed values; the text is not kept.

    Args:
        raw: the body as received, without a content encoding.

    Raises:
        HttpError: 400, the body is not a JSON object.
    """
    try:
        return object_in(raw) if raw.strip() else {}
    except BodyError as error:
        raise HttpError(400, "invalid_json", error.message) from error


def metadata_of(value: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the ``metadata`` of a body; ``None`` if the body has none.

    Args:
        value: the parsed members of the body.

    Raises:
        HttpError: 400, the metadata is not an object, or one of its values is not a text.
    """
    metadata = value.get("metadata")
    if metadata is None:
        return None
    if type(metadata) is not dict or any(type(each) is not str for each in metadata.values()):
        raise invalid("metadata", "metadata must be an object of strings.")
    return metadata


def _items_of(raw: bytes, value: Mapping[str, Any]) -> Sequence[bytes]:
    items = value.get("items")
    if items is None:
        return []
    if type(items) is not list or any(type(item) is not dict for item in items):
        raise invalid("items", "items must be a list of objects.")
    if len(items) > _MAX_ITEMS:
        raise invalid("items", f"items has more than {_MAX_ITEMS} items.")
    place = spans(raw, ("items",))["items"]
    return elements(raw[slice(*place)])
