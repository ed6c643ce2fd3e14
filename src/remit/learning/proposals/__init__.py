"""Proposals: package versions that learners propose and people adopt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remit.kernel import lazy_names
from remit.learning.proposals.adoption import Governance
from remit.learning.proposals.canary_comparison import Compared, Comparison, canary_of
from remit.learning.proposals.change import KINDS, Change, Kind, additions_of, with_additions
from remit.learning.proposals.learner import MIN_EFFECTIVE_SAMPLES, Learner
from remit.learning.proposals.proposal import Proposal, ProposalError, Proposals

if TYPE_CHECKING:
    from remit.learning.proposals.case import case_of
    from remit.learning.proposals.erased_evidence import forget_erased
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "case": "case_of",
            "erased_evidence": "forget_erased",
        },
    )

__all__ = [
    "KINDS", "MIN_EFFECTIVE_SAMPLES", "Change", "Compared", "Comparison", "Governance", "Kind",
    "Learner", "Proposal", "ProposalError", "Proposals", "additions_of", "canary_of", "case_of",
    "forget_erased", "with_additions",
]  # fmt: skip
