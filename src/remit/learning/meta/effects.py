"""Whether adopted proposals did what they predicted: before and after, by policy epoch."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from remit.learning.evidence import Sample
from remit.learning.proposals import Proposal, Proposals
from remit.learning.statistics import ConfidenceSequence, Estimate, difference
from remit.ledger import LedgerReader, is_authentic

__all__ = ["Calibration", "Effect", "agrees", "calibrate", "read_effects"]

_LEAST = 30  # samples on each side below which nothing is concluded
_ROUTING = frozenset({"route", "head", "set_aside"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What an adopted proposal predicted, and what came.

    Attributes:
        metric: `reward`, 0 to 1; a routing head predicts `cost`, in US dollars saved a call.
        epoch: the policy epoch that its adoption began.
        predicted: the proposal's.
        before: mean of the epoch before, None without samples.
        after: mean of its own epoch, likewise.
        realised: after less before (for cost before less after).
        held: realised and predicted value agree within both their errors (:func:`agrees`); None
            while a side has fewer than 30 samples, or the realised error is the larger one.
        harmful: the realised interval lies below 0.
    """

    proposal_id: str
    kind: str
    target: str
    state: str
    metric: str
    epoch: int
    predicted: Estimate | None
    before: float | None
    after: float | None
    realised: Estimate | None
    held: bool | None
    harmful: bool

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, for JSON."""
        found = {name: getattr(self, name) for name in self.__slots__}
        return {
            name: value.to_dict() if isinstance(value, Estimate) else value
            for name, value in found.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How many predictions held so far.

    Attributes:
        held: that agree with what came.
        missed: that do not.
        open: with too few samples yet, whatever these say, so that they leave the share unbiased.
        share: of those held among held and missed, 95 % where predictions are right; None without
            any.
    """

    held: int
    missed: int
    open: int
    share: Estimate | None

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, for JSON."""
        share = None if self.share is None else self.share.to_dict()
        return {"held": self.held, "missed": self.missed, "open": self.open, "share": share}


class _Side:
    """Values of one epoch."""

    def __init__(self) -> None:
        self.reward = ConfidenceSequence()
        self.count, self.total, self.squares = 0, 0.0, 0.0

    def add(self, value: float, metric: str) -> None:
        if metric == "reward":
            self.reward.update(value)
        self.count += 1
        self.total += value
        self.squares += value * value

    @property
    def mean(self) -> float:
        return self.total / self.count

    @property
    def error(self) -> float:
        """Squared standard error of the mean."""
        spread = max(0.0, self.squares - self.total * self.mean)
        return spread / max(1, self.count - 1) / self.count


def read_effects(
    ledger: LedgerReader, proposals: Proposals, samples: Iterable[Sample]
) -> list[Effect]:
    """What each proposal that was ever adopted predicted and did, the oldest first; one pass.

    The epoch before is held against the epoch that the adoption began, over clean samples of what
    it changes: of its contract; of calls whose model a route chose, for routing; else of all. This
    is no experiment: what else changed between the two counts too.

    Args:
        ledger: the record.
        proposals: of the root.
        samples: oldest first.
    """
    began = {
        entry.submission_id: int(entry.metadata["policy_epoch"])
        for entry in ledger.query(event_type="SIGNAL_ADOPTED")
        if is_authentic(entry)
    }
    adopted = [one for one in proposals.all() if one.proposal_id in began]
    adopted.sort(key=lambda one: began[one.proposal_id])
    by_epoch: dict[int, list[tuple[Proposal, int]]] = defaultdict(list)
    for one in adopted:
        for side in (0, 1):
            by_epoch[began[one.proposal_id] - 1 + side].append((one, side))
    sides: dict[str, tuple[_Side, _Side]] = {one.proposal_id: (_Side(), _Side()) for one in adopted}
    for sample in samples:
        for one, side in () if sample.tainted else by_epoch.get(sample.epoch, ()):
            value = _value(sample, _metric(one))
            if value is not None and _concerns(one, sample):
                sides[one.proposal_id][side].add(value, _metric(one))
    return [_effect(one, began[one.proposal_id], *sides[one.proposal_id]) for one in adopted]


def calibrate(effects: Iterable[Effect]) -> Calibration:
    """How many of all predictions so far held."""
    found = [one.held for one in effects]
    sequence = ConfidenceSequence()
    for held in found:
        if held is not None:
            sequence.update(float(held))
    return Calibration(
        held=found.count(True),
        missed=found.count(False),
        open=found.count(None),
        share=sequence.estimate if sequence.samples else None,
    )


def agrees(predicted: Estimate, realised: float, error: float) -> bool | None:
    """Whether what came agrees with what was predicted: they differ by less than both errors.

    Two independent estimates of one effect differ by at most z √(e² + r²) in 95 % of cases, with
    standard errors e of the prediction and r of what came. None where r is larger than e: whether
    that is so depends on the number of samples, and not on what they say.

    Args:
        predicted: the proposal's estimate.
        realised: the effect that came.
        error: its standard error.
    """
    z = NormalDist().inv_cdf(0.5 + predicted.confidence / 2)
    expected = (predicted.high - predicted.low) / (2 * z)
    if error > expected:
        return None
    return abs(realised - predicted.value) <= z * math.hypot(expected, error)


def _metric(proposal: Proposal) -> str:
    return "cost" if proposal.kind == "head" else "reward"


def _value(sample: Sample, metric: str) -> float | None:
    if metric == "reward":
        return sample.reward
    return None if sample.cost_nano is None else sample.cost_nano / 1e9


def _concerns(proposal: Proposal, sample: Sample) -> bool:
    if proposal.kind in _ROUTING:
        return bool(sample.route)
    return sample.contract_id == proposal.target or not proposal.target.startswith("PRC-")


def _effect(proposal: Proposal, epoch: int, before: _Side, after: _Side) -> Effect:
    predicted = Estimate(**proposal.predicted) if proposal.predicted else None
    metric = _metric(proposal)
    realised = None
    if min(before.count, after.count) >= _LEAST:
        realised = (
            difference(after.reward, before.reward)
            if metric == "reward"
            else _saved(before, after)
        )  # fmt: skip
    return Effect(
        proposal_id=proposal.proposal_id,
        kind=proposal.kind,
        target=proposal.target,
        state=proposal.state,
        metric=metric,
        epoch=epoch,
        predicted=predicted,
        before=before.mean if before.count else None,
        after=after.mean if after.count else None,
        realised=realised,
        held=None
        if predicted is None or realised is None
        else agrees(predicted, realised.value, math.sqrt(before.error + after.error)),
        harmful=realised is not None and realised.high < 0,
    )


def _saved(before: _Side, after: _Side) -> Estimate:
    """Welch's normal interval: costs have no bounds that an always-valid one could use."""
    value = before.mean - after.mean
    error = 1.96 * math.sqrt(before.error + after.error)
    count = before.count + after.count
    return Estimate(
        value=value,
        low=value - error,
        high=value + error,
        samples=count,
        effective_samples=4 * before.count * after.count / count,
        method="welch",
    )
