"""``/v1/chat/completions`` of chat completions that were sent with ``store``, from the record.

The row of a completion in ``provider_objects`` leads to its ``EXCHANGE``. A change of its metadata
is a ``CONVERSATION_CHANGED`` entry in the completion's session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import parse_qs, quote

from remit.gateway import entries_of_call, owner_of
from remit.gateway.provider_objects import STORED_CHAT, KeptObject, forget
from remit.kernel.errors import RemitError
from remit.kernel.json_splice import set_member
from remit.kernel.json_text import dump, load
from remit.ledger import (
    Content,
    EntryArchivedError,
    ErasureError,
    LedgerClient,
    LedgerEntry,
    call_answer,
    call_body,
)
from remit.providers.dialects import read_request, write_answer, write_request
from remit.providers.wire import CHAT, STORED_CHATS, ObjectBody
from remit.server.answers import read_reply
from remit.server.asgi import Receive, Scope, Send, reply_json
from remit.server.paths import Handler, ObjectHandler, paths_of
from remit.server.provider_objects import ProviderDoor
from remit.server.refusals import HttpError, invalid
from remit.server.request_context import AuthenticatedRequest
from remit.server.responses.conversations import metadata_of, read_object
from remit.server.responses.items import array, page

_MAX_READ = 1_000
"""Completions that one list reads to find those with the wanted model and metadata."""

_MAX_LIMIT = 100
_PAGE = 20
_FORGOTTEN = (200, 204, 404, 405, 501)
"""Statuses after which the provider has no copy."""


class StoredChats:
    """The endpoints of stored chat completions.

    Completions are read from the record, never from the provider. A deletion erases the recorded
    content. A page of a list has 20 completions by default and at most 100, for which at most 1,000
    are read. A configured provider of this dialect is first asked to delete its copy; if the
    provider fails, the client gets 502 and nothing is erased. The handlers raise HttpError for
    refusals, which the application answers.

    Args:
        ledger: holds the completions.
        door: authenticates callers, knows the owners, and passes deletions to providers.
    """

    def __init__(self, ledger: LedgerClient, door: ProviderDoor) -> None:
        self._ledger = ledger
        self._door = door

    def routes(self) -> dict[tuple[str, str], Handler]:
        """Return the handler that lists completions, keyed by (method, path)."""
        return {
            ("GET", path): partial(self._serve, self._list)
            for path in paths_of("/chat/completions", "openai")
        }

    def templates(self) -> dict[tuple[str, str], ObjectHandler]:
        """Return the handlers of single completions, keyed by (method, path template).

        A completion can be shown, with its messages too, changed in its metadata, and deleted.
        """
        found: dict[tuple[str, str], ObjectHandler] = {}
        for path in paths_of("/chat/completions/{id}", "openai"):
            found["GET", path] = partial(self._serve, self._show)
            found["GET", f"{path}/messages"] = partial(self._serve, self._messages)
            found["POST", path] = partial(self._serve, self._update)
            found["DELETE", path] = self._delete
        return found

    async def _serve(self, work: Callable[..., bytes], *given: Any) -> None:
        """Answer a request with the result of ``work``, which runs in a thread.

        Args:
            work: called with the caller, the body, the URL's query and the id of the path.
            given: the id of the path, if it has one, then scope, ``receive`` and ``send`` of ASGI.

        Raises:
            HttpError: the caller is refused; 400, the request is invalid; 404, the caller owns no
                such completion, or its content was erased.
        """
        *ids, scope, receive, send = given
        caller = await self._door.caller(scope)
        raw = await self._door.read(caller, receive) if scope["method"] == "POST" else b""
        query = scope.get("query_string", b"").decode("latin-1")
        await reply_json(send, await asyncio.to_thread(work, caller, raw, query, *ids))

    def _show(self, caller: AuthenticatedRequest, raw: bytes, query: str, name: str) -> bytes:
        return self._object(name, self._found(caller, name)[1])

    def _messages(self, caller: AuthenticatedRequest, raw: bytes, query: str, name: str) -> bytes:
        asked = self._asked(name, self._found(caller, name)[1])
        items = [
            dump(_shown(message, f"{name}-{place}"))
            for place, message in enumerate(asked["messages"])
        ]
        return page(items, f"order=asc&{query}")

    def _update(self, caller: AuthenticatedRequest, raw: bytes, query: str, name: str) -> bytes:
        made = self._found(caller, name)[1]
        self._object(name, made)  # An erased completion has no metadata.
        value = read_object(raw)
        if "metadata" not in value:
            raise invalid("metadata", "metadata is missing.")
        metadata = metadata_of(value) or {}
        named = {"key_id": caller.identity.key_id} if caller.identity.key_id else {}
        entry = LedgerEntry(
            event_type="CONVERSATION_CHANGED",
            submission_id=made.id,
            decision="UPDATED",
            reason="The metadata of a stored chat completion was changed",
            metadata={
                "conversation_id": made.id, "session_id": made.metadata["session_id"],
                "agent_id": made.metadata["agent_id"], **named,
                "labels": Content(metadata),
            },
        )  # fmt: skip
        self._ledger.write(entry)
        return self._object(name, made)

    def _list(self, caller: AuthenticatedRequest, raw: bytes, query: str) -> bytes:
        asked = {name: values[-1] for name, values in parse_qs(query).items()}
        limit, order = asked.get("limit", str(_PAGE)), asked.get("order", "asc")
        if order not in ("asc", "desc"):
            raise invalid("order", "order is neither asc nor desc.")
        if limit not in map(str, range(1, _MAX_LIMIT + 1)):
            raise invalid("limit", f"limit is not a number from 1 to {_MAX_LIMIT}.")
        rows = self._door.objects.all_of(STORED_CHAT, owner_of(caller.identity))
        if order == "desc":
            rows.reverse()
        if (after := asked.get("after")) is not None:
            ids = [row.id_at_provider for row in rows]
            if after not in ids:
                raise invalid("after", "after names no stored chat completion of this key.")
            rows = rows[ids.index(after) + 1 :]
        found: list[tuple[str, bytes]] = []
        more = False
        for count, row in enumerate(rows):
            if len(found) == int(limit) or count == _MAX_READ:
                more = True
                break
            found += self._matching(row, asked, caller)
        first, last = (found[0][0], found[-1][0]) if found else (None, None)
        return b'{"object":"list","data":%s,"first_id":%s,"last_id":%s,"has_more":%s}' % (
            array([text for _, text in found]), dump(first), dump(last),
            b"true" if more else b"false",
        )  # fmt: skip

    def _matching(
        self, row: KeptObject, asked: dict[str, str], caller: AuthenticatedRequest
    ) -> Iterator[tuple[str, bytes]]:
        """Yield the id and text of a completion if it has the wanted model and metadata."""
        try:
            made = self._ledger.read(row.entry_id, with_content=False)
            text = self._object(row.id_at_provider, made)
        except (HttpError, EntryArchivedError):
            return
        value = load(text)
        wanted = {
            key[len("metadata[") : -1]: one
            for key, one in asked.items()
            if key.startswith("metadata[") and key.endswith("]")
        }
        if (
            asked.get("model", value.get("model")) == value.get("model")
            and all(value["metadata"].get(key) == one for key, one in wanted.items())
            and caller.identity.session_id in ("", made.metadata["session_id"])
        ):
            yield row.id_at_provider, text

    def _found(self, caller: AuthenticatedRequest, name: str) -> tuple[KeptObject, LedgerEntry]:
        """Return the row of a caller's completion and its ``EXCHANGE``.

        Raises:
            HttpError: 404, the caller has no such completion.
        """
        found = self._door.objects.find(name, STORED_CHAT, owner_of(caller.identity))
        if found is None:
            raise _not_found(name)
        try:
            made = self._ledger.read(found.entry_id, with_content=False)
        except EntryArchivedError as error:
            raise _not_found(name) from error
        if caller.identity.session_id not in ("", made.metadata["session_id"]):
            raise _not_found(name)
        return found, made

    def _asked(self, name: str, made: LedgerEntry) -> dict[str, Any]:
        """Return the request of a completion in the dialect of chat completions.

        Raises:
            HttpError: 404, a part of the request was erased.
        """
        wire = made.metadata["wire"]
        try:
            body: dict[str, Any] = load(call_body(self._ledger, made.id))
            if wire == CHAT.name:
                return body
            call = read_request(wire, body)
            return write_request(CHAT.name, call, model=_model_of(made), max_output_tokens=1)
        except RemitError as error:
            raise _not_found(name) from error

    def _object(self, name: str, made: LedgerEntry) -> bytes:
        """Return the text of a completion, with its present metadata.

        Raises:
            HttpError: 404, a part of the completion was erased.
        """
        wire, labels = made.metadata["wire"], None
        try:
            body = load(call_body(self._ledger, made.id))
            text = call_answer(self._ledger, made.id)
            if wire == CHAT.name:
                labels = body.get("metadata")
            else:
                created = int(datetime.fromisoformat(made.timestamp).timestamp())
                answer = write_answer(
                    CHAT.name, read_reply(wire, text), read_request(wire, body),
                    answer_id=name, created=created, model=_model_of(made),
                )  # fmt: skip
                text = dump(answer)
        except RemitError as error:
            raise _not_found(name) from error
        changed = next(self._changes(made), made)
        if "labels" in changed.metadata:
            labels = self._ledger.read(changed.id).metadata["labels"]
        return set_member(text, ("metadata",), dump(labels if isinstance(labels, dict) else {}))

    def _changes(self, made: LedgerEntry) -> Iterator[LedgerEntry]:
        """Yield the changes of a completion's metadata, the latest first."""
        return self._ledger.query(
            event_type="CONVERSATION_CHANGED", submission_id=made.id, order="desc",
            with_content=False,
        )  # fmt: skip

    async def _delete(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Delete a completion at its provider, then erase the content that only its call shows.

        Raises:
            HttpError: 404, the caller owns no such completion; 502, the provider did not delete its
                copy; 409, some of the content cannot be erased.
        """
        caller = await self._door.caller(scope)
        found, made = await asyncio.to_thread(self._found, caller, name)
        if made.metadata["wire"] == CHAT.name and self._door.has(found.provider_id):
            await self._forget(found.provider_id, name, caller)

        def erase() -> None:
            changes = [change.id for change in self._changes(made)]
            self._ledger.withdraw(
                [*entries_of_call(self._ledger, made), *changes],
                reason=f"DELETE {CHAT.path}/{name}",
                requested_by=caller.identity.name,
                also=lambda tx: forget(tx, found.object_id),
            )

        try:
            await asyncio.to_thread(erase)
        except (ErasureError, EntryArchivedError) as error:
            raise HttpError(409, "archived", error.message) from error
        gone = {"object": "chat.completion.deleted", "id": name, "deleted": True}
        await reply_json(send, gone)

    async def _forget(self, provider_id: str, name: str, caller: AuthenticatedRequest) -> None:
        """Have a provider delete its copy; a provider without such a copy is no error.

        Raises:
            HttpError: 502, the provider did not delete it.
        """
        path = f"{CHAT.path}/{quote(name, safe='')}"
        about = ObjectBody.without_text(STORED_CHATS, {"method": "DELETE", "path": path})
        response = await self._door.change(caller, provider_id, about, method="DELETE", path=path)
        if response.reply is not None and response.reply.status not in _FORGOTTEN:
            said = "The provider did not delete its copy, so nothing is deleted yet."
            raise HttpError(502, "provider_error", said)


def _model_of(made: LedgerEntry) -> str:
    """Return the model that the client named."""
    return str(made.metadata.get("requested_model_id") or made.metadata["model_id"])


def _shown(message: Any, name: str) -> dict[str, Any]:
    """Return a message in the form of the API: with an id, and its parts apart from its text."""
    content = message.get("content")
    parts = content if isinstance(content, list) else None
    return {**message, "id": name, "content": None if parts else content, "content_parts": parts}


def _not_found(name: str) -> HttpError:
    said = (
        f"No stored chat completion has the id {name[:100]}; GET /v1/chat/completions lists those "
        "that this key sent with store: true."
    )
    return HttpError(404, "not_found", said, param="id")
