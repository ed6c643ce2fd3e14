"""Turns of a chain as they are on record, found by the id that the client was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from remit.gateway.keeping import CannotContinueError, TooLongError
from remit.kernel.json_text import dump, load
from remit.ledger import (
    EntryArchivedError,
    Erased,
    LedgerClient,
    LedgerEntry,
    LedgerFormatError,
    is_plain_text,
    parse_entry_id,
)
from remit.providers.dialects import ModelCall
from remit.providers.dialects.responses.answer import response_object
from remit.server.refusals import HttpError
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
NATIVE = "openai.responses"

_LOST = "The process that ran this response ended before its answer was on record."

_BROKEN = "The answer broke off."

MOST_BYTES = 32 * 1024 * 1024
"""Of the items that one call goes on from: a short call may name much that is on record."""

State = Literal["out", "lost", "ended"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: what was given, and what was said.

    Attributes:
        entry: the ``EXCHANGE``, or what else put items into a conversation; of a call without an
            answer yet its ``DISPATCH``.
        state: ``out`` while it is under way, ``lost`` where its process ended before its answer.
        session_id: the session that it belongs to.
    """

    entry: LedgerEntry
    state: State
    session_id: str

    @property
    def provider_id(self) -> str:
        """Who answered."""
        return str(self.entry.metadata.get("provider_id", ""))

    @property
    def native(self) -> bool:
        """Whether the provider was spoken to in this dialect."""
        return self.entry.metadata.get("wire") == NATIVE

    @property
    def failed(self) -> bool:
        """Whether it has no answer to go on from."""
        return bool(self.entry.metadata.get("outcome", "success") != "success")

    @property
    def before(self) -> str:
        """The entry that this turn went on from; empty where it began."""
        return str(self.entry.metadata.get("continues", ""))


class Turns:
    """Reads turns. Blocks: not for the event loop.

    Args:
        ledger: where they are on record.
    """

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger

    def find(self, identity: str, owner: str, session_id: str = "") -> Turn | None:
        """The turn that an id stands for, of an owner; of one session, where one is named.

        Raises:
            HttpError: it was archived.
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
            message = "What this id stands for was archived: nothing can go on from it."
            raise HttpError(404, "archived", message) from error
        state: State = "ended"
        if entry.event_type == "DISPATCH":
            state = "out" if in_flight else "lost"
        return Turn(entry, state, session)

    def response(self, identity: str, owner: str, session_id: str = "") -> Turn | None:
        """:meth:`find`, for the id of a response: items have ids too."""
        turn = self.find(identity, owner, session_id)
        if turn is not None and turn.state == "ended":
            known = turn.entry.metadata.get("response_id")
            return turn if known == identity else None
        return turn

    def object_of(self, turn: Turn) -> bytes | None:
        """The ``response`` object as the client got it; ``None`` where there is none.

        Raises:
            ErasedItemsError: it has been erased.
        """
        exact = self._ledger.exact(turn.entry.id, ("replied", "answer"))
        text = exact.get("replied", exact.get("answer") if turn.native else None)
        if isinstance(text, Erased):
            raise ErasedItemsError
        return text if isinstance(text, bytes) else None

    def kept_by_provider(self, turn: Turn) -> str:
        """The id under which its provider keeps the response; empty where it does not."""
        meta = turn.entry.metadata
        if turn.failed or not turn.native or meta.get("stored") is False:
            return ""
        if "replied" not in meta:
            return str(meta.get("response_id", ""))
        answer = self._ledger.exact(turn.entry.id, ("answer",)).get("answer")
        if not isinstance(answer, bytes) or type(value := load(answer)) is not dict:
            return ""
        return text_of(value.get("id"))

    def items(self, turn: Turn) -> tuple[list[bytes], list[bytes]]:
        """What was given and what was said, each item as exact text.

        Raises:
            ErasedItemsError: some of it has been erased.
        """
        meta = turn.entry.metadata
        inputs = next((name for name in ("items", "asked") if name in meta), "prompt")
        output = "replied" if "replied" in meta else "answer"
        exact = self._ledger.exact(turn.entry.id, (inputs, output))
        given = items_of(exact.get(inputs))
        if turn.failed:
            return given, []
        return given, output_of(exact.get(output))

    def chain(self, last: Turn) -> list[Turn]:
        """Return a turn and all that it continues, oldest first.

        Raises:
            LedgerFormatError: a turn continues one that is not older.
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
        """The items of a whole chain, as one provider may see them.

        Raises:
            CannotContinueError: some of it has been erased, or it is too long.
        """
        found: list[bytes] = []
        size = 0
        chain = self.chain(last)
        removed = _removed(chain)
        for turn in chain:
            try:
                items = self._identified(turn)
            except ErasedItemsError as error:
                raise CannotContinueError(
                    "A response that this one goes on from has been erased.",
                    "previous_response_id",
                ) from error
            same = turn.provider_id == provider_id and turn.native == speaks
            left = [item for identity, item in items if identity not in removed]
            size += sum(map(len, left))
            check_size(size, "previous_response_id")
            found += portable(left, same_provider=same)
        return found

    def _identified(self, turn: Turn, *, with_output: bool = True) -> list[tuple[str, bytes]]:
        """The items of a turn, each with the id that lists show."""
        given, said = self.items(turn)
        number = turn.entry.id.removeprefix("LED-")
        items = [(id_of(item) or f"msg_{number}_{at}", item) for at, item in enumerate(given)]
        return items + [(id_of(item), item) for item in said if with_output]

    def in_conversation(self, last: Turn) -> list[bytes]:
        """The items of a conversation as lists show them, oldest first.

        Raises:
            ErasedItemsError: some of them have been erased.
        """
        chain = self.chain(last)
        removed = _removed(chain)
        return [
            item for item in self.listed(chain, with_last_output=True) if id_of(item) not in removed
        ]

    def listed(self, turns: Sequence[Turn], *, with_last_output: bool) -> list[bytes]:
        """The items of turns as lists show them, each with an id.

        Raises:
            ErasedItemsError: some of them have been erased.
            TooLongError: they are too long.
        """
        found: list[bytes] = []
        size = 0
        for turn in turns:
            with_output = with_last_output or turn is not turns[-1]
            items = self._identified(turn, with_output=with_output)
            size += sum(len(item) for _, item in items)
            if len(turns) > 1:
                check_size(size, "conversation")
            found += [listed(item, identity) for identity, item in items]
        return found

    def item(self, identity: str, owner: str, session_id: str = "") -> tuple[Turn, bytes] | None:
        """The output item of an id, and the turn that it is of."""
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
    """Whether so many bytes from the record may be put together for one request.

    Raises:
        TooLongError: they may not.
    """
    if size > MOST_BYTES:
        raise TooLongError(f"{param} stands for more than {MOST_BYTES:,} bytes.", param)


def _removed(chain: Sequence[Turn]) -> set[str]:
    """Ids of the items that were taken out of a conversation."""
    return {each for turn in chain for each in turn.entry.metadata.get("removed", ())}


def unanswered(turn: Turn, identity: str, status: str) -> bytes:
    """The ``response`` object of a call without an answer on record, as far as it is known."""
    entry = turn.entry
    model = str(entry.metadata.get("model_id", "")) or entry.reason.rpartition("/")[2]
    head = response_object(
        ModelCall(model, [], other={"background": True}),
        answer_id=identity,
        created=int(datetime.fromisoformat(entry.timestamp).timestamp()),
        model=model,
    )
    error = None
    if status == "failed":
        code = str(entry.metadata.get("error_code", "server_error")).lower()
        error = {"code": code, "message": _LOST if code == "server_error" else _BROKEN}
    return dump({**head, "status": status, "error": error})


def text_of(value: Any) -> str:
    """A text, or an empty one for anything else."""
    return value if type(value) is str else ""
