"""The keeper of an answer, which a client finds later by an id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from remit.gateway.values import Attempt, Candidate, Failure
from remit.kernel.errors import RemitError
from remit.ledger import Transaction
from remit.providers import Body, ProviderResponse

_KEEP = (
    "INSERT INTO response_ids (response_id, owner, session_id, entry_id) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (response_id) DO UPDATE SET owner = excluded.owner, "
    "session_id = excluded.session_id, entry_id = excluded.entry_id"
)
_MOVE = "UPDATE response_ids SET owner = ?, session_id = ?, entry_id = ? WHERE response_id = ?"


class KeptId(NamedTuple):
    """An id that a client has received: a row of ``response_ids``.

    Immutable.

    Attributes:
        response_id: the id of a response or conversation.
        owner: the owner's name, such as ``key:KEY-…``.
        session_id: the session of the call.
        is_new: whether the row may be inserted. The row of a conversation exists before its calls.
            If the conversation has been deleted, no row is inserted again.
    """

    response_id: str
    owner: str
    session_id: str
    is_new: bool = True


def write_ids(tx: Transaction, ids: Sequence[tuple[KeptId, str]]) -> None:
    """Write the rows of ids in a transaction.

    Args:
        tx: the transaction.
        ids: each id with the entry that records its answer.

    Raises:
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """
    new = [(*kept[:3], entry_id) for kept, entry_id in ids if kept.is_new]
    moved = [(*kept[1:3], entry_id, kept.response_id) for kept, entry_id in ids if not kept.is_new]
    tx.execute_many(_KEEP, new)
    tx.execute_many(_MOVE, moved)


class CannotContinueError(RemitError):
    """A response or conversation that a call continues no longer exists.

    Args:
        message: names what is missing.
        param: the request field that names it.

    Attributes:
        code: ``PREVIOUS_RESPONSE_NOT_FOUND``; a subclass may have another.
        param: the request field.
    """

    code = "PREVIOUS_RESPONSE_NOT_FOUND"

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


class TooLongError(CannotContinueError):
    """The history that a call continues exceeds every model's context window."""

    code = "CONTEXT_LENGTH"


class Keeper(Protocol):
    """Storage of one call's answer under an id, with the history that the call continues.

    The gateway calls :meth:`body_for` for each candidate, :meth:`ids_ahead` before sending, and
    :meth:`on_record` for each recorded attempt.
    """

    @property
    def polled(self) -> bool:
        """True if the client first receives only an id and polls for the answer."""
        ...

    @property
    def reads_record(self) -> bool:
        """True if the body to send may contain recorded content: a history or items by id."""
        ...

    async def body_for(self, provider_id: str, *, speaks: bool, window: int | None) -> Body:
        """Return the body to send to one provider, with the history that the call continues.

        Args:
            provider_id: the provider.
            speaks: whether the provider accepts bodies of this endpoint unchanged.
            window: the model's context window in tokens; None if unknown.

        Raises:
            CannotContinueError: the response or conversation that the call continues is gone.
            LedgerError: the history cannot be read.
        """
        ...

    def ids_ahead(self, to: Candidate) -> Sequence[KeptId]:
        """Return the ids that the client may receive before the answer is recorded."""
        ...

    def on_record(
        self, metadata: dict[str, Any], attempt: Attempt, result: ProviderResponse | Failure
    ) -> Sequence[KeptId]:
        """Add to the metadata of an ``EXCHANGE`` and return the ids that will stand for it.

        Never raises.

        Args:
            metadata: the metadata; changed in place.
            attempt: the attempt.
            result: its answer or failure.
        """
        ...
