"""Calibration: candidates answer recorded prompts within a budget, and answers are graded.

A power plan states before how many graded prompts, and dollars, it takes to show a saving.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from remit.gateway import LLMGateway
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import PromptRequest, RouteOutcome
from remit.kernel.message_text import fixed
from remit.kernel.settings import GuardSettings
from remit.learning.evidence.feedback import Source, give_feedback
from remit.learning.exchanges import bound_of, cost_of, terms_of
from remit.learning.routes.ridge import CALIBRATOR, GradedPrompt, tokens_of
from remit.learning.statistics import pairs_needed
from remit.ledger import LedgerClient
from remit.providers.prices import PriceTable
from remit.routing import Candidate, asked_of, new_request

Grader = Callable[[GradedPrompt, str, str], float | None]
"""Grades a prompt's answer, given the candidate's name; 0 to 1, ``None`` if it cannot."""

_NANO = 1_000_000_000
_REFUSED = ("BUDGET_EXHAUSTED", "BUDGET_BUSY")  # Calls with these errors cost nothing.


@dataclass(frozen=True, slots=True)
class Calibration:
    """The result of a calibration.

    Attributes:
        calls: number of answered calls.
        graded: number of answers whose grade was recorded.
        usd: cost of all calls in US dollars.
        prompts: number of prompts that every candidate was asked.
        ended: ``done``, or ``budget`` if the next call might have exceeded the budget, or an
            account refused a call of a prompt that is not recorded yet.
    """

    calls: int
    graded: int
    usd: float
    prompts: int
    ended: str


async def calibrate(
    gateway: LLMGateway, ledger: LedgerClient, candidates: Sequence[Candidate],
    prompts: Sequence[GradedPrompt], grade: Grader, *, usd: float, prices: PriceTable, by: str,
    source: Source = "reference", max_tokens: int = 4096, session_id: str = "",
    charged_to: Sequence[str] = (), at_once: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Calibration:  # fmt: skip
    """Ask every candidate each prompt that it has no graded answer to, and record the grades.

    A call is made only if its highest possible cost fits into the rest of the budget; an unknown
    cost counts as this. A prompt is asked from the cheapest candidate to the dearest, and finished
    before another is begun. Each call is recorded as an ``EXCHANGE``, and each grade as a
    ``FEEDBACK`` entry. Failed calls, and calls that the account of a prompt's own session refuses,
    are not graded. If an account refuses a prompt that is not recorded yet, the calibration ends as
    with a spent budget. A recorded prompt is asked in its own session and for its own person, so
    that an erasure of either reaches the new answers.

    Args:
        grade: returns the grade of an answer; ``None`` records none.
        usd: the budget in US dollars.
        by: name of the grader, for the ledger.
        session_id: session of prompts that are not recorded yet; a new one if empty.
        charged_to: keys of further accounts that pay.
        at_once: number of prompts that are asked at the same time.
        progress: called with the number of prompts done and in all.

    Raises:
        InvalidInputError: a candidate has no price, so that no budget can be kept, or the budget is
            not a number of 0 or more.
        ConflictError: the content of an answer was erased before its grade was recorded.
        LedgerError: an entry cannot be read or written.
        Exception: an error of ``grade``. The first error cancels the calls at the same time.
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
        rates[one.model_id] = price.bound_nano(1000, 1000)
    purse = _Purse(round(usd * _NANO))
    counts = {"calls": 0, "graded": 0, "prompts": 0}
    base = new_request(
        CALIBRATOR, session_id, max_tokens=max_tokens, charged_to=tuple(charged_to)
    )  # fmt: skip
    ordered = sorted(candidates, key=lambda one: rates[one.model_id])

    async def ask(prompt: GradedPrompt, one: Candidate) -> bool:
        """Ask one model one prompt; return False if the budget does not allow the call."""
        owner = {}
        if prompt.exchange_id:
            terms = terms_of(ledger, ledger.read(prompt.exchange_id))
            owner = {name: terms[name] for name in ("session_id", "subject_id")}
        request: PromptRequest = replace(
            asked_of(prompt.prompt, base).request,
            provider_id=one.provider_id, model_id=one.provider_model, **owner,
        )  # fmt: skip
        bound = bound_of(gateway, request)
        if not await purse.hold(bound):
            return False
        cost = bound
        try:
            response = await gateway.aroute(request)
            cost = 0 if response.error_code in _REFUSED else cost_of(ledger, response, bound)
        finally:
            await purse.settle(bound, cost)
        if response.outcome is not RouteOutcome.SUCCESS:
            return bool(prompt.exchange_id) or response.error_code not in _REFUSED
        counts["calls"] += 1
        score = grade(prompt, one.model_id, response.content)
        if score is not None:
            give_feedback(ledger, response.exchange_entry_id, score=score, source=source, by=by)
            counts["graded"] += 1
        return True

    async def work(waiting: Iterator[GradedPrompt]) -> None:
        for prompt in waiting:
            for one in ordered:
                if one.model_id not in prompt.rewards and not await ask(prompt, one):
                    purse.ended = True
                    return
            counts["prompts"] += 1
            progress(counts["prompts"], len(prompts))
            if purse.ended:
                return

    progress(0, len(prompts))
    waiting = iter(prompts)
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(work(waiting))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors.exceptions[0].__cause__
    ended = "budget" if purse.ended else "done"
    return Calibration(
        counts["calls"], counts["graded"], purse.spent / _NANO, counts["prompts"], ended
    )


class _Purse:
    """A budget in nano-dollars for calls that run at the same time.

    Attributes:
        spent: cost of the finished calls.
        ended: True once a call did not fit; no further prompt is begun.
    """

    def __init__(self, nano: int) -> None:
        self.spent = 0
        self.ended = False
        self._nano, self._held = nano, 0
        self._changed = asyncio.Condition()

    async def hold(self, bound: int) -> bool:
        """Reserve the highest cost of a call; wait while calls in flight may leave room for it."""
        async with self._changed:
            while self.spent + self._held + bound > self._nano:
                if not self._held:
                    return False
                await self._changed.wait()
            self._held += bound
            return True

    async def settle(self, bound: int, cost: int) -> None:
        """Replace a reservation by the cost of its call."""
        async with self._changed:
            self._held -= bound
            self.spent += cost
            self._changed.notify_all()


_MILLION = 1_000_000
_DIFFERING = 0.15  # Assumed share of prompts for which two models' rewards differ by 1.
_ASSUMED = 50  # The assumption counts as so many graded prompts.
_POWER = 0.8
_TOKENS = 500  # Assumed tokens of an answer, and of a prompt if none is known.


@dataclass(frozen=True, slots=True)
class PowerPlan:
    """The evidence that a fit needs to show a saving.

    Attributes:
        saving_usd: the saving to detect, in US dollars a call.
        loss: the largest accepted loss of reward.
        power: probability of acceptance if the route saves that and loses nothing.
        looks: number of fits that may decide, fixed in advance; 0 for any number, planned as 1.
        differing: mean squared difference of two models' rewards that the plan assumes.
        prompts: number of prompts that need graded answers of every model.
        graded: number of prompts that have them.
        usd: expected cost of the missing answers in US dollars.
    """

    saving_usd: float
    loss: float
    power: float
    looks: int
    differing: float
    prompts: int
    graded: int
    usd: float

    @property
    def missing(self) -> int:
        """Number of prompts that still need graded answers of every model."""
        return max(0, self.prompts - self.graded)

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, and ``missing``, as JSON data."""
        return {**asdict(self), "missing": self.missing}

    def text(self) -> str:
        """Return the plan as a sentence with the saving, the accepted loss and the prompts.

        Brackets state the number of missing prompts with their cost in US dollars, or that all are
        graded.
        """
        more = (
            f"{self.missing:,} more, about {fixed(self.usd, 2)} USD"
            if self.missing
            else "all graded"
        )
        return (
            f"To show a saving of {fixed(self.saving_usd)} USD a call at a loss of at most "
            f"{self.loss:g} of reward takes about {self.prompts:,} prompts with graded answers of "
            f"every model ({more})."
        )


def power_plan(
    prompts: Sequence[GradedPrompt], candidates: Sequence[Candidate], *,
    saving_usd: float | None = None, guard: GuardSettings | None = None,
    asked: Sequence[GradedPrompt] = (), max_tokens: int = _TOKENS,
) -> PowerPlan:  # fmt: skip
    """Return how many graded prompts and dollars a fit needs to detect a saving.

    The plan uses only the sizes of differences, never their signs, so that planning is no look at
    the result. Without graded prompts, the plan assumes that 15 % of the rewards differ.

    Args:
        prompts: graded prompts; their models are candidates.
        saving_usd: the saving to detect in US dollars a call; ``None`` for half of the dearest
            model's mean cost. With 0 or less, only the accepted loss decides the number.
        guard: number of looks and tolerance; the defaults if ``None``.
        asked: prompts that are to be asked; their lengths price the calls of models that have not
            answered yet. Without any, a prompt has 500 tokens.
        max_tokens: output limit of a call; an answer is expected to have at most 500 tokens.

    Raises:
        InvalidInputError: the guard's tolerance is not above 0.
    """
    guard = guard or GuardSettings()
    names = [one.model_id for one in candidates]
    looks = max(1, guard.looks)
    lengths = [tokens_of(one) for one in asked] or [_TOKENS]
    usd = _usd_of(prompts, candidates, sum(lengths) / len(lengths), min(_TOKENS, max_tokens))
    dearest = max(usd.values(), default=0.0)
    saving = dearest / 2 if saving_usd is None else saving_usd
    whole = [one for one in prompts if one.rewards.keys() >= set(names)]
    pairs = [(one, other) for one in names for other in names if one < other]
    squares = max(
        (sum((p.rewards[a] - p.rewards[b]) ** 2 for p in whole) for a, b in pairs), default=0.0
    )
    differing = (squares + _ASSUMED * _DIFFERING) / (len(whole) + _ASSUMED)
    needed = pairs_needed(guard.tolerance, math.sqrt(differing), looks=looks, power=_POWER)
    costs = [cost for one in prompts for cost in one.costs.values()] or [dearest]
    if saving > 0:
        spread = math.sqrt(sum(cost * cost for cost in costs) / len(costs))
        shown = pairs_needed(
            0, spread, effect=saving, worst=max(costs), looks=looks, power=_POWER
        )  # fmt: skip
        needed = max(needed, shown)
    lacking = sorted(
        sum(usd[name] for name in names if name not in one.rewards) for one in prompts
    )[:needed]
    return PowerPlan(
        saving_usd=saving, loss=guard.tolerance, power=_POWER, looks=guard.looks,
        differing=differing, prompts=needed, graded=len(whole),
        usd=sum(lacking) + (needed - len(lacking)) * sum(usd.values()),
    )  # fmt: skip


def _usd_of(
    prompts: Sequence[GradedPrompt], candidates: Sequence[Candidate], asked: float, answered: float
) -> Mapping[str, float]:
    """Return the expected cost of an answer by model: recorded, else by the ratio of prices."""
    listed = {
        one.model_id: math.inf
        if one.input_price is None or one.output_price is None
        else (one.input_price * asked + one.output_price * answered) / _MILLION / _NANO
        for one in candidates
    }
    costs = {name: [one.costs[name] for one in prompts if name in one.costs] for name in listed}
    recorded = {name: sum(known) / len(known) for name, known in costs.items() if known}
    scale = min(
        (usd / listed[name] for name, usd in recorded.items() if 0 < listed[name] < math.inf),
        default=1.0,
    )
    return {
        name: recorded.get(name, scale * price if price < math.inf else 0.0)
        for name, price in listed.items()
    }
