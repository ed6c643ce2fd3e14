"""The A2A project's own client and server, with Remit between them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import uvicorn
from a2a.client import ClientConfig, create_client
from a2a.helpers.proto_helpers import new_text_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes.agent_card_routes import create_agent_card_routes
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    GetTaskRequest,
    Role,
    SendMessageRequest,
)
from a2a.utils.signing import create_agent_card_signer, create_signature_verifier
from starlette.applications import Starlette

from remit import Runtime
from remit.kernel.root import Root
from remit.packages.gates import check_gates
from remit.runtime import make_root
from remit.server.listener import listen, url_of
from remit_interop import Door

_KEY = "a secret of at least thirty-two bytes"


class Importer(AgentExecutor):
    """Works in two steps."""

    async def execute(self, context: Any, event_queue: Any) -> None:
        from a2a.helpers.proto_helpers import new_task_from_user_message, new_text_part

        task = context.current_task or new_task_from_user_message(context.message)
        await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        await updater.add_artifact([new_text_part("10 packets of Tee ☕ are ordered")])
        await updater.complete()

    async def cancel(self, context: Any, event_queue: Any) -> None:
        raise NotImplementedError


@pytest.fixture(scope="module")
def card() -> AgentCard:
    return AgentCard(
        name="Importer ☕", description="Imports tea.", version="1.0",
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text"], default_output_modes=["text"],
        skills=[AgentSkill(id="tea", name="tea", description="tea", tags=["tea"])],
    )  # fmt: skip


@pytest.fixture(scope="module")
def agent(card: AgentCard) -> Iterator[str]:
    """The agent's server, from the A2A project."""
    handler = DefaultRequestHandler(Importer(), InMemoryTaskStore(), card)
    routes = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/rpc")]
    listening = listen("127.0.0.1", 0, 16)
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield url_of(listening)
    server.should_exit = True
    thread.join(30)


@pytest.fixture(scope="module")
def runtime(agent: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    root = Root(tmp_path_factory.mktemp("a2a") / "root")
    make_root(root)
    flags = {"a2a.importer.url": f"{agent}/rpc", "a2a.importer.price_usd": 0.05}
    with Runtime.open(root.path, flags=flags) as opened:
        yield opened


@pytest.fixture(scope="module")
def door(runtime: Runtime, card: AgentCard) -> Iterator[Door]:
    with Door(runtime) as opened:
        card.supported_interfaces.append(
            AgentInterface(
                url=f"{opened.url}/a2a/importer", protocol_binding="JSONRPC",
                protocol_version="1.0",
            )
        )  # fmt: skip
        sign = create_agent_card_signer(
            _KEY, {"alg": "HS256", "kid": "1", "jku": None, "typ": "JOSE"}
        )
        sign(card)
        yield opened


@pytest.mark.parametrize("streaming", [False, True])
async def test_client_and_server(runtime: Runtime, door: Door, agent: str, streaming: bool) -> None:
    session = runtime.agent("buyer", session_usd=0.12).session()
    async with door.attach(session, "Order tea.") as run:
        headers = {"authorization": f"Bearer {run.api_key}"}
        async with httpx.AsyncClient(headers=headers, timeout=60) as http:
            there = await http.get(f"{agent}/.well-known/agent-card.json")
            here = await http.get(f"{door.url}/a2a/importer/.well-known/agent-card.json")
            assert here.content == there.content
            verified = []
            verify = create_signature_verifier(lambda kid, jku: _KEY, ["HS256"])
            client = await create_client(
                f"{door.url}/a2a/importer",
                ClientConfig(streaming=streaming, httpx_client=http),
                signature_verifier=lambda found: verified.append(verify(found)),
            )
            assert verified == [None]
            request = SendMessageRequest(
                message=new_text_message("10 packets", role=Role.ROLE_USER)
            )
            events = [event async for event in client.send_message(request)]
            assert len(events) > 2 if streaming else len(events) == 1
            task_id = next(
                each for event in events
                if (each := event.task.id or event.status_update.task_id)
            )  # fmt: skip
            task = await client.get_task(GetTaskRequest(id=task_id))
            assert task.artifacts[0].parts[0].text == "10 packets of Tee ☕ are ordered"
            [event async for event in client.send_message(request)]
            with pytest.raises(Exception) as short:  # a third would be 0.15
                [event async for event in client.send_message(request)]
            assert "402" in str(short.value) or "left" in str(short.value)
    order = run.order
    assert order.cost.cost_usd == pytest.approx(0.10)
    assert order.cost.llm_calls == 3
    found = list(runtime.ledger.query(work_order_id=order.wo_id, event_type="EXCHANGE"))
    assert {entry.metadata["wire"] for entry in found} == {"a2a.jsonrpc"}
    assert "Tee" in str(found[0].metadata["answer"])
    (report,) = check_gates(runtime.gate_context(), ["G2"], by="test").gates
    assert report.passed, report
    await asyncio.to_thread(session.end)
