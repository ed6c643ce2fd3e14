"""What a check found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Checked", "Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        message: a sentence: what is wrong, and why.
        next_step: what to do about it.
        package_id: of the package it is about; empty when of none.
        path: of the file it is about, relative to the root; empty when of none.
        entry_id: of the ledger entry it is about; empty when of none.
    """

    message: str
    next_step: str = ""
    package_id: str = ""
    path: str = ""
    entry_id: str = ""

    def __str__(self) -> str:
        return self.message


@dataclass(slots=True)
class Checked:
    """What one check found, and how much it looked at.

    Attributes:
        findings: empty when all is well.
        counts: what was looked at, by a plural word: ``{"files": 120}``.
        message: of a gate: one line that says what was looked at.
        mark: of a gate: goes on record when it passes, so that the next run can go on from there.
    """

    findings: list[Finding] = field(default_factory=list)
    counts: Mapping[str, int] = field(default_factory=dict)
    message: str = ""
    mark: Mapping[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def joined(self, *others: Checked) -> Checked:
        """This and others as one."""
        findings, counts = list(self.findings), dict(self.counts)
        for other in others:
            findings += other.findings
            for name, number in other.counts.items():
                counts[name] = counts.get(name, 0) + number
        return Checked(findings, counts)
