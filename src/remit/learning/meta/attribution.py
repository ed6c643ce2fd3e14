"""Was it the question or the model: two replays of the same exchanges, compared (Q4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from remit.learning.replay import ReplayResult
from remit.learning.statistics import ConfidenceSequence, Estimate

__all__ = ["Attribution", "attribute"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """What changing the question, and changing the model, gained on the same exchanges.

    Attributes:
        question: mean gain with the question changed and the model kept, -1 to 1.
        model: mean gain with the question kept and the model changed.
        advantage: the first less the second, exchange by exchange.
        cause: `question` or `model`: changing it helps, and helps more than changing the other;
            `both`: each helps, neither surely more; `undecided`: the samples do not tell.
        exchanges: ids of the exchanges that both replays asked again.
    """

    question: Estimate
    model: Estimate
    advantage: Estimate
    cause: str
    exchanges: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, for JSON."""
        return {
            "question": self.question.to_dict(),
            "model": self.model.to_dict(),
            "advantage": self.advantage.to_dict(),
            "cause": self.cause,
            "exchanges": list(self.exchanges),
        }


def attribute(question: ReplayResult, model: ReplayResult) -> Attribution:
    """Attribute failures to the question or the model, by two replays of one set of exchanges.

    The three intervals hold together with probability 95 %, however often one looks.

    Args:
        question: the replay with the question changed and the model kept.
        model: the replay with the question kept and the model changed.
    """
    asked = {pair.exchange_id: pair for pair in question.pairs}
    other = {pair.exchange_id: pair for pair in model.pairs}
    both = [one for one in asked if one in other]
    gains = [ConfidenceSequence(0.05 / 3, -1, 1) for _ in range(3)]
    for one in both:
        q, m = asked[one], other[one]
        for gain, value in zip(
            gains, (q.after - q.before, m.after - m.before, q.after - m.after), strict=True
        ):
            gain.update(value)
    by_question, by_model, advantage = (gain.estimate for gain in gains)
    return Attribution(
        question=by_question,
        model=by_model,
        advantage=advantage,
        cause=_cause(by_question, by_model, advantage),
        exchanges=tuple(both),
    )


def _cause(question: Estimate, model: Estimate, advantage: Estimate) -> str:
    if question.low > 0 and advantage.low > 0:
        return "question"
    if model.low > 0 and advantage.high < 0:
        return "model"
    return "both" if question.low > 0 and model.low > 0 else "undecided"
