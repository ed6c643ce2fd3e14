"""A recorded turn of a chain, and the positions of its items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from remit.kernel.json_text import dump
from remit.ledger import LedgerEntry
from remit.providers.dialects import ModelCall, response_object
from remit.server.responses.items import id_of

NATIVE = "openai.responses"
_LOST = "The process that ran this response died before its answer was recorded."
_BROKEN = "The answer was interrupted."
State = Literal["out", "lost", "ended"]


@dataclass(frozen=True, slots=True)
class Turn:
    """A recorded turn: its input and its answer.

    Immutable.

    The properties read the metadata of :attr:`entry`; the content is read by :class:`Turns`.

    Attributes:
        entry: the ``EXCHANGE``, or the entry that added items to a conversation; for a call without
            an answer, the ``DISPATCH``. Without content.
        state: ``out`` while the call runs, ``lost`` if its process died before the answer, else
            ``ended``.
        session_id: session of the turn.
    """

    entry: LedgerEntry
    state: State
    session_id: str

    @property
    def provider_id(self) -> str:
        """Id of the provider that answered; empty if there is none."""
        return str(self.entry.metadata.get("provider_id", ""))

    @property
    def native(self) -> bool:
        """True if the provider was called in the dialect of Responses, without a translation."""
        return self.entry.metadata.get("wire") == NATIVE

    @property
    def failed(self) -> bool:
        """True if the recorded call did not succeed; an interrupted answer counts as a failure.

        False for a call without an ``EXCHANGE``, whose :attr:`state` tells.
        """
        return bool(self.entry.metadata.get("outcome", "success") != "success")

    @property
    def before(self) -> str:
        """Id of the entry that this turn continues; empty for the first turn."""
        return str(self.entry.metadata.get("continues", ""))


def place_of(turn: Turn, at: int) -> str:
    """Return the recorded name of a position in the items of a turn: ``ENTRY_ID/POSITION``.

    Args:
        turn: the turn.
        at: position of the item in the turn, from 0.
    """
    return f"{turn.entry.id}/{at}"


def shown_id(turn: Turn, at: int, item: bytes) -> str:
    """Return an item's own id; for an item without an id, the id that lists show.

    Args:
        turn: the turn.
        at: position of the item in the turn, from 0.
        item: JSON text of the item.
    """
    return shown_id_at(place_of(turn, at), item)


def shown_id_at(place: str, item: bytes) -> str:
    """Return an item's own id; for an item without an id, ``msg_`` and its place.

    The place loses ``LED-``, and its ``/`` becomes ``_``.

    Args:
        place: the item's position, from :func:`place_of`.
        item: JSON text of the item.
    """
    return id_of(item) or f"msg_{place.removeprefix('LED-').replace('/', '_')}"


def removed_items(chain: Sequence[Turn]) -> tuple[set[str], set[str]]:
    """Return the ids and the places of the items that were deleted from a conversation.

    Places have the form of :func:`place_of`. The sets are not paired: an item of a call has only an
    id. Both sets are empty if nothing was deleted.

    Args:
        chain: the turns of the conversation.
    """
    said = [turn.entry.metadata for turn in chain]
    ids = {each for one in said for each in one.get("removed", ())}
    places = set[str]()
    for one in said:
        at = one.get("removed_at", [])
        places.update(
            [at] if isinstance(at, str) else at
        )  # An earlier version wrote a single place.
    return ids, places


def unanswered(turn: Turn, identity: str, status: str) -> bytes:
    """Return the ``response`` object of a call that has no recorded answer.

    With a recorded error code, the error has that code in lower case and says that the answer was
    interrupted. Without one, it has the code ``server_error`` and says that the process died.

    Args:
        turn: the turn.
        identity: id of the response.
        status: status of the object; ``failed`` adds an error.

    Returns:
        JSON text.
    """
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
        recorded = str(entry.metadata.get("error_code", "")).lower()
        error = {"code": recorded or "server_error", "message": _BROKEN if recorded else _LOST}
    return dump({**head, "status": status, "error": error})
