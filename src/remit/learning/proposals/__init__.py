"""Proposals: package versions that learners propose and people adopt."""

from remit.learning.proposals.adoption import Governance as Governance
from remit.learning.proposals.canary_comparison import Compared as Compared, canary_of as canary_of
from remit.learning.proposals.change import Change as Change, Kind as Kind
from remit.learning.proposals.erased_evidence import forget_erased as forget_erased
from remit.learning.proposals.learner import (
    MIN_EFFECTIVE_SAMPLES as MIN_EFFECTIVE_SAMPLES,
    Learner as Learner,
    case_of as case_of,
)
from remit.learning.proposals.proposal import (
    Proposal as Proposal,
    ProposalError as ProposalError,
    Proposals as Proposals,
)
