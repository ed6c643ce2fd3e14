"""Circuit breakers, one per provider and model (SPEC 4.4)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import StrEnum

from remit.gateway.config import CircuitBreakerConfig

__all__ = ["CircuitBreaker", "CircuitState", "Permit"]


class CircuitState(StrEnum):
    """Where a breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Permit:
    """Leave to make one call; answered once, by ``succeed``, ``fail`` or ``release``."""

    def __init__(self, breaker: CircuitBreaker, generation: int) -> None:
        self._breaker = breaker
        self._generation = generation
        self._used = False

    def succeed(self) -> None:
        """The provider answered, be it with a refusal of this one request."""
        self._answer("ok")

    def fail(self) -> None:
        """The provider is not well."""
        self._answer("bad")

    def release(self) -> None:
        """The call was not made, or says nothing of the provider."""
        self._answer("nothing")

    def _answer(self, outcome: str) -> None:
        if not self._used:
            self._used = True
            self._breaker._answered(self._generation, outcome)


class CircuitBreaker:
    """CLOSED → OPEN after failures → HALF_OPEN after a while → CLOSED or OPEN again.

    Args:
        config: thresholds.
        clock: seconds, monotonic.
    """

    def __init__(
        self, config: CircuitBreakerConfig, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._config = config
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._opened_at = 0.0
        self._open = False
        self._trials = 0
        self._answers = 0
        self._out = 0
        # Counts openings and closings: an answer to a call of an earlier phase says nothing now.
        self._generation = 0

    @property
    def state(self) -> CircuitState:
        """The state as of now."""
        with self._lock:
            return self._state()

    @property
    def retry_after_s(self) -> float | None:
        """When an open circuit lets somebody try again, in seconds; ``None`` when it does now."""
        with self._lock:
            if self._state() is not CircuitState.OPEN:
                return None
            opened_for = self._clock() - self._opened_at
            return max(0.0, self._config.recovery_timeout_ms / 1000 - opened_for)

    @property
    def was_asked(self) -> bool:
        """Whether anybody ever made a call by it."""
        return self._answers > 0

    @property
    def is_idle(self) -> bool:
        """Whether it is closed, and no call is out by it."""
        with self._lock:
            return not self._open and self._out == 0

    def acquire(self) -> Permit | None:
        """Leave to make one call now, or ``None``."""
        with self._lock:
            state = self._state()
            if state is CircuitState.OPEN:
                return None
            if state is CircuitState.HALF_OPEN:
                if self._trials >= self._config.half_open_max:
                    return None
                self._trials += 1
            self._out += 1
            return Permit(self, self._generation)

    def _answered(self, generation: int, outcome: str) -> None:
        with self._lock:
            self._out -= 1
            self._answers += outcome != "nothing"
            if generation != self._generation:
                return
            if self._open:
                self._trials -= 1
            if outcome == "ok":
                self._failures = 0
                if self._open:
                    self._turn(opened=False)
            elif outcome == "bad":
                self._failures += 1
                if self._open or self._failures >= self._config.failure_threshold:
                    self._turn(opened=True)

    def _turn(self, *, opened: bool) -> None:
        self._open = opened
        self._opened_at = self._clock()
        self._trials = 0
        self._failures = 0
        self._generation += 1

    def _state(self) -> CircuitState:
        if not self._open:
            return CircuitState.CLOSED
        cooled = (self._clock() - self._opened_at) * 1000 >= self._config.recovery_timeout_ms
        return CircuitState.HALF_OPEN if cooled else CircuitState.OPEN
