"""Effects of adopted proposals against their predictions, rollbacks, and the report."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import NormalDist
from typing import Any, get_args

from remit.contracts import ContractLoader
from remit.learning.evidence.samples import Sample, read_samples
from remit.learning.grading import graded_by
from remit.learning.held_out_replay import Replay, ReplayResult
from remit.learning.judges import read_judges
from remit.learning.meta.questions import read_questions
from remit.learning.proposals import Proposal, Proposals
from remit.learning.proposals.proposal import State
from remit.learning.signals import before_latest
from remit.learning.statistics import ConfidenceSequence, Estimate, difference
from remit.ledger import LedgerClient, LedgerEntry, LedgerReader, is_authentic
from remit.packages import policy_epoch

_MIN_SAMPLES = 30  # Both sides need as many samples for a conclusion.
_EVIDENCE = 500  # Largest number of exchanges of a side that are named as evidence.


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The predicted and the realised effect of an adopted proposal.

    Attributes:
        proposal_id: the adopted proposal.
        kind: kind of the proposal.
        target: ``routing``, ``limits`` or a contract's id.
        state: present state of the proposal.
        metric: `reward`, 0 to 1; a routing head predicts `cost`, in US dollars saved per call.
        epoch: the policy epoch that the adoption began.
        predicted: the proposal's prediction.
        before: mean of the epoch before; None without samples.
        after: mean of the proposal's own epoch; None without samples.
        realised: after minus before (for cost, before minus after); None while a side has fewer
            than 30 samples.
        held: True if the realised and the predicted value agree within both errors
            (:func:`agrees`); None without a prediction, while a side has fewer than 30 samples, or
            while the realised error is the larger one.
        harmful: True if the realised interval lies below 0.
        regained: estimated gain of a rollback, for a fixed sample; None without `realised`.
        evidence: ids of the latest exchanges of both sides, at most 500 each.
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
    regained: Estimate | None
    evidence: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return all fields but `evidence`, for JSON."""
        return {name: value for name, value in asdict(self).items() if name != "evidence"}


class _Side:
    """Values of one epoch."""

    def __init__(self) -> None:
        self.reward = ConfidenceSequence()
        self.count, self.total, self.squares = 0, 0.0, 0.0
        self.latest: deque[str] = deque(maxlen=_EVIDENCE)

    def add(self, value: float, metric: str, exchange_id: str) -> None:
        self.latest.append(exchange_id)
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


class EffectReader:
    """The comparison of each adopted proposal's effect with its prediction.

    The epoch before the adoption is compared with the epoch that the adoption began. Only untainted
    samples count that the change concerns: those of its contract, those whose model a route chose,
    or all. A proposal's own grader, if it carries one, grades them; without one the recorded reward
    counts, and for a routing head the recorded cost. A rollback takes both from what it rolls back.
    Calls of a canary's route are left out. Other changes between the epochs are included, because
    this is not an experiment.

    The adoptions are those that the ledger proves when the object is made; later ones are not seen.

    Raises:
        LedgerError: the ledger cannot be read.
    """

    def __init__(self, ledger: LedgerReader, proposals: Proposals) -> None:
        began = {
            entry.submission_id: int(entry.metadata["policy_epoch"])
            for entry in ledger.query(event_type="SIGNAL_ADOPTED")
            if is_authentic(entry)
        }
        self._ledger = ledger
        self._known = known = {one.proposal_id: one for one in proposals.all()}
        adopted = ((began[name], one) for name, one in known.items() if name in began)
        self._adopted = [
            (epoch, one, _Side(), _Side()) for epoch, one in sorted(adopted, key=lambda two: two[0])
        ]
        self._metrics = {
            one.proposal_id: "cost" if known.get(one.rolls_back, one).kind == "head" else "reward"
            for one in known.values()
        }
        self._sides: dict[int, list[tuple[Proposal, _Side]]] = defaultdict(list)
        for epoch, proposal, before, after in self._adopted:
            self._sides[epoch - 1].append((proposal, before))
            self._sides[epoch].append((proposal, after))

    def watch(self, samples: Iterable[Sample]) -> Iterator[Sample]:
        """Yield all samples unchanged; count each, before it is yielded, for the proposals of its
        epoch.

        A sample of a proposal with a grader of its own is read from the ledger: LedgerError if that
        fails. Errors of ``samples`` are raised too.
        """
        for sample in samples:
            left_out = sample.tainted or sample.arm == "new"
            for proposal, side in () if left_out else self._sides.get(sample.epoch, ()):
                if not _concerns(proposal, sample):
                    continue
                metric = self._metrics[proposal.proposal_id]
                grader = self._known.get(proposal.rolls_back, proposal).replay.get("grader")
                value = sample.reward
                if metric == "cost":
                    value = None if sample.cost_nano is None else sample.cost_nano / 1e9
                if grader:
                    grade = graded_by(grader, self._ledger.read(sample.exchange_id))
                    value = value if grade is None else grade
                if value is not None:
                    side.add(value, metric, sample.exchange_id)
            yield sample

    def effects(self, samples: Iterable[Sample] = ()) -> list[Effect]:
        """Return the effects of all proposals ever adopted, by epoch, from all samples so far.

        Args:
            samples: further samples, which are counted first, as by :meth:`watch`, with its errors.
        """
        deque(self.watch(samples), maxlen=0)
        return [
            _effect(proposal, epoch, self._metrics[proposal.proposal_id], before, after)
            for epoch, proposal, before, after in self._adopted
        ]


def calibrate(effects: Iterable[Effect]) -> dict[str, Any]:
    """Return how many predictions ``held``, ``missed`` or are ``open``, as JSON data.

    An open one has too few samples, whatever these show, so that ``share`` is unbiased: the share
    of held among held and missed, 95 % if predictions are right, as an :class:`Estimate` by field;
    None without any.
    """
    found = [one.held for one in effects]
    sequence = ConfidenceSequence()
    for held in found:
        if held is not None:
            sequence.update(float(held))
    return {
        "held": found.count(True), "missed": found.count(False), "open": found.count(None),
        "share": asdict(sequence.estimate) if sequence.samples else None,
    }  # fmt: skip


def agrees(predicted: Estimate, realised: float, error: float) -> bool | None:
    """Return True if a realised effect agrees with its prediction within both errors.

    Two independent estimates of one effect differ by at most z √(e² + r²) in 95 % of cases, with
    standard errors e of the prediction and r (``error``) of the realised effect. None if r is
    larger than e, which depends on the number of samples and not on their values.
    """
    z = NormalDist().inv_cdf(0.5 + predicted.confidence / 2)
    expected = (predicted.high - predicted.low) / (2 * z)
    if error > expected:
        return None
    return abs(realised - predicted.value) <= z * math.hypot(expected, error)


def _concerns(proposal: Proposal, sample: Sample) -> bool:
    if proposal.target == "routing":
        return bool(sample.route)
    return sample.contract_id == proposal.target or not proposal.target.startswith("PRC-")


def _effect(proposal: Proposal, epoch: int, metric: str, before: _Side, after: _Side) -> Effect:
    predicted = Estimate(**proposal.predicted) if proposal.predicted else None
    realised = regained = None
    if min(before.count, after.count) >= _MIN_SAMPLES:
        if metric == "reward":
            realised, regained = difference(after.reward, before.reward), _fall(before, after)
        else:
            realised, regained = _fall(before, after), _fall(after, before)
    held = None
    if predicted is not None and realised is not None:
        held = agrees(predicted, realised.value, math.sqrt(before.error + after.error))
    return Effect(
        proposal_id=proposal.proposal_id, kind=proposal.kind, target=proposal.target,
        state=proposal.state, metric=metric, epoch=epoch, predicted=predicted,
        before=before.mean if before.count else None, after=after.mean if after.count else None,
        realised=realised, held=held, harmful=realised is not None and realised.high < 0,
        regained=regained, evidence=(*before.latest, *after.latest),
    )  # fmt: skip


def _fall(before: _Side, after: _Side) -> Estimate:
    """Return the decrease from before to after, with Welch's normal interval.

    Costs have no bounds that an always-valid interval could use.
    """
    value = before.mean - after.mean
    error = 1.96 * math.sqrt(before.error + after.error)
    count = before.count + after.count
    return Estimate(
        value=value, low=value - error, high=value + error, samples=count,
        effective_samples=4 * before.count * after.count / count, method="welch",
    )  # fmt: skip


def read_report(
    ledger: LedgerClient, proposals: Proposals, contracts: ContractLoader, *,
    latest: int | None = None, folders: Sequence[ContractLoader] = (),
) -> tuple[dict[str, Any], list[Effect]]:  # fmt: skip
    """Return the report on a root as JSON data, and the effects of all proposals ever adopted.

    The ledger is read once. The report has ``policy_epoch``, ``proposals`` (number by state),
    ``adopted`` proposals, ``effects`` (oldest first) and their ``calibration``, ``questions``,
    ``attributions`` (the latest of each contract, Q4), ``uncalibrated`` judges, and ``complete``
    (True if all recorded exchanges were read).

    Args:
        latest: largest number of exchanges, counted from the latest; ``None`` for all.
        folders: loaders of contracts that programs brought in folders of their own.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    after = None if latest is None else before_latest(ledger, latest)
    reader, known = EffectReader(ledger, proposals), list(proposals.all())
    samples = reader.watch(read_samples(ledger, after=after))
    questions = read_questions(ledger, contracts, samples, folders=folders)
    effects, states = reader.effects(), [one.state for one in known]
    return {
        "policy_epoch": policy_epoch(ledger),
        "proposals": {state: states.count(state) for state in get_args(State)},
        "adopted": [one.to_dict() for one in known if one.state == "adopted"],
        "effects": [one.to_dict() for one in effects],
        "calibration": calibrate(effects),
        "questions": [one.to_dict() for one in questions],
        "attributions": read_attributions(ledger),
        "uncalibrated": [one.to_dict() for one in read_judges(ledger) if not one.calibrated],
        "complete": after is None,
    }, effects  # fmt: skip


_CHUNK = 10  # One replay asks so many exchanges before the other continues.
_KIND = "attribution"
_NAMED = 50  # Largest number of exchanges in the entry of an attribution.
_MARGIN = 0.1  # A smaller gain does not count.


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The gains of changing the question, and of changing the model, on the same exchanges.

    Attributes:
        question: mean gain with the question changed and the model kept, -1 to 1.
        model: mean gain with the question kept and the model changed, -1 to 1.
        advantage: mean of the gain by the question less the gain by the model, exchange by
            exchange.
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


def replay_both(
    question: Replay, model: Replay, exchange_ids: Iterable[str], *, budget_nano: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[ReplayResult, ReplayResult]:  # fmt: skip
    """Run the two replays of :func:`attribute` in turns, ten exchanges each, within one budget.

    If the budget ends, the two differ by at most ten exchanges. Calls are made, recorded and
    repeated as in :meth:`Replay.run`, which names the errors. Only held-out exchanges are asked
    (:func:`is_held_out`). The results have the order of the arguments.

    Args:
        question: the replay with the question changed and the model kept.
        model: the replay with the question kept and the model changed.
        budget_nano: limit of the cost of all runs of both, in nano-dollars.
        progress: called with the number of exchanges before each ten, and in all; at the end with
            both equal, unless the budget ended the run.
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
    else:
        progress(len(wanted), len(wanted))
    return replace(first, wanted=len(wanted)), replace(second, wanted=len(wanted))


def attribute(question: ReplayResult, model: ReplayResult) -> Attribution:
    """Return the attribution of failures to the question or the model, by two replays of one set of
    exchanges.

    Only exchanges that both graded count. The three intervals hold together with probability 95 %,
    however often one looks. Without common exchanges, all intervals are as wide as possible and the
    cause is ``undecided``. Nothing is recorded.
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

    The entry names the last 50 exchanges and the number of all. Nothing is written without
    exchanges, or if the contract's latest attribution is equal.
    """
    known = {
        **asdict(made), "kind": _KIND, "contract_id": contract_id, "contract_version": version,
        "exchanges": len(made.exchanges), "evidence": list(made.exchanges[-_NAMED:]),
    }  # fmt: skip
    if made.exchanges and known not in read_attributions(ledger):
        said = f"the failures of {contract_id} were attributed: {made.cause}"
        ledger.write(LedgerEntry("SIGNAL_OBSERVED", contract_id, "OBSERVED", said, metadata=known))


def read_attributions(ledger: LedgerReader) -> list[dict[str, Any]]:
    """Return the latest attribution of each contract, sorted by contract: the metadata of its
    ``SIGNAL_OBSERVED`` entry. Entries of writers without permission are ignored. LedgerError is
    raised if the ledger cannot be read.
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
