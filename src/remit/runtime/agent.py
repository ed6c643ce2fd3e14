"""An agent: who answers, under which contract, with which tools, within which limits."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Generic, TypeVar, overload

from remit.agents import HO1Executor, OutputT, UserMessage
from remit.agents.queue import Submission
from remit.agents.queue import for_key as held_to
from remit.agents.sessions import SessionManager
from remit.agents.supervisor import (
    AsidePolicy,
    ClassificationRules,
    Responder,
    Services,
    TurnResult,
)
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
from remit.gateway.budget import BudgetLimits, BudgetScope, nano_of
from remit.kernel.errors import InvalidInputError
from remit.kernel.installed import InstalledFiles
from remit.kernel.loops import blocking
from remit.ledger import Transaction
from remit.runtime.agent_record import agent_record
from remit.runtime.agent_shape import AgentShape, check_limit
from remit.runtime.context import KernelContext
from remit.runtime.conversation import Conversation
from remit.runtime.installation import root_tools
from remit.runtime.order_handle import OrderHandle
from remit.runtime.resources import Resources
from remit.runtime.subagents import AgentTool, check_callers, handoff_tool

_Asked = TypeVar("_Asked")


class Agent(Generic[OutputT]):
    """Made by :meth:`remit.Runtime.agent`. Holds no state of its own: sessions are in the ledger.

    Args:
        shared: what all agents of the root work with.
        shape: what its author decided.
        contracts: where its contracts are.
        own: tools that it brings.
        shares_sessions: see :meth:`remit.Runtime.agent`.

    Attributes:
        agent_id: its name on the record.
        shared: what it has in common with the other agents of the root.

    Raises:
        UnknownToolError: it may use a tool that does not exist.
    """

    def __init__(
        self,
        shared: Resources,
        shape: AgentShape,
        contracts: ContractLoader,
        own: Sequence[Tool],
        *,
        shares_sessions: bool,
    ) -> None:
        root, ledger, settings = shared.root, shared.ledger, shared.settings
        self.shared = shared
        self._shape = shape
        self.agent_id = shape.agent_id
        self._contracts, self._own = contracts, own
        wanted = set(shape.answer.tools) - {tool.tool_id for tool in own}
        admin = root_tools(root, ledger, shared.loaded)
        self._tools = ToolDispatcher(
            [*(tool for tool in admin if tool.tool_id in wanted), *own],
            settings.tools,
            shared.secrets,
        )
        self._tools.tools(shape.answer.tools)
        context = KernelContext(
            root, ledger, contracts, settings, shape.agent_id, shares_sessions=shares_sessions
        )
        worker = HO1Executor(
            shared.gateway,
            shared.ledger.scoped(tier="ho1"),
            shared.budgeter if settings.budget.mode != "off" else None,
            self._tools,
            contracts,
            settings.worker,
            agent_id=shape.agent_id,
            agent_class=shape.agent_class,
            model=shape.model,
            session_usage=functools.partial(session_usage, ledger.scoped(tier="ho2")),
            on_request=shared.approvals.announce,
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
        """Ids of the tools it may use."""
        return self._shape.answer.tools

    def of_package(self, package_id: str) -> Agent:
        """This agent, as one that a package brought."""
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
        """Begin a session, or go on with one.

        Args:
            session_id: the session to go on with; a new one when left out.
            user: the user of a new session: what it costs counts against their budget
                (`remit budget set --user`) too. An id that need not be erased, on record as it is.
            subject_id: the person of whom a new session's content speaks: what
                `remit ledger erase --subject` takes. The record does not show it.
            tokens: most tokens of a new session; the agent's, else the configured limit.
            usd: most US dollars of a new session.

        Raises:
            NotFoundError: the ledger has no such session, or it is another agent's.
            InvalidInputError: limits, a user or a person for a session that has begun.
        """
        session = self._manager(session_id, Principal(user, subject_id))
        if session_id is None:
            return self._conversation(session, self._start(session, tokens, usd))
        if tokens is not None or usd is not None or user or subject_id:
            raise InvalidInputError(
                "The limits of a session are set when it begins, and for whom it is.",
                next_step="Change limits with `remit budget set`; leave the others out.",
            )
        session.require()
        return self._conversation(session)

    def sub_session(self, call: Context[Any]) -> Conversation:
        """The session in which it answers a tool call of another agent: one for each call.

        Raises:
            ToolError: the agent is at work further up already, or too many are above it.
            NotFoundError: the call was another agent's to answer when it was first made.
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
        """The session of a schedule's tick, or of an order: begun, or gone on with."""
        session = self._manager(session_id, principal)
        starting = None if session.has_begun() else self._start(session, tokens, usd, about)
        return self._conversation(session, starting)

    def as_tool(self, *, name: str = "", description: str = "") -> Tool:
        """A tool that has this agent do a task, for ``tools=`` of another agent.

        Each call is a session of its own, linked to its caller's on record. What it costs is held
        to its caller's budgets as to its own, counted there, and part of its caller's cost. Where
        a tool of it waits for a person, its caller waits too. After a crash the same session is
        gone on with: nothing is paid twice.

        Args:
            name: the tool's id; the agent's when left out.
            description: when to use it, for the calling model; the agent's instructions when left
                out.

        Raises:
            ToolError: the name cannot be a tool's id.
        """
        about = description or str(self._shape.answer.input.get("instructions", ""))
        longest = self.shared.settings.worker.timeout_s
        sub_agent = AgentTool(self, self._tools.tools(self.tools))
        return sub_agent.tool(name or self.agent_id, about, longest, self._taking_deps)

    def as_handoff(self, *, description: str = "") -> Tool:
        """For ``tools=`` of another agent: lets it hand its session over to this one.

        The rest of the session is answered by this agent, from the same turn on, within the same
        budgets; the tool's call says why, the plans of orders who answers.

        Args:
            description: when to hand over, for the model; the agent's instructions when left out.

        Raises:
            InvalidInputError: it has a planner, which plans the turns of its own sessions only.
        """
        if self._shape.planner is not None:
            raise InvalidInputError(
                f"{self.agent_id} has a planner, and cannot take over a session.",
                next_step="Use as_tool(), or an agent without a planner.",
            )
        about = description or str(self._shape.answer.input.get("instructions", ""))
        return handoff_tool(self._responder, about, self._taking_deps)

    def _manager(self, session_id: str | None, principal: Principal = NOBODY) -> SessionManager:
        return SessionManager(
            self.shared.ledger.scoped(tier="ho2"),
            session_id,
            agent_id=self._shape.agent_id,
            agent_class=self._shape.agent_class,
            principal=principal,
        )

    def _conversation(
        self, session: SessionManager, starting: Callable[[], Awaitable[None]] | None = None
    ) -> Conversation:
        shared, shape = self.shared, self._shape
        services = Services(
            agent=self._responder,
            ledger=shared.ledger.scoped(tier="ho2"),
            session=session,
            config=shape.supervisor,
            leases=shared.leases,
            wait_s=shared.settings.leases.session_wait_s,
            output=shape.output,
            planner=shape.planner,
            model=shape.model,
            work_order_tokens=shared.settings.budget.work_order_tokens,
            agent_class=shape.agent_class,
            next_best=shared.gateway.next_best,
            aside_policy=self._aside_policy,
            rules=self._rules,
            starting=starting,
        )
        return Conversation(services, self._taking_deps, shared.ledger)

    @overload
    async def arun(
        self,
        message: UserMessage,
        *,
        output_type: None = None,
        on_event: EventSink | None = None,
        user: str = "",
        subject_id: str = "",
        deps: Any = None,
    ) -> TurnResult[OutputT]: ...

    @overload
    async def arun(
        self,
        message: UserMessage,
        *,
        output_type: type[_Asked],
        on_event: EventSink | None = None,
        user: str = "",
        subject_id: str = "",
        deps: Any = None,
    ) -> TurnResult[_Asked]: ...

    @overload
    async def arun(
        self,
        message: UserMessage,
        *,
        output_type: Any,
        on_event: EventSink | None = None,
        user: str = "",
        subject_id: str = "",
        deps: Any = None,
    ) -> TurnResult[Any]: ...

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
        """One message, one answer, in a session of its own.

        See :meth:`session` and :meth:`Conversation.turn`.
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
        """Have a worker (``remit worker``) do one turn, in a session of its own.

        It is submitted when this returns: its entry and its place in the queue are one commit.

        Args:
            task: what is to be done.
            queue: where it waits.
            priority: from -1000 to 1000; a lower number goes first.
            due: not before then.
            key: names the work: work that is submitted again with its key is one order.
            by: who submits it, for the record.
            for_key: name or id of the virtual key for which it is done: its models, agents and
                tiers, its budgets and rates hold for the order's calls, and none is made once it
                has ended. Nobody's when left out.
            user: see :meth:`session`; ``subject_id`` too.
            subject_id: see there.
            tokens: most tokens of its session; the agent's limit when left out.
            usd: most US dollars of its session.
            max_attempts: attempts until it is set aside; as configured when left out.

        Raises:
            InvalidInputError: it cannot be submitted so, or not for that key; or `key` was used
                for other work.
            NotFoundError: there is no such key.
            ConflictError: the key is revoked or expired.
        """
        check_limit("tokens", tokens)
        check_limit("usd", usd)
        provider_id, model_id = self._shape.model or self.shared.default_model
        wanted = Submission(
            agent_id=self.agent_id, task=task, queue=queue, priority=priority, due=due,
            model_id=f"{provider_id}/{model_id}".lstrip("/"), user_id=user, subject_id=subject_id,
            tokens=tokens, usd=usd, max_attempts=max_attempts,
        )  # fmt: skip
        if for_key:
            wanted = await asyncio.to_thread(held_to, self.shared.ledger, wanted, for_key)
        order_id, put = self.shared.orders.prepare(wanted, by=by, key=key)
        await self.shared.ledger.submit(put)
        if key:
            await asyncio.to_thread(self.shared.orders.require_same_work, order_id, wanted)
        return self.order(order_id)

    submit = blocking(asubmit)

    def order(self, order_id: str) -> OrderHandle[OutputT]:
        """An order that was submitted, by this process or another."""
        return OrderHandle(order_id, self.shared.orders, self.shared.ledger, self._shape.output)

    @functools.cached_property
    def _on_record(self) -> Mapping[str, Any]:
        """What its sessions say of it: hashed once, as its author made it."""
        shared, shape = self.shared, self._shape
        return agent_record(
            shape.answer, shape.supervisor, shared.effective, self._contracts, self._own,
            shape.package_id, shared.own_providers, shape.output,
        )  # fmt: skip

    def _aside_policy(self) -> AsidePolicy:
        from remit.learning import SignalPolicy  # of no turn without a failure

        return SignalPolicy.installed(InstalledFiles(self.shared.root.path))

    def _rules(self) -> ClassificationRules:
        return ClassificationRules.installed(InstalledFiles(self.shared.root.path))

    @property
    def _taking_deps(self) -> tuple[Tool, ...]:
        """Its tools that are given a turn's deps, those of agents behind them included."""
        tools = self._tools.tools(self._shape.answer.tools)
        return tuple(tool for tool in tools if tool.deps is not None or tool.behind)

    def _start(
        self,
        session: SessionManager,
        tokens: int | None,
        usd: float | None,
        about: Mapping[str, Any] | None = None,
    ) -> Callable[[], Awaitable[None]] | None:
        """Begin a session and give it its limits, in one transaction.

        Where a loop runs, which must not be blocked, the write is under way: what the session does
        first waits for it, by what this gives. Else it has been made.
        """
        check_limit("tokens", tokens)
        check_limit("usd", usd)
        budget = self.shared.settings.budget
        most = tokens if tokens is not None else self._shape.session_tokens
        limit_usd = usd if usd is not None else self._shape.session_usd
        limits = BudgetLimits(
            tokens=(budget.session_tokens if most is None else most) or None,
            nano=None if limit_usd is None else nano_of(limit_usd),
            turns=budget.session_turns or None,
        )
        scope = BudgetScope(session.session_id)
        entry = self.shared.ledger.prepare(
            session.start_entry({**self._on_record, **(about or {})}),
            subject_id=session.principal.subject_id or None,
        )

        def start(tx: Transaction) -> None:
            tx.append(entry)
            self.shared.budgeter.allocate(scope, limits=limits, by=self.agent_id, tx=tx)

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self.shared.ledger.transact(start)
            return None
        writing = self.shared.ledger.submit(start)

        async def begun() -> None:
            if writing.done() or writing.get_loop() is asyncio.get_running_loop():
                await writing
                return
            # Another loop than the one that began it: that one may be gone.
            await asyncio.to_thread(self.shared.ledger.flush)
            session.require()

        return begun
