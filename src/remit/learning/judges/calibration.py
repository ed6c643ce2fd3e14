"""The agreement of judges' grades with people's: mean, agreement, length bias, missing labels.

The mean is estimated by prediction-powered inference (:func:`prediction_powered`), which assumes
that the answers graded by people are a random part of those graded by the judge.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import NormalDist, StatisticsError, correlation, fmean, linear_regression, variance
from typing import Any

from remit.kernel.canonical import sha256_hex
from remit.kernel.errors import InvalidInputError
from remit.learning.evidence.feedback import feedback_on
from remit.learning.statistics import Estimate, prediction_powered
from remit.ledger import LedgerReader

MIN_LABELS = 30
"""Number of answers graded by people and judge below which the judge is uncalibrated."""

_SIDE = 0.5  # Grades from here on mean a good answer.
_CHARACTERS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReport:
    """The agreement of a judge's grades with people's, on answers under one contract.

    Attributes:
        judge: the judge's name in its feedback.
        contract_id: the contract of the answers.
        judged: number of answers that the judge graded.
        labelled: number of these that people graded too.
        judge_mean: mean of the judge's grades.
        mean: estimated mean of people's grades over all judged answers; None below two labels.
        agreement: share of the labelled answers on the same side of 0.5; None without labels.
        kappa: Cohen's kappa of the labelled answers; None without labels, or if chance alone would
            always agree.
        bias: mean of judge minus person; None without labels.
        length_slope: increase of judge minus person per 1,000 characters of the answer; None below
            three labels, or if all answers are equally long.
        length_correlation: correlation of judge minus person with the answer's length, -1 to 1.
        width: wanted width of the interval of ``mean``.
        labels_needed: estimated number of further labels that give this width.
        label_next: exchanges for people to grade, drawn by the hash of their ids. Exchanges that
            people choose are not a random sample, so the interval would not be valid.
    """

    judge: str = ""
    contract_id: str = ""
    judged: int
    labelled: int
    judge_mean: float
    mean: Estimate | None
    agreement: float | None
    kappa: float | None
    bias: float | None
    length_slope: Estimate | None
    length_correlation: float | None
    width: float
    labels_needed: int
    label_next: tuple[str, ...] = ()

    @property
    def calibrated(self) -> bool:
        """True if people graded at least :data:`MIN_LABELS` of the judged answers."""
        return self.labelled >= MIN_LABELS

    def to_dict(self) -> dict[str, Any]:
        """Return all fields and ``calibrated``, for JSON."""
        return {**asdict(self), "calibrated": self.calibrated}


def calibrate_judge(
    grades: Sequence[float], judged: Sequence[float], judged_only: Sequence[float],
    lengths: Sequence[int], *, width: float = 0.1,
) -> JudgeReport:  # fmt: skip
    """Return the agreement of a judge's grades with people's, without names and ``label_next``.

    ``grades``, ``judged`` and ``judged_only`` are those of :func:`prediction_powered`.

    Args:
        lengths: characters of the answers graded by people, in the same order.
        width: wanted width of the interval of the mean, for ``labels_needed``.

    Raises:
        InvalidInputError: the numbers of items differ, there is none, or the width is not above 0.
    """
    if not len(grades) == len(judged) == len(lengths) or not (judged or judged_only):
        raise InvalidInputError(
            "The grades of the judge and of people are not of the same answers."
        )
    differences = [f - y for y, f in zip(grades, judged, strict=True)]
    slope, correlation = _on_length(differences, lengths)
    good = [y >= _SIDE for y in grades]
    said = [f >= _SIDE for f in judged]
    same = [a == b for a, b in zip(good, said, strict=True)]
    return JudgeReport(
        judged=len(judged) + len(judged_only), labelled=len(grades),
        judge_mean=fmean([*judged, *judged_only]),
        mean=prediction_powered(grades, judged, judged_only) if len(grades) > 1 else None,
        agreement=fmean(same) if same else None, kappa=_kappa(good, said),
        bias=fmean(differences) if differences else None, length_slope=slope,
        length_correlation=correlation, width=width,
        labels_needed=_labels_needed(grades, judged, len(grades) + len(judged_only), width),
    )  # fmt: skip


def _labels_needed(
    grades: Sequence[float], judged: Sequence[float], total: int, width: float
) -> int:
    """Return an estimate of the further labels that narrow the interval of the mean to ``width``.

    With T answers judged, of which n are labelled, variance s² of people's grades and correlation r
    with the judge's, the variance of the mean is about s² ((1 - r²) / n + r² / T). Below
    :data:`MIN_LABELS` labels, s² counts as 1/4, its maximum, and r as 0.
    """
    if not width > 0:
        raise InvalidInputError("The width of an interval must be above 0.")
    wanted = (width / 2 / NormalDist().inv_cdf(0.975)) ** 2
    spread, shared = 0.25, 0.0
    if len(grades) >= MIN_LABELS:
        spread = variance(grades)
        shared = max(0.0, _correlation(grades, judged) or 0.0) ** 2
    left = wanted - spread * shared / total
    needed = spread * (1 - shared) / left if left > 0 else math.inf
    if needed > total:  # The judge's grades are too few to help.
        needed = spread / wanted
    return max(0, math.ceil(needed) - len(grades))


def _on_length(
    differences: Sequence[float], lengths: Sequence[int]
) -> tuple[Estimate | None, float | None]:
    """Return the least-squares slope of the difference on length, and their correlation."""
    n = len(differences)
    scaled = [length / _CHARACTERS for length in lengths]
    if n < 3 or min(scaled) == max(scaled):
        return None, None
    slope, start = linear_regression(scaled, differences)
    rest = [b - start - slope * a for a, b in zip(scaled, differences, strict=True)]
    squares = variance(scaled) * (n - 1)
    half = NormalDist().inv_cdf(0.975) * math.sqrt(sum(r * r for r in rest) / (n - 2) / squares)
    made = Estimate(
        value=slope, low=slope - half, high=slope + half, samples=n, effective_samples=n,
        method="least_squares",
    )  # fmt: skip
    return made, _correlation(scaled, differences)


def _correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    try:
        return correlation(one, other)
    except StatisticsError:  # All values of a side are equal.
        return None


def _kappa(one: Sequence[bool], other: Sequence[bool]) -> float | None:
    if not one:
        return None
    p, q = fmean(one), fmean(other)
    chance = p * q + (1 - p) * (1 - q)
    agreed = fmean([a == b for a, b in zip(one, other, strict=True)])
    return (agreed - chance) / (1 - chance) if chance < 1 else None


_NEXT = 10  # exchanges that are named for a person to grade


def read_judges(ledger: LedgerReader, *, width: float = 0.1) -> list[JudgeReport]:
    """Return a report on every judge that graded exchanges, sorted by judge and contract.

    The latest grade of each party on an exchange counts, and the mean of several people. Exchanges
    with erased content, or whose response is no text, are left out.

    Args:
        width: wanted width of the interval of the calibrated mean.

    Raises:
        InvalidInputError: the width is not above 0.
        LedgerError: the ledger cannot be read.
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
            alone = sorted(
                (one for one in mine if one not in people), key=lambda one: sha256_hex(one.encode())
            )
            agreement = calibrate_judge(
                [fmean(people[one].values()) for one in both], [mine[one] for one in both],
                [mine[one] for one in alone], [lengths[one] for one in both], width=width,
            )  # fmt: skip
            named = tuple(alone[:_NEXT])
            found.append(replace(agreement, judge=judge, contract_id=contract_id, label_next=named))
    return found


def calibrated_judges(ledger: LedgerReader) -> set[tuple[str, str]]:
    """Return the judges, each with the id of a contract, that :data:`MIN_LABELS` labels confirm."""
    found = read_judges(ledger)
    return {(one.judge, one.contract_id) for one in found if one.calibrated}
