"""Work that is submitted for workers, from a queue in the ledger's own database.

What is to be done, and what became of it, is on record; the queue's row holds ids, numbers and
states. Each step commits both or neither.
"""

from remit.agents.queue.attempts import Attempts
from remit.agents.queue.audit import check_orders, is_on_record
from remit.agents.queue.keys import for_key, principal_of
from remit.agents.queue.order import OrderState, OrderStatus, Row, Submission, no_such_order
from remit.agents.queue.queue import OrderQueue, subject_of
from remit.agents.queue.rows import Engine, Taker, wake
from remit.agents.queue.seats import Seats, WorkerStatus, new_seat
from remit.agents.queue.table import TableEngine
from remit.kernel.errors import ConflictError, NotFoundError

__all__ = [
    "Attempts",
    "Engine",
    "OrderQueue",
    "OrderState",
    "OrderStatus",
    "Row",
    "Seats",
    "Submission",
    "TableEngine",
    "Taker",
    "WorkerStatus",
    "check_orders",
    "for_key",
    "is_on_record",
    "new_seat",
    "no_such_order",
    "principal_of",
    "subject_of",
    "wake",
]

# Earlier names, for programs that catch them; they end with version 1.0.
OrderStateError = ConflictError
OrderNotFoundError = NotFoundError
