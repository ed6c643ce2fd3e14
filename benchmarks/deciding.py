"""Choosing a model: the time of scoring, and what a routed call costs over a direct one.

The floor of a routed call is the same call to the model that the route would choose, made
directly. A model that answers at once leaves nothing to hide in; one that takes 20 ms is still
quicker than most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.provider import InstantProvider
from benchmarks.rounds import alternate, rate_of_tasks
from benchmarks.routing import open_gateway, request
from benchmarks.table import Comparison, Figure
from remit.gateway import LLMGateway
from remit.kernel.exchange import ModelCapabilities, PromptRequest, RouteOutcome, TextSink
from remit.ledger import LedgerClient
from remit.providers import ProviderRequest, ProviderResponse
from remit.routing import (
    Candidate,
    RouteOptions,
    ScoringInputs,
    Weights,
    aroute_request,
    create_thought_record_emitter,
    score_candidates,
)

_SCORINGS = 5_000
_ROUNDS = 5
_DELAY_S = 0.02
_SENTENCE = "Write a Python function that reads a table of prices and explain how it works. "


def compare(scratch: Path) -> Iterator[Comparison | Figure]:
    """Scoring, then routed calls against direct ones."""
    for name, prompt in (("80", _SENTENCE), ("600", _SENTENCE * 8), ("20,000", _SENTENCE * 250)):
        yield Figure(
            f"score 9 candidates, prompt of {name} characters",
            [_scoring_us(prompt) for _ in range(_ROUNDS)],
            "µs",
            "< 50",
        )
    for delay_s, told in ((0.0, "that answers at once"), (_DELAY_S, "that takes 20 ms")):
        for callers in (1, 16):
            for emits, how in ((False, "not recorded"), (True, "decision recorded")):
                floor, ours = alternate(
                    scratch,
                    partial(_direct_rate, callers, delay_s),
                    partial(_routed_rate, callers, delay_s, emits),
                )
                name = f"routed / direct, model {told}, {callers} tasks, {how}"
                yield Comparison(name, floor, ours, callers, ">= 0.91")


def _candidates() -> tuple[Candidate, ...]:
    """Nine, of which the provider that there is runs the best."""
    return tuple(
        Candidate(
            f"model-{place}", "instant", {"general": 90 - 5 * place, "code": 80}, 10**9, 4 * 10**9,
            200_000, 80, ("en",), served_as="instant-1",
        )
        for place in range(9)
    )  # fmt: skip


def _scoring_us(prompt: str) -> float:
    inputs = ScoringInputs(prompt, "any", "", _candidates(), Weights.shipped())
    started = time.perf_counter()
    for _ in range(_SCORINGS):
        score_candidates(inputs)
    return (time.perf_counter() - started) / _SCORINGS * 1e6


class _LateProvider(InstantProvider):
    """Answers after a while."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s

    def capabilities(self, model_id: str) -> ModelCapabilities:
        """As the one that answers at once."""
        return super().capabilities(model_id)

    async def asend(
        self, request: ProviderRequest, *, on_text: TextSink | None = None
    ) -> ProviderResponse:
        """Answer one request."""
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        return await super().asend(request, on_text=on_text)


def _direct_rate(callers: int, delay_s: float, directory: Path) -> float:
    async def call(gateway: LLMGateway, _: LedgerClient, asked: PromptRequest) -> None:
        response = await gateway.aroute(asked)
        assert response.outcome is RouteOutcome.SUCCESS

    return _rate(callers, delay_s, directory, call)


def _routed_rate(callers: int, delay_s: float, emits: bool, directory: Path) -> float:
    candidates = _candidates()

    async def call(gateway: LLMGateway, ledger: LedgerClient, asked: PromptRequest) -> None:
        options = RouteOptions(gateway, candidates, request=asked)
        if emits:
            emitter = create_thought_record_emitter(
                ledger, task_id=asked.session_id, agent_id="benchmark"
            )
            options = replace(options, decision_emitter=emitter)
        await aroute_request(asked.prompt, options)

    return _rate(callers, delay_s, directory, call)


def _rate(
    callers: int,
    delay_s: float,
    directory: Path,
    call: Callable[[LLMGateway, LedgerClient, PromptRequest], Awaitable[None]],
) -> float:
    with open_gateway(directory) as (gateway, ledger):
        gateway.register_provider("instant", _LateProvider(delay_s))
        return rate_of_tasks(callers, lambda number: call(gateway, ledger, _request(number)))


def _request(number: int) -> PromptRequest:
    """A request whose prompt reads like one, and that no other number gives."""
    return replace(request(number), prompt=f"{number}. {_SENTENCE * 8}")
