"""Signals: the performance of frameworks, contracts, packs, models, tools, routes and agents.

A signal compares a metric with its baseline and names the metrics that became worse.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from remit.kernel.errors import ConfigError
from remit.kernel.installed_files import InstalledFiles
from remit.learning.evidence.party_shares import SettledWeights, rater_weights
from remit.learning.evidence.samples import Sample
from remit.learning.statistics import ConfidenceSequence, Estimate, evidence, evidence_below
from remit.ledger import KERNEL_ROWS, LedgerClient, LedgerEntry, LedgerReader, Transaction

FACT = ("",)
"""The party of a value that a program observes: no opinion, so its share is not limited."""


class Window:
    """Values of one metric, with two weightings of values that parties gave.

    The settled weights are fixed when a value is added, which keeps intervals valid at every look.
    The balanced weights limit each party to its share of the whole, in any order of the values.

    Args:
        alpha: largest probability that the settled sequence ever excludes the mean.
    """

    def __init__(self, alpha: float) -> None:
        self.samples = 0
        self._alpha = alpha
        self._weights = SettledWeights()
        self._settled = ConfidenceSequence(alpha)
        self._by: dict[tuple[str, ...], ConfidenceSequence] = defaultdict(
            partial(ConfidenceSequence, alpha)
        )

    def add(self, value: float, raters: tuple[str, ...] = ()) -> None:
        """Add a value.

        Args:
            raters: the parties that gave it, for a reward; empty for other metrics.

        Raises:
            InvalidInputError: the value does not lie between 0 and 1.
        """
        self.samples += 1
        if weight := self._weights.weigh(raters):
            self._settled.update(value, weight)
        if raters:
            self._by[raters].update(value)

    def sequences(self) -> list[ConfidenceSequence]:
        """Return the settled sequence; if parties gave the values, also the balanced one.

        The balanced sequence limits each party to its share, and is made anew by each call. The
        settled one is the window's own, and grows with it.
        """
        if not self._by:
            return [self._settled]
        graded: Counter[str] = Counter()
        for raters, values in self._by.items():
            graded.update(dict.fromkeys(filter(None, raters), values.samples))
        weights = {**rater_weights(graded), "": 1.0}
        whole = ConfidenceSequence(self._alpha)
        for raters, values in sorted(self._by.items()):
            whole.merge(values, math.fsum(weights[rater] for rater in raters) / len(raters))
        return [self._settled, whole]

    def estimate(self) -> Estimate:
        """Return the balanced estimate, with an interval that also covers the settled one.

        Without raters, the settled estimate is returned.
        """
        settled, *balanced = (one.estimate for one in self.sequences())
        if not balanced:
            return settled
        low, high = min(settled.low, balanced[0].low), max(settled.high, balanced[0].high)
        return replace(balanced[0], low=low, high=high)


def is_below(strata: Iterable[tuple[Window, Window]], margin: float, alpha: float) -> bool:
    """Return True if live means are surely more than ``margin`` below the baseline's.

    Live values are compared with the baseline of their own stratum, and the evidence of all strata
    is added, so that a shift of the mix changes nothing. Both weightings must agree. The settled
    one keeps false crossings below ``alpha`` at every look; the balanced one prevents that a single
    party causes a crossing.

    Args:
        strata: live and baseline values of each stratum. A stratum without either is ignored; if
            none remains, the result is False.
        margin: difference that does not matter; below 0, live means may even be higher.
        alpha: probability of a false result.
    """
    both = [
        zip(live.sequences(), base.sequences(), strict=False)
        for live, base in strata
        if live.samples and base.samples
    ]
    goal = math.log(1 / alpha)

    def is_shown(pairs: Sequence[tuple[ConfidenceSequence, ConfidenceSequence]]) -> bool:
        at_most = math.fsum(evidence_below(*pair, margin, goal) for pair in pairs)
        if at_most < goal:
            return False
        return math.fsum(evidence(*pair, margin) for pair in pairs) >= goal

    return bool(both) and all(map(is_shown, zip(*both, strict=False)))


_FILE = "HOT/documents/signals.json"
_EVIDENCE = 50
_MAX_MS = 86_400_000  # Latencies are on a log scale up to a day.
_MAX_NANO = 10**15  # Costs are on a log scale up to a million US dollars.
_ON_RECORD = (
    "SELECT 1 FROM entries WHERE submission_id = ? AND event_type || '' = 'SIGNAL_OBSERVED' "
    f"AND {KERNEL_ROWS}"
)


class SignalPolicy(BaseModel):
    """The thresholds of signals, in whole numbers, from a file of a package.

    Attributes:
        alpha_permille: probability of a false crossing of one signal, in thousandths.
        reference: number of a group's first samples that are its baseline by default.
        least: smallest number of samples of baseline and live values.
        set_aside_after: number of failed turns in a row of one session after which a model, tool or
            contract version is set aside until the session ends.
        tool_fallbacks: tools that may replace a tool that is set aside, keyed by its id.
        margin_permille: difference that does not matter, by metric, in thousandths of its scale.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    alpha_permille: int = Field(ge=1, le=500)
    reference: int = Field(ge=10, le=1_000_000)
    least: int = Field(ge=1, le=1_000_000)
    set_aside_after: int = Field(ge=1, le=50)
    tool_fallbacks: dict[str, list[str]]
    margin_permille: dict[str, int]

    @classmethod
    def installed(cls, files: InstalledFiles) -> SignalPolicy:
        """Return the policy in ``HOT/documents/signals.json``.

        Raises:
            ConfigError: the file is not a policy, or lacks a margin from 0 to 999 for a metric.
            NotInstalledError: no package installed one.
            ChangedFileError: the file differs from the installed one.
        """
        return cls.from_json(files.read(_FILE))

    @classmethod
    def from_json(cls, data: bytes) -> SignalPolicy:
        """Return the policy in the bytes of a JSON file.

        Raises:
            ConfigError: the bytes are not JSON, lack a field or have another one, have a value of
                another type or out of range, or do not name a margin from 0 to 999 for each metric.
        """
        try:
            policy = cls.model_validate_json(data)
            if set(policy.margin_permille) != set(_METRICS):
                raise ValueError("margin_permille must name each metric and nothing else")
            if not all(0 <= margin < 1000 for margin in policy.margin_permille.values()):
                raise ValueError("a margin lies from 0 to 999")
        except (ValidationError, ValueError) as error:
            raise ConfigError(
                f"The signal policy is not valid: {error}",
                next_step=f"Correct {_FILE} in its package, and install a new version.",
            ) from error
        return policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A metric of a framework, contract, pack, model, tool, route or agent.

    Attributes:
        dimension: `framework|contract|pack|model|tool|route|agent`.
        name: name of the object; a contract with its version.
        metric: `failure|retry|rejection|repair` or `reward` (means), `cost` in nano-dollars or
            `latency` in ms (geometric means).
        baseline: estimate of the metric in the reference window, with its interval.
        live: estimate of the metric since then, with its interval.
        crossed: True if both have enough samples and ``live`` is worse than ``baseline``, with the
            policy's confidence, by more than the policy's margin.
        evidence: ids of the latest live exchanges with a value above 0 (of ``reward``, with any),
            at most 50.
        uncalibrated: judges that alone gave some of the rewards, and that too few grades of people
            confirm.
    """

    dimension: str
    name: str
    metric: str
    baseline: Estimate
    live: Estimate
    crossed: bool
    evidence: tuple[str, ...]
    uncalibrated: tuple[str, ...] = ()


@dataclass(slots=True)
class _Group:
    """Baseline and live values, whole and by task."""

    whole: tuple[Window, Window]
    strata: dict[str, tuple[Window, Window]] = field(default_factory=dict)
    latest: deque[str] = field(default_factory=lambda: deque(maxlen=_EVIDENCE))
    judges: set[tuple[str, str]] = field(default_factory=set)


def _log_scale(value: int, most: int) -> float:
    return min(1.0, math.log1p(max(0, value)) / math.log1p(most))


_METRICS = ("failure", "retry", "rejection", "repair", "cost", "latency", "reward")
_SCALES = {"cost": _MAX_NANO, "latency": _MAX_MS}


def _values(sample: Sample) -> Iterator[tuple[str, float]]:
    yield "failure", float(sample.failed)
    yield "retry", float(sample.retried)
    yield "rejection", float(sample.rejected)
    yield "repair", float(sample.repaired)
    yield "latency", _log_scale(sample.latency_ms, _MAX_MS)
    if sample.cost_nano is not None:
        yield "cost", _log_scale(sample.cost_nano, _MAX_NANO)
    if sample.reward is not None:
        yield "reward", sample.reward


def _things(sample: Sample) -> Iterator[tuple[str, str]]:
    contract = f"{sample.contract_id}@{sample.contract_version}" if sample.contract_id else ""
    named = {
        "framework": sample.framework_id, "contract": contract, "pack": sample.prompt_pack_id,
        "model": sample.model_id, "route": sample.route, "agent": sample.agent_id,
    }  # fmt: skip
    yield from ((dimension, name) for dimension, name in named.items() if name)
    yield from (("tool", tool) for tool in sample.tools)


def read_signals(
    samples: Iterable[Sample], policy: SignalPolicy, *, before_epoch: int | None = None,
    before: str = "", calibrated: Callable[[], Collection[tuple[str, str]]] = tuple,
) -> list[Signal]:  # fmt: skip
    """Return all signals of some exchanges, sorted by dimension, name and metric.

    Live values are compared with the baseline of the same task (:func:`is_below`). Tainted samples
    and samples cancelled by their caller are ignored. A tool fails if its call fails, all else if
    the exchange fails. Rewards are weighted so that no party exceeds its share.

    Each signal is valid however often it is read; each has its own probability of a false crossing.
    For rewards this requires that exchanges are graded in their order: a late grade of a party
    above its share can change later weights.

    Args:
        samples: samples, oldest first.
        before_epoch: samples before this policy epoch are the baseline.
        before: samples before this instant are the baseline; ISO 8601 in UTC, as in ``Sample.at``.
            Without either, the baseline is the first ``policy.reference`` samples of each group.
        calibrated: returns the judges, each with a contract, that enough people confirmed. Called
            at most once, and only if judges alone gave a reward.
    """
    groups: dict[tuple[str, str, str], _Group] = {}
    alpha = policy.alpha_permille / 1000
    for sample in samples:
        if sample.tainted or sample.cancelled:
            continue
        values = list(_values(sample))
        for dimension, name in _things(sample):
            for metric, value in values:
                if dimension == "tool" and metric == "failure":
                    value = float(name in sample.failed_tools)
                key = (dimension, name, metric)
                if (group := groups.get(key)) is None:
                    group = groups[key] = _Group((Window(alpha), Window(alpha)))
                if before_epoch is not None:
                    old = sample.epoch < before_epoch
                else:
                    seen = group.whole[0].samples
                    old = sample.at < before if before else seen < policy.reference
                raters = sample.raters if metric == "reward" else ()
                if (stratum := group.strata.get(sample.task)) is None:
                    stratum = group.strata[sample.task] = Window(alpha), Window(alpha)
                group.whole[not old].add(value, raters)
                stratum[not old].add(value, raters)
                if not old and (value or metric == "reward"):
                    group.latest.append(sample.exchange_id)
                if sample.judged and metric == "reward":
                    group.judges.update((rater, sample.contract_id) for rater in raters)
    known = calibrated() if any(group.judges for group in groups.values()) else ()
    return [_signal(key, group, policy, known) for key, group in sorted(groups.items())]


def _signal(
    key: tuple[str, str, str], group: _Group, policy: SignalPolicy,
    calibrated: Collection[tuple[str, str]],
) -> Signal:  # fmt: skip
    metric = key[2]
    strata = [(live, base) if metric == "reward" else (base, live)  # A higher cost is worse.
              for base, live in group.strata.values()]  # fmt: skip
    margin, alpha = policy.margin_permille[metric] / 1000, policy.alpha_permille / 1000
    then, now = (_in_units(one.estimate(), metric) for one in group.whole)
    enough = min(now.effective_samples, then.effective_samples) >= policy.least
    return Signal(
        dimension=key[0], name=key[1], metric=metric, baseline=then, live=now,
        crossed=enough and is_below(strata, margin, alpha), evidence=tuple(group.latest),
        uncalibrated=tuple(sorted({judge for judge, _ in group.judges.difference(calibrated)})),
    )  # fmt: skip


def _in_units(estimate: Estimate, metric: str) -> Estimate:
    if (most := _SCALES.get(metric)) is None:
        return estimate
    value, low, high = (
        math.expm1(end * math.log1p(most)) for end in (estimate.value, estimate.low, estimate.high)
    )
    return replace(estimate, value=value, low=low, high=high)


def before_latest(ledger: LedgerReader, latest: int) -> str | None:
    """Return the id of the exchange just before the ``latest`` last ones; ``None`` if there are no
    more. LedgerError is raised if the ledger cannot be read.
    """
    rows = ledger.select(
        "SELECT id FROM entries WHERE event_type = 'EXCHANGE' ORDER BY seq DESC LIMIT 1 OFFSET ?",
        (latest,),
    )
    return str(rows[0][0]) if rows else None


def observe(ledger: LedgerClient, signals: Iterable[Signal], *, window: str) -> list[str]:
    """Write a ``SIGNAL_OBSERVED`` entry for each crossed signal without one; return the new ids.

    All entries are written in one transaction, so two concurrent calls write each entry once.

    Args:
        window: the baseline, such as ``epoch 3`` or ``first 200``. Each signal is written once for
            each window.

    Raises:
        LedgerError: the ledger cannot be written; no entry was appended.
    """
    prepared = []
    for one in signals:
        if one.crossed:
            what = "\n".join((one.dimension, one.name, one.metric, window))
            name = f"SIG-{hashlib.sha256(what.encode()).hexdigest()[:32]}"
            said = f"{one.metric} of {one.dimension} {one.name} became worse"
            entry = LedgerEntry("SIGNAL_OBSERVED", name, "OBSERVED", said,
                                metadata={**asdict(one), "window": window})  # fmt: skip
            prepared.append((name, ledger.prepare(entry)))

    def write(tx: Transaction) -> list[str]:
        return [tx.append(one) for name, one in prepared if not tx.execute(_ON_RECORD, (name,))]

    return ledger.transact(write) if prepared else []
