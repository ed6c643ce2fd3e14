"""Held-out exchanges asked again through the gateway: budget, drift, going on after a kill."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from remit.gateway import PromptRequest
from remit.kernel.budget_values import LEARNING
from remit.kernel.errors import InvalidInputError
from remit.learning import Replay, is_held_out
from remit.ledger import LedgerEntry
from tests.learning.proposals.conftest import World


@pytest.fixture(scope="module")
def exchanges(asked: World) -> list[str]:
    return [asked.exchange(f"How many cups, case {number}?") for number in range(24)]


def request_of(entry: LedgerEntry) -> PromptRequest:
    return PromptRequest(
        str(entry.metadata["prompt"]), "PRM-EXECUTE-001", "PRC-EXECUTE-001", "learner", "RESIDENT",
        "", "", "", "SES-replay", "ho1", model_id="mock-model-1", provider_id="mock",
        max_tokens=100, charged_to=LEARNING.path,
    )  # fmt: skip


def graded(entry: LedgerEntry, text: str) -> float:
    return 0.5 if text == entry.metadata["response"] else 1.0


def replay(
    world: World,
    file: Path,
    exchanges: list[str],
    ask: Callable[[LedgerEntry], PromptRequest] = request_of,
) -> Replay:
    ledger = world.runtime.ledger
    prices = world.runtime.prices.version
    return Replay(world.runtime.gateway, ledger, ask, graded, file, exchanges, prices)


class Priced:
    """The gateway, with a price of one dollar-millionth for each call."""

    def __init__(self, world: World, *, known: bool = True) -> None:
        self._gateway = world.runtime.gateway
        self.known = known

    def cost_bound(self, *_: object) -> int:
        return 2_000

    def route(self, request: PromptRequest) -> object:
        answer = self._gateway.route(request)
        return dataclasses.replace(answer, cost_incurred=1_000 / 1e9, cost_known=self.known)


def priced(world: World, file: Path, exchanges: list[str]) -> Replay:
    made = replay(world, file, exchanges)
    made._gateway = Priced(world)  # type: ignore[assignment]
    return made


def test_the_split_is_stated_and_about_three_in_ten() -> None:
    held = [is_held_out(f"What is {number}?") for number in range(2_000)]
    assert 500 < sum(held) < 700
    assert [number for number in range(12) if held[number]] == [6, 10]
    for number in range(20):
        prompt = f"What is {number}?"
        assert is_held_out([{"role": "user", "content": prompt}]) == held[number]


def test_a_call_whose_cost_nothing_says_counts_its_bound(
    asked: World, exchanges: list[str], tmp_path: Path
) -> None:
    made = priced(asked, tmp_path / "replay.txt", exchanges)
    made._gateway = Priced(asked, known=False)  # type: ignore[assignment]
    found = made.run(exchanges, budget_nano=3_500)
    assert (len(found.pairs), found.spent_nano, found.ended) == (1, 2_000, "budget")


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_a_later_lower_limit_of_calls_applies(
    asked: World, exchanges: list[str], tmp_path: Path, limit: int
) -> None:
    kept = tmp_path / "replay.txt"
    priced(asked, kept, exchanges).run(exchanges, budget_nano=3_500)
    later = priced(asked, kept, exchanges).run(exchanges, budget_nano=10**9, calls=limit)
    assert (len(later.pairs), later.ended) == (2, "budget")


def test_unpriced_calls_are_not_made(asked: World, exchanges: list[str], tmp_path: Path) -> None:
    before = asked.runtime.ledger.count()
    with pytest.raises(InvalidInputError, match="no upper bound"):
        replay(asked, tmp_path / "replay.txt", exchanges).run(exchanges, budget_nano=10**9)
    assert asked.runtime.ledger.count() == before
