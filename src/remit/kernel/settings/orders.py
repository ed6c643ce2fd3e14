"""The settings of orders that workers do from a queue."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from remit.kernel.settings.section import Section


class QueueSettings(Section):
    """``[worker.queues.NAME]``: limits of the orders of a queue, over all workers together.

    The number of running orders is limited in all, for each key and for each model; the starts per
    minute, for each key and model. 0 is no limit. Starts are spread evenly: 60 is one a second.
    """

    at_once: int = Field(0, ge=0, description="maximum number of running orders of the queue")
    key_at_once: int = Field(0, ge=0, description="maximum number of running orders for each key")
    model_at_once: int = Field(
        0, ge=0, description="maximum number of running orders for each model"
    )
    key_per_minute: int = Field(
        0, ge=0, description="maximum number of orders started per minute for each key"
    )
    model_per_minute: int = Field(
        0, ge=0, description="maximum number of orders started per minute for each model"
    )


class OrderSettings(Section):
    """``[worker.orders]``: how ``remit worker`` does submitted orders.

    The fields are the engine that dispatches them (``dbos`` needs the extra ``cluster``), the
    number at once of each worker, the number of attempts unless an order states its own, the waits
    between them, and the time to finish after SIGTERM, after which other workers continue.
    """

    engine: Literal["table", "dbos"] = Field(
        "table",
        description="how orders are dispatched: from the orders table, or by DBOS (extra cluster)",
    )
    at_once: int = Field(8, ge=1, description="maximum number of concurrent orders of one worker")
    max_attempts: int = Field(
        5, ge=1, description="default number of attempts before an order fails"
    )
    retry_base_s: float = Field(2.0, ge=0, description="first wait before a retry")
    retry_max_s: float = Field(300.0, ge=0, description="longest wait before a retry")
    drain_s: float = Field(
        60.0,
        ge=0,
        description="time to finish turns after SIGTERM; other workers continue the rest"
    )  # fmt: skip
