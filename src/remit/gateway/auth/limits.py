"""How fresh the view of the keys must be."""

from __future__ import annotations

from dataclasses import dataclass

from remit.kernel.errors import InvalidInputError

__all__ = ["AuthLimits"]


@dataclass(frozen=True, slots=True)
class AuthLimits:
    """Settings of ``[auth]``, all in seconds and above 0.

    Attributes:
        revocation_s: a change that another process made counts here within this time; the
            database is asked twice as often.
        stale_after_s: when the database could not be read for this long, nobody is let in.
        refused_log_s: refused calls are told in the log at most this often, as a number.
    """

    revocation_s: float
    stale_after_s: float
    refused_log_s: float = 60.0

    def __post_init__(self) -> None:
        for name in ("revocation_s", "stale_after_s", "refused_log_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise InvalidInputError(f"[auth] {name} is not a number of seconds above 0.")
        if self.stale_after_s < self.revocation_s:
            raise InvalidInputError(
                "[auth] stale_after_s is below revocation_s, so keys would be refused between "
                "two looks at the database."
            )
