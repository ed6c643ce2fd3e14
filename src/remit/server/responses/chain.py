"""Recorded turns of a chain, found by the ids that clients were given."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from remit.gateway import CannotContinueError, TooLongError, runs_at_provider
from remit.kernel.json_text import load
from remit.ledger import (
    EntryArchivedError,
    Erased,
    LedgerClient,
    LedgerFormatError,
    is_plain_text,
    parse_entry_id,
)
from remit.server.refusals import HttpError
from remit.server.responses.chain_turn import (
    State,
    Turn,
    place_of,
    removed_items,
    shown_id,
    shown_id_at,
)
from remit.server.responses.items import (
    ErasedItemsError,
    id_of,
    items_of,
    listed,
    output_of,
    portable,
)

_FIND = (
    "SELECT r.entry_id, r.session_id, f.dispatch_entry_id FROM response_ids r "
    "LEFT JOIN in_flight f ON f.dispatch_entry_id = r.entry_id "
    "WHERE r.response_id = ? AND r.owner = ?"
)


MAX_BYTES = 32 * 1024 * 1024
"""Longest content that one call may continue; a short request can name a long chain."""


class Turns:
    """Reader of recorded turns.

    Its methods block: do not call them on the event loop.

    Nothing is written, and nothing is remembered between two calls: each reads the ledger's
    database anew. One instance can be used from several threads.

    Args:
        ledger: holds the turns.
    """

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger

    def find(self, identity: str, owner: str, session_id: str = "") -> Turn | None:
        """Return the turn to which an id leads; ``None`` if the owner has no such id.

        The entry is read without content. The turn is ``out`` while its call runs, ``lost`` if the
        call never ended, else ``ended``. A text that no database can store is no id.

        Args:
            identity: id of a response, item or conversation.
            owner: owner of the id.
            session_id: return only turns of this session; empty for any.

        Raises:
            HttpError: 404, the turn is archived.
            LedgerError: the ledger cannot be read.
        """
        if not is_plain_text(identity):
            return None
        rows = self._ledger.select(_FIND, (identity, owner))
        if not rows or (session_id and rows[0][1] != session_id):
            return None
        entry_id, session, in_flight = rows[0]
        try:
            entry = self._ledger.read(entry_id, with_content=False)
        except EntryArchivedError as error:
            message = "The response of this id was archived and cannot be continued."
            raise HttpError(404, "archived", message) from error
        state: State = "ended"
        if entry.event_type == "DISPATCH":
            state = "out" if in_flight else "lost"
        return Turn(entry, state, session)

    def response(self, identity: str, owner: str, session_id: str = "") -> Turn | None:
        """Return the turn of a response's id; ``None`` for other ids and other owners.

        A turn that has not ended is returned without a check that the id is a response's.

        Args:
            identity: id of the response.
            owner: owner of the id.
            session_id: return only turns of this session; empty for any.

        Raises:
            HttpError: 404, the turn is archived.
            LedgerError: the ledger cannot be read.
        """
        turn = self.find(identity, owner, session_id)
        if turn is not None and turn.state == "ended":
            known = turn.entry.metadata.get("response_id")
            return turn if known == identity else None
        return turn

    def object_of(self, turn: Turn) -> bytes | None:
        """Return the ``response`` object that the client got; ``None`` if there is none.

        Args:
            turn: the turn; its entry is read with content.

        Raises:
            ErasedItemsError: the object was erased.
            LedgerError: the ledger cannot be read.
        """
        exact = self._ledger.exact(turn.entry.id, ("replied", "answer"))
        text = exact.get("replied", exact.get("answer") if turn.native else None)
        if isinstance(text, Erased):
            raise ErasedItemsError
        return text if isinstance(text, bytes) else None

    def kept_by_provider(self, turn: Turn) -> str:
        """Return the id under which the provider stores the response; empty if it does not.

        Args:
            turn: the turn; failed turns, and those of another dialect, have no such id.

        Raises:
            LedgerError: the ledger cannot be read.
            JsonTextError: the recorded answer is not valid JSON.
        """
        meta = turn.entry.metadata
        if turn.failed or not turn.native or meta.get("stored") is False:
            return ""
        if "replied" not in meta:
            return str(meta.get("response_id", ""))
        answer = self._ledger.exact(turn.entry.id, ("answer",)).get("answer")
        if not isinstance(answer, bytes) or type(value := load(answer)) is not dict:
            return ""
        return text_of(value.get("id"))

    def items(self, turn: Turn, removed: Collection[str] = ()) -> tuple[list[bytes], list[bytes]]:
        """Return the input items and the output items of a turn, each as its exact text.

        Args:
            turn: the turn.
            removed: places (:func:`place_of`) of input items that were deleted from a conversation.
                If one was erased, an empty text is returned for it, else the item.

        Returns:
            Two lists; a failed turn has no output.

        Raises:
            ErasedItemsError: another item was erased.
            LedgerError: the ledger cannot be read.
            JsonTextError: the recorded input or answer is not valid JSON.
        """
        meta = turn.entry.metadata
        inputs = next((name for name in ("items", "asked") if name in meta), "prompt")
        output = "replied" if "replied" in meta else "answer"
        exact = self._ledger.exact(turn.entry.id, (inputs, output))
        asked = exact.get(inputs)
        if removed and isinstance(asked, list):
            asked = [
                b"" if isinstance(item, Erased) and place_of(turn, at) in removed else item
                for at, item in enumerate(asked)
            ]
        given = items_of(asked)
        if turn.failed:
            return given, []
        return given, output_of(exact.get(output))

    def bring_tools(self, last: Turn) -> bool:
        """Return True if an item of a chain brought a tool that the provider runs, or was erased.

        The items of a chain with such a tool are sent whole, so the last turn's input shows it.

        Args:
            last: the newest turn.

        Raises:
            LedgerError: the ledger cannot be read.
            JsonTextError: the recorded input or answer is not valid JSON.
        """
        exact = self._ledger.exact(last.entry.id, ("prompt", "answer"))
        try:
            items = [*items_of(exact.get("prompt")), *output_of(exact.get("answer"))]
        except ErasedItemsError:
            return True
        return runs_at_provider([load(item) for item in items if b"tools" in item or b"\\" in item])

    def chain(self, last: Turn) -> list[Turn]:
        """Return a turn and all earlier turns of its chain, oldest first.

        The entries are read without content, one query each.

        Args:
            last: the newest turn.

        Raises:
            LedgerFormatError: a turn continues one that is not older.
            EntryNotFoundError: an earlier turn does not exist, or is archived.
            LedgerError: the ledger cannot be read.
        """
        turns = [last]
        while turns[-1].before:
            entry = self._ledger.read(turns[-1].before, with_content=False)
            if (parse_entry_id(entry.id) or 0) >= (parse_entry_id(turns[-1].entry.id) or 0):
                raise LedgerFormatError(
                    f"{turns[-1].entry.id} continues {entry.id}, which is not older.",
                    next_step="Run `remit ledger verify` to see what is damaged.",
                )
            turns.append(Turn(entry, "ended", last.session_id))
        turns.reverse()
        return turns

    def unfolded(self, last: Turn, provider_id: str, *, speaks: bool) -> list[bytes]:
        """Return the items of a whole chain that may be sent to a provider.

        Args:
            last: last turn of the chain.
            provider_id: id of the provider.
            speaks: True if the provider has this endpoint.

        Returns:
            Exact texts, oldest first. Deleted items are left out; another provider gets no
            reasoning and no ids.

        Raises:
            CannotContinueError: an item was erased.
            TooLongError: the items are longer than ``MAX_BYTES``.
            LedgerError: the ledger cannot be read, or an earlier turn is archived.
            JsonTextError: a recorded input or answer is not valid JSON.
        """
        found: list[bytes] = []
        size = 0
        chain = self.chain(last)
        removed, places = removed_items(chain)
        for turn in chain:
            try:
                items = self._identified(turn, places)
            except ErasedItemsError as error:
                raise CannotContinueError(
                    "A response that this one continues was erased.",
                    "previous_response_id",
                ) from error
            same = turn.provider_id == provider_id and turn.native == speaks
            left = [item for identity, item in items if identity not in removed]
            size += sum(map(len, left))
            check_size(size, "previous_response_id")
            found += portable(left, same_provider=same)
        return found

    def _identified(
        self, turn: Turn, removed: Collection[str] = (), *, with_output: bool = True
    ) -> list[tuple[str, bytes]]:
        """Return the items of a turn that are not erased, each with the id that lists show.

        A response that its caller deleted has no items in its conversation.
        """
        try:
            given, said = self.items(turn, removed)
        except ErasedItemsError:
            if "conversation_id" in turn.entry.metadata and self._is_withdrawn(turn):
                return []
            raise
        items = [(shown_id(turn, at, item), item) for at, item in enumerate(given) if item]
        return items + [(id_of(item), item) for item in said if with_output]

    def _is_withdrawn(self, turn: Turn) -> bool:
        """Return True if its caller deleted a turn."""
        session_id = turn.entry.metadata.get("session_id")
        erasures = self._ledger.query(
            event_type="ERASURE", submission_id=session_id, after=turn.entry.id, with_content=False
        )
        return any(turn.entry.id in one.metadata.get("withdrawn", ()) for one in erasures)

    def in_conversation(self, last: Turn) -> list[bytes]:
        """Return the items of a conversation, oldest first, in the form of lists, each with an id.

        Deleted items are left out.

        Args:
            last: last turn of the conversation.

        Raises:
            ErasedItemsError: an item was erased that was not deleted.
            TooLongError: the items of several turns are longer than ``MAX_BYTES``.
            LedgerError: the ledger cannot be read, or an earlier turn is archived.
            JsonTextError: a recorded input or answer is not valid JSON.
        """
        chain = self.chain(last)
        removed, places = removed_items(chain)
        listed = self.listed(chain, places, with_last_output=True)
        return [item for item in listed if id_of(item) not in removed]

    def places_of(self, last: Turn, item_id: str) -> list[str]:
        """Return the places (:func:`place_of`) at which an item was added to a conversation.

        Empty for an item of a call: it belongs to that call, and is deleted with it.

        Args:
            last: last turn of the conversation.
            item_id: id of the item, as lists show it.

        Raises:
            ErasedItemsError: an item was erased that was not deleted.
            LedgerError: the ledger cannot be read, or an earlier turn is archived.
        """
        chain = self.chain(last)
        _, removed = removed_items(chain)
        return [
            place
            for turn in chain
            for place, item in self._put_in(turn, removed)
            if place not in removed and shown_id_at(place, item) == item_id
        ]

    def unshown(self, last: Turn, places: Collection[str] = ()) -> tuple[list[str], list[bytes]]:
        """Return the entries and texts of removed items that a conversation shows nowhere else.

        Args:
            last: last turn of the conversation.
            places: further places (:func:`place_of`) to count as removed.

        Returns:
            The ids of the entries that hold the texts, and the texts, each once.

        Raises:
            ErasedItemsError: an item was erased that was not deleted.
            LedgerError: the ledger cannot be read, or an earlier turn is archived.
        """
        chain = self.chain(last)
        _, removed = removed_items(chain)
        gone, left = {*removed, *places}, set[bytes]()
        entries: dict[bytes, list[str]] = {}
        for turn in chain:
            for place, item in self._put_in(turn, gone):
                if place not in gone:
                    left.add(item)
                elif item:
                    entries.setdefault(item, []).append(turn.entry.id)
        texts = [text for text in entries if text not in left]
        return list({name: None for text in texts for name in entries[text]}), texts

    def _put_in(self, turn: Turn, removed: Collection[str]) -> list[tuple[str, bytes]]:
        """Return (place, exact text) of each item that a change of a conversation added."""
        if "items" not in turn.entry.metadata:
            return []
        items = self._ledger.exact(turn.entry.id, ("items",))["items"]
        found = []
        for at, item in enumerate(items if isinstance(items, list) else [items]):
            place = place_of(turn, at)
            if isinstance(item, Erased) and place not in removed:
                raise ErasedItemsError
            found.append((place, item if isinstance(item, bytes) else b""))
        return found

    def listed(
        self, turns: Sequence[Turn], removed: Collection[str] = (), *, with_last_output: bool
    ) -> list[bytes]:
        """Return the items of turns in the form of lists, oldest first, each with an id.

        A turn of a conversation whose response the caller deleted has no items.

        Args:
            turns: the turns, oldest first.
            removed: places of deleted items, which may be erased; one that is not erased is
                returned, and the caller leaves it out.
            with_last_output: False to leave out the output of the last turn.

        Raises:
            ErasedItemsError: an item was erased that was not deleted.
            TooLongError: the items of several turns are longer than ``MAX_BYTES``.
            LedgerError: the ledger cannot be read.
            JsonTextError: a recorded input or answer is not valid JSON.
        """
        found: list[bytes] = []
        size = 0
        for turn in turns:
            with_output = with_last_output or turn is not turns[-1]
            items = self._identified(turn, removed, with_output=with_output)
            size += sum(len(item) for _, item in items)
            if len(turns) > 1:
                check_size(size, "conversation")
            found += [listed(item, identity) for identity, item in items]
        return found

    def item(self, identity: str, owner: str, session_id: str = "") -> tuple[Turn, bytes] | None:
        """Return the turn and exact text of an output item.

        Args:
            identity: id of the item.
            owner: owner of the id.
            session_id: return only turns of this session; empty for any.

        Returns:
            ``None`` if the owner has no such item, its call has not ended or failed, or an item of
            the turn was erased.

        Raises:
            HttpError: 404, the turn is archived.
            LedgerError: the ledger cannot be read.
            JsonTextError: the recorded input or answer is not valid JSON.
        """
        turn = self.find(identity, owner, session_id)
        if turn is None or turn.state != "ended":
            return None
        try:
            _, said = self.items(turn)
        except ErasedItemsError:
            return None
        for item in said:
            if id_of(item) == identity:
                return turn, item
        return None


def check_size(size: int, param: str) -> None:
    """Raise TooLongError if ``size`` exceeds ``MAX_BYTES`` (32 MiB).

    Args:
        size: bytes from the record for one request.
        param: the field to name in the error.

    Raises:
        TooLongError: the size is above the limit.
    """
    if size > MAX_BYTES:
        raise TooLongError(
            f"{param} continues more than {MAX_BYTES:,} bytes; leave out older items.", param
        )


def text_of(value: Any) -> str:
    """Return ``value`` if it is a string, else an empty string.

    Args:
        value: any value.
    """
    return value if type(value) is str else ""
