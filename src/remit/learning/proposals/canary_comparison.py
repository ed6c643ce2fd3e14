"""The comparison of a proposed route with the current one during a canary.

Only calls count for which the two routes choose different models; on all others both are equal. The
evidence is valid at every look, so the canary may end at any time: with an adoption if the reward
is surely less than the tolerance below the current one, else with a stop.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Literal

from remit.learning.evidence.samples import Sample, read_samples
from remit.learning.proposals.proposal import Proposal
from remit.learning.signals import FACT, Window, is_below
from remit.learning.statistics import Estimate, difference
from remit.learning.statistics.fixed_sample_intervals import ALPHA
from remit.ledger import LedgerClient, LedgerReader, is_authentic
from remit.routing import CanaryTerms, canary_in_force, terms_of

_REFUSED = 20  # As many calls in a row that the budget refuses end a canary.

Verdict = Literal["adopt", "stop", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Both routes of a canary so far.

    Attributes:
        calls: numbers of calls: of the ``new`` and the ``old`` route, of calls with the ``same``
            model in both, and of calls that only the current route could answer (``shadow``).
        graded: numbers of grades of the new and the old route.
        rewards: means of these grades; a route without grades is left out.
        difference: reward of the new route minus reward of the old one.
        usd_per_call: mean costs of calls with different models, by route; a route without such
            calls is left out.
        spent_usd: cost of the new route's calls, which the budget limits.
        verdict: ``adopt``, ``stop``, or empty while undecided.
        reason: the reason of the verdict; while undecided, the next event.
    """

    calls: dict[str, int]
    graded: dict[str, int]
    rewards: dict[str, float]
    difference: Estimate
    usd_per_call: dict[str, float]
    spent_usd: float
    verdict: Verdict
    reason: str


def read_canary(ledger: LedgerReader, terms: CanaryTerms) -> Compared:
    """Return the comparison of a canary, read from the exchanges since its start; raise LedgerError
    if the ledger cannot be read. Whether the canary is in force is not checked.
    """
    comparison = Comparison(terms)
    for sample in read_samples(ledger, after=terms.entry_id):
        comparison.add(sample)
    return comparison.result()


def canary_of(ledger: LedgerClient, proposal: Proposal) -> dict[str, Any] | None:
    """Return the latest canary of a proposal as JSON data; None if there was none.

    The data is the terms, ``state`` (``in force`` or ``ended``), and the present or the recorded
    comparison, if any. LedgerError is raised if the ledger cannot be read.
    """
    terms = canary_in_force(ledger)
    if terms is not None and terms.proposal_id == proposal.proposal_id:
        return {**asdict(terms), "state": "in force", **asdict(read_canary(ledger, terms))}
    entries = list(ledger.query(event_type="SIGNAL_CANARY", submission_id=proposal.proposal_id))
    started = [one for one in entries if one.decision == "STARTED" and is_authentic(one)]
    if not started:
        return None
    last = ledger.read(proposal.decision) if proposal.decision else entries[-1]
    compared = last.metadata.get("compared") or {}
    return {**asdict(terms_of(started[-1])), "state": "ended", **compared}


class Comparison:
    """The comparison of both routes, a sample at a time.

    A failed call has the grade 0. Tainted samples, and calls that their callers cancelled, have no
    grade. Parties that grade more than their share count less, as in signals.
    """

    def __init__(self, terms: CanaryTerms) -> None:
        self._terms = terms
        self._calls: Counter[str] = Counter()
        self._windows = {"new": Window(ALPHA), "old": Window(ALPHA)}
        self._usd = {"new": 0.0, "old": 0.0}
        self._refused = 0

    def add(self, sample: Sample) -> None:
        """Count an exchange since the start; those of other canaries are left out.

        Every exchange of the canary counts as a call of its arm; one of ``new`` or ``old`` adds its
        cost (0 if unknown) and, as the class describes, its grade. Exchanges must come in the order
        of the ledger.

        Raises:
            InvalidInputError: a reward does not lie between 0 and 1.
        """
        arm = sample.arm
        if sample.canary != self._terms.proposal_id:
            return
        self._calls[arm] += 1
        self._refused = 0 if arm == "new" else self._refused + (arm == "shadow")
        if arm in self._windows:
            self._usd[arm] += (sample.cost_nano or 0) / 1e9
            reward, raters = (0.0, FACT) if sample.failed else (sample.reward, sample.raters)
            if reward is not None and not (sample.tainted or sample.cancelled):
                self._windows[arm].add(reward, raters)

    def result(self) -> Compared:
        """Return the comparison of the samples so far, with its verdict.

        The verdict is ``stop`` if the new route's mean grade is surely below the old one's, else
        ``adopt`` if it is surely less than the tolerance below, else ``stop`` if 20 calls in a row
        could be answered by the old route only, because the budget is used up; else empty. A shadow
        (a share of 0) has no verdict.
        """
        calls, windows = self._calls, self._windows
        new, old = windows["new"], windows["old"]
        verdict: Verdict = ""
        reason = "More graded calls decide the comparison."
        tolerance = self._terms.tolerance
        if not self._terms.share:
            reason = "A shadow ends when a person adopts, rejects or stops it."
        elif is_below([(new, old)], 0.0, ALPHA):
            verdict, reason = "stop", "The answers of the proposed route are worse."
        elif is_below([(old, new)], -tolerance, ALPHA):
            verdict, reason = (
                "adopt",
                (
                    f"The reward of the proposed route is at most {tolerance:g} below that of the "
                    "current route."
                ),
            )
        elif self._refused >= _REFUSED:
            verdict, reason = "stop", "The budget is used up, and the comparison is undecided."
        return Compared(
            calls=dict(calls), graded={arm: window.samples for arm, window in windows.items()},
            rewards={arm: one.estimate().value for arm, one in windows.items() if one.samples},
            difference=difference(new.sequences()[0], old.sequences()[0]),
            usd_per_call={arm: usd / calls[arm] for arm, usd in self._usd.items() if calls[arm]},
            spent_usd=self._usd["new"], verdict=verdict, reason=reason,
        )  # fmt: skip
