"""Attribution of failures to the question or the model, by two replays of the same exchanges."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from remit.learning.replay import Replay, ReplayResult
from remit.learning.statistics import ConfidenceSequence, Estimate
from remit.ledger import LedgerClient, LedgerEntry, LedgerReader, is_authentic

_CHUNK = 10  # One replay asks so many exchanges before the other continues.
_KIND = "attribution"
_EVIDENCE = 50  # Largest number of exchanges in the entry.
_MARGIN = 0.1  # A smaller gain does not count.


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The gains of changing the question, and of changing the model, on the same exchanges.

    Attributes:
        question: mean gain with the question changed and the model kept, -1 to 1.
        model: mean gain with the question kept and the model changed.
        advantage: the difference of both gains, exchange by exchange.
        cause: `question` or `model` if changing it helps, and more than changing the other; `both`
            if each helps and neither surely more; `neither` if both gains are surely below 0.1;
            `undecided` if the samples do not tell.
        exchanges: ids of the exchanges that both replays asked again.
    """

    question: Estimate
    model: Estimate
    advantage: Estimate
    cause: str
    exchanges: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, for JSON."""
        return {**asdict(self), "exchanges": list(self.exchanges)}


def replay_both(
    question: Replay, model: Replay, exchange_ids: Iterable[str], *, budget_nano: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[ReplayResult, ReplayResult]:  # fmt: skip
    """Run the two replays of :func:`attribute` in turns, ten exchanges each, within one budget.

    If the budget ends, the two differ by at most ten exchanges. Calls, stored pairs and refusals
    are those of :meth:`Replay.run`. Only held-out exchanges are asked (:func:`is_held_out`).

    Args:
        question: the replay with the question changed and the model kept.
        model: the replay with the question kept and the model changed.
        budget_nano: limit of the cost of all runs of both, in nano-dollars.
        progress: called with the number that both have asked and the number in all.

    Returns:
        The results of both, in the order of the arguments.
    """
    wanted = question.part(exchange_ids)
    first = question.run((), budget_nano=0)  # Gives the cost of earlier runs.
    second = model.run((), budget_nano=0)
    for end in range(_CHUNK, len(wanted) + _CHUNK, _CHUNK):
        part = wanted[:end]
        progress(min(end - _CHUNK, len(wanted)), len(wanted))
        first = question.run(part, budget_nano=budget_nano - second.spent_nano)
        second = model.run(part, budget_nano=budget_nano - first.spent_nano)
        if "budget" in (first.ended, second.ended):
            break
    return replace(first, wanted=len(wanted)), replace(second, wanted=len(wanted))


def attribute(question: ReplayResult, model: ReplayResult) -> Attribution:
    """Attribute failures to the question or the model, by two replays of one set of exchanges.

    The three intervals hold together with probability 95 %, however often one looks. Without common
    exchanges, all intervals are as wide as possible.
    """
    asked = {pair.exchange_id: pair for pair in question.pairs}
    other = {pair.exchange_id: pair for pair in model.pairs}
    both = [one for one in asked if one in other]
    gains = [ConfidenceSequence(0.05 / 3, -1, 1) for _ in range(3)]
    for q, m in ((asked[one], other[one]) for one in both):
        values = (q.after - q.before, m.after - m.before, q.after - m.after)
        for gain, value in zip(gains, values, strict=True):
            gain.update(value)
    by_question, by_model, advantage = (gain.estimate for gain in gains)
    return Attribution(
        question=by_question, model=by_model, advantage=advantage,
        cause=_cause(by_question, by_model, advantage), exchanges=tuple(both),
    )  # fmt: skip


def record_attribution(
    ledger: LedgerClient, made: Attribution, contract_id: str, version: str
) -> None:
    """Record an attribution for the report, as a `SIGNAL_OBSERVED`; LedgerError if that fails.

    Nothing is written without exchanges, or if the contract's latest attribution is equal.
    """
    value = made.to_dict()
    known = {
        "kind": _KIND, "contract_id": contract_id, "contract_version": version, **value,
        "exchanges": len(made.exchanges), "evidence": value["exchanges"][-_EVIDENCE:],
    }  # fmt: skip
    if made.exchanges and known not in read_attributions(ledger):
        said = f"the failures of {contract_id} were attributed: {made.cause}"
        ledger.write(LedgerEntry("SIGNAL_OBSERVED", contract_id, "OBSERVED", said, metadata=known))


def read_attributions(ledger: LedgerReader) -> list[dict[str, Any]]:
    """Return the latest attribution of each contract, sorted by contract: the metadata of its
    ``SIGNAL_OBSERVED`` entry. Entries of writers without permission are ignored.
    """
    found: dict[str, dict[str, Any]] = {}
    for entry in ledger.query(event_type="SIGNAL_OBSERVED", order="desc"):
        if entry.metadata.get("kind") == _KIND and is_authentic(entry):
            found.setdefault(entry.submission_id, dict(entry.metadata))
    return [found[name] for name in sorted(found)]


def _cause(question: Estimate, model: Estimate, advantage: Estimate) -> str:
    if question.low > 0 and advantage.low > 0:
        return "question"
    if model.low > 0 and advantage.high < 0:
        return "model"
    if question.low > 0 and model.low > 0:
        return "both"
    return "neither" if max(question.high, model.high) < _MARGIN else "undecided"
