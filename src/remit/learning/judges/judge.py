"""A judge: a model that grades recorded answers under a contract, within a hard budget.

The judged content is data in the judge's prompt, between fences that the content cannot close. The
calls belong to the session and person of the judged exchange, so that an erasure reaches copies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from remit.contracts import ContractLoader
from remit.gateway import LLMGateway
from remit.kernel.errors import ConflictError, InvalidInputError
from remit.kernel.exchange import PromptRequest, PromptResponse, text_of
from remit.kernel.json_text import JsonTextError, load_answer
from remit.learning.evidence.feedback import feedback_on, give_feedback
from remit.learning.exchanges import cost_of, is_whole, terms_of
from remit.ledger import LedgerClient, LedgerEntry, is_plain_text
from remit.routing import JUDGE_CONTRACT, StagePrompts, new_request

_AGENT = "judge"
_NANO = 1_000_000_000
_MAX_REASON = 2_000  # characters


@dataclass(frozen=True, slots=True)
class Judged:
    """The result of a run of a judge.

    Attributes:
        graded: ids of exchanges that the run graded.
        passed_over: number of ids for which no call was made: exchanges that failed, were graded
            before, have no answer or have erased content, entries of other kinds, and repeated ids.
        failed: number of calls without a recorded grade: the call failed, its answer is not a
            grade, or the exchange was erased during the call.
        calls: number of calls made.
        usd: cost of the calls in US dollars; an unknown cost counts as the highest possible, or as
            0 if the model has no price.
        ended: ``done``, or ``budget`` if the next call might have exceeded the limit of cost or of
            calls.
    """

    graded: tuple[str, ...]
    passed_over: int
    failed: int
    calls: int
    usd: float
    ended: str


class Judge:
    """A model that grades exchanges under ``PRC-JUDGE-001``; :meth:`run` grades within a budget.

    Making the object loads the contract and makes no call.

    Attributes:
        name: contract, version, provider and model: the party that gives the grades. Another
            version or model is another judge with its own calibration.

    Raises:
        ContractError: the contract is missing or not valid.
    """

    def __init__(
        self, gateway: LLMGateway, ledger: LedgerClient, contracts: ContractLoader,
        provider_id: str, model_id: str,
    ) -> None:  # fmt: skip
        self._gateway = gateway
        self._ledger = ledger
        self._prompts = StagePrompts(contracts)
        self._of = provider_id, model_id
        version = contracts.load(JUDGE_CONTRACT).version
        self.name = f"{JUDGE_CONTRACT}@{version} {provider_id}/{model_id}"

    def run(
        self, exchange_ids: Iterable[str], *, usd: float | None = None, calls: int | None = None,
        progress: Callable[[int], None] = lambda done: None,
    ) -> Judged:  # fmt: skip
        """Grade exchanges in order and record each grade as feedback.

        A call is made only if its highest possible cost, and its number, still fit. Exchanges that
        this judge graded before are skipped, so a run that ended early can be continued. Each call
        is recorded as an ``EXCHANGE`` (refused by the gateway, as ``PROMPT_REJECTED``), and each
        grade as a ``FEEDBACK`` entry of the source ``judge``. An answer that is not a grade is not
        recorded as feedback.

        Args:
            exchange_ids: ids of entries; other entries than exchanges are skipped.
            usd: cost limit of this run in US dollars; ``None`` for none.
            calls: limit of calls of this run; ``None`` for none.
            progress: called before each exchange with the number done.

        Raises:
            InvalidInputError: no budget is given, it is not a number of 0 or more, or it is in US
                dollars and the model has no price (raised before the first call).
            EntryNotFoundError: there is no such exchange; earlier grades stay recorded.
            ContractError: the judge's contract or prompt pack can no longer be used.
            LedgerError: the ledger cannot be read or written.
        """
        if usd is None and calls is None:
            raise InvalidInputError(
                "A judge requires a budget.",
                next_step="Give a budget in dollars, in calls, or both.",
            )
        if usd is not None and not (math.isfinite(usd) and usd >= 0):
            raise InvalidInputError(f"{usd} is not a budget in US dollars.")
        graded: list[str] = []
        said = feedback_on(self._ledger)
        known = {
            one.target_entry_id for one in said if (one.source, one.by) == ("judge", self.name)
        }
        made = over = failed = spent = 0
        ended = "done"
        for number, exchange_id in enumerate(exchange_ids):
            progress(number)
            request = self._request(self._ledger.read(exchange_id))
            if request is None or exchange_id in known:
                over += 1
                continue
            bound = self._gateway.cost_bound(request, *self._of)
            if usd is not None and bound is None:
                raise InvalidInputError(
                    f"The cost of a call of {self._of[1]} has no upper bound.",
                    next_step="Set its price with `remit price set`, or give only a budget in "
                    "calls.",
                )
            if (calls is not None and made >= calls) or (
                usd is not None and spent + (bound or 0) > round(usd * _NANO)
            ):
                ended = "budget"
                break
            answer = self._gateway.route(request)
            made += 1
            known.add(exchange_id)
            spent += cost_of(self._ledger, answer, bound or 0)
            if self._keep(exchange_id, answer):
                graded.append(exchange_id)
            else:
                failed += 1
        return Judged(tuple(graded), over, failed, made, spent / _NANO, ended)

    def _request(self, entry: LedgerEntry) -> PromptRequest | None:
        """Return the question that grades an exchange; ``None`` if nothing can be graded."""
        data = entry.metadata
        prompt, answer = data.get("prompt"), data.get("response")
        if entry.event_type != "EXCHANGE" or not isinstance(answer, str) or not answer.strip():
            return None
        if data.get("outcome") != "success" or not is_whole(prompt):
            return None
        base = new_request(
            _AGENT, provider_id=self._of[0], model_id=self._of[1], **terms_of(self._ledger, entry),
        )  # fmt: skip
        variables = {"question": _asked(prompt), "answers": [answer]}
        return self._prompts.request(base, JUDGE_CONTRACT, variables)

    def _keep(self, exchange_id: str, answer: PromptResponse) -> bool:
        grade = _grade(answer.content) if not answer.error_code else None
        if grade is None:
            return False
        score, reason = grade
        try:
            give_feedback(
                self._ledger, exchange_id, score=score, reason=reason, source="judge",
                by=self.name,
            )  # fmt: skip
        except ConflictError:  # The content was erased during the call.
            return False
        return True


def _asked(prompt: Any) -> str:
    """Return the prompt as text, each message under its role."""
    if isinstance(prompt, str):
        return prompt
    messages = (one for one in prompt if isinstance(one, Mapping))
    return "\n\n".join(f"[{one.get('role')}]\n{text_of(one.get('content'))}" for one in messages)


def _grade(text: str) -> tuple[float, str] | None:
    try:
        value = load_answer(text)
    except JsonTextError:
        return None
    score = value.get("score") if isinstance(value, dict) else None
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        return None
    reason = value.get("reason", "")
    usable = isinstance(reason, str) and is_plain_text(reason)
    return float(score), reason[:_MAX_REASON] if usable else ""
