"""The queue of orders: work for workers, in tables of the ledger's database.

Owns the tables ``orders`` and ``order_starts`` and the entries ``ORDER_SUBMITTED``,
``ORDER_CHANGED`` and ``ORDER_ENDED``. Does not execute orders (``remit.runtime`` does). A row
contains ids, numbers and states; the task and the result are in the ledger. A row and its entry
change in one transaction. Start reading at :class:`OrderQueue`; ``attempts.py`` ends attempts, and
an engine (``table.py``, ``dbos_engine.py``) hands out orders.
"""

from remit.agents.queue.attempts import (
    backoff_ms as backoff_ms,
    cancel_attempt as cancel_attempt,
    complete_attempt as complete_attempt,
    fail_attempt as fail_attempt,
    park_attempt as park_attempt,
)
from remit.agents.queue.entries import subject_of as subject_of
from remit.agents.queue.order_key import bind_to_key as bind_to_key, principal_of as principal_of
from remit.agents.queue.projection import ORDERS as ORDERS, row_matches_ledger as row_matches_ledger
from remit.agents.queue.queue import OrderQueue as OrderQueue
from remit.agents.queue.rows import Engine as Engine, Taker as Taker, wake as wake
from remit.agents.queue.submission import (
    OrderState as OrderState,
    OrderStatus as OrderStatus,
    Row as Row,
    Submission as Submission,
    no_such_order as no_such_order,
)
from remit.agents.queue.table_engine import TableEngine as TableEngine
from remit.agents.queue.worker_leases import Seats as Seats, new_seat as new_seat
from remit.kernel.errors import ConflictError, NotFoundError

# Programs may catch these earlier names until version 1.0.
OrderStateError = ConflictError
OrderNotFoundError = NotFoundError
