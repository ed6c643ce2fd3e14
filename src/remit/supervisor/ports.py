"""What the supervisor needs of others."""

from __future__ import annotations

from typing import Protocol

from remit.workorders import EventSink, WorkOrder

__all__ = ["WorkerPort"]


class WorkerPort(Protocol):
    """Someone who executes work orders."""

    async def aexecute(
        self, work_order: WorkOrder, *, on_event: EventSink | None = None
    ) -> WorkOrder:
        """Do the work of a dispatched order."""
        ...
