"""One board of circuits for all processes that open a ledger, on both stores."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from aiohttp import web

from remit.gateway import (
    CircuitBreakerConfig,
    CircuitState,
    LLMGateway,
    RouteOutcome,
    RouterConfig,
)
from remit.kernel.errors import RemitError
from remit.kernel.loops import run_blocking
from remit.ledger import LedgerClient
from remit.providers import ProviderError
from tests.support import wire
from tests.support.processes import Program
from tests.support.requests import anthropic_provider, prompt_request
from tests.support.wire import Raw, Step, WireServer, message, serve

_DOWN = Raw(b"{}", 500)
_SECONDS = 60.0  # by when anything has happened on the slowest machine

# Each line that comes in is one order; each line that goes out, what came of it.
_PROCESS = """
import asyncio, json, sys
from remit.gateway import CircuitBreakerConfig, LLMGateway, RouterConfig
from remit.ledger import LedgerClient
from tests.support.processes import Program
from tests.support.requests import anthropic_provider, prompt_request
target, url, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
async def main():
    with LedgerClient(target) as ledger:
        config = RouterConfig(
            max_retries=0, default_timeout_ms=settings.pop("timeout_ms"),
            lease_margin_ms=settings.pop("margin_ms"),
            circuit_breaker=CircuitBreakerConfig(**settings),
        )
        gateway = LLMGateway(ledger, config=config, dev_mode=True)
        gateway.register_provider("mock", anthropic_provider(url))
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            order = json.loads(line)
            if order["do"] == "calls":
                answers = await asyncio.gather(
                    *[gateway.aroute(prompt_request()) for _ in range(order["number"])]
                )
                said = [answer.error_code or "SUCCESS" for answer in answers]
            else:
                said = await gateway.circuit("mock", "mock-model-1")
            print(json.dumps(said), flush=True)
asyncio.run(main())
"""


class _Process:
    """A process with a gateway on the same ledger."""

    def __init__(self, target: str, url: str, **settings: Any) -> None:
        settings = {
            "failure_threshold": 3, "recovery_timeout_ms": 600_000, "half_open_max": 1,
            "timeout_ms": 30_000, "margin_ms": 30_000, **settings,
        }  # fmt: skip
        self._process = Program(
            "-c", _PROCESS, target, url, json.dumps(settings), environment=os.environ
        )
        assert self._hear() == "ready"

    def order(self, **order: Any) -> None:
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        return json.loads(self._hear())

    def calls(self, number: int = 1) -> list[str]:
        self.order(do="calls", number=number)
        said: list[str] = self.answer()
        return said

    def state(self) -> str:
        self.order(do="circuit")
        return str(self.answer()[0])

    def kill(self) -> None:
        self._process.kill()
        self.end()

    def end(self) -> None:
        self._process.stdin.close()
        self._process.wait(_SECONDS)
        self._process.stdout.close()

    def _hear(self) -> str:
        line = self._process.stdout.readline()
        assert line, "the process has ended"
        return line.strip()


@contextmanager
def _processes(number: int, target: str, url: str, **settings: Any) -> Iterator[list[_Process]]:
    with ExitStack() as stack:
        LedgerClient(target).close()
        those = [_Process(target, url, **settings) for _ in range(number)]
        for one in those:
            stack.callback(one.end)
        yield those


class _HoldingServer(WireServer):
    """Answers those that come behind the first ``free`` when it is ``released``."""

    def __init__(self, script: list[Step]) -> None:
        super().__init__(script)
        self.came = 0
        self.free = 0
        self.released = threading.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.came += 1
        if self.came > self.free:
            while not self.released.is_set():
                await asyncio.sleep(0.01)
        return await super().answer(request)


@contextmanager
def _serve_held(*script: Step, free: int) -> Iterator[_HoldingServer]:
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wire, "WireServer", _HoldingServer)
            server = stack.enter_context(serve(*script))
        assert isinstance(server, _HoldingServer)
        server.free = free
        try:
            yield server
        finally:
            server.released.set()


def _rejected(target: str) -> int:
    with LedgerClient(target) as ledger:
        return ledger.count_by_event().get("PROMPT_REJECTED", 0)


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.02)


def _gateway(ledger: LedgerClient, url: str, **settings: Any) -> LLMGateway:
    config = RouterConfig(max_retries=0, circuit_breaker=CircuitBreakerConfig(**settings))
    gateway = LLMGateway(ledger, config=config, dev_mode=True)
    gateway.register_provider("mock", anthropic_provider(url))
    return gateway


def _ask(gateway: LLMGateway, number: int = 1) -> list[str]:
    return [gateway.route(prompt_request()).error_code or "SUCCESS" for _ in range(number)]


# -- processes -------------------------------------------------------------------------


def test_failures_count_wherever_they_happen(target: str) -> None:
    with serve(_DOWN) as server, _processes(3, target, server.url) as those:
        for one in those:
            assert one.calls() == ["SERVER_ERROR"]
        time.sleep(0.1)
        assert [one.calls()[0] for one in those] == ["CIRCUIT_OPEN"] * 3
        assert len(server.calls) == 3


@pytest.mark.parametrize("trials", [3])
def test_as_many_trials_go_out_as_may_over_all_processes(target: str, trials: int) -> None:
    settings = {"recovery_timeout_ms": 1_000, "half_open_max": trials}
    with (
        _serve_held(_DOWN, _DOWN, _DOWN, message("hi"), free=3) as server,
        _processes(4, target, server.url, **settings) as those,
    ):
        assert those[0].calls(3) == ["SERVER_ERROR"] * 3
        _until(lambda: those[0].state() == "half_open")
        for one in those:
            one.order(do="calls", number=5)
        # Nobody is answered before every other has asked: refusals come while the trials are out.
        _until(lambda: _rejected(target) == 20 - trials)
        _until(lambda: server.came == 3 + trials)
        server.released.set()
        said = Counter(word for one in those for word in one.answer())
        assert said == {"SUCCESS": trials, "CIRCUIT_OPEN": 20 - trials}
        for one in those:  # a success anywhere closes it everywhere
            _until(lambda one=one: one.state() == "closed")  # type: ignore[misc]
            assert one.calls() == ["SUCCESS"]


def test_a_trial_of_a_killed_process_is_given_to_another(target: str) -> None:
    settings = {
        "failure_threshold": 1, "recovery_timeout_ms": 50, "timeout_ms": 3_000, "margin_ms": 500,
    }  # fmt: skip
    with (
        _serve_held(_DOWN, message("hi"), free=1) as server,
        _processes(1, target, server.url, **settings) as (heir,),
    ):
        doomed = _Process(target, server.url, **settings)
        assert doomed.calls() == ["SERVER_ERROR"]
        time.sleep(0.1)
        doomed.order(do="calls", number=1)
        _until(lambda: server.came == 2)
        doomed.kill()
        server.released.set()
        assert heir.calls() == ["CIRCUIT_OPEN"]
        _until(lambda: heir.calls() == ["SUCCESS"])
        assert heir.state() == "closed"


def test_a_restart_finds_the_circuit_open(target: str) -> None:
    with serve(_DOWN) as server:
        for number in range(2):
            with LedgerClient(target) as ledger:
                gateway = _gateway(ledger, server.url, recovery_timeout_ms=600_000)
                said = _ask(gateway, 4)
                assert said[-1] == "CIRCUIT_OPEN"
                assert said.count("SERVER_ERROR") == (0 if number else 3)
                refused = gateway.route(prompt_request())
                assert refused.outcome is RouteOutcome.REJECTED
                assert 0 < (refused.retry_after_s or 0) <= 600
        assert len(server.calls) == 3


# -- one process -----------------------------------------------------------------------


def test_two_gateways_of_one_ledger_share_them(ledger: LedgerClient) -> None:
    with serve(_DOWN) as server:
        one = _gateway(ledger, server.url, poll_s=0.0)
        other = _gateway(ledger, server.url, poll_s=0.0)
        assert other.breakers == {}
        _ask(one, 3)
        key = ("mock", "mock-model-1")
        assert other.breakers[key].state is CircuitState.OPEN
        assert other.breakers[key].state is CircuitState.OPEN
        retry_after_s = other.breakers[key].retry_after_s or 0
        assert 0 < retry_after_s <= 30
        state, seconds = asyncio.run(other.circuit(*key))
        assert state is CircuitState.OPEN
        assert 0 < (seconds or 0) <= retry_after_s + 1  # the server's clock, as seen from here
        assert asyncio.run(other.circuit("mock", "another")) == (CircuitState.CLOSED, None)
        assert _ask(other) == ["CIRCUIT_OPEN"]
        assert len(server.calls) == 3


def test_a_success_forgets_failures_that_others_counted(ledger: LedgerClient) -> None:
    with serve(_DOWN, _DOWN, message("hi"), _DOWN, _DOWN, message("hi")) as server:
        one = _gateway(ledger, server.url, poll_s=0.0)
        other = _gateway(ledger, server.url, poll_s=0.0)
        said = _ask(one, 2) + _ask(other) + _ask(one, 2) + _ask(other)
    assert said == ["SERVER_ERROR", "SERVER_ERROR", "SUCCESS"] * 2


def test_a_cancelled_trial_is_given_back(ledger: LedgerClient) -> None:
    async def cancel(gateway: LLMGateway, after_s: float) -> None:
        task = asyncio.create_task(gateway.aroute(prompt_request()))
        await asyncio.sleep(after_s)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with _serve_held(_DOWN, message("hi"), free=1) as server:
        gateway = _gateway(ledger, server.url, failure_threshold=1, recovery_timeout_ms=0)
        _ask(gateway)
        for part in range(12):  # wherever it is just then
            run_blocking(cancel(gateway, part / 300))
        ledger.flush()
        assert ledger.select("SELECT trials FROM breakers") == [(0,)]
        server.released.set()
        assert _ask(gateway) == ["SUCCESS"]


def test_what_cannot_be_read_leaves_in_force_what_is_known(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LedgerClient(target) as ledger, LedgerClient(target) as own, serve(_DOWN) as server:
        one = _gateway(ledger, server.url, poll_s=0.0, failure_threshold=1)
        other = _gateway(own, server.url, poll_s=0.0, failure_threshold=1)
        _ask(one)
        assert other.breakers["mock", "mock-model-1"].state is CircuitState.OPEN
        select = own.select

        def refuse(sql: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
            if "breakers" in sql:
                raise RemitError("the disk is on fire")
            return select(sql, parameters)

        monkeypatch.setattr(own, "select", refuse)
        assert _ask(other, 2) == ["CIRCUIT_OPEN"] * 2
        assert len(server.calls) == 1


def test_an_answer_of_before_the_opening_says_nothing_to_others(ledger: LedgerClient) -> None:
    with _serve_held(message("hi"), free=0) as slow_server, serve(_DOWN) as server:
        one = _gateway(ledger, slow_server.url, poll_s=0.0)
        other = _gateway(ledger, server.url, poll_s=0.0)
        early: list[str] = []
        slow = threading.Thread(target=lambda: early.extend(_ask(one)))
        slow.start()
        _until(lambda: slow_server.came == 1)
        _ask(other, 3)
        slow_server.released.set()
        slow.join(_SECONDS)
        assert early == ["SUCCESS"]
        assert one.breakers["mock", "mock-model-1"].state is CircuitState.OPEN


def test_names_of_models_do_not_fill_memory(ledger: LedgerClient) -> None:
    with serve(message("hi")) as server:
        gateway = _gateway(ledger, server.url, most_rows=8)
        for number in range(40):
            answer = gateway.route(prompt_request(model_id=f"m{number}", provider_id="mock"))
            assert answer.outcome is RouteOutcome.SUCCESS
        assert 0 < len(gateway.breakers) <= 8


def test_a_request_that_cannot_be_made_again_ends_with_the_failure_that_was_sent(
    ledger: LedgerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(_DOWN) as server:
        config = RouterConfig(max_retries=2, retry_base_ms=1, retry_max_ms=1)
        gateway = LLMGateway(ledger, config=config, dev_mode=True)
        provider = anthropic_provider(server.url)
        made = provider.outgoing

        def outgoing(order: Any) -> Any:
            if server.calls:
                raise ProviderError("INVALID_INPUT", "the request cannot be expressed")
            return made(order)

        monkeypatch.setattr(provider, "outgoing", outgoing)
        gateway.register_provider("mock", provider)
        response = gateway.route(prompt_request())
    assert response.error_code == "SERVER_ERROR"
    assert [entry.event_type for entry in ledger.read_all()] == ["DISPATCH", "EXCHANGE"]
