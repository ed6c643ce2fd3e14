"""A root in which every table of the ledger's database has rows, each made by who owns it."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from remit.gateway.auth import Identity, KeyStore
from remit.gateway.budget import BudgetScope, TokenBudgeter, TokenUsage
from remit.kernel.loops import run_blocking
from remit.ledger import LedgerClient
from remit.ledger.tlog import VerifierKey
from remit.routing.trail import acreate_thought_record
from remit.server.mcp.callers import Caller, TaskOwners
from tests.agents.queue.bench import Bench, settings
from tests.server.running import Served, serving
from tests.support.commands import run_remit
from tests.support.keeping import Asked, keeping
from tests.support.stores import conversation
from tests.support.waiting import until

__all__ = ["Rich", "make"]

_BOUND = "gpt-4.1-mini"
"""The model whose bill is above its bound."""


class Rich(NamedTuple):
    """A root with rows in every table.

    Attributes:
        store: path or URL of its ledger, which nobody has open.
        key: by which its checkpoints are checked.
    """

    root: Path
    store: str
    key: VerifierKey

    @property
    def is_sqlite(self) -> bool:
        """Else it is PostgreSQL."""
        return "://" not in self.store


def make(root: Path, database: str = "") -> Rich:
    """Make a rich root.

    Args:
        root: its directory, which is not there yet.
        database: the URL of an empty PostgreSQL database; SQLite when left out.
    """
    with keeping() as upstream, _silent() as nobody:
        upstream.replies["chat/completions"] = _chat
        upstream.replies["responses"] = _response
        with serving(
            root, upstream.url, database=database, environment={"ANTHROPIC_BASE_URL": nobody},
            checked=False,
        ) as served:  # fmt: skip
            _use(served)
            asking = threading.Thread(target=_ask_nobody, args=(served,), daemon=True)
            asking.start()
            until(lambda: bool(served.ledger.select("SELECT 1 FROM in_flight")))
            served.kill()
            asking.join()
    store = database or str(root / "ledger.db")
    said = run_remit("ledger", "key", "--root", root, environment=_environment(store)).stdout
    return Rich(root, store, VerifierKey.parse(said.strip()))


def _environment(store: str) -> dict[str, str | None]:
    return {"REMIT_DATABASE_URL": store if "://" in store else None}


@contextlib.contextmanager
def _silent() -> Iterator[str]:
    """A provider that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def _ask_nobody(served: Served) -> None:
    with contextlib.suppress(OSError, AssertionError, Exception):
        served.call("anthropic", "hello?", session="SES-OUT1", model="claude-sonnet-4-5")


def _chat(asked: Asked) -> web.StreamResponse | dict[str, Any]:
    model = json.loads(asked.body)["model"]
    if model == "gpt-4.1":
        return web.json_response({"error": {"message": "down"}}, status=500)
    said = {"role": "assistant", "content": "Hello there.", "refusal": None}
    out = 500 if model == _BOUND else 8
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_770_000_000, "model": model,
        "choices": [{"index": 0, "message": said, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": out, "total_tokens": 10 + out},
    }  # fmt: skip


_numbers = itertools.count(1)


def _response(asked: Asked) -> dict[str, Any]:
    number = next(_numbers)
    text = {"type": "output_text", "text": "Hello.", "annotations": []}
    item = {"id": f"msg_{number:048d}", "type": "message", "role": "assistant",
            "status": "completed", "content": [text]}  # fmt: skip
    return {
        "id": f"resp_{number:048d}", "object": "response", "created_at": 1_770_000_000,
        "status": "completed", "model": json.loads(asked.body)["model"], "output": [item],
        "parallel_tool_calls": True, "tools": [], "tool_choice": "auto",
        "usage": {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13,
                  "input_tokens_details": {"cached_tokens": 0},
                  "output_tokens_details": {"reasoning_tokens": 0}},
    }  # fmt: skip


def _use(served: Served) -> None:
    """Put rows into every table, each by the part of Remit that owns it."""
    ledger = served.ledger
    keys = [served.key(usd_nano=10**12), served.key(tokens=10**9, rpm=1000)]
    with KeyStore(ledger) as store:
        store.create("given", user_id="ann", team_id="t", organisation_id="o", models=["gpt*"],
                     agents=[], tiers=["ho1"], expires="2099-01-01T00:00:00Z")  # fmt: skip
        store.rotate("given", grace_s=36_000)
        store.create("gone", role="operator")
        store.revoke("gone", "no more")
    for number, key in enumerate(keys):
        for turn in range(3):
            named = {"idempotency-key": f"i{turn}", "x-remit-work-order": f"WO-MUT-{number}"}
            status, said, _ = served.call("openai", f"hello {turn}", session=f"SES-MUT{number}",
                                          token=key.key, headers=named)  # fmt: skip
            assert status == 200, said
        for _ in range(2):
            _post(
                served, key.key, "responses", {"model": "gpt-4o-mini", "input": "hi", "store": True}
            )
        name = _post(served, key.key, "conversations", {})["id"]
        for _ in range(2):
            _post(served, key.key, "responses",
                  {"model": "gpt-4o-mini", "input": "more", "conversation": name})  # fmt: skip
        _batch(served, key.key, f"b{number}")
        served.call("openai", "hello", token=key.key, model=_BOUND, max_tokens=2)
        for _ in range(6):
            served.call("openai", "hello", token=key.key, model="gpt-4.1")
        caller = Caller(Identity("x", "agent", key_id=key.key_id))
        owners = TaskOwners(ledger)
        for turn in range(3):
            run_blocking(owners.claim(caller, f"TASK-{number}", ""))
            thought = {"type": "plan", "task_id": f"TASK-{number}", "agent_id": "a",
                       "content": f"{number} {turn}"}  # fmt: skip
            made = acreate_thought_record(ledger, thought, metadata=owners.mark(caller))
            run_blocking(made)
    budgeter = TokenBudgeter(ledger)
    scope = BudgetScope("SES-HELD", requested_tokens=5)
    budgeter.allocate(BudgetScope("SES-HELD"), 500)
    budgeter.reserve(scope, "kept")
    budgeter.debit(BudgetScope("SES-HELD"), TokenUsage(3, 4, cost_nano=5))
    ledger.transact(lambda tx: tx.execute("INSERT INTO leases VALUES ('SES-1', 'x', 1, 0)"))
    _orders(ledger)
    for number in range(8):
        conversation(ledger, f"SES-{number}", 3, subject=f"person{number % 3}")
    ledger.erase(session_id="SES-3", reason="asked")
    ledger.erase(subject_id="person1", reason="asked")
    conversation(ledger, "SES-MANY", 2)
    for _ in range(300 - min(299, ledger.count() % 300)):
        conversation(ledger, "SES-FILL", 1)
    for _ in range(2):
        environment = _environment(served.store)
        run_remit("ledger", "checkpoint", "--root", served.root, environment=environment)
        conversation(ledger, "SES-LAST", 1)


def _orders(ledger: LedgerClient) -> None:
    """Orders in every state, and starts of two keys."""
    limits = {"key_at_once": 2, "key_per_minute": 1}
    bench = Bench(ledger, settings(default=limits))
    for number in range(8):
        bench.submit(f"task {number}", key_id=f"k-{number % 2}", model_id="p/m", priority=number)
    bench.submit("later", due=datetime(2099, 1, 1, tzinfo=UTC), queue="slow")
    claims = bench.claim(bench.worker(), 4)
    bench.fail(claims[0], again=False)
    for task in ("one", "two"):
        bench.queue.pause(bench.submit(task), by="Joe")
        bench.submit(task, kind="replay", max_attempts=2)
    (waiting, running) = bench.claim(bench.worker(), 2)
    bench.end(waiting, "waiting", ["LED-00000001"])
    bench.queue.cancel(running.order_id, by="Joe")


def _post(served: Served, token: str, path: str, body: Any) -> Any:
    status, said, _ = served.ask("POST", f"/v1/{path}", body, token=token)
    assert status == 200, said
    return json.loads(said)


def _batch(served: Served, token: str, name: str) -> None:
    lines = b"".join(
        json.dumps({
            "custom_id": f"{name}-{number}", "method": "POST", "url": "/v1/chat/completions",
            "body": {"model": "gpt-4o-mini", "max_tokens": 50 + number,
                     "messages": [{"role": "user", "content": "hello"}]},
        }).encode() + b"\n"
        for number in range(2)
    )  # fmt: skip
    parts = b"".join(
        b'--x\r\ncontent-disposition: form-data; name="%s"%s\r\n\r\n%s\r\n' % part
        for part in ((b"purpose", b"", b"batch"), (b"file", b'; filename="in.jsonl"', lines))
    )
    form = {"content-type": "multipart/form-data; boundary=x"}
    status, said, _ = served.ask(
        "POST", "/v1/files", parts + b"--x--\r\n", token=token, headers=form
    )
    assert status == 200, said
    _post(served, token, "batches", {"input_file_id": json.loads(said)["id"],
          "endpoint": "/v1/chat/completions", "completion_window": "24h"})  # fmt: skip
