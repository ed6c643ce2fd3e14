"""What the verification of a trail found."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["TrailProblem", "TrailReport"]

_MAX_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class TrailProblem:
    """One thing that is wrong.

    Attributes:
        thought_id: of the record it shows at; where its id cannot be read, of the entry or line.
        task_id: the record's, as far as known.
        place: its ledger entry (``LED-…``), or the line of an export.
        message: a sentence.
    """

    thought_id: str
    task_id: str
    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.thought_id} ({self.place}): {self.message}"


@dataclass(slots=True)
class TrailReport:
    """What the verification of a trail found.

    Attributes:
        records: thought records looked at.
        tasks: chains they form.
        erased: records whose content is erased: their place was checked, their hash was not.
        first_bad: id of the first record, in ledger order, with a problem; ``None`` without.
        problem_count: how many problems there are.
        problems: at most 100 of them, in ledger order.
    """

    records: int = 0
    tasks: int = 0
    erased: int = 0
    first_bad: str | None = None
    problem_count: int = 0
    problems: list[TrailProblem] = field(default_factory=list)

    @property
    def verified(self) -> bool:
        """Whether nothing is wrong."""
        return self.problem_count == 0

    def add(self, thought_id: str, task_id: str, place: str, message: str) -> None:
        """Note one problem; they are told in order."""
        self.problem_count += 1
        if self.first_bad is None:
            self.first_bad = thought_id
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(TrailProblem(thought_id, task_id, place, message))

    def to_dict(self) -> dict[str, Any]:
        """As plain data, ``verified`` first."""
        return {"verified": self.verified, **asdict(self)}
