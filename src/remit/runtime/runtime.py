"""Opens a root and wires everything in it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from remit.admin import admin_tools
from remit.auth import Identity, LocalOperator
from remit.blocking import run_blocking
from remit.budget import BudgetScope, TokenBudgeter
from remit.config import LoadedSettings, ProviderSettings, Settings, load_settings
from remit.contracts import ContractLoader
from remit.gateway import LLMGateway, RouterConfig
from remit.ledger import RetentionSchedule, ledger_key, open_root_ledger
from remit.prices import PriceTable
from remit.root import Root, RootError, find_root
from remit.runtime.conversation import Conversation
from remit.runtime.providers import Providers, require_reachable, resolve_model
from remit.sessions import SessionManager
from remit.supervisor import HO2Supervisor
from remit.tools import Tool, ToolDispatcher
from remit.worker import HO1Executor

__all__ = ["Runtime"]


class Runtime:
    """One open root: ledger, gateway, agents. Use :meth:`open`; it is a context manager.

    Attributes:
        root: where it lies.
        ledger: the record.
        gateway: the one door to models; it acts as the local operator.
        loaded: the settings in force and where each came from.
    """

    def __init__(
        self,
        root: Root,
        loaded: LoadedSettings,
        model: str | None,
        tools: Iterable[Tool],
        new: bool,
    ) -> None:
        settings = loaded.settings
        self.root = root
        self.loaded = loaded
        if new:
            ledger_key(root, settings.ledger).create()
        self.ledger = open_root_ledger(root, settings.ledger, create=new)
        self._retention = (
            RetentionSchedule(self.ledger, every_s=settings.ledger.retention_every_s)
            if settings.ledger.retention_days
            else None
        )
        try:
            self._wire(settings, model, tools)
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
        create: bool = False,
    ) -> Self:
        """Open a root.

        Args:
            root: its directory; found as the commands find it when left out.
            model: which model answers, instead of the configured one.
            flags: settings by dotted key, over all other layers.
            tools: tools of your own, beside ADMIN's.
            create: make the root when there is none.

        Raises:
            RootError: there is no root, or it cannot be made.
            ConfigError: ``remit.toml`` or the environment does not fit.
            LedgerError: the ledger cannot be opened.
        """
        place = find_root(Path(root) if root is not None else None)
        new = not place.exists()
        if new:
            if not create:
                raise RootError(
                    f"There is no root at {place.path}.",
                    next_step="Run `remit init`, or name one with --root.",
                )
            place.create()
        loaded = load_settings(place.config, flags=flags)
        return cls(place, loaded, model, tools, new)

    def _wire(self, settings: Settings, model: str | None, tools: Iterable[Tool]) -> None:
        providers, self.provider_id, self.model_id = resolve_model(settings, model)
        self._providers: Providers = providers
        self.prices = _prices(self.root, settings.budget.prices)
        self.budgeter = TokenBudgeter(self.ledger, allow_unpriced=settings.budget.allow_unpriced)
        self.gateway = LLMGateway(
            self.ledger,
            self.budgeter,
            RouterConfig.from_settings(settings, self.provider_id, self.model_id),
            LocalOperator(),
            budget_mode=settings.budget.mode,
            prices=self.prices,
        )
        for name, provider in providers.reachable.items():
            self.gateway.register_provider(name, provider)
        self.gateway.recover()
        own = [*tools]
        self._tool_ids = (*settings.chat.tools_allowed, *(tool.tool_id for tool in own))
        dispatcher = ToolDispatcher(
            [*admin_tools(self.ledger, self.root.path, settings.tools), *own], settings.tools
        )
        dispatcher.tools(self._tool_ids)  # a misspelt tool shows here, not in the first turn
        self._worker = HO1Executor(
            self.gateway,
            self.ledger.scoped(tier="ho1"),
            self.budgeter if settings.budget.mode != "off" else None,
            dispatcher,
            ContractLoader(self.root.tier("ho1")),
            settings.worker,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def require_model(self) -> None:
        """Make sure that the default model can be asked.

        Raises:
            RootError: its provider is not set up; the message says how to.
        """
        require_reachable(self.loaded.settings, self._providers, self.provider_id, self.model_id)

    def session(self, session_id: str | None = None) -> Conversation:
        """Begin a conversation with the ADMIN agent, or go on with one.

        Args:
            session_id: the session to go on with; a new one when left out.

        Raises:
            SessionNotFoundError: the ledger has no such session.
        """
        settings = self.loaded.settings
        agent_id = settings.chat.agent_id
        ledger = self.ledger.scoped(tier="ho2")
        session = SessionManager(ledger, session_id, agent_id=agent_id)
        if session_id is None:
            session.start()
            self._allocate(session.session_id)
        else:
            session.require()
        supervisor = HO2Supervisor(
            self._worker,
            ledger,
            session,
            settings.supervisor,
            fallback=self.gateway,
            tools_allowed=self._tool_ids,
            work_order_tokens=settings.budget.work_order_tokens,
            agent_id=agent_id,
        )
        return Conversation(session, supervisor)

    def close(self) -> None:
        """Close connections and the ledger. What was written is durable already."""
        run_blocking(self.aclose())
        self._close_ledger()

    def _close_ledger(self) -> None:
        if self._retention is not None:
            self._retention.stop()
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
        reachable = self._providers.reachable
        found = {
            one.default_model: name for name, one in settings.providers.items() if name in reachable
        }
        if "local" in reachable:
            found[settings.local.model] = "local"
        own = {name for name, one in settings.providers.items() if _is_own(one)}
        for price in self.prices:
            if price.provider in reachable and price.provider in own:
                found.setdefault(price.model, price.provider)
        for names in settings.gateway.fallbacks.values():
            for name in names:
                found.setdefault(name, "remit")
        return sorted(found.items())

    def allow_without_limits(self, identity: Identity) -> None:
        """Give an identity's key an account, where it has none: its calls are then counted."""
        scope = BudgetScope(key_id=identity.key_id)
        if not self.budgeter.status(scope):
            self.budgeter.allocate(scope)

    def _allocate(self, session_id: str) -> None:
        budget = self.loaded.settings.budget
        self.budgeter.allocate(
            BudgetScope(session_id), budget.session_tokens or None,
            turn_limit=budget.session_turns or None,
        )  # fmt: skip


def _prices(root: Root, file: str) -> PriceTable:
    shipped = PriceTable.shipped()
    return shipped.overlaid(PriceTable.from_file(root.path / file)) if file else shipped


def _is_own(settings: ProviderSettings) -> bool:
    """Whether a provider is the one whose prices are in the table, by where it is reached."""
    return not os.environ.get(settings.base_url_env) and bool(settings.base_url_env)
