"""Proposals: package versions that learners propose and people adopt."""

from remit.learning.proposals.adoption import Governance
from remit.learning.proposals.canary import Compared, Comparison, canary_of
from remit.learning.proposals.case import case_of
from remit.learning.proposals.change import KINDS, Change, Kind, additions_of, with_additions
from remit.learning.proposals.erasure import forget_erased
from remit.learning.proposals.learner import MIN_EFFECTIVE_SAMPLES, Learner
from remit.learning.proposals.proposal import Proposal, ProposalError, Proposals

__all__ = [
    "KINDS", "MIN_EFFECTIVE_SAMPLES", "Change", "Compared", "Comparison", "Governance", "Kind",
    "Learner", "Proposal", "ProposalError", "Proposals", "additions_of", "canary_of", "case_of",
    "forget_erased", "with_additions",
]  # fmt: skip
