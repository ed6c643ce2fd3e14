"""What the worker needs of others, as interfaces: all of it is injected."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from remit.agents.tools import Tool, ToolCall, ToolResult
from remit.contracts import PromptContract, PromptPack
from remit.kernel.budget import BudgetCheckResult, BudgetLimits, BudgetScope

__all__ = ["BudgetPort", "ContractPort", "ToolPort"]


class BudgetPort(Protocol):
    """The worker asks and allocates; only the gateway debits."""

    def allocate_soon(self, scope: BudgetScope, *, limits: BudgetLimits) -> asyncio.Future[Any]:
        """Set the limits of the narrowest scope named, before whatever is written later."""
        ...

    def check(self, scope: BudgetScope) -> BudgetCheckResult:
        """Whether the scope's request would be allowed."""
        ...


class ContractPort(Protocol):
    """Finds contracts and packs."""

    def load(self, contract_id: str, version: str | None = None) -> PromptContract:
        """The newest version of a contract, or the one asked for."""
        ...

    def load_pack(self, prompt_pack_id: str) -> PromptPack:
        """The pack with that id."""
        ...


class ToolPort(Protocol):
    """Knows tools and runs them."""

    def tools(self, tool_ids: Iterable[str]) -> list[Tool]:
        """The tools with these ids."""
        ...

    async def aexecute(
        self, tool_id: str, arguments: Mapping[str, Any], *, call: ToolCall | None = None
    ) -> ToolResult:
        """Run one tool; never raises."""
        ...
