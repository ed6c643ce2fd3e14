"""Prompts on record put to every candidate, within a hard budget, and the answers graded."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from remit.gateway import LLMGateway
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import PromptRequest, RouteOutcome
from remit.learning.evidence.feedback import Source, give_feedback
from remit.learning.routes.fitting import GradedPrompt
from remit.ledger import LedgerClient
from remit.providers.prices import PriceTable
from remit.routing import Candidate, asked_of, new_request

__all__ = ["Calibration", "Grader", "calibrate"]

Grader = Callable[[GradedPrompt, str, str], float | None]
"""Takes a prompt, the candidate's name and its answer; 0 to 1, ``None`` where it cannot say."""

_AGENT = "route-calibration"
_UNSEEN_TOKENS = 1_000  # what providers add around a prompt


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a calibration did.

    Attributes:
        calls: answered.
        graded: of them.
        usd: that they cost.
        prompts: that have been put to every candidate.
        ended: ``done``, or ``budget`` where the next call might have cost more than was left.
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
    """Put each prompt to every candidate that has no graded answer to it, and grade what comes.

    The most that a call can cost is held against what is left before it is made: the budget is
    never passed. Whole prompts are worth more than many in part: one is finished before the next.

    Args:
        gateway: every call goes through it, and is on record.
        ledger: where grades are recorded.
        candidates: who are asked.
        prompts: of :func:`graded_prompts`.
        grade: gives the grades.
        usd: the budget.
        prices: of the candidates.
        by: on whose behalf, for the record.
        source: what kind of party grades.
        max_tokens: the longest answer.
        session_id: of the calls; a new one when left out.
        progress: called with how many prompts are done, and of how many.

    Raises:
        InvalidInputError: a candidate has no price, so that no budget can be kept, or the budget is
            no number.
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
    base = new_request(_AGENT, session_id, max_tokens=max_tokens)
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
