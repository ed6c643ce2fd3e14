"""The circuit of one provider and model, as values: nothing here reads or waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal

from remit.gateway.config import CircuitBreakerConfig

__all__ = ["Circuit", "CircuitState", "Outcome", "Permit"]

Outcome = Literal["ok", "bad", "nothing"]
"""What a call says of its provider's health."""


_LONGEST_TRIAL_MS = 86_400_000
"""A trial with more time left than any has was begun by another clock."""


class CircuitState(StrEnum):
    """The state of a breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Permit:
    """Leave to make one call; answered once, by ``succeed``, ``fail`` or ``release``.

    Args:
        answer: takes ``about`` and what the call came to; does not wait.
        about: which call it is, for ``answer``.
    """

    __slots__ = ("_about", "_answer")

    def __init__(self, answer: Callable[..., None], *about: Any) -> None:
        self._answer: Callable[..., None] | None = answer
        self._about = about

    def succeed(self) -> None:
        """The provider answered, be it with a refusal of this one request."""
        answer, self._answer = self._answer, None
        if answer is not None:
            answer(*self._about, "ok")

    def fail(self) -> None:
        """The provider is not well."""
        self._say("bad")

    def release(self) -> None:
        """The call was not made, or says nothing of the provider."""
        self._say("nothing")

    def _say(self, outcome: Outcome) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer(*self._about, outcome)


@dataclass(frozen=True, slots=True)
class Circuit:
    """CLOSED → OPEN after failures → HALF_OPEN after a while → CLOSED or OPEN again.

    Times are milliseconds since 1970, by the one clock that all who share a ledger go by
    (:mod:`remit.ledger.clock`).

    Attributes:
        failures: in a row, while it is closed.
        open: whether it was opened and not closed since; half open is open for long enough.
        opened_at_ms: when it was last opened or closed.
        generation: counts openings, closings and trials given up: an answer to a call of an
            earlier generation says nothing now.
        trials: calls that are out to try an open circuit.
        trials_until_ms: when their callers must have answered, or have died.
        changed_at_ms: when anything changed; of two later changes never the same.
    """

    failures: int = 0
    open: bool = False
    opened_at_ms: int = 0
    generation: int = 0
    trials: int = 0
    trials_until_ms: int = 0
    changed_at_ms: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether a success would change nothing: closed, and no failure counted."""
        return not self.open and self.failures == 0

    def state(self, config: CircuitBreakerConfig, now_ms: int) -> CircuitState:
        """The state as of ``now_ms``."""
        if not self.open:
            return CircuitState.CLOSED
        # A clock that was set back far must not keep it open until it has caught up.
        timeout = config.recovery_timeout_ms
        cooling = -timeout < now_ms - self.opened_at_ms < timeout
        return CircuitState.OPEN if cooling else CircuitState.HALF_OPEN

    def retry_after_s(self, config: CircuitBreakerConfig, now_ms: int) -> float | None:
        """When an open circuit may be tried again, in seconds; ``None`` when it does now."""
        if self.state(config, now_ms) is not CircuitState.OPEN:
            return None
        timeout = config.recovery_timeout_ms
        return min(timeout, timeout + self.opened_at_ms - now_ms) / 1000

    def tried(self, config: CircuitBreakerConfig, now_ms: int, lasts_ms: int) -> Circuit | None:
        """With one trial more, for ``lasts_ms`` at most; ``None`` when there is none to be had."""
        if self.state(config, now_ms) is not CircuitState.HALF_OPEN:
            return None
        trials, generation = self.trials, self.generation
        left_ms = self.trials_until_ms - now_ms
        if trials and not 0 < left_ms <= _LONGEST_TRIAL_MS:  # The callers of the trials have died.
            trials, generation = 0, generation + 1
        if trials >= config.half_open_max:
            return None
        return replace(
            self,
            trials=trials + 1,
            generation=generation,
            trials_until_ms=now_ms + lasts_ms,
            changed_at_ms=self._next(now_ms),
        )

    def answered(
        self, config: CircuitBreakerConfig, generation: int, outcome: Outcome, now_ms: int
    ) -> Circuit:
        """After a call of that generation has ended; the same object when that says nothing."""
        if generation != self.generation:
            return self
        if outcome == "nothing":
            if not self.open:
                return self
            return replace(self, trials=max(0, self.trials - 1), changed_at_ms=self._next(now_ms))
        if outcome == "ok":
            if self.open:
                return self._turned(now_ms, opened=False)
            if self.failures == 0:
                return self
            return replace(self, failures=0, changed_at_ms=self._next(now_ms))
        if self.open or self.failures + 1 >= config.failure_threshold:
            return self._turned(now_ms, opened=True)
        return replace(self, failures=self.failures + 1, changed_at_ms=self._next(now_ms))

    def _turned(self, now_ms: int, *, opened: bool) -> Circuit:
        return Circuit(
            open=opened,
            opened_at_ms=now_ms,
            generation=self.generation + 1,
            changed_at_ms=self._next(now_ms),
        )

    def _next(self, now_ms: int) -> int:
        return max(now_ms, self.changed_at_ms + 1)
