"""The state of the circuit of one provider and model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal

from remit.gateway.config import CircuitBreakerConfig

Outcome = Literal["ok", "bad", "nothing"]
"""What a call says of its provider's health."""


_LONGEST_TRIAL_MS = 86_400_000
"""A trial with more time left than any has was begun by another clock."""


class CircuitState(StrEnum):
    """The state of a breaker.

    Attributes:
        CLOSED: calls pass.
        OPEN: every call is refused.
        HALF_OPEN: a limited number of calls may try.
    """

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class Circuit:
    """A circuit breaker: CLOSED → OPEN after failures → HALF_OPEN after a time → CLOSED or OPEN.

    Immutable: :meth:`tried` and :meth:`answered` return the next state. Times are milliseconds
    since 1970 by the clock that all processes of a ledger share (:mod:`remit.ledger.clock`).

    Attributes:
        failures: consecutive failures while the circuit is closed.
        open: True from opening until closing; the half-open state is included.
        opened_at_ms: time of the latest opening or closing.
        generation: number of openings, closings and abandoned trials. The result of a call of an
            earlier generation is ignored.
        trials: calls in flight that try an open circuit.
        trials_until_ms: time by which the trials must have ended; later their callers are dead.
        changed_at_ms: time of the latest change; strictly increasing.
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
        """True if a success would change nothing: the circuit is closed and has no failures."""
        return not self.open and self.failures == 0

    def state(self, config: CircuitBreakerConfig, now_ms: int) -> CircuitState:
        """Return the state at ``now_ms``.

        An open circuit is half open once ``recovery_timeout_ms`` have passed since its opening, and
        also if the clock was set back by as much.

        Args:
            config: thresholds.
            now_ms: the time, in milliseconds since 1970 by the shared clock.
        """
        if not self.open:
            return CircuitState.CLOSED
        # A clock that was set back far must not keep it open until it has caught up.
        timeout = config.recovery_timeout_ms
        cooling = -timeout < now_ms - self.opened_at_ms < timeout
        return CircuitState.OPEN if cooling else CircuitState.HALF_OPEN

    def retry_after_s(self, config: CircuitBreakerConfig, now_ms: int) -> float | None:
        """Return the seconds until an open circuit may be retried; None if it may be retried now.

        Args:
            config: thresholds; the result is at most ``recovery_timeout_ms``.
            now_ms: the time, in milliseconds since 1970 by the shared clock.
        """
        if self.state(config, now_ms) is not CircuitState.OPEN:
            return None
        timeout = config.recovery_timeout_ms
        return min(timeout, timeout + self.opened_at_ms - now_ms) / 1000

    def tried(self, config: CircuitBreakerConfig, now_ms: int, lasts_ms: int) -> Circuit | None:
        """Return the circuit with one more trial; None if no trial is allowed.

        A trial is allowed if the circuit is half open and fewer than ``half_open_max`` trials are
        in flight. Trials whose time has passed are dropped, which begins a new generation.

        Args:
            config: thresholds.
            now_ms: the time.
            lasts_ms: most milliseconds that the trial may take.
        """
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
        """Return the circuit after a call has ended; the same object if the result changes nothing.

        A success closes an open circuit and clears failures. A failure opens a circuit that is open
        for trials, or that has reached the threshold. ``nothing`` gives back a trial.

        Args:
            config: thresholds.
            generation: the generation of the circuit when the call began; the result of another one
                is ignored.
            outcome: ``ok``, ``bad`` or ``nothing``.
            now_ms: the time.
        """
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


def circuit_of(row: tuple[Any, ...]) -> Circuit:
    """Return the circuit of a row of ``breakers``, without the provider and the model."""
    failures, opened, *rest = row
    return Circuit(failures, bool(opened), *rest)
