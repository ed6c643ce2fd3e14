"""Agents: a contract, tools and limits under a name, and the sessions in which they answer."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from remit.agents import HO1Executor, OutputT, UserMessage
from remit.agents.queue import Submission, bind_to_key
from remit.agents.sessions import SessionManager
from remit.agents.supervisor import ClassificationRules, Responder, Services, TurnResult
from remit.agents.tools import Context, Tool, ToolDispatcher
from remit.agents.workorders import (
    NOBODY,
    Caller,
    EventSink,
    Principal,
    session_usage,
    sub_session_id,
)
from remit.contracts import ContractLoader
from remit.gateway.budget import BudgetScope
from remit.kernel.errors import InvalidInputError
from remit.kernel.installed_files import InstalledFiles
from remit.kernel.loops import blocking
from remit.ledger import Transaction
from remit.runtime.agent_options import AgentShape, check_limit
from remit.runtime.agent_record import agent_record
from remit.runtime.agent_session import Conversation
from remit.runtime.attention_context import KernelContext, exclusion_policy
from remit.runtime.background_write import write_soon
from remit.runtime.installation import root_tools
from remit.runtime.order_handle import OrderHandle
from remit.runtime.subagents import AgentTool, check_callers, handoff_tool

if TYPE_CHECKING:
    from remit.runtime.runtime import Runtime

_Asked = TypeVar("_Asked")


class Agent(Generic[OutputT]):
    """An agent of a root; made by :meth:`remit.Runtime.agent`.

    Its sessions are in the ledger.

    :meth:`session` holds a conversation, :meth:`run` answers one message in a new session, and
    :meth:`submit` leaves the work to a worker. :meth:`as_tool` and :meth:`as_handoff` give the
    agent to other agents. An agent has no state of its own, so it may be used from several threads
    and for any number of sessions, until its runtime is closed.

    Args:
        runtime: the open root.
        shape: the author's choices.
        contracts: the loader of the agent's contracts.
        own: tools that the author gives by value.
        shares_sessions: see :meth:`remit.Runtime.agent`.

    Attributes:
        agent_id: the agent's name in the record.
        runtime: the open root.

    Raises:
        UnknownToolError: a tool that the agent names does not exist.
        ToolError: two tools have the same id.
    """

    def __init__(
        self,
        runtime: Runtime,
        shape: AgentShape,
        contracts: ContractLoader,
        own: Sequence[Tool],
        *,
        shares_sessions: bool,
    ) -> None:
        root, ledger, settings = runtime.root, runtime.ledger, runtime.settings
        self.runtime = runtime
        self._shape = shape
        self.agent_id = shape.agent_id
        self._contracts, self._own = contracts, own
        wanted = set(shape.answer.tools) - {tool.tool_id for tool in own}
        admin = root_tools(root, ledger, runtime.loaded)
        self._tools = ToolDispatcher(
            [*(tool for tool in admin if tool.tool_id in wanted), *own],
            settings.tools,
            runtime.secrets,
        )
        self._tools.tools(shape.answer.tools)
        context = KernelContext(
            root, ledger, settings, shape.agent_id, shares_sessions=shares_sessions
        )
        worker = HO1Executor(
            runtime.gateway,
            runtime.ledger.scoped(tier="ho1"),
            runtime.budgeter if settings.budget.mode != "off" else None,
            self._tools,
            contracts,
            settings.worker,
            agent_id=shape.agent_id,
            agent_class=shape.agent_class,
            model=shape.model,
            session_usage=functools.partial(session_usage, ledger.scoped(tier="ho2")),
            on_request=runtime.approvals.announce,
            enforce=settings.budget.mode == "enforce",
            context_tokens=shape.context_tokens,
        )
        targets = [tool.handoff for tool in own if isinstance(tool.handoff, Responder)]
        handoffs = {to.agent_id: to for to in targets}
        self._responder = Responder(shape.agent_id, shape.answer, worker, context, handoffs)

    def __repr__(self) -> str:
        return f"Agent({self.agent_id!r})"

    @property
    def tools(self) -> Sequence[str]:
        """Ids of the tools that the agent may use, tools of MCP servers and handoffs included."""
        return self._shape.answer.tools

    @property
    def model(self) -> tuple[str, str]:
        """Provider id and model id that answer; the provider is empty if the model is a route."""
        return self._shape.model or self.runtime.default_model

    def of_package(self, package_id: str) -> Agent:
        """Mark this agent as brought by a package, and return the same agent.

        Sessions that begin afterwards record the package's id in place of the instructions. The
        call has no effect once the agent has begun a session.

        Args:
            package_id: id of the package.
        """
        self._shape = replace(self._shape, package_id=package_id)
        return self

    def session(
        self,
        session_id: str | None = None,
        *,
        user: str = "",
        subject_id: str = "",
        tokens: int | None = None,
        usd: float | None = None,
    ) -> Conversation[OutputT]:
        """Begin a new session, or continue a recorded session.

        A new session writes ``SESSION_START`` and its limits in one transaction. In a running event
        loop the write happens in the background, and the first turn waits for it. An error of that
        write is then raised by the first turn.

        Args:
            session_id: the session to continue, ended or not; a new one if left out.
            user: the user of a new session, whose budget (`remit budget set --user`) also pays. The
                id is recorded in plain and cannot be erased.
            subject_id: the person whom the content of a new session is about, as `remit ledger
                erase --subject` takes it. The id is not recorded.
            tokens: token limit of a new session; the agent's, else the configured limit (0: none),
                if left out.
            usd: limit of a new session in US dollars; the agent's if left out.

        Returns:
            The conversation; leaving it as a context manager ends the session.

        Raises:
            NotFoundError: the ledger has no such session, or the session is another agent's or was
                archived.
            InvalidInputError: a limit, user or subject is given with ``session_id``, whether or not
                there is such a session; or the session's id, a limit (tokens from 1, dollars from
                0), user or subject is invalid.
            LedgerError: the ledger cannot be read, or written without an event loop.
        """
        session = self._manager(session_id, Principal(user, subject_id))
        if session_id is None:
            return self._conversation(session, self._start(session, tokens, usd))
        if tokens is not None or usd is not None or user or subject_id:
            raise InvalidInputError(
                "The limits and the user of a session are set when it begins.",
                next_step="Omit them here; to change limits, run `remit budget set`.",
            )
        session.require()
        return self._conversation(session)

    def sub_session(self, call: Context[Any]) -> Conversation:
        """Return the session in which the agent answers a tool call of another agent.

        Each call has a session of its own, whose id follows from the call's idempotency key. A new
        session is recorded with the agent's own limits, on behalf of the same user as the caller's.
        In a running event loop the write happens in the background, as for :meth:`session`.

        Args:
            call: the context of the tool call, with the caller's session and order.

        Raises:
            ToolError: the agent is already in the chain of callers, or more than five agents wait.
            NotFoundError: another agent answered the call before, or its session was archived.
            LedgerError: the ledger cannot be read, or written without an event loop.
        """
        caller = Caller(call.session_id, call.work_order_id, call.agent_id, call.idempotency_key)
        callers = (caller, *call.principal.callers)
        check_callers(self.agent_id, callers)
        session = self._manager(
            sub_session_id(call.idempotency_key), replace(call.principal, callers=callers)
        )
        if session.has_begun():
            return self._conversation(session)
        return self._conversation(session, self._start(session, None, None))

    def keyed_session(
        self,
        session_id: str,
        principal: Principal,
        tokens: int | None,
        usd: float | None,
        about: Mapping[str, Any],
    ) -> Conversation[OutputT]:
        """Begin or continue a session whose id is given, for a schedule's tick or an order.

        A new session writes ``SESSION_START``, as for :meth:`session`; ``principal``, ``tokens``,
        ``usd`` and ``about`` apply only to a new one.

        Args:
            session_id: id of the session, which the caller derives from the tick or order.
            principal: the person or key on whose behalf the session runs.
            tokens: token limit of a new session; the agent's if ``None``.
            usd: limit of a new session in US dollars; the agent's if ``None``.
            about: metadata for the ``SESSION_START`` of a new session.

        Raises:
            InvalidInputError: the session's id or a limit (tokens from 1, dollars from 0) is
                invalid.
            NotFoundError: the session is another agent's, or was archived.
            LedgerError: the ledger cannot be read, or written without an event loop.
        """
        session = self._manager(session_id, principal)
        starting = None if session.has_begun() else self._start(session, tokens, usd, about)
        return self._conversation(session, starting)

    def as_tool(self, *, name: str = "", description: str = "") -> Tool:
        """Return a tool with which another agent has this agent do a task.

        Pass the tool in ``tools=`` of the other agent. Each call is a session of its own, linked to
        its caller's session in the record. The cost counts against the budgets of both agents and
        is part of the caller's cost. If a tool of this agent waits for a person, the caller waits
        too. After a crash the same session continues, and nothing is paid twice. The tool's only
        argument is ``task``, a text, and its result is the answer, which is awaited for at most
        ``worker.timeout_s`` seconds.

        Args:
            name: the tool's name; the agent's id if left out. In the tool's id, other characters
                than ``A-Za-z0-9_-`` become ``_``, and 64 characters remain.
            description: tells the calling model when to use the tool; the agent's instructions if
                left out.

        Raises:
            ToolError: the name or description is not valid.
        """
        about = description or str(self._shape.answer.input.get("instructions", ""))
        longest = self.runtime.settings.worker.timeout_s
        sub_agent = AgentTool(self, self._tools.tools(self.tools))
        return sub_agent.tool(name or self.agent_id, about, longest, self._taking_deps)

    def as_handoff(self, *, description: str = "") -> Tool:
        """Return a tool with which another agent hands its session over to this agent.

        Pass the tool in ``tools=`` of the other agent. This agent answers the rest of the session,
        beginning with the current turn, within the same budgets. The tool call records the reason,
        and each order's plan names the agent that answers.

        Args:
            description: tells the model when to hand over; the agent's instructions if left out.

        Raises:
            InvalidInputError: this agent has a planner, which can plan only its own sessions.
            ToolError: the agent's id cannot be a tool id.
        """
        if self._shape.planner is not None:
            raise InvalidInputError(
                f"{self.agent_id} has a planner, so it cannot take over a session.",
                next_step="Use as_tool(), or an agent without a planner.",
            )
        about = description or str(self._shape.answer.input.get("instructions", ""))
        return handoff_tool(self._responder, about, self._taking_deps)

    def _manager(self, session_id: str | None, principal: Principal = NOBODY) -> SessionManager:
        return SessionManager(
            self.runtime.ledger.scoped(tier="ho2"),
            session_id,
            agent_id=self._shape.agent_id,
            agent_class=self._shape.agent_class,
            principal=principal,
        )

    def _conversation(
        self, session: SessionManager, starting: Callable[[], Awaitable[None]] | None = None
    ) -> Conversation:
        runtime, shape = self.runtime, self._shape
        files = InstalledFiles(runtime.root.path)
        services = Services(
            agent=self._responder,
            ledger=runtime.ledger.scoped(tier="ho2"),
            session=session,
            config=shape.supervisor,
            leases=runtime.leases,
            wait_s=runtime.settings.leases.session_wait_s,
            output=shape.output,
            planner=shape.planner,
            model=shape.model,
            work_order_tokens=runtime.settings.budget.work_order_tokens,
            agent_class=shape.agent_class,
            next_best=runtime.gateway.next_best,
            exclusion_policy=functools.partial(exclusion_policy, files),
            rules=functools.partial(ClassificationRules.installed, files),
            starting=starting,
        )
        return Conversation(services, self._taking_deps, runtime.ledger)

    @overload
    async def arun(
        self, message: UserMessage, *, output_type: None = None, on_event: EventSink | None = None,
        user: str = "", subject_id: str = "", deps: Any = None,
    ) -> TurnResult[OutputT]: ...  # fmt: skip

    @overload
    async def arun(
        self, message: UserMessage, *, output_type: type[_Asked],
        on_event: EventSink | None = None, user: str = "", subject_id: str = "", deps: Any = None,
    ) -> TurnResult[_Asked]: ...  # fmt: skip

    @overload
    async def arun(
        self, message: UserMessage, *, output_type: Any, on_event: EventSink | None = None,
        user: str = "", subject_id: str = "", deps: Any = None,
    ) -> TurnResult[Any]: ...  # fmt: skip

    async def arun(
        self,
        message: UserMessage,
        *,
        output_type: Any = None,
        on_event: EventSink | None = None,
        user: str = "",
        subject_id: str = "",
        deps: Any = None,
    ) -> TurnResult[Any]:
        """Answer a single message in a new session, end the session, and return the turn.

        A failed turn is returned with its ``error_code``. A turn that waits for a person is
        returned in that state. The session is ended then too, and if the turn raises an error. Open
        its ``session_id`` by :meth:`session` to continue the turn after the decision, which opens
        the session again.

        Args:
            message: see :meth:`Conversation.turn`.
            output_type: see :meth:`Conversation.turn`.
            on_event: see :meth:`Conversation.turn`.
            user: see :meth:`session`.
            subject_id: see :meth:`session`.
            deps: see :meth:`Conversation.turn`.

        Raises:
            RemitError: an error of :meth:`session`, :meth:`Conversation.turn` or
                :meth:`Conversation.end`.
        """
        async with self.session(user=user, subject_id=subject_id) as session:
            result: TurnResult[Any] = await session.aturn(
                message, output_type=output_type, on_event=on_event, deps=deps
            )
            return result

    run = blocking(arun)

    async def asubmit(
        self,
        task: str,
        *,
        queue: str = "default",
        priority: int = 0,
        due: datetime | None = None,
        key: str = "",
        by: str = "local operator",
        for_key: str = "",
        user: str = "",
        subject_id: str = "",
        tokens: int | None = None,
        usd: float | None = None,
        max_attempts: int | None = None,
    ) -> OrderHandle[OutputT]:
        """Submit a turn that a worker (``remit worker``) does in a new session.

        The order is durable when this returns: its entry and its place in the queue are one commit.
        Nothing is executed in this process.

        Args:
            task: the message of the turn.
            queue: the queue in which the order waits.
            priority: -1000 to 1000; lower numbers run first.
            due: the earliest time at which the order may run; ``None`` for at once.
            key: idempotency key: work submitted again under the same key is the same order, also
                after its end, and other arguments than task, user and data subject change nothing
                then; empty for a new order.
            by: the submitter's name, for the record.
            for_key: name or id of the virtual key on whose behalf the order runs; empty for none.
                The key's models, agents, tiers, budgets and rates apply, and no call is made after
                the key ends.
            user: see :meth:`session`.
            subject_id: see :meth:`session`.
            tokens: token limit of the order's session; the agent's limit if left out.
            usd: limit of the order's session in US dollars; the agent's limit if left out.
            max_attempts: attempts before the order is set aside; the configured number if left out.

        Returns:
            A handle that waits for the result or cancels the order.

        Raises:
            InvalidInputError: a value cannot be used, the key may not submit this order, or ``key``
                was used for other work.
            NotFoundError: there is no such virtual key.
            ConflictError: the virtual key is revoked or expired.
            LedgerError: the ledger cannot be read or written.
        """
        check_limit("tokens", tokens)
        check_limit("usd", usd)
        provider_id, model_id = self.model
        wanted = Submission(
            agent_id=self.agent_id, task=task, queue=queue, priority=priority, due=due,
            model_id=f"{provider_id}/{model_id}".lstrip("/"), user_id=user, subject_id=subject_id,
            tokens=tokens, usd=usd, max_attempts=max_attempts,
        )  # fmt: skip
        if for_key:
            wanted = await asyncio.to_thread(bind_to_key, self.runtime.ledger, wanted, for_key)
        order_id, put = self.runtime.orders.prepare(wanted, by=by, key=key)
        await self.runtime.ledger.submit(put)
        if key:
            await asyncio.to_thread(self.runtime.orders.require_same_work, order_id, wanted)
        return self.order(order_id)

    submit = blocking(asubmit)

    def order(self, order_id: str) -> OrderHandle[OutputT]:
        """Return the handle of an order that this or another process submitted.

        The handle does not check that the order exists; its methods do. Nothing is read.

        Args:
            order_id: id of the order, as :attr:`OrderHandle.order_id` holds it.
        """
        return OrderHandle(order_id, self.runtime.orders, self.runtime.ledger, self._shape.output)

    @functools.cached_property
    def _on_record(self) -> Mapping[str, Any]:
        """The description of the agent that its sessions record; computed once."""
        runtime, shape = self.runtime, self._shape
        return agent_record(
            shape.answer, shape.supervisor, runtime.effective, self._contracts, self._own,
            shape.package_id, runtime.own_providers, shape.output,
        )  # fmt: skip

    @property
    def _taking_deps(self) -> tuple[Tool, ...]:
        """Tools that receive a turn's ``deps``, including those of agents behind them."""
        tools = self._tools.tools(self._shape.answer.tools)
        return tuple(tool for tool in tools if tool.deps is not None or tool.behind)

    def _start(
        self,
        session: SessionManager,
        tokens: int | None,
        usd: float | None,
        about: Mapping[str, Any] | None = None,
    ) -> Callable[[], Awaitable[None]] | None:
        """Begin a session and set its limits, in one transaction.

        In a running event loop, which must not be blocked, the write happens in the background, and
        the returned function waits for it; the session's first step calls that function. Otherwise
        the write is complete, and None is returned.

        Raises:
            InvalidInputError: a limit is invalid.
        """
        limits = self._shape.session_limits(tokens, usd, self.runtime.settings.budget)
        scope = BudgetScope(session.session_id)
        entry = self.runtime.ledger.prepare(
            session.start_entry({**self._on_record, **(about or {})}),
            subject_id=session.principal.subject_id or None,
        )

        def start(tx: Transaction) -> None:
            tx.append(entry)
            self.runtime.budgeter.allocate(scope, limits=limits, by=self.agent_id, tx=tx)

        return write_soon(self.runtime.ledger, start, session.require)
