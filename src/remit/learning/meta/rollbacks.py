"""Proposals to roll back changes with bad effects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from remit.learning.meta.effects import Effect
from remit.learning.proposals import Learner, Proposal, ProposalError

__all__ = ["propose_rollbacks"]


def propose_rollbacks(
    learner: Learner, effects: Iterable[Effect]
) -> tuple[list[Proposal], list[str]]:
    """Propose rollbacks of changes in force that surely made results worse.

    Each proposal appends a ``SIGNAL_PROPOSED`` entry. Nothing is rolled back.

    Returns:
        The proposals, and a sentence for each other disappointing change
        (:attr:`Effect.disappoints`) that tells why no rollback was proposed.

    Raises:
        PackageError: ``busy``: another process holds the packages' lock.
    """
    made, refused = [], []
    for one in effects:
        if not one.disappoints or one.realised is None or one.regained is None:
            continue
        came = one.realised
        try:
            rollback = learner.propose_rollback(
                learner.proposals.get(one.proposal_id),
                evidence=one.evidence,
                predicted=one.regained,
                gate=replace(came, value=-came.value, low=-came.high, high=-came.low),
                replay={"metric": one.metric, "before": one.before, "after": one.after},
                reason=f"{one.metric} changed by {came.value:+.4f} [{came.low:+.4f}, "
                f"{came.high:+.4f}] since {one.proposal_id} was adopted.",
            )
        except ProposalError as error:
            refused.append(f"{one.proposal_id[:12]}: {error.message} {error.next_step}")
        else:
            made.append(rollback)
    return made, refused
