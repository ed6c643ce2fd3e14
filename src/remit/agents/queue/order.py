"""Orders as the queue knows them: what is asked for, its row, and how it stands."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, get_args

from remit.agents.workorders import Principal
from remit.kernel.errors import InvalidInputError, NotFoundError, excerpt
from remit.kernel.json_text import sound_text
from remit.ledger import require_plain_text

__all__ = [
    "ENDED", "LIVE", "STATES", "OrderState", "OrderStatus",
    "Row", "Submission", "no_such_order", "order_id_of",
]  # fmt: skip

LIVE = ("ready", "delayed", "held", "running", "waiting")
"""Of an order that workers do: it may begin; it is not due yet; a limit holds it back; it runs; it
waits for a person."""

ENDED = {"COMPLETED": "completed", "FAILED": "failed", "CANCELLED": "cancelled"}
"""States of an order that has ended, by the decision of its ``ORDER_ENDED``."""

OrderState = Literal[
    "ready", "delayed", "held", "running", "waiting", "paused", "failed", "completed", "cancelled"
]
STATES: tuple[OrderState, ...] = get_args(OrderState)
"""Every state. A ``failed`` order is set aside until somebody retries or cancels it."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_ID = re.compile(r"ORD-[0-9A-Z]{8,64}")
_MOST_PRIORITY = 1000
_MOST_ATTEMPTS = 1000
_LAST_YEAR = 9998  # of what is due: clocks that differ a little still show it
_MOST_LIMIT = 10**12


class Row(NamedTuple):
    """A row of the table ``orders``: ids, numbers and states, never content."""

    order_id: str
    seq: int
    queue: str
    kind: str
    agent_id: str
    session_id: str
    key_id: str
    model_id: str
    priority: int
    max_attempts: int
    state: str
    due_ms: int
    attempts: int
    worker: str
    stop: int
    held_by: str
    waits_for: str
    announced: int

    @property
    def request_ids(self) -> tuple[str, ...]:
        """The requests that it waits for."""
        return tuple(self.waits_for.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """Work for a worker.

    Attributes:
        agent_id: who is to do it.
        task: what is to be done; content.
        kind: what sort of work it is; ``turn`` is one turn of the agent, ``replay`` a replay of
            held-out exchanges.
        queue: where it waits; workers take orders of the queues that they are told.
        priority: from -1000 to 1000; a lower number goes first, as with ``nice``.
        due: not before then.
        key_id: the virtual key for which it is done, see :func:`remit.agents.queue.for_key`; empty:
            none.
        model_id: whose limits per model.
        user_id: see :meth:`remit.runtime.Agent.session`; ``subject_id`` too.
        tokens: most tokens of its session.
        usd: most US dollars of its session.
        max_attempts: attempts until it is set aside; as configured when left out.

    Raises:
        InvalidInputError: it cannot be asked for so.
    """

    agent_id: str
    task: str
    kind: str = "turn"
    queue: str = "default"
    priority: int = 0
    due: datetime | None = None
    key_id: str = ""
    model_id: str = ""
    user_id: str = ""
    subject_id: str = ""
    tokens: int | None = None
    usd: float | None = None
    max_attempts: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.task, str):
            raise InvalidInputError(f"The task is a text, not a {type(self.task).__name__}.")
        object.__setattr__(self, "task", sound_text(self.task))
        if not self.task.strip():
            raise InvalidInputError("The task is blank.", next_step="Say what is to be done.")
        require_plain_text("agent_id", self.agent_id)
        Principal(self.user_id, self.subject_id)  # raises InvalidInputError
        if not self.agent_id or len(self.agent_id) > 200:
            raise InvalidInputError(f"{excerpt(self.agent_id)!r} cannot be an agent's id.")
        for what, name in (("queue", self.queue), ("kind", self.kind)):
            if not _NAME.fullmatch(name):
                raise InvalidInputError(
                    f"{excerpt(name)!r} cannot name a {what}.",
                    next_step="Use letters, digits, '_', '-' and '.', at most 100.",
                )
        if type(self.priority) is not int or abs(self.priority) > _MOST_PRIORITY:
            raise InvalidInputError(
                f"priority is {self.priority!r}; it takes whole numbers from -1000 to 1000."
            )
        most = self.max_attempts
        if most is not None and (type(most) is not int or not 1 <= most <= _MOST_ATTEMPTS):
            raise InvalidInputError(f"max_attempts is {most!r}; it takes 1 to {_MOST_ATTEMPTS}.")
        if self.due is not None and self.due.tzinfo is None:
            raise InvalidInputError("due is a time without a zone.", next_step="Say of which zone.")
        if self.due is not None and self.due.year > _LAST_YEAR:
            raise InvalidInputError(f"due is after the year {_LAST_YEAR}.")
        for name, limit, kinds in (
            ("tokens", self.tokens, (int,)),
            ("usd", self.usd, (int, float)),
        ):
            if limit is not None and not (type(limit) in kinds and 0 <= limit <= _MOST_LIMIT):
                raise InvalidInputError(f"{name} is {limit!r}; it takes a number from 0 to 10^12.")


@dataclass(frozen=True, slots=True)
class OrderStatus:
    """How an order stands.

    Attributes:
        state: see :data:`STATES`.
        attempts: how often it was begun, as far as it did not end well.
        due: not before then.
        worker: who runs it.
        waits_for: the requests for approval that it waits for.
        held_by: the limit that holds it back, such as ``key:…``.
        submitted: time of its ``ORDER_SUBMITTED``; ``ended``: of its last ``ORDER_ENDED``.
        turn_entry_id: the ``TURN_RECORDED`` that answers it.
        figures: what one of another kind than ``turn`` came to.
        stopping: whether somebody asked it to stop, and it has not yet.
    """

    order_id: str
    state: OrderState
    queue: str
    kind: str
    agent_id: str
    session_id: str
    priority: int
    attempts: int
    max_attempts: int
    submitted: str
    submitted_entry_id: str
    key_id: str = ""
    model_id: str = ""
    due: str = ""
    worker: str = ""
    held_by: str = ""
    waits_for: tuple[str, ...] = ()
    ended: str = ""
    ended_entry_id: str = ""
    turn_entry_id: str = ""
    figures: Mapping[str, Any] | None = None
    error_code: str = ""
    stopping: bool = False

    @property
    def cursor(self) -> str:
        """Its place in a list of orders, see :meth:`OrderQueue.list`."""
        if self.state in ("completed", "cancelled"):
            return self.ended_entry_id
        return f"{self.priority}/{self.submitted_entry_id}"

    @property
    def has_ended(self) -> bool:
        """Whether it is done, set aside or given up."""
        return self.state in ENDED.values()

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def order_id_of(agent_id: str, key: str = "") -> str:
    """A new order's id: the same for the same ``key`` of an agent, else random."""
    if not key:
        digest = secrets.token_bytes(10)
    else:
        require_plain_text("key", key)
        digest = hashlib.sha256(f"{agent_id}\0{key}".encode()).digest()[:10]
    return f"ORD-{base64.b32encode(digest).decode()}"


def no_such_order(order_id: str) -> NotFoundError:
    """Return the error of an id that no order has."""
    return NotFoundError(
        f"There is no order {order_id!r}.", next_step="`remit order list` shows what there is."
    )


def require_id(order_id: str) -> None:
    """Refuse what cannot be an order's id.

    Raises:
        NotFoundError: it cannot.
    """
    if not _ID.fullmatch(order_id):
        raise no_such_order(order_id)
