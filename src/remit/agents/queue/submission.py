"""The values of the queue: submissions, rows and statuses."""

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

ACTIVE_STATES = ("ready", "delayed", "held", "running", "waiting")
"""States of an order that workers process: ready, not due yet, held by a limit, running, or waiting
for a person."""

END_STATES = {"COMPLETED": "completed", "FAILED": "failed", "CANCELLED": "cancelled"}
"""States of ended orders, keyed by the decision of their last ``ORDER_ENDED``."""

OrderState = Literal[
    "ready", "delayed", "held", "running", "waiting", "paused", "failed", "completed", "cancelled"
]
STATES: tuple[OrderState, ...] = get_args(OrderState)
"""All states. A ``failed`` order is set aside until a person retries or cancels it."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_ID = re.compile(r"ORD-[0-9A-Z]{8,64}")
_MAX_PRIORITY = 1000
_MAX_ATTEMPTS = 1000
_MAX_DUE_YEAR = 9998  # Clocks that differ a little stay below the year 10000.
_MAX_LIMIT = 10**12


class Row(NamedTuple):
    """A row of the table ``orders``: ids, numbers and states, no content.

    Immutable; a row is changed by :func:`remit.agents.queue.rows.change`.

    Attributes:
        order_id: the order.
        seq: sequence number of its ``ORDER_SUBMITTED``.
        queue: its queue.
        kind: ``turn``, ``replay`` or another kind.
        agent_id: the agent that does the work.
        session_id: the session of its latest or next attempt.
        key_id: its virtual key; empty for none.
        model_id: the model whose limits apply; may be empty.
        priority: lower numbers start first.
        max_attempts: number of attempts before the order is set aside.
        state: one of :data:`STATES`; completed and cancelled orders have no row.
        due_ms: earliest start by the database's clock, milliseconds; 0 for at once.
        attempts: number of attempts that began and count.
        worker: lease name of the worker that runs it; empty if none does.
        stop: 1 if it was asked to stop, otherwise 0.
        held_by: the full lane that holds it; empty unless held.
        waits_for: ids of the requests for which it waits, separated by spaces.
        announced: number of announcements to DBOS.
    """

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
        """The ids of the ``APPROVAL_REQUESTED`` entries for which the order waits; may be empty."""
        return tuple(self.waits_for.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """Work for a worker.

    Immutable. ``task`` is stored with lone surrogates replaced.

    Attributes:
        agent_id: the agent that does the work.
        task: the work in words; content.
        kind: ``turn`` for a turn of the agent, ``replay`` for a replay of held-out exchanges.
        queue: the queue; a worker serves chosen queues.
        priority: from -1000 to 1000; lower numbers start first, as with ``nice``.
        due: earliest start, with a time zone, before the year 9999; None to start at once.
        key_id: the virtual key on whose behalf the order runs, set by
            :func:`remit.agents.queue.bind_to_key`; empty for none.
        model_id: the model whose limits apply to the order; may be empty.
        user_id: the user of its session, see :meth:`remit.runtime.Agent.session`.
        subject_id: the data subject of its session.
        tokens: token limit of its session, at most 10¹²; None for none.
        usd: limit of its session in US dollars, at most 10¹²; None for none.
        max_attempts: number of attempts before the order is set aside, from 1 to 1,000; None for
            the configured one.

    Raises:
        InvalidInputError: a field is out of range, or not of its type or form.
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
            raise InvalidInputError(f"The task is a {type(self.task).__name__}, not a text.")
        object.__setattr__(self, "task", sound_text(self.task))
        if not self.task.strip():
            raise InvalidInputError("The task is blank.", next_step="Describe the work.")
        require_plain_text("agent_id", self.agent_id)
        Principal(self.user_id, self.subject_id)  # raises InvalidInputError
        if not self.agent_id or len(self.agent_id) > 200:
            raise InvalidInputError(f"{excerpt(self.agent_id)!r} is not an agent's id.")
        for field, name in (("queue", self.queue), ("kind", self.kind)):
            if not _NAME.fullmatch(name):
                raise InvalidInputError(
                    f"{excerpt(name)!r} is not the name of a {field}.",
                    next_step="Use at most 100 letters, digits, '_', '-' and '.'.",
                )
        if type(self.priority) is not int or abs(self.priority) > _MAX_PRIORITY:
            raise InvalidInputError(
                f"priority is {self.priority!r}, not a whole number from -1000 to 1000."
            )
        limit = self.max_attempts
        if limit is not None and (type(limit) is not int or not 1 <= limit <= _MAX_ATTEMPTS):
            raise InvalidInputError(
                f"max_attempts is {limit!r}, not a whole number from 1 to {_MAX_ATTEMPTS}."
            )
        if self.due is not None and self.due.tzinfo is None:
            raise InvalidInputError("due has no time zone.", next_step="Add the time zone.")
        if self.due is not None and self.due.year > _MAX_DUE_YEAR:
            raise InvalidInputError(f"due is after the year {_MAX_DUE_YEAR}.")
        for name, value, types in (
            ("tokens", self.tokens, (int,)),
            ("usd", self.usd, (int, float)),
        ):
            if value is not None and not (type(value) in types and 0 <= value <= _MAX_LIMIT):
                raise InvalidInputError(f"{name} is {value!r}, not a number from 0 to 10^12.")


@dataclass(frozen=True, slots=True)
class OrderStatus:
    """The present state of an order.

    Immutable; later changes of the order are not seen.

    Attributes:
        order_id: the order.
        state: present state of the order.
        queue: its queue.
        kind: ``turn``, ``replay`` or another kind.
        agent_id: the agent that does the work.
        session_id: the session of its latest or next attempt.
        priority: lower numbers start first.
        attempts: number of attempts, without those that ended in waiting for a person.
        max_attempts: number of attempts before the order is set aside.
        submitted: time of its ``ORDER_SUBMITTED``.
        submitted_entry_id: id of that entry.
        key_id: virtual key of the order; empty for none.
        model_id: model whose limits apply; may be empty.
        due: earliest start, in ISO 8601; empty unless delayed.
        worker: lease name of the worker that runs the order; empty if none does.
        held_by: the limit that holds the order, such as ``default/key_at_once/KEY-…``, or empty.
        waits_for: ids of the requests for approval for which the order waits.
        ended: time of its latest ``ORDER_ENDED``; empty if it has not ended.
        ended_entry_id: id of that entry; may be empty.
        turn_entry_id: id of the ``TURN_RECORDED`` that answers the order; may be empty.
        figures: numbers and ids that an order of another kind than ``turn`` produced; may be None.
        error_code: code of the failure that set the order aside; empty for none.
        stopping: True if the order was asked to stop and has not stopped yet.
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
        """The position of the order in :meth:`OrderQueue.list`, for its ``after``.

        The id of the ``ORDER_ENDED`` of a completed or cancelled order; else ``PRIORITY/`` and the
        id of the ``ORDER_SUBMITTED``.
        """
        if self.state in ("completed", "cancelled"):
            return self.ended_entry_id
        return f"{self.priority}/{self.submitted_entry_id}"

    @property
    def has_ended(self) -> bool:
        """True if the order is completed, cancelled or set aside."""
        return self.state in END_STATES.values()

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes by name, as JSON data."""
        return asdict(self)


def order_id_of(agent_id: str, key: str = "") -> str:
    """Return the id of a new order, ``ORD-`` and 16 characters.

    Derived from agent and key, so equal ones give the same id; random if the key is empty.

    Args:
        agent_id: the agent that does the work.
        key: idempotency key of the work; may be empty.

    Raises:
        InvalidInputError: the key contains a NUL character or a lone surrogate.
    """
    if not key:
        digest = secrets.token_bytes(10)
    else:
        require_plain_text("key", key)
        digest = hashlib.sha256(f"{agent_id}\0{key}".encode()).digest()[:10]
    return f"ORD-{base64.b32encode(digest).decode()}"


def no_such_order(order_id: str) -> NotFoundError:
    """Return (not raise) a NotFoundError for an id that no order has."""
    return NotFoundError(
        f"There is no order {order_id!r}.", next_step="Run `remit order list` to list the orders."
    )


def require_id(order_id: str) -> None:
    """Raise NotFoundError if a text is not in the form of an order's id.

    The order itself is not looked up.
    """
    if not _ID.fullmatch(order_id):
        raise no_such_order(order_id)
