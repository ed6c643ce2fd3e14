"""Opening a root and connecting its parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Self

from typing_extensions import override

from remit.agents import ApprovalQueue, OutputT, OutputType
from remit.agents.queue import OrderQueue
from remit.agents.sessions import list_sessions
from remit.agents.supervisor import Planner, PlanStep, check_criteria, unfinished_sessions
from remit.agents.tools import Tool
from remit.agents.workorders import WorkOrderType
from remit.contracts import ContractLoader
from remit.gateway import AnyProvider
from remit.gateway.auth import Identity
from remit.gateway.budget import BudgetScope, TokenBudgeter
from remit.gateway.leases import LeaseManager
from remit.kernel.installed_files import InstalledFiles
from remit.kernel.loops import Closeable, run_blocking
from remit.kernel.root import Root, find_root
from remit.kernel.secrets import ConfiguredSecrets
from remit.kernel.settings import EffectiveSettings, LoadedSettings, Settings, load_settings
from remit.ledger import RetentionSchedule, open_root_ledger
from remit.packages import record_settings, recorded_prices_of, require_ownership
from remit.packages.gates import GateContext
from remit.runtime.admin_agent import admin_agent, mcp_server, tools_of
from remit.runtime.agent import Agent
from remit.runtime.agent_options import AgentShape, changed, check_kind
from remit.runtime.agent_session import Conversation
from remit.runtime.contract_packages import Owners
from remit.runtime.installation import gate_context, make_root, recover_packages
from remit.runtime.providers import choose_model, require_reachable, resolve_model
from remit.runtime.routing import make_router
from remit.runtime.state_tables import check_state

if TYPE_CHECKING:
    from remit.agents.tools import McpServer

_RETENTION_EVERY_S = 3600.0


class Runtime(Closeable):
    """An open root: ledger, gateway and agents.

    Use :meth:`open`; a runtime is a context manager.

    :meth:`session` talks with the ADMIN agent, :meth:`agent` makes an agent of a program, and
    :meth:`packaged_agent` one of a package. The attributes give the parts to programs that need no
    agent. Settings, prices and contracts are those of the time of opening, except that contracts
    are read again when their files change.

    A runtime may be used from several threads. Close it to stop MCP servers and release the ledger;
    its agents and conversations cannot be used afterwards.

    Attributes:
        root: the installation.
        ledger: the record.
        gateway: the gateway of every model call, acting as the local operator.
        loaded: the settings in force and the source of each.
        effective: the settings in the form in which they are recorded.
        provider_id: id of the provider that answers if a call names none.
        model_id: id of the model that answers if a call names none.
        prices: the price table in force.
        root_prices: the price table with its sources.
        budgeter: budgets and their accounts.
        leases: leases of sessions, orders and workers.
        contracts: the loader of the contracts that packages installed in this root.
        approvals: requests that wait for a person.
        orders: orders submitted for workers.
        router: chooses the model of calls that name a route, such as ``auto``.
        owners: package and framework of each contract.
        secrets: secrets of the configuration, which are removed from the output of tools.
        own_providers: names of the classes of the program's own providers, keyed by provider id.
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
            self.ledger.flush()  # Detects an older copy of the ledger before anything is done.
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

        An interrupted package or price operation of a dead process is finished or undone first.
        Settings and prices are recorded if they differ from the ones recorded last. Calls that a
        dead process left open are settled, and content beyond its retention is deleted from now on
        every hour, if that is configured. No provider is called.

        Args:
            root: the directory; found as the commands find it if left out.
            model: the model that answers in place of the configured default.
            flags: settings by dotted key, above all other layers.
            tools: your own tools, in addition to ADMIN's.
            providers: your own providers by id, in addition to the configured ones; the first of
                them answers if no model is named.
            create: make the root if there is none.
            by: the opener's name, for the record.

        Returns:
            The open root. Close it with :meth:`close`, or use it as a context manager.

        Raises:
            RemitError: there is no root, it cannot be made, or the prices are missing or not as
                recorded.
            ConfigError: ``remit.toml``, the environment, ``model`` or ``providers`` cannot be used.
            LedgerError: the ledger cannot be opened.
            PackageError: another process holds the lock of packages, or ``ownership.json`` differs
                from the ledger.
            ChangedFileError: an installed file that is needed was changed.
            ToolError: the configuration allows a tool that does not exist, or two tools have the
                same id.
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
        self.gateway = providers.gateway(
            self.ledger, self.budgeter, settings, self.default_model, self.prices
        )
        self._installed = InstalledFiles(self.root.path)
        self.owners = Owners(self._installed, self.ledger)
        self.contracts = self._loader()
        self.router = make_router(
            self.root, settings, self.ledger, self.gateway, self.prices, self.contracts,
            self.default_model,
        )  # fmt: skip
        self.gateway.register_router(self.router)
        self.leases = LeaseManager(self.ledger, settings.leases)
        self.approvals = ApprovalQueue(self.ledger, settings.approvals)
        self.orders = OrderQueue.of_root(self.ledger, settings)
        self.secrets = ConfiguredSecrets(settings)
        self.own_providers = {
            name: f"{type(one).__module__}.{type(one).__qualname__}" for name, one in own.items()
        }
        self._mcp_servers: dict[str, McpServer] = {}
        able = providers.capabilities(self.provider_id, self.model_id)
        # A misspelt tool fails here, not in the first turn.
        self._admin = admin_agent(self, self.contracts, tools, able)

    @property
    def settings(self) -> Settings:
        """The settings in force, of all layers; fixed while the runtime is open."""
        return self.loaded.settings

    @property
    def default_model(self) -> tuple[str, str]:
        """Provider id and model id that answer if a call names none."""
        return self.provider_id, self.model_id

    def record_settings(self, by: str) -> None:
        """Record settings and prices in an entry if they differ from the ones recorded last.

        :meth:`open` calls this.

        Args:
            by: name of the person, for the record.

        Raises:
            LedgerError: the entry cannot be written.
        """
        record_settings(self.ledger, self.effective, by=by, prices=self.prices.version)

    @override
    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
        await asyncio.to_thread(self.close)

    def require_model(self, model: tuple[str, str] | None = None) -> None:
        """Raise RemitError unless the provider of a model, by default the root's, is set up.

        A provider is set up with an API key or a base URL, and ``local`` with the installed model.
        Nothing is sent. The name of the model, and a route (an empty provider), are not checked.
        """
        named = model or self.default_model
        if named[0]:
            require_reachable(self.settings, self._providers, *named)

    def session(self, session_id: str | None = None) -> Conversation[str]:
        """Begin or continue a conversation with the ADMIN agent.

        A new session writes ``SESSION_START`` to the ledger.

        Args:
            session_id: the session to continue; a new one if left out.

        Returns:
            The conversation; leaving it as a context manager ends the session.

        Raises:
            NotFoundError: the ledger has no such session, or it is another agent's or archived.
            InvalidInputError: ``session_id`` does not have the form ``SES-…``.
            LedgerError: the ledger cannot be read or written.
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
        """Return an agent that this program defines. Nothing is recorded before its first session.

        Each MCP server in ``mcp`` is started, so that its tools can be listed. The agent may be
        made again under the same id: its sessions belong to the id.

        Args:
            agent_id: the agent's name in the record.
            instructions: the agent's task; the ``instructions`` of its contract's template.
            tools: :class:`remit.Tool` values, functions (see :func:`remit.tool`), or ids of ADMIN's
                tools and of installed tools (entry points of ``remit.tools``).
            mcp: names of configured MCP servers (``[mcp.NAME]``) whose allowed tools the agent may
                use.
            approve: ids of tools of which a person must approve each call.
            contract: id of the contract under which the agent answers.
            contracts: a folder with ``contracts/`` and ``prompt_packs/``, searched after the
                root's.
            output_type: the type of the answers, see :meth:`Conversation.turn`; text if left out.
            model: the model that answers, as ``--model`` takes it, or a route such as ``auto``,
                which chooses a model for each call; the root's default if left out.
            planner: plans the steps of each turn; without a planner, a turn is one answering step.
            acceptance: criteria of the quality gate, values by name; the defaults apply to all
                others (:mod:`remit.agents.supervisor.quality_gate`).
            classify: classify each message before the turn.
            verify: judge answers under PRC-VERIFY-001; the configured choice if left out.
            max_retries: further attempts after a rejected answer; the configured number if left
                out.
            shares_sessions: show open topics of the agent's other sessions in each session. Leave
                it False for agents that serve people who must not learn of each other.
            session_tokens: token limit of a session; the configured limit if left out.
            session_usd: limit of a session in US dollars; no limit of its own if left out.
            order_tokens: token limit of a work order; the configured limit if left out.
            order_usd: limit of a work order in US dollars; no limit of its own if left out.
            turn_limit: most model calls of an order; 0 for the configured number.
            timeout_s: longest duration of an order, in seconds; 0 for the configured one.
            context_tokens: estimated tokens of earlier turns, and in a turn of its calls and tool
                results, that a prompt may hold. The oldest are left out, which is recorded. The
                configured number if left out.

        Raises:
            UnknownToolError: there is no such tool.
            ToolError: two tools have the same id, an item of ``tools`` cannot be a tool, or an MCP
                server does not answer.
            ContractError: the contract cannot be used.
            ChangedFileError: the table of installed files cannot be read.
            ConfigError: no provider runs the model, or there is no such MCP server.
            RemitError: the provider of ``model`` is not set up.
            InvalidInputError: an argument has the wrong type, a limit or criterion is invalid, or
                JSON Schema cannot describe the output type.
            LedgerError: the tools of an MCP server cannot be read or recorded.
        """
        for name, value, *kinds in (
            ("instructions", instructions, str), ("contract", contract, str),
            ("contracts", contracts, str, Path, NoneType), ("model", model, str, NoneType),
            ("acceptance", acceptance, Mapping, NoneType), ("classify", classify, bool),
            ("verify", verify, bool, NoneType), ("shares_sessions", shares_sessions, bool),
        ):  # fmt: skip
            check_kind(name, value, *kinds)
        settings = self.loaded.settings
        own, ids, approved = tools_of(tools, mcp, approve, self._mcp_server)
        loader = self.contracts if contracts is None else self._loader(Path(contracts))
        found = loader.load(contract)
        loader.load_pack(found.prompt_pack_id)
        check_criteria(acceptance or {}, ids)
        chosen = None
        if model is not None and self.router.knows(model):
            chosen = ("", model)
        elif model is not None:
            chosen = choose_model(settings, model, self._providers)
            require_reachable(settings, self._providers, *chosen)
        step = PlanStep(
            "answer", contract, WorkOrderType.EXECUTE,
            input={"instructions": instructions} if instructions else {}, tools=ids,
            approve=approved, acceptance=acceptance or {}, token_budget=order_tokens,
            usd_budget=order_usd, turn_limit=turn_limit, timeout_seconds=timeout_s,
        )  # fmt: skip
        shape = AgentShape(
            agent_id, "RESIDENT", step, None if output_type is None else OutputType(output_type),
            changed(
                settings.supervisor, classify=classify, verify=verify, max_retries=max_retries,
                context_tokens=context_tokens,
            ),
            chosen, planner, session_tokens, session_usd, context_tokens=context_tokens,
        )  # fmt: skip
        return Agent(self, shape, loader, own, shares_sessions=shares_sessions)

    def _loader(self, *more: Path) -> ContractLoader:
        """Return a loader of the contracts of the root and of further folders."""
        return ContractLoader(
            self.root.tier("ho1"), *more, installed=self._installed,
            framework_of=self.owners.framework_of,
        )  # fmt: skip

    def _mcp_server(self, name: str) -> McpServer:
        """Return a configured MCP server, which starts at its first use."""
        if name not in self._mcp_servers:
            self._mcp_servers[name] = mcp_server(self.ledger, self.settings, name)
        return self._mcp_servers[name]

    def gate_context(self) -> GateContext:
        """Return the present state of the root that its gates check. No gate runs.

        The gates are run by :func:`remit.packages.check_gates`.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return gate_context(self.root, self.ledger, self.loaded)

    def packaged_agents(self) -> list[str]:
        """Return the ids of agents that installed packages brought, in alphabetical order.

        Raises:
            ChangedFileError: the table of installed files cannot be read.
        """
        from remit.runtime.packaged_agents import packaged_agents

        return packaged_agents(self._installed)

    def packaged_agent(self, agent_id: str, *, model: str | None = None) -> Agent[Any]:
        """Return an agent of an installed package, with the package's permissions.

        A route that is named as model is checked with its configuration, not here. Nothing is
        recorded before its first session.

        Args:
            agent_id: the agent's id, as :meth:`packaged_agents` returns it.
            model: the model that answers in place of the agent's own or the root's default.

        Raises:
            NotFoundError: no package brought such an agent, its id is Remit's own, its package or
                framework is not installed, it exceeds its permissions or limit, or ``model`` is not
                permitted (without permitted models, any but the root's default).
            ChangedFileError: a file of the agent differs from the installed one.
            PackageError: one of these files, or an entry of a package, cannot be read.
            RemitError: an error of :meth:`agent`.
        """
        # The import of signing is slow.
        from remit.runtime.packaged_agents import agent_of_package, packaged_agent

        def meaning(name: str) -> Sequence[tuple[str, str]]:
            # The models of a route are checked with its configuration.
            known = self.router.knows(name)
            return () if known else [choose_model(self.settings, name, self._providers)]

        document, package_id = packaged_agent(
            agent_id,
            self._installed,
            self.ledger,
            self.default_model,
            model=model,
            meaning=meaning,
            reserved=[self.settings.chat.agent_id],
        )
        return agent_of_package(self, document, package_id, model)

    def unfinished(self) -> Iterator[str]:
        """Return the ids of sessions whose last turn was interrupted or waits, latest first.

        A turn waits if a person must decide on one of its tool calls. Sessions of sub-agents are
        left out: their callers continue them. Turns that run in another process are included. Each
        session is read when the iterator reaches it.

        Raises:
            LedgerError: the ledger cannot be read.
            OrderRecordError: the entries of a turn do not form orders.
        """
        return unfinished_sessions(self.ledger.scoped(tier="ho2"), list_sessions(self.ledger))

    def close(self) -> None:
        """Close providers, MCP servers and the ledger, and stop the deletion of old content.

        Entries already written are durable. Blocks; running turns are not waited for. Closing twice
        is harmless.

        Raises:
            InvalidInputError: called on the background loop, where it would wait for itself.
        """
        run_blocking(self.aclose())
        self._close_ledger()

    def _close_ledger(self) -> None:
        if self._retention is not None:
            self._retention.stop()
        if hasattr(self, "_mcp_servers"):  # False if the root could not be opened.
            self.approvals.close()
            for server in self._mcp_servers.values():
                server.close()
        self.ledger.close()

    async def aclose(self) -> None:
        """Close only the connections of the running event loop to providers.

        Call :meth:`close` for MCP servers and the ledger. The runtime can still be used; providers
        connect again.
        """
        for provider in self._providers.reachable.values():
            closing = getattr(provider, "aclose", None)
            if closing is not None:
                await closing()

    def models(self) -> list[tuple[str, str]]:
        """Return (model, provider) for all models and routes that can be named, sorted by name.

        The provider of a route, and of a configured fallback that no known provider has, is
        ``remit``. Providers are not asked: the names come from the settings and the price table.
        """
        settings = self.loaded.settings
        return sorted(self._providers.models(settings, self.prices, self.router.routes).items())

    def allow_without_limits(self, identity: Identity) -> None:
        """Open an account without limits for a key that has none, so that its calls are counted.

        The account is recorded as ``BUDGET_ALLOCATED``. A key with an account is unchanged.

        Args:
            identity: the key, and the name for the record.

        Raises:
            LedgerError: the ledger cannot be read or written.
            InvalidInputError: the identity has no key.
        """
        scope = BudgetScope(key_id=identity.key_id)
        if not self.budgeter.status(scope):
            self.budgeter.allocate(scope, by=identity.name)
