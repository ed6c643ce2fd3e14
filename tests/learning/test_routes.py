"""Routes that learn: graded answers bought within a budget, fitted, and refused where in doubt."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from dataclasses import replace

import pytest

from remit.gateway import LLMGateway
from remit.gateway.budget import BudgetScope, TokenBudgeter
from remit.kernel.errors import InvalidInputError
from remit.kernel.settings import GuardSettings
from remit.learning import Source, give_feedback, read_samples
from remit.learning.routes import (
    Calibration,
    GradedPrompt,
    RouteFit,
    calibrate,
    fit_head,
    fit_route,
    graded_prompts,
    power_plan,
)
from remit.learning.routes.ridge import abilities_of
from remit.learning.routes.route_fit import fold_of
from remit.ledger import LedgerClient, LedgerEntry
from remit.providers import ProviderRequest, ProviderResponse
from remit.providers.prices import PriceTable
from remit.routing import (
    Candidate,
    RouteOptions,
    ScoringInputs,
    buckets_of,
    create_thought_record_emitter,
    new_request,
    route_request,
    score_candidates,
)
from tests.support.soak import is_soak, sample

pytestmark = pytest.mark.any_store


def table(rates: dict[str, int], more: str = "") -> PriceTable:
    """A table of output prices in US dollars per million tokens."""
    models = "".join(
        f'[models.{name}]\nprovider = "p"\ninput = "0"\noutput = "{usd}"\ndate = 2026-11-22\n'
        for name, usd in rates.items()
    )
    limits = '[limits]\nlowest = "0.0001"\nhighest = "1000"\n'
    text = f"version = 2026-11-22\n{limits}{models}{more}"
    return PriceTable.from_bytes(text.encode(), "made up")


PRICES = table({"cheap": 1, "dear": 100})
CANDIDATES = [Candidate("cheap", "p"), Candidate("dear", "p")]


def rewards_of(prompt: str) -> dict[str, float]:
    """The cheap model can add, and nothing else."""
    return {"cheap": 1.0 if "add" in prompt else 0.2, "dear": 1.0}


class Answers:
    """Uses 100 tokens; the text is the model's name."""

    def send(self, request: ProviderRequest) -> ProviderResponse:
        return ProviderResponse(request.model_id, request.model_id, 1, 100)


def made(count: int) -> list[GradedPrompt]:
    prompts = []
    for number in range(count):
        text = f"please {'add' if number % 2 else 'prove'} this, item {number}"
        prompts.append(
            GradedPrompt(
                f"LED-{number:08x}", text, text, "chat", rewards_of(text),
                {"cheap": 0.0001, "dear": 0.01}, [f"LED-{number:08x}"],
            )
        )  # fmt: skip
    return prompts


@pytest.fixture
def gateway(ledger: LedgerClient) -> LLMGateway:
    budgeter = TokenBudgeter(ledger)
    budgeter.allocate(BudgetScope("SES-1"), 10**9)
    gateway = LLMGateway(ledger, budgeter, prices=PRICES, dev_mode=True)
    gateway.register_provider("p", Answers())
    return gateway


@pytest.fixture
def logged(ledger: LedgerClient, gateway: LLMGateway) -> list[GradedPrompt]:
    for number in range(6):
        request = new_request(
            "a", "SES-1", provider_id="p", model_id="dear", max_tokens=100,
            messages=[{"role": "user", "content": f"add {number}"}],
        )  # fmt: skip
        answer = gateway.route(request)
        give_feedback(ledger, answer.exchange_entry_id, score=0.5, by="first")
        give_feedback(ledger, answer.exchange_entry_id, score=1.0, by="first")  # the later counts
    return graded_prompts(ledger)


def bought(
    ledger: LedgerClient, gateway: LLMGateway, prompts: list[GradedPrompt], usd: float
) -> Calibration:
    return asyncio.run(
        calibrate(
            gateway, ledger, CANDIDATES, prompts,
            lambda prompt, model, _: rewards_of(prompt.text)[model],
            usd=usd, prices=PRICES, by="test", max_tokens=100, session_id="SES-1",
        )
    )  # fmt: skip


def test_a_calibration_completes_prompts_and_never_passes_its_budget(
    ledger: LedgerClient, gateway: LLMGateway, logged: list[GradedPrompt]
) -> None:
    assert [dict(one.rewards) for one in logged] == [{"dear": 1.0}] * 6
    part = bought(ledger, gateway, logged, 0.00035)  # 100 tokens at 1 USD a million: 0.0001 each
    assert (part.calls, part.graded, part.prompts, part.ended) == (3, 3, 3, "budget")
    assert 0 < part.usd <= 0.00035
    rest = bought(ledger, gateway, graded_prompts(ledger), 1.0)  # only those that are missing
    assert (rest.calls, rest.ended) == (3, "done")
    assert all(one.rewards == rewards_of(one.text) for one in graded_prompts(ledger))
    assert bought(ledger, gateway, graded_prompts(ledger), 0.0).calls == 0


def test_an_erased_answer_teaches_nothing(ledger: LedgerClient, logged: list[GradedPrompt]) -> None:
    """All answers of the session are equal, so the erasure of one erases the value of all."""
    ledger.erase(logged[0].exchange_id, reason="request", requested_by="anna")
    assert graded_prompts(ledger) == []


def graded(
    ledger: LedgerClient, prompt: str, model: str, score: float, by: str,
    source: Source = "person", **more: object,
) -> str:  # fmt: skip
    """Record an exchange and its grade; return the exchange's id."""
    exchange = ledger.write(LedgerEntry("EXCHANGE", "S", "D", "r", metadata={
        "session_id": "SES-1", "prompt": prompt, "response": "1", "outcome": "success",
        "model_id": model, "cost_usd": 0.01} | more))  # fmt: skip
    give_feedback(ledger, exchange, score=score, by=by, source=source)
    return exchange


def test_a_grade_of_a_decision_teaches_about_the_model_that_answered(
    ledger: LedgerClient, gateway: LLMGateway
) -> None:
    options = RouteOptions(
        gateway, tuple(CANDIDATES), request=new_request("a", "SES-1", max_tokens=100),
        decision_emitter=create_thought_record_emitter(ledger, task_id="T", agent_id="a"),
    )  # fmt: skip
    result = route_request("add 1", options)
    give_feedback(ledger, result.decision_id, score=0.25, by="ann")
    (found,) = graded_prompts(ledger)
    assert dict(found.rewards) == {result.model_id: 0.25}
    give_feedback(ledger, found.exchange_id, score=0.75, by="ann")  # the exchange's own
    (found,) = graded_prompts(ledger)
    assert dict(found.rewards) == {result.model_id: 0.75}


def test_one_rater_does_not_flip_the_best_model_against_a_reference(ledger: LedgerClient) -> None:
    exchanges = []
    for number in range(40):
        for model, score in (("cheap", number % 2), ("dear", 1)):
            prompt = f"add {number}"
            exchanges.append(graded(ledger, prompt, model, score, "grader", "reference"))
    before = graded_prompts(ledger)
    fit = fit_route(before, 0.02)
    assert isinstance(fit, RouteFit)
    assert fit.best_single == "dear"
    for place, exchange in enumerate(exchanges):  # the same answers,
        give_feedback(ledger, exchange, score=1.0 - place % 2, by="flood")
    for number in range(460):  # repeated answers, and other prompts: 1,000 grades in all
        for model, score in (("cheap", 1.0), ("dear", 0.0)):
            graded(ledger, f"add {number}", model, score, "flood")
    assert graded_prompts(ledger) == before
    sampled = {one.exchange_id: one for one in read_samples(ledger)}
    assert [sampled[one].reward for one in exchanges[:4]] == [0, 1, 1, 1]
    assert {sampled[one].raters for one in exchanges} == {("grader",)}


def test_what_is_graded_later_moves_no_prompt_to_another_fold(ledger: LedgerClient) -> None:
    exchanges = [
        ledger.write(LedgerEntry("EXCHANGE", "S", "D", "r", metadata={
            "session_id": "SES-1", "prompt": f"add {number % 8}", "response": "1",
            "outcome": "success", "model_id": "dear"}))
        for number in range(40)
    ]  # fmt: skip
    random.Random(3).shuffle(exchanges)
    folds: dict[str, int] = {}
    for exchange in exchanges:
        give_feedback(ledger, exchange, score=1.0, by="ann")
        for one in graded_prompts(ledger):
            assert folds.setdefault(one.text, fold_of(one)) == fold_of(one)
    assert len(set(folds.values())) > 2


def costs(ledger: LedgerClient, candidate: Candidate, prices: PriceTable | None) -> set[float]:
    found = graded_prompts(ledger, candidates=[candidate], prices=prices)
    return {one.costs[candidate.model_id] for one in found}


def test_an_answer_has_its_present_price(ledger: LedgerClient, logged: list[GradedPrompt]) -> None:
    now, dear = table({"cheap": 1, "dear": 3}), Candidate("dear", "p")
    assert {one.costs["dear"] for one in logged} == {0.01}  # 100 tokens at 100 USD a million
    assert costs(ledger, dear, now) == {0.0003}
    assert costs(ledger, Candidate("mine", "p", served_as="dear"), now) == {0.0003}
    assert costs(ledger, dear, PRICES) == costs(ledger, dear, None) == {0.01}
    assert costs(ledger, Candidate("dear", "q"), now) == {0.01}  # of which no price is known
    assert costs(ledger, replace(dear, input_price=0, output_price=0), now) == {0.0}


@pytest.fixture(scope="module")
def paying() -> RouteFit:
    fit = fit_route(made(400), 0.0058)
    assert isinstance(fit, RouteFit)
    return fit


def test_a_route_that_pays_is_proposed_with_its_evidence(paying: RouteFit) -> None:
    assert not paying.missing
    assert paying.best_single == "dear"
    assert paying.saved.low > 0
    assert paying.saved.effective_samples == paying.held_out == 400
    assert paying.usd_per_call <= 0.0058
    assert paying.reward.value == pytest.approx(0, abs=0.001)
    assert len(paying.evidence) == len(paying.holds) == 400
    assert paying.weights.learned is not None


def test_no_prompt_is_decided_by_a_head_that_was_fitted_to_it() -> None:
    """A prompt that resembles no other must not be known to the head that decides it."""
    prompts = made(120)
    odd = "zyx wvu tsr qpo nml kji hgf edc"
    lone = GradedPrompt(
        "LED-0000ffff", odd, odd, "chat", {"cheap": 1.0, "dear": 0.0},
        {"cheap": 1e-4, "dear": 0.01}, ["LED-0000ffff"],
    )  # fmt: skip
    turned = replace(lone, rewards={"cheap": 0.0, "dear": 1.0})
    fits = [fit_route([*prompts, one], 0.0055) for one in (lone, turned)]
    first, second = fits
    assert isinstance(first, RouteFit)
    assert isinstance(second, RouteFit)
    assert abs(first.shares["cheap"] - second.shares["cheap"]) < 1.5 / 121
    assert first.weights.head is not None
    assert second.weights.head is not None
    seen = buckets_of(odd, first.weights.head.buckets)
    of_first, of_second = (
        fit.weights.head.qualities(seen) for fit in (first, second) if fit.weights.head
    )
    assert of_first["cheap"] > of_second["cheap"]  # the proposed head knows it


def test_a_head_predicts_what_a_call_of_each_prompt_costs() -> None:
    """By its words, and by its length: one model's answers are long for one kind of prompt."""
    draw = random.Random(5)
    prompts = []
    for number in range(300):
        kind, size = draw.choice(("story", "sum")), draw.choice((1, 4, 16, 64))
        text = f"{kind} {number} " + "word " * size
        usd = 0.01 * size * draw.uniform(0.8, 1.25)
        prompts.append(
            GradedPrompt(
                f"LED-{number:08x}", text, text, "chat", {"a": 1.0, "b": 1.0},
                {"a": 0.05 if kind == "story" else 0.001, "b": usd},
            )
        )  # fmt: skip
    head = fit_head(prompts)

    def usd_of(text: str) -> dict[str, float]:
        seen = buckets_of(text, head.buckets)
        return {name: nano / 1e9 for name, nano in head.costs(seen, -(-len(text) // 4)).items()}

    story, short, long = (
        usd_of(text) for text in ("story 999 word ", "sum 999 word ", "sum 999 " + "word " * 64)
    )
    assert story["a"] > 4 * short["a"]
    assert long["b"] > 8 * short["b"]
    total = sum(usd_of(one.text)["b"] for one in prompts)
    assert total == pytest.approx(sum(one.costs["b"] for one in prompts), rel=0.01)


def test_a_quality_floor_is_estimated_as_it_is_served() -> None:
    fit = fit_route(made(200), 0.0055, quality_floor=0.05)
    assert isinstance(fit, RouteFit)
    candidates = [Candidate(name, "p") for name in ("cheap", "dear")]
    served = [
        score_candidates(ScoringInputs(one.prompt, "any", "", candidates, fit.weights)).winner
        for one in made(200)
    ]
    assert fit.shares == {name: served.count(name) / len(served) for name in ("cheap", "dear")}
    assert fit.shares["cheap"] == 1  # by the price weight alone, it would be about half


def alike(number: int, dear: float = 1.0) -> GradedPrompt:
    """A prompt for which the cheap model is always right."""
    text = f"subject {number % 7}, item {number}"
    return GradedPrompt(
        f"LED-{number:08x}", text, text, "chat", {"cheap": 1.0, "dear": dear},
        {"cheap": 0.001, "dear": 0.01}, [f"LED-{number:08x}"],
    )  # fmt: skip


def tried(seed: int, loss: float, count: int, explored: int) -> RouteFit:
    """A fit where 15 % of the rewards differ, and the cheap model loses so much in truth.

    Of the explored prompts in addition, one of both models was drawn, and only its answer graded.
    """
    draw = random.Random(f"power {seed}")
    prompts = []
    for number in range(count + explored):
        text = f"{draw.choice(SUBJECTS)} {draw.choice(SUBJECTS)} {number}"
        differs, worse = draw.random() < 0.15, draw.random() < 0.5 + loss / 0.15 / 2
        base = float(draw.random() < 0.9)
        rewards = {"cheap": base, "dear": base}
        if differs:
            rewards = {"cheap": float(not worse), "dear": float(worse)}
        chances: dict[str, float] = {}
        if number >= count:
            asked = draw.choice(("cheap", "dear"))
            rewards, chances = {asked: rewards[asked]}, {"cheap": 0.5, "dear": 0.5}
        prompts.append(
            GradedPrompt(
                f"LED-{number:08x}", text, text, "chat", rewards,
                {"cheap": 0.002, "dear": 0.01}, [f"LED-{number:08x}"], chances=chances,
            )
        )  # fmt: skip
    fit = fit_route(prompts, 0.003)
    assert isinstance(fit, RouteFit)
    return fit


SUBJECTS = ("rain", "trains", "tea", "apples", "law", "taxes", "ships", "music", "glass", "wool")
TRIES = list(range(100))


def accepted(tries: list[int], loss: float, count: int, explored: int = 0) -> int:
    """Return how many of the tries propose their route."""
    return sum(not tried(seed, loss, count, explored).missing for seed in tries)


def test_a_route_without_loss_is_accepted_and_one_that_loses_is_not() -> None:
    """In a soak: 100 tries each; at least 50 without a true loss, at most 5 with 3 points."""
    tries = sample(TRIES, 1)
    if is_soak():
        assert accepted(tries, 0.0, 1_500) >= 50
    assert accepted(tries, 0.03, 1_500) <= len(tries) // 20


def test_partly_graded_prompts_take_the_place_of_whole_ones() -> None:
    """In a soak: 100 tries each, 800 prompts graded for both models and 2,000 explored ones."""
    tries = sample(TRIES, 1)
    if is_soak():
        assert accepted(tries, 0.0, 800, 2_000) >= accepted(tries, 0.0, 800) + 10
    assert accepted(tries, 0.03, 800, 2_000) <= len(tries) // 20


def test_a_plan_states_prompts_and_dollars_before_they_are_spent() -> None:
    candidates = [
        Candidate("cheap", "p", input_price=10**8, output_price=10**8),
        Candidate("dear", "p", input_price=10**10, output_price=10**10),
    ]
    blind = power_plan([], candidates)
    assert (blind.graded, blind.missing, blind.differing) == (0, blind.prompts, 0.15)
    assert blind.usd == pytest.approx(blind.prompts * (0.0001 + 0.01))
    assert f"{blind.prompts:,} prompts" in blind.text()
    easier = power_plan([], candidates, guard=GuardSettings(tolerance=0.05))
    assert easier.prompts < blind.prompts
    equal = [alike(number) for number in range(1000)]
    seen = power_plan(equal, candidates)
    assert seen.prompts < blind.prompts / 4  # all rewards are equal, so far
    assert (seen.missing, seen.usd) == (0, 0)
    half = [replace(one, rewards={"dear": 1.0}, costs={"dear": 0.01}) for one in equal[:100]]
    partly = power_plan(half, candidates)
    assert partly.usd < blind.usd  # the dear answers exist already
    smaller = power_plan([], candidates, saving_usd=0.0001)
    assert smaller.prompts > blind.prompts  # a small saving is hard to see
    short = [replace(one, prompt="Two words?" * 10) for one in equal[:3]]
    known = power_plan([], candidates, asked=short, max_tokens=100)
    assert known.usd == pytest.approx(known.prompts * (0.0001 + 0.01) * (125 / 1000), rel=0.05)


def test_abilities_are_shrunk_to_the_mean() -> None:
    prompts = made(40)
    prompts.append(
        GradedPrompt("LED-000000ff", "x", "x", "code", {"cheap": 0.0}, {"cheap": 0.0})
    )  # one bad answer to a task says little
    found = abilities_of(prompts)
    assert found["dear"]["general"] == 100
    assert abs(found["cheap"]["code"] - found["cheap"]["general"]) <= 5


def test_the_digest_of_a_price_is_the_same_in_every_process() -> None:
    program = (
        "from remit.learning.routes import prices_at\n"
        "from remit.providers.prices import PriceTable\n"
        "print(prices_at(PriceTable.shipped(), ['google/gemini-2.5-pro']))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True, check=True,
        ).stdout
        for seed in range(2)
    }  # fmt: skip
    assert len(found) == 1


def test_an_unpriced_model_fits_no_budget(ledger: LedgerClient, gateway: LLMGateway) -> None:
    with pytest.raises(InvalidInputError, match="other"):
        asyncio.run(
            calibrate(
                gateway, ledger, [Candidate("other", "p")], [], lambda *_: 1.0, usd=1.0,
                prices=PRICES, by="test",
            )
        )  # fmt: skip
