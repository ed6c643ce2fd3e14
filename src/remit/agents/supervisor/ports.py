"""What the supervisor needs of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from remit.agents.supervisor.attention import Candidate
from remit.agents.workorders import EventSink, WorkOrder

__all__ = ["ContextPort", "Lease", "LeasePort", "WorkerPort"]


class WorkerPort(Protocol):
    """Executes work orders."""

    async def aexecute(
        self,
        work_order: WorkOrder,
        *,
        on_event: EventSink | None = None,
        guard: Callable[[], None] | None = None,
        fresh: bool = False,
    ) -> WorkOrder:
        """Do the work of an order, or resume it."""
        ...

    async def acancel(self, work_order: WorkOrder) -> WorkOrder:
        """End an order that will not be resumed."""
        ...


class Lease(Protocol):
    """The right to work on something alone, for as long as it is renewed."""

    @property
    def stop_requested(self) -> bool:
        """Whether the holder was asked to stop."""
        ...

    def check(self) -> None:
        """Raise when the lease is no longer held; called before what cannot be undone."""
        ...


class LeasePort(Protocol):
    """Makes sure that only one process works on something."""

    def hold(
        self, name: str, *, wait_s: float, on_stop: Callable[[], None] | None = None
    ) -> AbstractAsyncContextManager[Lease]:
        """Hold ``name`` while the block runs."""
        ...


class ContextPort(Protocol):
    """What the tier above pushes down: the supervisor itself may not read it (SPEC 2)."""

    def pushed(self, session_id: str) -> Sequence[Candidate]:
        """What other sessions and adopted policy say that may matter now."""
        ...

    def required(self, contract_id: str, session_id: str) -> Mapping[str, Any]:
        """What a contract's ``required_context`` asks for; empty when it asks for nothing."""
        ...
