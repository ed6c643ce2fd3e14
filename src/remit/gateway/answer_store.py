"""The port through which calls store answers under ids that clients name later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from remit.kernel.errors import RemitError
from remit.providers import Body

if TYPE_CHECKING:
    from remit.gateway.call import Attempt, Candidate, Failure
    from remit.providers import ProviderResponse

__all__ = ["CannotContinueError", "Keeper", "KeptId", "TooLongError"]


class KeptId(NamedTuple):
    """An id that a client has received: a row of ``response_ids``.

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


class CannotContinueError(RemitError):
    """A response or conversation that a call continues no longer exists.

    Args:
        message: names what is missing.
        param: the request field that names it.
    """

    code = "PREVIOUS_RESPONSE_NOT_FOUND"

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


class TooLongError(CannotContinueError):
    """The history that a call continues exceeds every model's context window."""

    code = "CONTEXT_LENGTH"


class Keeper(Protocol):
    """Storage of one call's answer under an id, with the history that the call continues."""

    @property
    def polled(self) -> bool:
        """True if the client first receives only an id and polls for the answer."""
        ...

    async def body_for(self, provider_id: str, *, speaks: bool, window: int | None) -> Body:
        """Return the body to send to one provider, with the history that the call continues.

        Args:
            provider_id: the provider.
            speaks: whether the provider accepts bodies of this endpoint unchanged.
            window: the model's context window in tokens; None if unknown.

        Raises:
            CannotContinueError: the response or conversation that the call continues is gone.
        """
        ...

    def ids_ahead(self, to: Candidate) -> Sequence[KeptId]:
        """Return the ids that the client may receive before the answer is recorded."""
        ...

    def on_record(
        self, metadata: dict[str, Any], attempt: Attempt, result: ProviderResponse | Failure
    ) -> Sequence[KeptId]:
        """Add to the metadata of an ``EXCHANGE`` and return the ids that will stand for it. Never
        raises.
        """
        ...
