"""Routes that learn: graded answers bought within a budget, fitted, and refused where in doubt."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.learning.recorded import Recorded
from benchmarks.learning.swap import Sizes, begin, change
from benchmarks.learning.swap_run import Run

from remit.gateway import LLMGateway
from remit.gateway.auth import Identity
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
from remit.learning.routes.route_fit import IN_FORCE, fold_of
from remit.ledger import LedgerClient, LedgerEntry
from remit.providers import ProviderRequest, ProviderResponse
from remit.providers.prices import PriceTable
from remit.routing import (
    Candidate,
    RouteOptions,
    ScoringInputs,
    buckets_of,
    chances_of,
    create_thought_record_emitter,
    new_request,
    route_request,
    score_candidates,
)
from remit.routing.exploration import draw
from tests.support.commands import run_remit
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


def test_grades_count_as_in_samples(ledger: LedgerClient, logged: list[GradedPrompt]) -> None:
    first, second, third, *_ = (one.exchange_id for one in logged)
    for key in ("KEY-1", "KEY-2"):  # two keys of one user are one party
        ann = Identity("ann", "operator", key_id=key, user_id="ann")
        give_feedback(ledger, first, score=0.0, by="ann", identity=ann)
    give_feedback(ledger, second, score=0.0, by="judge", source="judge")
    give_feedback(ledger, third, label="vague", by="first")  # in place of the score
    rewards = {one.exchange_id: one.rewards["dear"] for one in graded_prompts(ledger)}
    assert rewards == {
        sample.exchange_id: sample.reward
        for sample in read_samples(ledger)
        if sample.reward is not None
    }
    assert (rewards[first], rewards[second], third in rewards) == (0.5, 1.0, False)


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


def test_repeats_are_means_and_count_as_often_as_they_were_asked(ledger: LedgerClient) -> None:
    for score, usd in ((1.0, 0.01), (1.0, 0.02), (0.0, 0.03)):
        graded(ledger, "again", "dear", score, "ann", cost_usd=usd)
    graded(ledger, "once", "dear", 1.0, "ann")
    graded(ledger, "bought", "dear", 1.0, "ann", agent_id="route-calibration")
    again, once, bought_one = graded_prompts(ledger)
    assert again.rewards["dear"] == pytest.approx(2 / 3)  # not 0, the last grade
    assert again.costs["dear"] == pytest.approx(0.02)
    assert (again.traffic, once.traffic, bought_one.traffic) == (3, 1, 1)


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


def test_a_flood_by_one_party_does_not_outweigh_the_others(ledger: LedgerClient) -> None:
    for number in range(40):
        graded(ledger, f"good {number}", "dear", 1.0, f"person {number % 4}")
    for number in range(400):
        graded(ledger, f"flood {number}", "dear", 0.0, "flood")
    found = graded_prompts(ledger)
    total = sum(one.traffic for one in found)
    flood = sum(one.traffic for one in found if one.text.startswith("flood"))
    assert flood / total == pytest.approx(0.25)
    head = fit_head(found)
    assert head.models["dear"].bias == pytest.approx(750_000, abs=2)
    # A reference of the same party does not lift the limit of its opinions.
    graded(ledger, "right", "dear", 1.0, "flood", source="reference")
    traffic = {one.text: one.traffic for one in graded_prompts(ledger)}
    flood = sum(share for text, share in traffic.items() if text.startswith("flood"))
    assert flood / sum(traffic.values()) == pytest.approx(0.25, abs=0.01)
    assert traffic["right"] == 1.0


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


def test_opinions_of_one_models_answers_count_next_to_checks(ledger: LedgerClient) -> None:
    for number in range(20):
        for model in ("cheap", "dear"):
            graded(ledger, f"add {number}", model, 1, "grader", "reference")
    graded(ledger, "asked once", "cheap", 0, "ann")
    *_, one = graded_prompts(ledger)
    assert (one.prompt, one.rewards) == ("asked once", {"cheap": 0})


def test_feedback_teaches_without_enough_checks(ledger: LedgerClient) -> None:
    for number in range(40):
        for model, score in (("cheap", number % 2), ("dear", 1)):
            graded(ledger, f"add {number}", model, score, f"person {number % 5}")
    for model in ("cheap", "dear"):
        graded(ledger, "add 1", model, 1.0, "the program", source="reference")
    found = graded_prompts(ledger)
    assert {(one.prompt == "add 1", one.traffic) for one in found} == {(False, 2.0), (True, 2.0)}
    assert len(found) == 40
    fit = fit_route(found, 0.02)
    assert isinstance(fit, RouteFit)
    assert fit.best_single == "dear"


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


def test_cached_tokens_and_providers_tools_have_their_own_price(ledger: LedgerClient) -> None:
    used = {
        "input_tokens": 100, "cached_input_tokens": 60, "output_tokens": 10,
        "server_tool_uses": {"web_search": 2},
    }  # fmt: skip
    for text, tokens in (("add", used), ("sum", used | {"cached_input_tokens": 101})):
        exchange = ledger.write(LedgerEntry("EXCHANGE", "S", "D", "r", metadata={
            "session_id": "SES-1", "prompt": text, "response": "1", "outcome": "success",
            "model_id": "m", "cost_usd": 7.0, "price_version": "another"} | tokens))  # fmt: skip
        give_feedback(ledger, exchange, score=1.0, by="ann")
    prices = table(
        {},
        '[models.m]\nprovider = "p"\ninput = "10"\noutput = "100"\ncached_input = "1"\n'
        "date = 2026-11-22\n[server_tools.p]\n"
        'web_search = { per_use = "0.01", date = 2026-11-22, source = "x" }\n',
    )
    expected = (40 * 10 + 60 * 1 + 10 * 100) / 1e6 + 2 * 0.01
    assert costs(ledger, Candidate("m", "p"), prices) == {expected, 7.0}


def test_the_first_error_of_a_calibration_is_raised_by_itself(
    ledger: LedgerClient, gateway: LLMGateway, logged: list[GradedPrompt]
) -> None:
    def refuse(prompt: GradedPrompt, model: str, answer: str) -> float:
        raise InvalidInputError("no grade")

    with pytest.raises(InvalidInputError, match="no grade"):
        asyncio.run(
            calibrate(
                gateway, ledger, CANDIDATES, logged, refuse, usd=1.0, prices=PRICES, by="test",
                max_tokens=100, session_id="SES-1", at_once=2,
            )
        )  # fmt: skip


def test_an_unpriced_model_fits_no_budget(ledger: LedgerClient, gateway: LLMGateway) -> None:
    with pytest.raises(InvalidInputError, match="other"):
        asyncio.run(
            calibrate(
                gateway, ledger, [Candidate("other", "p")], [], lambda *_: 1.0, usd=1.0,
                prices=PRICES, by="test",
            )
        )  # fmt: skip


def test_a_head_knows_what_each_model_can_do() -> None:
    head = fit_head(made(200))
    for text, good in (("add two apples", True), ("prove two lemmas", False)):
        found = head.qualities(buckets_of(text, head.buckets))
        assert (found["cheap"] > 600_000) == good
        assert found["dear"] > 950_000
    assert fit_head(made(200)).digest == head.digest
    assert b"lemma" not in head.encoded
    assert b"please" not in head.encoded


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


def test_a_route_saves_against_the_one_in_force(paying: RouteFit) -> None:
    assert paying.saves_against == "dear"
    prompts = made(400)
    again = fit_route(prompts, 0.0058, rules=paying.weights)
    assert isinstance(again, RouteFit)
    assert again.saves_against == IN_FORCE
    assert any("compared with the current route" in line for line in again.missing)

    # The better model is now the cheaper one.
    swapped = [replace(one, costs={"cheap": 0.01, "dear": 0.0001}) for one in prompts]
    alone = fit_route(swapped, 0.0058)
    assert isinstance(alone, RouteFit)
    assert any("compared with dear" in line for line in alone.missing)  # which it is
    fit = fit_route(swapped, 0.0058, rules=paying.weights)
    assert isinstance(fit, RouteFit)
    assert not fit.missing
    assert fit.shares == {"cheap": 0, "dear": 1}
    without = [
        replace(one, rewards={"dear": 1.0, "new": 1.0}, costs={"dear": 0.01, "new": 0.0001})
        for one in made(120)
    ]
    left = fit_route(without, 1.0, rules=paying.weights)  # in force it could take only the dear one
    assert isinstance(left, RouteFit)
    assert left.saves_against == IN_FORCE


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


def test_models_that_are_equally_good_need_few_prompts() -> None:
    """As few as one bound of a loss that was never seen takes: log(2 / 0.05) / 0.025."""
    few, enough = (fit_route([alike(n) for n in range(count)], 0.002) for count in (140, 148))
    assert isinstance(few, RouteFit)
    assert isinstance(enough, RouteFit)
    assert "about 148 prompts" in few.missing[-1]
    assert not enough.missing


def test_a_grader_that_finds_every_answer_bad_shows_nothing() -> None:
    """A test that crashes exits with 1, as for a wrong answer."""
    bad = [replace(alike(n), rewards={"cheap": 0.0, "dear": 0.0}) for n in range(200)]
    found = fit_route(bad, 0.002)
    assert isinstance(found, RouteFit)
    assert len(found.missing) == 1
    assert "the grader may not work" in found.missing[0]


def test_what_is_in_doubt_is_no_proposal() -> None:
    few = fit_route(made(100), 0.0055)
    assert isinstance(few, RouteFit)
    assert "of reward" in few.missing[0]
    worse = fit_route(made(300), 0.00005)  # nothing is so cheap
    assert isinstance(worse, RouteFit)
    assert any("of reward" in line for line in worse.missing)
    assert len(worse.missing) > 1  # all that is missing, not the first of it
    nothing = fit_route([], 0.01)
    assert isinstance(nothing, str)
    assert "148" in nothing


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


def test_the_chances_of_a_decision_are_those_of_its_draw() -> None:
    record = {
        "routing_mode": "single", "chosen_model_id": "a", "candidates_considered": ["a", "b", "c"],
        "scores": {"a": 3.0, "b": 2.0, "c": 1.0}, "fallback_attempts": 0,
        "rule_version_hash": "rv", "decision_hash": "0",
    }  # fmt: skip
    meta = {"content": json.dumps(record), "propensity": 0.9}
    assert chances_of(meta) == {}
    explored = chances_of({**meta, "exploration": 0.2, "not_drawn": ["c"]})
    assert explored == pytest.approx({"a": 0.9, "b": 0.1})
    assert draw("DEC-1", "abc", 0.2, ("c",)).propensity in explored.values()
    canary = {"share": 0.1, "arm": "old", "other": "b"}
    assert chances_of({**meta, "canary": canary}) == pytest.approx({"a": 0.9, "b": 0.1})
    assert chances_of({**meta, "content": None, "exploration": 0.2}) == {}


def test_an_explored_answer_counts_with_less_weight() -> None:
    fit = tried(1, 0.0, 300, 300)
    assert fit.reward.samples == 600
    assert fit.held_out == 300
    assert fit.reward.effective_samples < 600


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


def test_a_plan_does_not_look_at_who_is_better() -> None:
    prompts = [alike(number, dear=float(number % 5 > 0)) for number in range(100)]
    turned = [
        replace(one, rewards={"cheap": one.rewards["dear"], "dear": one.rewards["cheap"]})
        for one in prompts
    ]
    candidates = [Candidate(name, "p", input_price=1, output_price=1) for name in ("cheap", "dear")]
    assert power_plan(prompts, candidates) == power_plan(turned, candidates)


def test_abilities_are_shrunk_to_the_mean() -> None:
    prompts = made(40)
    prompts.append(
        GradedPrompt("LED-000000ff", "x", "x", "code", {"cheap": 0.0}, {"cheap": 0.0})
    )  # one bad answer to a task says little
    found = abilities_of(prompts)
    assert found["dear"]["general"] == 100
    assert abs(found["cheap"]["code"] - found["cheap"]["general"]) <= 5


# -- The benchmark of swapped models and prices runs to its end, on a small made-up data set -----


LEARNED, REST = 265, 200
COSTS = (0.0001, 0.002, 0.02)
# The last model is the best; each of the others is as good or better at something.
ADD = Recorded("add item {}", (0.1, 1.0, 1.0), COSTS)
GREET = Recorded("greet item {}", (1.0, 0.1, 0.3), COSTS)
PROVE = Recorded("prove item {}", (0.1, 0.5, 1.0), COSTS)


def rows() -> list[Recorded]:
    kinds = (ADD, GREET, ADD, PROVE)
    return [
        Recorded(kind.prompt.format(number), kind.rewards, kind.costs)
        for number in range(LEARNED + REST)
        for kind in (kinds[number % 4],)
    ]


def test_a_swap_is_seen_met_and_rolled_back_or_refused_for_want_of_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def remit(run: Run, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = run_remit(*words, environment={"REMIT_ROOT": str(run.place)})
        assert not (check and done.returncode), done.stderr
        return done

    monkeypatch.setattr(Run, "remit", remit)  # In this process, which has the modules loaded.
    asyncio.run(swaps(tmp_path / "root"))


async def swaps(place: Path) -> None:
    sizes = Sizes(learned=LEARNED, quiet=20, most=110, after=10, looks=110)
    begun = await begin(place, rows(), sizes)
    assert begun.outcome["signals before the change"] == "none"

    run = await change(begun, "prices")
    marks = [what for _, what in run.marks]
    assert marks[:2] == ["adopted: a learned route", "prices swapped"]
    assert marks[-2:] == ["adopted: a learned route", "rolled back"]
    assert sum(run.costs[-100:]) / 100 <= 0.0125  # The spend keeps to the cap at other prices.

    run = await change(begun, "models")
    assert run.outcome["alarm"] == "none in 110"  # the first 200 exchanges are the baseline
    assert "of 200: more graded exchanges are required" in run.outcome["refused"]
    assert [what for _, what in run.marks] == [
        "adopted: a learned route", "gemini answers as llama", "no alarm", "refused"
    ]  # fmt: skip


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
        for seed in range(6)
    }  # fmt: skip
    assert len(found) == 1
