"""One run of a foreign agent: its session, its order, its key, its tools."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, Self, TypeVar

from remit.agents import AttachedOrder, WorkFailedError, WorkParkedError
from remit.agents.tools import Tool, ToolResult
from remit.agents.workorders import WorkOrder
from remit.gateway.auth import AgentTokens
from remit.kernel.errors import InvalidInputError
from remit.kernel.json_text import JsonTextError, load_unique
from remit.kernel.loops import home, run_blocking, start_background
from remit.ledger import LedgerWriteError
from remit.runtime import Conversation

_T = TypeVar("_T")
_DAY_S = 86_400.0  # for which a run's key is good, where its order has no time of its own
_CANCELLED = (asyncio.CancelledError, KeyboardInterrupt)


class Run:
    """A foreign agent at work on one order; a context manager, also in async code.

    At the end of the block the order is completed, with what :meth:`finish` was given; it has
    failed where the block raised; and it stays open where a tool waits for a person.

    """

    def __init__(
        self, session: Conversation, task: str, key: str | None, url: str, tokens: AgentTokens
    ) -> None:
        self._waiting: dict[str, tuple[str, ...]] = {}
        self._agent_id = session.agent_id
        self._opening = session.attached(task, key=key)
        self._url = url
        self._tokens = tokens
        self._stack = AsyncExitStack()
        self._attached: AttachedOrder | None = None
        self._order: WorkOrder | None = None
        self._output: Any = None

    def __enter__(self) -> Self:
        run_blocking(self._begin())
        return self

    async def __aenter__(self) -> Self:
        await _elsewhere(self._begin())
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        run_blocking(self._end(error))

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        await asyncio.shield(_elsewhere(self._end(error)))

    # -- what a framework is given -----------------------------------------------------------

    @property
    def order(self) -> WorkOrder:
        """The order that is worked on; with its state and cost once it has ended."""
        return self._order or self._working.order

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Ids of the requests for approval that calls of tools wait for."""
        return tuple(one for requests in self._waiting.values() for one in requests)

    @property
    def session_id(self) -> str:
        """The session that the run is part of."""
        return self.order.session_id

    @property
    def api_key(self) -> str:
        """A key for this run alone: calls with it are its agent's, in its session and order."""
        order = self.order
        return self._tokens.issue(
            self._agent_id,
            work_order_id=order.wo_id,
            session_id=order.session_id,
            tier="ho1",
            ttl_s=order.constraints.timeout_seconds or _DAY_S,
        )

    @property
    def openai(self) -> dict[str, Any]:
        """``base_url`` and ``api_key`` of OpenAI-shaped clients."""
        return {"base_url": f"{self._url}/v1", "api_key": self.api_key}

    @property
    def anthropic(self) -> dict[str, Any]:
        """``base_url`` and ``api_key`` of Anthropic-shaped clients."""
        return {"base_url": self._url, "api_key": self.api_key}

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools that the run may use, by :meth:`call` or :meth:`acall`."""
        return self._working.tools

    def needs_approval(self, tool_id: str) -> bool:
        """Whether a person must release each call of a tool."""
        return tool_id in self.order.constraints.tools_requiring_approval

    async def acall(self, tool_id: str, arguments: Any, call_id: str) -> ToolResult:
        """Use a tool, on record; a call that ended is given back from the record.

        Args:
            tool_id: which of :attr:`tools`; any other is refused, on record.
            arguments: by name, as JSON values; or their JSON text, as models give it.
            call_id: the model's own id of the call, the same whenever the same call is meant.

        Raises:
            WorkParkedError: a person has to decide first (``remit approve``); then call again.
            WorkFailedError: it had begun before, its outcome is unknown, and its policy is
                ``fail``.
            InvalidInputError: ``call_id`` is empty or holds a slash.
        """
        loop = asyncio.get_running_loop()  # on which tools that are coroutines run
        return await _elsewhere(self._use(tool_id, arguments, call_id, loop))

    def call(self, tool_id: str, arguments: Any, call_id: str) -> ToolResult:
        """:meth:`acall` for callers without an event loop."""
        return run_blocking(self._use(tool_id, arguments, call_id))

    def finish(self, output: Any) -> None:
        """What the run came to, as JSON: the order's result, recorded at the end of the block."""
        self._output = output

    # -- on Remit's own loop, whichever the framework uses -----------------------------------

    @property
    def _working(self) -> AttachedOrder:
        if self._attached is None:
            raise InvalidInputError(
                "The run has not begun, or has ended.", next_step="Use it within its `with` block."
            )
        return self._attached

    async def _begin(self) -> None:
        self._attached = await self._stack.enter_async_context(self._opening)
        self._order = self._attached.order

    async def _use(
        self,
        tool_id: str,
        arguments: Any,
        call_id: str,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> ToolResult:
        home.set(loop)
        if isinstance(arguments, str):
            with suppress(JsonTextError):  # else it is recorded as it came, and refused
                arguments = load_unique(arguments or "{}", repair=True)
        try:
            result = await self._working.use(tool_id, arguments, call_id)
        except WorkParkedError as parked:
            self._waiting[call_id] = parked.request_ids
            raise
        self._waiting.pop(call_id, None)
        return result

    async def _end(self, error: BaseException | None) -> None:
        working = self._working
        try:
            if isinstance(error, (WorkParkedError, LedgerWriteError)):
                return
            if error is None and self._waiting:
                return
            self._order = await working.end(self._output, _failure(error))
        finally:
            self._attached = None
            await self._stack.aclose()


def _failure(error: BaseException | None) -> WorkFailedError | None:
    if error is None or isinstance(error, WorkFailedError):
        return error
    if isinstance(error, _CANCELLED):
        return WorkFailedError("cancelled", "the run was cancelled")
    return WorkFailedError("agent_failed", f"{type(error).__name__}: {error}")


async def _elsewhere(coroutine: Coroutine[Any, Any, _T]) -> _T:
    return await asyncio.wrap_future(start_background(coroutine))
