"""The sections of ``remit learn report`` on what adoptions did, and on contracts' questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.cli.shared import open_ledger, open_settings

if TYPE_CHECKING:
    from remit.learning import Estimate
    from remit.learning.judges import JudgeReport
    from remit.learning.meta import Calibration, Effect, Question

__all__ = ["Effects", "findings", "lines"]

_NAMED = 5  # missing requirements in a line


@dataclass(frozen=True, slots=True)
class Effects:
    """What adopted proposals did, and how many predictions held."""

    effects: Sequence[Effect]
    calibration: Calibration

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, for JSON."""
        return {
            "effects": [one.to_dict() for one in self.effects],
            "calibration": self.calibration.to_dict(),
        }


def findings(root: Path | None) -> tuple[Effects, list[Question], list[JudgeReport]]:
    """What the record of a root says; of judges those that are not calibrated."""
    from remit.contracts import ContractLoader
    from remit.kernel.installed import InstalledFiles
    from remit.learning import read_samples
    from remit.learning.judges import read_judges
    from remit.learning.meta import calibrate, read_effects, read_questions
    from remit.learning.proposals import Proposals

    place, _ = open_settings(root)
    contracts = ContractLoader(place.tier("ho1"), installed=InstalledFiles(place.path))
    with open_ledger(root) as ledger:
        effects = read_effects(ledger, Proposals(place, ledger), read_samples(ledger))
        questions = read_questions(ledger, contracts)
        judges = [one for one in read_judges(ledger) if not one.calibration.calibrated]
    return Effects(effects, calibrate(effects)), questions, judges


def lines(
    effects: Effects, questions: Sequence[Question], judges: Sequence[JudgeReport]
) -> Iterator[str]:
    """All sections, for a person."""
    for judge in judges:
        yield (
            f"UNCALIBRATED: rewards under {judge.contract_id} that are {judge.judge}'s alone; "
            f"people graded {judge.calibration.labelled} of its {judge.calibration.judged} answers"
        )
    if effects.effects:
        yield ""
        yield "Did it do what it predicted?"
    for one in effects.effects:
        what = f"{one.proposal_id[:12]} {one.kind} of {one.target}, epoch {one.epoch}"
        yield f"  {what}: {_came(one)}"
        if one.harmful and one.state == "adopted":
            yield f"    it made things worse: remit learn rollback {one.proposal_id[:12]}"
    if effects.effects:
        known = effects.calibration
        yield f"  predictions: {known.held} held, {known.missed} missed, {known.open} open"
    if questions:
        yield ""
        yield "Was the question right?"
    for question in questions:
        name = f"{question.contract_id} {question.contract_version}".rstrip()
        yield f"  {name} ({question.prompt_pack_id or 'no pack'}), {question.exchanges} exchanges"
        yield f"    valid answers           {_share(question.success)}"
        yield f"    corrected by the user   {_share(question.repair)}"
        yield f"    equal questions differ  {_share(question.disagreement)}"
        yield f"    demand never stated     {_share(question.unstated)}"
        if question.missing:
            shown = [f"{one.kind} {one.name} ({one.of})" for one, _ in question.missing[:_NAMED]]
            yield f"    not in the prompt: {', '.join(shown)}"
        if question.wrong:
            yield "    The answer looked right, the question was wrong."


def _came(one: Effect) -> str:
    predicted = "erased" if one.predicted is None else _signed(one.predicted)
    if one.realised is None:
        return f"predicted {predicted}; too few samples of {one.metric} to say what came"
    word = {True: "held", False: "missed", None: "open"}[one.held]
    return f"predicted {predicted}, came {_signed(one.realised)} of {one.metric}: {word}"


def _signed(one: Estimate) -> str:
    return f"{one.value:+.4f} [{one.low:+.4f}, {one.high:+.4f}]"


def _share(one: Estimate) -> str:
    if not one.samples:
        return "no samples"
    return f"{one.value:4.0%} [{one.low:.0%}, {one.high:.0%}] of {one.samples}"
