"""The report of learning, made in one pass over the record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from remit.contracts import ContractLoader
from remit.learning.evidence import read_samples
from remit.learning.judges import JudgeReport, read_judges
from remit.learning.meta.attribution import read_attributions
from remit.learning.meta.effects import Calibration, Effect, EffectReader, calibrate
from remit.learning.meta.questions import Question, read_questions
from remit.learning.proposals import Proposal, Proposals
from remit.learning.proposals.proposal import State
from remit.learning.signals import before_latest
from remit.ledger import LedgerReader

__all__ = ["Report", "read_report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Proposals, adoptions, their effects, and the quality of questions.

    Attributes:
        epoch: the policy epoch in force.
        proposals: all proposals, latest first.
        effects: effects of all proposals ever adopted, oldest first.
        questions: questions of each contract version and prompt pack.
        attributions: the latest recorded attribution of each contract (Q4).
        uncalibrated: judges that too few labels confirm.
        complete: True if all recorded exchanges were read.
    """

    epoch: int
    proposals: tuple[Proposal, ...]
    effects: tuple[Effect, ...]
    questions: tuple[Question, ...]
    attributions: tuple[Mapping[str, Any], ...]
    uncalibrated: tuple[JudgeReport, ...]
    complete: bool

    @property
    def calibration(self) -> Calibration:
        """The number of predictions that held, failed or are open, of all ``effects``."""
        return calibrate(self.effects)

    @property
    def states(self) -> dict[str, int]:
        """The number of proposals in each state; 0 for a state without any."""
        found = [one.state for one in self.proposals]
        return {state: found.count(state) for state in get_args(State)}

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON data; of the proposals, only the adopted ones."""
        return {
            "policy_epoch": self.epoch,
            "proposals": self.states,
            "adopted": [one.to_dict() for one in self.proposals if one.state == "adopted"],
            "effects": [one.to_dict() for one in self.effects],
            "calibration": self.calibration.to_dict(),
            "questions": [one.to_dict() for one in self.questions],
            "attributions": [dict(one) for one in self.attributions],
            "uncalibrated": [one.to_dict() for one in self.uncalibrated],
            "complete": self.complete,
        }


def read_report(
    ledger: LedgerReader,
    proposals: Proposals,
    contracts: ContractLoader,
    *,
    latest: int | None = None,
) -> Report:
    """Return the report on a root, for which the ledger is read once.

    Writes nothing.

    Args:
        latest: largest number of exchanges, counted from the latest; ``None`` for all.
    """
    after = None if latest is None else before_latest(ledger, latest)
    reader = EffectReader(ledger, proposals)
    samples = reader.watch(read_samples(ledger, after=after))
    questions = read_questions(ledger, contracts, samples=samples)
    return Report(
        epoch=proposals.epoch(),
        proposals=tuple(proposals.all()),
        effects=tuple(reader.effects()),
        questions=tuple(questions),
        attributions=tuple(read_attributions(ledger)),
        uncalibrated=tuple(one for one in read_judges(ledger) if not one.calibration.calibrated),
        complete=after is None,
    )
