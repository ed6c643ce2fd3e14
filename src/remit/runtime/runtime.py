"""Opens a root and wires everything in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Self

from typing_extensions import override

from remit.agents.approvals import ApprovalQueue
from remit.agents.outputs import OutputT, OutputType
from remit.agents.queue import OrderQueue
from remit.agents.sessions import list_sessions
from remit.agents.supervisor import Planner, PlanStep, check_criteria, unfinished_turn
from remit.agents.tools import Tool
from remit.agents.workorders import WorkOrderType
from remit.contracts import ContractLoader
from remit.gateway import LLMGateway, RouterConfig
from remit.gateway.auth import Identity, LocalOperator
from remit.gateway.budget import BudgetScope, TokenBudgeter
from remit.gateway.leases import LeaseManager
from remit.gateway.sending import AnyProvider
from remit.kernel.installed import InstalledFiles
from remit.kernel.loops import Closeable, run_blocking
from remit.kernel.root import Root, find_root
from remit.kernel.secrets import ConfiguredSecrets
from remit.kernel.settings import EffectiveSettings, LoadedSettings, Settings, load_settings
from remit.ledger import RetentionSchedule, open_root_ledger
from remit.packages import policy_epoch, record_settings, require_ownership
from remit.packages.gates import GateContext
from remit.runtime.agent import Agent
from remit.runtime.agent_shape import AgentShape, check_kind
from remit.runtime.conversation import Conversation
from remit.runtime.factory import AgentFactory
from remit.runtime.installation import gate_context, make_root, recover_packages
from remit.runtime.owners import Owners
from remit.runtime.prices import recorded_prices_of
from remit.runtime.providers import choose_model, require_reachable, resolve_model
from remit.runtime.resources import Resources
from remit.runtime.routing import make_router
from remit.runtime.state import check_state

_RETENTION_EVERY_S = 3600.0


class Runtime(Closeable):
    """One open root: ledger, gateway, agents. Use :meth:`open`; it is a context manager.

    Attributes:
        root: the installation.
        ledger: the record.
        gateway: every call to a model goes through it; it acts as the local operator.
        loaded: the settings in force and where each came from.
        effective: the same as they are on record.
        approvals: what waits for a person.
        orders: what is submitted for workers.
        router: chooses the model of calls that name a route, such as ``auto``.
        owners: whose contracts are.
    """

    def __init__(
        self,
        root: Root,
        loaded: LoadedSettings,
        model: str | None,
        tools: Iterable[Tool],
        providers: Mapping[str, AnyProvider],
        by: str,
    ) -> None:
        settings = loaded.settings
        self.root = root
        self.loaded = loaded
        self.effective = EffectiveSettings.of(loaded)
        self.ledger = open_root_ledger(root, settings.ledger, checks=(check_state,))
        self._retention = None
        if settings.ledger.retention_days:
            self._retention = RetentionSchedule(self.ledger, every_s=_RETENTION_EVERY_S)
        try:
            self.ledger.flush()  # an older copy shows before anything is done with it
            recover_packages(root, self.ledger, loaded)
            require_ownership(root.path, self.ledger, settings.packages.lock_timeout_s)
            self._wire(settings, model, tools, providers)
            self.record_settings(by)
        except BaseException:
            self._close_ledger()
            raise

    @classmethod
    def open(
        cls,
        root: str | Path | None = None,
        *,
        model: str | None = None,
        flags: Mapping[str, Any] | None = None,
        tools: Iterable[Tool] = (),
        providers: Mapping[str, AnyProvider] | None = None,
        create: bool = False,
        by: str = "local operator",
    ) -> Self:
        """Open a root.

        Args:
            root: its directory; found as the commands find it when left out.
            model: which model answers, instead of the configured one.
            flags: settings by dotted key, over all other layers.
            tools: tools of your own, beside ADMIN's.
            providers: providers of your own by id, beside the configured ones; the
                first of them answers where no model is named.
            create: make the root when there is none.
            by: who opens it, for the record.

        Raises:
            RootError: there is no root, or it cannot be made.
            ConfigError: ``remit.toml`` or the environment does not fit.
            LedgerError: the ledger cannot be opened.
        """
        place = find_root(Path(root) if root is not None else None)
        if create and not place.exists():
            make_root(place, flags=flags)
        loaded = load_settings(place.config, flags=flags)
        return cls(place.require(), loaded, model, tools, providers or {}, by)

    def _wire(
        self,
        settings: Settings,
        model: str | None,
        tools: Iterable[Tool],
        own: Mapping[str, AnyProvider],
    ) -> None:
        providers, self.provider_id, self.model_id = resolve_model(settings, model, own)
        self._providers = providers
        self.root_prices = recorded_prices_of(
            self.root, self.ledger, settings.budget.prices, wait_s=settings.packages.lock_timeout_s
        )
        self.prices = self.root_prices.table
        self.budgeter = TokenBudgeter(self.ledger, allow_unpriced=settings.budget.allow_unpriced)
        self.gateway = LLMGateway(
            self.ledger,
            self.budgeter,
            RouterConfig.from_settings(
                settings, self.provider_id, self.model_id, policy_epoch(self.ledger)
            ),
            LocalOperator(),
            budget_mode=settings.budget.mode,
            prices=self.prices,
        )
        for name, provider in providers.reachable.items():
            self.gateway.register_provider(name, provider)
        self.gateway.recover()
        self._installed = InstalledFiles(self.root.path)
        self.owners = Owners(self._installed, self.ledger)
        self._contracts = self._loader()
        self.router = make_router(
            self.root, settings, self.ledger, self.gateway, self.prices, self._contracts,
            (self.provider_id, self.model_id),
        )  # fmt: skip
        self.gateway.register_router(self.router)
        self.leases = LeaseManager(self.ledger, settings.leases)
        self.approvals = ApprovalQueue(self.ledger, settings.approvals)
        self.orders = OrderQueue.of_root(self.ledger, settings)
        self._shared = Resources(
            self.root, self.loaded, self.ledger, self.gateway, self.budgeter, self.leases,
            ConfiguredSecrets(settings), self.approvals, self.effective, self.orders,
            (self.provider_id, self.model_id),
            {name: f"{type(one).__module__}.{type(one).__qualname__}" for name, one in own.items()},
        )  # fmt: skip
        self._agents = AgentFactory(self._shared, self._contracts)
        able = providers.capabilities(self.provider_id, self.model_id)
        # A misspelt tool shows here, not in the first turn.
        self._admin = self._agents.admin(tools, able)

    def record_settings(self, by: str) -> None:
        """Put settings and prices on record, where the last on record are others."""
        record_settings(self.ledger, self.effective, by=by, prices=self.prices.version)

    @override
    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
        await asyncio.to_thread(self.close)

    def require_model(self) -> None:
        """Make sure that the default model can be asked.

        Raises:
            RootError: its provider is not set up, or its name is misspelt; the message says how to.
        """
        of_model = self.provider_id, self.model_id, self.prices
        require_reachable(self.loaded.settings, self._providers, *of_model)

    def session(self, session_id: str | None = None) -> Conversation[str]:
        """Begin a conversation with the ADMIN agent, or go on with one.

        Args:
            session_id: the session to go on with; a new one when left out.

        Raises:
            SessionNotFoundError: the ledger has no such session.
        """
        return self._admin.session(session_id)

    def agent(
        self,
        agent_id: str,
        *,
        instructions: str = "",
        tools: Iterable[Tool | Callable[..., Any] | str] = (),
        mcp: Iterable[str] = (),
        approve: Iterable[str] = (),
        contract: str = "PRC-EXECUTE-001",
        contracts: str | Path | None = None,
        output_type: type[OutputT] | UnionType | None = None,
        model: str | None = None,
        planner: Planner | None = None,
        acceptance: Mapping[str, Any] | None = None,
        classify: bool = False,
        verify: bool | None = None,
        max_retries: int | None = None,
        shares_sessions: bool = False,
        session_tokens: int | None = None,
        session_usd: float | None = None,
        order_tokens: int | None = None,
        order_usd: float | None = None,
        turn_limit: int = 0,
        timeout_s: float = 0.0,
        context_tokens: int | None = None,
    ) -> Agent[OutputT]:
        """An agent of your own.

        Args:
            agent_id: its name on the record.
            instructions: what it is for; the ``instructions`` of its contract's template.
            tools: :class:`remit.Tool` values, functions (see :func:`remit.tool`), or ids of
                ADMIN's tools and of installed ones (entry points of ``remit.tools``).
            mcp: names of MCP servers in the configuration (``[mcp.NAME]``), all of whose allowed
                tools it may use.
            approve: ids of tools that a person must release each time.
            contract: the contract under which it answers.
            contracts: a folder with ``contracts/`` and ``prompt_packs/`` of its own, looked at
                after the root's.
            output_type: the type of its answers, see :meth:`Conversation.turn`.
            model: which model answers, as ``--model`` takes it, or a route, such as ``auto``,
                that chooses one for each call; the root's default when left out.
            planner: makes a plan of steps for each turn, instead of one answering step.
            acceptance: criteria of the quality gate (:mod:`remit.agents.supervisor.quality`).
            classify: classify each message first.
            verify: have answers judged under PRC-VERIFY-001; as configured when left out.
            max_retries: further attempts after a rejected answer; as configured when left out.
            shares_sessions: show in one session what others of this agent left open. Not for
                agents that serve people who must not hear of each other.
            session_tokens: most tokens of one session.
            session_usd: most US dollars of one session.
            order_tokens: most tokens of one work order.
            order_usd: most US dollars of one work order.
            turn_limit: most model calls of one order.
            timeout_s: longest order, seconds.
            context_tokens: most tokens, estimated, of earlier turns; in a turn, of its calls and
                results of tools. The oldest are left out, on record.

        Raises:
            UnknownToolError: there is no such tool.
            ContractError: the contract cannot be used.
            ConfigError: no provider runs the model, or there is no such MCP server.
            InvalidInputError: an argument is of the wrong kind, or JSON Schema cannot describe the
                output type.
        """
        for name, value, *kinds in (
            ("instructions", instructions, str), ("contract", contract, str),
            ("contracts", contracts, str, Path, NoneType), ("model", model, str, NoneType),
            ("acceptance", acceptance, Mapping, NoneType), ("classify", classify, bool),
            ("verify", verify, bool, NoneType), ("shares_sessions", shares_sessions, bool),
        ):  # fmt: skip
            check_kind(name, value, *kinds)
        # An iterator would be empty when it is read again.
        mcp, approve = (
            tuple(each) if isinstance(each, Iterator) else each for each in (mcp, approve)
        )
        settings = self.loaded.settings
        own, ids = self._agents.tools_of(tools, mcp, approve)
        loader = self._contracts if contracts is None else self._loader(Path(contracts))
        found = loader.load(contract)
        loader.load_pack(found.prompt_pack_id)
        check_criteria(acceptance or {}, ids)
        chosen = None
        if model is not None and self.router.knows(model):
            chosen = ("", model)
        elif model is not None:
            chosen = choose_model(settings, model, self._providers)
            require_reachable(settings, self._providers, *chosen, self.prices)
        changes = {
            "classify": classify, "verify": verify, "max_retries": max_retries,
            "context_tokens": context_tokens,
        }  # fmt: skip
        step = PlanStep(
            "answer",
            contract,
            WorkOrderType.EXECUTE,
            input={"instructions": instructions} if instructions else {},
            tools=ids,
            approve=tuple(approve),
            acceptance=acceptance or {},
            token_budget=order_tokens,
            usd_budget=order_usd,
            turn_limit=turn_limit,
            timeout_seconds=timeout_s,
        )
        shape = AgentShape(
            agent_id,
            "RESIDENT",
            step,
            None if output_type is None else OutputType(output_type),
            settings.supervisor.model_copy(
                update={name: value for name, value in changes.items() if value is not None}
            ),
            chosen, planner, session_tokens, session_usd, context_tokens=context_tokens,
        )  # fmt: skip
        return Agent(self._shared, shape, loader, own, shares_sessions=shares_sessions)

    def _loader(self, *more: Path) -> ContractLoader:
        """The contracts of the root, and those of other folders."""
        return ContractLoader(
            self.root.tier("ho1"), *more, installed=self._installed,
            framework_of=self.owners.framework_of,
        )  # fmt: skip

    @property
    def contracts(self) -> ContractLoader:
        """Those that are installed."""
        return self._contracts

    def gate_context(self) -> GateContext:
        """What the gates of this root look at, as it stands now."""
        return gate_context(self.root, self.ledger, self.loaded)

    def packaged_agents(self) -> list[str]:
        """Ids of the agents that installed packages brought."""
        from remit.runtime.packaged_agents import packaged_agents

        return packaged_agents(self._installed)

    def packaged_agent(self, agent_id: str, *, model: str | None = None) -> Agent[Any]:
        """An agent that an installed package brought, with what its package lets it do.

        Args:
            agent_id: its name, as :meth:`packaged_agents` gives it.
            model: which model answers, instead of the one that it names or the root's default.

        Raises:
            AgentNotInstalledError: there is none, or it goes beyond its package's permissions.
            RemitError: what :meth:`agent` raises.
        """
        from remit.runtime.packaged_agents import packaged_agent  # signing is slow to load

        settings = self.loaded.settings

        def meaning(name: str) -> Sequence[tuple[str, str]]:
            # A route chooses among models that are looked at where it is configured.
            known = self.router.knows(name)
            return () if known else [choose_model(settings, name, self._providers)]

        found = packaged_agent(
            agent_id,
            self._installed,
            self.ledger,
            (self.provider_id, self.model_id),
            model=model,
            meaning=meaning,
            reserved=[settings.chat.agent_id],
        )
        document = found.document
        made = self.agent(
            document.agent_id,
            instructions=document.instructions,
            tools=document.tools,
            approve=document.approve,
            contract=document.contract_id,
            model=model or document.model or None,
            acceptance=document.acceptance,
            order_tokens=found.token_budget,
            order_usd=found.usd_budget,
        )
        return made.of_package(found.package_id)

    def unfinished(self) -> Iterator[str]:
        """Ids of the sessions whose last turn was interrupted or waits, the latest first."""
        ledger = self.ledger.scoped(tier="ho2")
        for one in list_sessions(self.ledger):
            own = not one.caller_session_id  # a sub-agent's is gone on with by its caller
            if own and unfinished_turn(ledger, one.session_id, one.turns) is not None:
                yield one.session_id

    def close(self) -> None:
        """Close connections and the ledger. What was written is durable already."""
        run_blocking(self.aclose())
        self._close_ledger()

    def _close_ledger(self) -> None:
        if self._retention is not None:
            self._retention.stop()
        if hasattr(self, "_agents"):
            self._agents.close()
        self.ledger.close()

    async def aclose(self) -> None:
        """Close the connections of the running event loop; then :meth:`close` the rest."""
        for provider in self._providers.reachable.values():
            closing = getattr(provider, "aclose", None)
            if closing is not None:
                await closing()

    def models(self) -> list[tuple[str, str]]:
        """The models that can be named here, each with its provider; for the local one, itself."""
        settings = self.loaded.settings
        found = self._providers.models(settings, self.prices)
        for names in (*settings.gateway.fallbacks.values(), self.router.routes):
            for name in names:
                found.setdefault(name, "remit")
        return sorted(found.items())

    def allow_without_limits(self, identity: Identity) -> None:
        """Give an identity's key an account, where it has none: its calls are then counted."""
        scope = BudgetScope(key_id=identity.key_id)
        if not self.budgeter.status(scope):
            self.budgeter.allocate(scope, by=identity.name)
