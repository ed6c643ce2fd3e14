"""Proposals: package versions that learners propose and people adopt."""

from remit.learning.proposals.adoption import Governance
from remit.learning.proposals.canary_comparison import Compared, canary_of
from remit.learning.proposals.change import Change, Kind
from remit.learning.proposals.erased_evidence import forget_erased
from remit.learning.proposals.learner import MIN_EFFECTIVE_SAMPLES, Learner, case_of
from remit.learning.proposals.proposal import Proposal, ProposalError, Proposals

__all__ = [
    "MIN_EFFECTIVE_SAMPLES",
    "Change",
    "Compared",
    "Governance",
    "Kind",
    "Learner",
    "Proposal",
    "ProposalError",
    "Proposals",
    "canary_of",
    "case_of",
    "forget_erased",
]
