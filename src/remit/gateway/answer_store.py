"""The port for answers that clients name by an id later: the Responses API."""

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
    """An id that a client was given: a row of ``response_ids``.

    Attributes:
        is_new: whether the row may be made. The row of a conversation exists before its calls; if
            the conversation has been deleted meanwhile, none is made again.
    """

    response_id: str
    owner: str
    session_id: str
    is_new: bool = True


class CannotContinueError(RemitError):
    """What a call goes on from cannot be had any more.

    Args:
        message: what is missing.
        param: the field that names it.
    """

    code = "PREVIOUS_RESPONSE_NOT_FOUND"

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


class TooLongError(CannotContinueError):
    """What a call goes on from is more than any model takes."""

    code = "CONTEXT_LENGTH"


class Keeper(Protocol):
    """What a call has beside its body where its answer is kept under an id."""

    @property
    def polled(self) -> bool:
        """Whether the client gets nothing but an id at first."""
        ...

    async def body_for(self, provider_id: str, *, speaks: bool, window: int | None) -> Body:
        """The body for one provider.

        Args:
            provider_id: which.
            speaks: whether it is sent bodies of this endpoint as they are.
            window: the most tokens that a call of the model can hold; ``None`` where unknown.

        Raises:
            CannotContinueError: what the call goes on from is gone.
        """
        ...

    def ids_ahead(self, to: Candidate) -> Sequence[KeptId]:
        """Ids that the client may hold before the answer is on record."""
        ...

    def on_record(
        self, metadata: dict[str, Any], attempt: Attempt, result: ProviderResponse | Failure
    ) -> Sequence[KeptId]:
        """Add to the metadata of an ``EXCHANGE``; the ids that will stand for it. Never raises."""
        ...
