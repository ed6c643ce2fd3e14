"""Errors of a witness, and findings against a log."""

from __future__ import annotations

from remit.kernel.errors import RemitError


class WitnessError(RemitError):
    """A witness cannot run, cannot be reached, or does not answer as it should."""


class WitnessConflictError(WitnessError):
    """A witness holds something that this log's tree does not extend: a serious finding.

    Args:
        message: see :class:`~remit.kernel.errors.RemitError`.
        next_step: see there.
        witness_size: leaves of the tree that the witness cosigned.
        size: leaves of the checkpoint that it was shown.
    """

    def __init__(self, message: str, *, next_step: str, witness_size: int, size: int) -> None:
        super().__init__(message, next_step=next_step)
        self.witness_size = witness_size
        self.size = size
