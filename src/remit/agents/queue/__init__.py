"""The queue of orders: work for workers, in tables of the ledger's database.

Owns the tables ``orders`` and ``order_starts`` and the entries ``ORDER_SUBMITTED``,
``ORDER_CHANGED`` and ``ORDER_ENDED``. Does not execute orders (``remit.runtime`` does). A row
contains ids, numbers and states; the task and the result are in the ledger. A row and its entry
change in one transaction. Start reading at :class:`OrderQueue`; ``attempts.py`` ends attempts, and
an engine (``table.py``, ``dbos_engine.py``) hands out orders.
"""

from remit.agents.queue.attempts import cancel_attempt, complete_attempt, fail_attempt, park_attempt
from remit.agents.queue.entries import subject_of
from remit.agents.queue.order_key import bind_to_key, principal_of
from remit.agents.queue.projection import ORDERS, row_matches_ledger
from remit.agents.queue.queue import OrderQueue
from remit.agents.queue.rows import wake
from remit.agents.queue.submission import OrderState, OrderStatus, Row, Submission, no_such_order
from remit.agents.queue.table_engine import TableEngine
from remit.agents.queue.worker_leases import Seats, new_seat
from remit.kernel.errors import ConflictError, NotFoundError

__all__ = [
    "ORDERS",
    "OrderQueue",
    "OrderState",
    "OrderStatus",
    "Row",
    "Seats",
    "Submission",
    "TableEngine",
    "bind_to_key",
    "cancel_attempt",
    "complete_attempt",
    "fail_attempt",
    "new_seat",
    "no_such_order",
    "park_attempt",
    "principal_of",
    "row_matches_ledger",
    "subject_of",
    "wake",
]

# Programs may catch these earlier names until version 1.0.
OrderStateError = ConflictError
OrderNotFoundError = NotFoundError
