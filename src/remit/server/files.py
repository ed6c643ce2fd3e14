"""``/v1/files`` in both dialects: the provider stores files, and only the owner sees a file."""

from __future__ import annotations

from functools import partial
from urllib.parse import quote

from remit.gateway import owner_of
from remit.gateway.provider_objects import KeptObject, keep
from remit.ledger import LedgerClient, LedgerEntry, Transaction
from remit.providers import ProviderResponse
from remit.providers.wire import FILES, ObjectBody
from remit.server.answers import reply_upstream
from remit.server.asgi import Receive, Scope, Send, shape_of
from remit.server.object_lists import list_own
from remit.server.paths import Handler, ObjectHandler, paths_of
from remit.server.provider_objects import ObjectChange, ProviderDoor, id_in, with_query
from remit.server.upload import read_form


class Files:
    """The endpoints of files.

    Uploads and deletions are recorded; reads are not. A deletion also erases the recorded upload.
    The handlers raise HttpError for refusals, which the application answers.

    Args:
        door: passes requests to providers, and knows the owners.
    """

    def __init__(self, door: ProviderDoor) -> None:
        self._door = door

    def routes(self) -> dict[tuple[str, str], Handler]:
        """Return the handlers that upload and list files, keyed by (method, path).

        Each serves both dialects; the paths have the prefixes of both.
        """
        return {
            (method, path): handler
            for path in paths_of("/files")
            for method, handler in (("POST", self._create), ("GET", self._list))
        }

    def templates(self) -> dict[tuple[str, str], ObjectHandler]:
        """Return the handlers that show, delete and download a file, keyed by (method, path
        template).
        """
        found: dict[tuple[str, str], ObjectHandler] = {}
        for path in paths_of("/files"):
            found["DELETE", f"{path}/{{id}}"] = self._delete
            for tail in ("", "/content"):
                found["GET", f"{path}/{{id}}{tail}"] = partial(self._relay, tail)
        return found

    async def _create(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = await self._door.caller(scope)
        endpoint = FILES[shape_of(scope)]
        provider_id = self._door.provider_for(endpoint)
        body, upload = await read_form(self._door.settings, endpoint, caller, receive, _any)

        def keep_file(tx: Transaction, exchange_id: str, answer: ProviderResponse) -> None:
            file_id = id_in(answer.reply.body) if answer.reply is not None else ""
            owner = owner_of(caller.identity)
            keep(tx, [KeptObject(file_id, "file", provider_id, owner, exchange_id)])

        path = with_query(endpoint.path, scope)
        response = await self._door.change(
            caller, provider_id, body, path=path, on_record=ObjectChange(keep_file), upload=upload
        )
        await reply_upstream(send, response)

    async def _list(self, scope: Scope, receive: Receive, send: Send) -> None:
        await list_own(self._door, FILES[shape_of(scope)], "file", scope, send)

    async def _relay(
        self, tail: str, file_id: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Send a file's description, or with the tail ``/content`` the file, to its owner."""
        caller = await self._door.caller(scope)
        endpoint = FILES[shape_of(scope)]
        found = await self._door.find(file_id, "file", caller, endpoint)
        path = f"{endpoint.path}/{quote(file_id, safe='')}{tail}"
        await self._door.relay(found.provider_id, with_query(path, scope), caller, send)

    async def _delete(self, file_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        caller = await self._door.caller(scope)
        endpoint = FILES[shape_of(scope)]
        found = await self._door.find(file_id, "file", caller, endpoint)
        path = f"{endpoint.path}/{quote(file_id, safe='')}"
        body = ObjectBody.without_text(endpoint, {"method": "DELETE", "path": path})
        response = await self._door.delete(
            caller, found, body, path=with_query(path, scope), entries=_entries_of
        )
        await reply_upstream(send, response)


async def _any(fields: list[tuple[str, str]]) -> None:
    """Allow any text fields."""


def _entries_of(ledger: LedgerClient, made: LedgerEntry) -> list[str]:
    """Return the id of the entry of a file's upload; empty if a call or a batch made the file.

    The entry of a call or batch has content of its own, which a deletion of the file must not
    erase.
    """
    is_upload = made.metadata.get("wire") in [endpoint.name for endpoint in FILES.values()]
    return [made.id] if is_upload else []
