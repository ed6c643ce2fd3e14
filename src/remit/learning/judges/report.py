"""Reports on recorded judges: each judge's agreement with the people who graded the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from statistics import fmean
from typing import Any

from remit.kernel.canonical import sha256_hex
from remit.learning.evidence import Feedback, feedback_on
from remit.learning.judges.calibration import JudgeCalibration, calibrate_judge, labels_needed
from remit.ledger import LedgerReader

__all__ = ["JudgeReport", "calibrated_judges", "is_uncalibrated", "read_judges"]

_NEXT = 10  # exchanges that are named for a person to grade


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReport:
    """A judge of a contract's answers.

    Attributes:
        judge: the judge's name in its feedback.
        contract_id: contract of the graded exchanges.
        calibration: the agreement of its grades with people's.
        width: wanted width of the interval.
        labels_needed: number of further labels that give this width.
        label_next: exchanges for people to grade, drawn by the hash of their ids. Exchanges that
            people choose are not a random sample, so the interval would not be valid.
    """

    judge: str
    contract_id: str
    calibration: JudgeCalibration
    width: float
    labels_needed: int
    label_next: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, for JSON."""
        own = asdict(self) | {"label_next": list(self.label_next)}
        return {**own, **own.pop("calibration"), "calibrated": self.calibration.calibrated}


def read_judges(ledger: LedgerReader, *, width: float = 0.1) -> list[JudgeReport]:
    """Return a report on every judge that graded exchanges, sorted by judge and contract.

    The latest grade of each party on an exchange counts, and the mean of several people. Exchanges
    with erased content are left out.

    A judge's grades of exchanges whose response is no text are left out too. Each report names a
    few exchanges that people should grade next.

    Args:
        width: wanted width of the interval of the calibrated mean, for the number of missing
            labels.

    Raises:
        InvalidInputError: the width is not above 0.
    """
    people: dict[str, dict[str, float]] = defaultdict(dict)
    judges: dict[str, dict[str, float]] = defaultdict(dict)
    for word in feedback_on(ledger):
        if word.target_type != "exchange" or word.score is None:
            continue
        if word.source == "person":
            people[word.target_entry_id][word.rater] = word.score
        elif word.source == "judge":
            judges[word.by][word.target_entry_id] = word.score
    wanted = sorted({one for grades in judges.values() for one in grades})
    contracts: dict[str, str] = {}
    lengths: dict[str, int] = {}
    for entry in ledger.read_many(wanted):
        response = entry.metadata.get("response")
        if isinstance(response, str):
            contracts[entry.id] = str(entry.metadata["contract_id"])
            lengths[entry.id] = len(response)
    found = []
    for judge, grades in sorted(judges.items()):
        for contract_id in sorted({contracts[one] for one in grades if one in contracts}):
            mine = {one: s for one, s in grades.items() if contracts.get(one) == contract_id}
            both = [one for one in mine if one in people]
            alone = [one for one in mine if one not in people]
            given = (
                [fmean(people[one].values()) for one in both],
                [mine[one] for one in both],
                [mine[one] for one in alone],
            )
            drawn = sorted(alone, key=lambda one: sha256_hex(one.encode()))
            found.append(
                JudgeReport(
                    judge=judge,
                    contract_id=contract_id,
                    calibration=calibrate_judge(*given, [lengths[one] for one in both]),
                    width=width,
                    labels_needed=labels_needed(*given, width),
                    label_next=tuple(drawn[:_NEXT]),
                )
            )
    return found


def calibrated_judges(ledger: LedgerReader) -> set[tuple[str, str]]:
    """Return the judges that enough people confirm, each with the contract of its answers.

    Enough are :data:`MIN_LABELS` answers that people graded too. A pair is the name of the judge
    and the id of the contract.
    """
    found = read_judges(ledger)
    return {(one.judge, one.contract_id) for one in found if one.calibration.calibrated}


def is_uncalibrated(ledger: LedgerReader) -> Callable[[Feedback], bool]:
    """Return a function that is True for feedback of a judge that too few labels confirm.

    The judges are read at the first feedback of a judge. Feedback of people and programs gives
    False. The judges are not read again later.

    Raises:
        LedgerError: an entry cannot be read; raised by the function.
    """
    judges = cache(lambda: calibrated_judges(ledger))

    def asks(word: Feedback) -> bool:
        if word.source != "judge":
            return False
        contract = ledger.read(word.target_entry_id).metadata.get("contract_id", "")
        return (word.by, str(contract)) not in judges()

    return asks
