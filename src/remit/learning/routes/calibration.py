"""Calibration: candidates answer recorded prompts within a budget, and answers are graded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from remit.gateway import LLMGateway
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import PromptRequest, RouteOutcome
from remit.learning.evidence.feedback import Source, give_feedback
from remit.learning.routes.grades import CALIBRATOR
from remit.learning.routes.ridge import GradedPrompt
from remit.ledger import LedgerClient
from remit.providers.prices import PriceTable
from remit.routing import Candidate, asked_of, new_request

__all__ = ["Calibration", "Grader", "calibrate"]

Grader = Callable[[GradedPrompt, str, str], float | None]
"""Grades a prompt's answer, given the candidate's name; 0 to 1, ``None`` if it cannot."""

_UNSEEN_TOKENS = 1_000
"""Largest number of tokens that providers add to a prompt."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """The result of a calibration.

    Attributes:
        calls: number of answered calls.
        graded: number of graded answers.
        usd: cost of all calls in US dollars.
        prompts: number of prompts that every candidate was asked.
        ended: ``done``, or ``budget`` if the next call might have exceeded the budget.
    """

    calls: int
    graded: int
    usd: float
    prompts: int
    ended: str


async def calibrate(
    gateway: LLMGateway,
    ledger: LedgerClient,
    candidates: Sequence[Candidate],
    prompts: Sequence[GradedPrompt],
    grade: Grader,
    *,
    usd: float,
    prices: PriceTable,
    by: str,
    source: Source = "reference",
    max_tokens: int = 4096,
    session_id: str = "",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Calibration:
    """Ask every candidate each prompt that it has no graded answer to, and record the grades.

    A call is made only if its highest possible cost fits into the rest of the budget. One prompt is
    finished before the next, because only prompts with answers of all candidates are comparable.
    Each call is recorded as an ``EXCHANGE``, and each grade as a ``FEEDBACK`` entry. A failed call
    is recorded and not graded.

    Candidates are called from the cheapest to the dearest. A call whose cost is unknown counts at
    its highest possible cost.

    Args:
        gateway: makes the calls, which are recorded.
        ledger: the ledger of the grades.
        candidates: the models.
        prompts: prompts of :func:`graded_prompts`.
        grade: returns the grade of an answer; ``None`` records none.
        usd: the budget in US dollars.
        prices: prices of the candidates.
        by: name of the grader, for the ledger.
        source: kind of the grading party.
        max_tokens: output limit of each call.
        session_id: session of the calls; a new one if empty.
        progress: called with the number of prompts done and in all.

    Returns:
        Counts and cost; ``ended`` is ``budget`` if the next call might have exceeded the budget.

    Raises:
        InvalidInputError: a candidate has no price, so that no budget can be kept, or the budget is
            not a number of 0 or more.
        LedgerError: an entry cannot be written.
    """
    if not (math.isfinite(usd) and usd >= 0):
        raise InvalidInputError(f"{usd} is not a budget in US dollars.")
    rates = {}
    for one in candidates:
        price = prices.find(one.provider_id, one.provider_model)
        if price is None:
            raise InvalidInputError(
                f"The price of {one.model_id} is unknown, so a budget cannot be enforced.",
                next_step="Set it with `remit price set`.",
            )
        rates[one.model_id] = price
    calls = graded = finished = 0
    spent = 0.0
    base = new_request(CALIBRATOR, session_id, max_tokens=max_tokens)
    ordered = sorted(candidates, key=lambda one: rates[one.model_id].bound_nano(1000, 1000))
    for place, prompt in enumerate(prompts):
        progress(place, len(prompts))
        for one in ordered:
            if one.model_id in prompt.rewards:
                continue
            asked = asked_of(prompt.prompt, base)
            tokens = len(asked.encoded) + _UNSEEN_TOKENS
            bound = rates[one.model_id].bound_nano(tokens, max_tokens) / 1_000_000_000
            if spent + bound > usd:
                return Calibration(calls, graded, spent, finished, "budget")
            request: PromptRequest = replace(
                asked.request, provider_id=one.provider_id, model_id=one.provider_model
            )
            response = await gateway.aroute(request)
            spent += response.cost_incurred if response.cost_known else bound
            if response.outcome is not RouteOutcome.SUCCESS:
                continue
            calls += 1
            score = grade(prompt, one.model_id, response.content)
            if score is not None:
                give_feedback(ledger, response.exchange_entry_id, score=score, source=source, by=by)
                graded += 1
        finished += 1
    progress(len(prompts), len(prompts))
    return Calibration(calls, graded, spent, finished, "done")
