"""The world of an agent under test: a runtime or a worker whose model is a real HTTP server."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from remit.agents import HO1Executor
from remit.agents.tools import Tool, ToolDispatcher
from remit.agents.workorders import (
    WorkOrder,
    WorkOrderConstraints,
    WorkOrderState,
    WorkOrderType,
)
from remit.contracts import ContractLoader
from remit.gateway import LLMGateway, RouterConfig
from remit.gateway.budget import BudgetScope, TokenBudgeter
from remit.kernel.root import Root
from remit.kernel.settings import default_settings
from remit.ledger import LedgerClient, LedgerEntry
from remit.providers import AsyncProvider
from remit.runtime import Runtime
from tests.support.roots import new_root
from tests.support.wire import Step, WireServer, message, serve

CLASSIFIED = {"speech_act": "question", "ambiguity": "low"}
CLASSIFY = message(json.dumps(CLASSIFIED))

Scripted = Callable[..., AbstractContextManager[tuple[Runtime, WireServer]]]
"""What `anthropic_runtime` is, once it has the root: the type of the fixture `scripted`."""


@contextmanager
def anthropic_runtime(
    root: Path, monkeypatch: pytest.MonkeyPatch, *script: Step, **options: Any
) -> Iterator[tuple[Runtime, WireServer]]:
    """A runtime that speaks the Anthropic wire format to a scripted server."""
    with serve(*script) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
        flags: Mapping[str, Any] = {"gateway.retry_base_ms": 1, **options.pop("flags", {})}
        database = str(flags.get("ledger.path") or os.environ.get("REMIT_DATABASE_URL", ""))
        if not root.exists():
            new_root(root, database=database)
        with Runtime.open(root, flags=flags, **options) as runtime:
            yield runtime, server


def by_kind(*answers: Step) -> Step:
    """Classification requests get a class, others the next answer; the last one repeats."""
    left = list(answers)

    def step(body: dict[str, Any]) -> Any:
        if body.get("output_config"):
            return CLASSIFY
        answer = left.pop(0) if len(left) > 1 else left[0]
        return answer(body) if callable(answer) else answer

    return step


def tools_only(*blocks: dict[str, Any], stop: str | None = None) -> dict[str, Any]:
    """An answer of tool_use blocks without a text before them."""
    answer = message("x", *blocks, stop=stop)
    answer["content"] = answer["content"][1:]
    return answer


SESSION = "SES-TESTTEST"
ORDER = f"WO-{SESSION}-001"
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class WorkerBench:
    """A worker with everything it needs."""

    def __init__(self, ledger: LedgerClient, root: Root, provider: AsyncProvider) -> None:
        self.ledger = ledger
        self.root = root
        self.budgeter = TokenBudgeter(ledger)
        self.budgeter.allocate(BudgetScope(SESSION), 1_000_000)
        self.shouted: list[str] = []
        config = RouterConfig("p", "m", retry_base_ms=1, retry_max_ms=1)
        gateway = LLMGateway(ledger, self.budgeter, config, dev_mode=True)
        gateway.register_provider("p", provider)
        settings = default_settings()
        tools = [
            Tool("shout", "Say it loud.", TEXT, self._shout),
            Tool("forbidden", "Never.", TEXT, self._shout),
            Tool("fails", "Fails.", {"type": "object"}, self._fail),
        ]
        self.executor = HO1Executor(
            gateway,
            ledger.scoped(tier="ho1"),
            self.budgeter,
            ToolDispatcher(tools, settings.tools),
            ContractLoader(root.tier("ho1")),
            settings.worker,
        )

    def _shout(self, text: str) -> dict[str, str]:
        self.shouted.append(text)
        return {"shouted": text.upper()}

    def _fail(self) -> None:
        raise RuntimeError("out of order")

    def use_tools(self, *tools: Tool) -> None:
        self.executor.tools = ToolDispatcher(tools, default_settings().tools)

    def run(self, message: str = "hello", **limits: Any) -> WorkOrder:
        wo_type = limits.pop("wo_type", WorkOrderType.SYNTHESIZE)
        context = limits.pop("input_context", {"user_input": message})
        on_event = limits.pop("on_event", None)
        limits.setdefault("prompt_contract_id", "PRC-SYNTHESIZE-001")
        order = WorkOrder(
            limits.pop("wo_id", ORDER),
            SESSION,
            wo_type,
            input_context=context,
            constraints=WorkOrderConstraints(**limits),
        ).moved_to(WorkOrderState.DISPATCHED, by="ho2")
        return self.executor.execute(order, on_event=on_event)

    def events(self) -> list[LedgerEntry]:
        return [e for e in self.ledger.read_all() if e.submission_id == ORDER]
