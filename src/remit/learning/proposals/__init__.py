"""Proposals: package versions that learners propose and people adopt."""

from remit.learning.proposals.additions import additions_of, with_additions
from remit.learning.proposals.adoption import Governance
from remit.learning.proposals.change import KINDS, Change, Kind
from remit.learning.proposals.learner import MIN_EFFECTIVE_SAMPLES, Learner
from remit.learning.proposals.proposal import Proposal, ProposalError, Proposals

__all__ = [
    "KINDS",
    "MIN_EFFECTIVE_SAMPLES",
    "Change",
    "Governance",
    "Kind",
    "Learner",
    "Proposal",
    "ProposalError",
    "Proposals",
    "additions_of",
    "with_additions",
]
