"""The settings of orders that workers do from a queue."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from remit.kernel.settings.section import Section


class QueueSettings(Section):
    """``[worker.queues.NAME]``: limits of the orders of a queue, over all workers.

    0 is no limit. Starts per minute are spread evenly: 60 is one a second.
    """

    at_once: int = Field(0, ge=0, description="orders of it that run at once")
    key_at_once: int = Field(0, ge=0, description="orders of one key that run at once")
    model_at_once: int = Field(0, ge=0, description="orders of one model that run at once")
    key_per_minute: int = Field(0, ge=0, description="orders of one key that begin in a minute")
    model_per_minute: int = Field(0, ge=0, description="orders of one model that begin in a minute")


class OrderSettings(Section):
    """``[worker.orders]``: how ``remit worker`` does submitted orders."""

    engine: Literal["table", "dbos"] = Field(
        "table", description="what has orders begin: the table itself, or DBOS (extra cluster)"
    )
    at_once: int = Field(8, ge=1, description="orders that one worker runs side by side")
    max_attempts: int = Field(
        5, ge=1, description="attempts until an order is set aside, where it names no number"
    )
    retry_base_s: float = Field(2.0, ge=0, description="first wait before another attempt")
    retry_max_s: float = Field(300.0, ge=0, description="longest wait before another attempt")
    drain_s: float = Field(
        60.0, ge=0, description="turns may end within this time after SIGTERM; the rest are gone "
        "on with by other workers"
    )  # fmt: skip
