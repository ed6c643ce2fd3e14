"""Circuit breakers, one per provider and model (SPEC 4.4)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import StrEnum

from remit.gateway.config import CircuitBreakerConfig

__all__ = ["CircuitBreaker", "CircuitState"]


class CircuitState(StrEnum):
    """Where a breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitBreaker:
    """CLOSED → OPEN after failures → HALF_OPEN after a while → CLOSED or OPEN again.

    Every ``acquire`` that gives ``True`` is answered by exactly one of ``succeed``, ``fail``
    and ``release``.

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

    @property
    def state(self) -> CircuitState:
        """The state as of now."""
        with self._lock:
            return self._state()

    def acquire(self) -> bool:
        """Whether a call may go out now."""
        with self._lock:
            state = self._state()
            if state is CircuitState.CLOSED:
                return True
            if state is CircuitState.OPEN or self._trials >= self._config.half_open_max:
                return False
            self._trials += 1
            return True

    def succeed(self) -> None:
        """The provider answered, be it with a refusal of this one request."""
        with self._lock:
            self._failures = 0
            self._open = False
            self._trials = 0

    def fail(self) -> None:
        """The provider is not well."""
        with self._lock:
            self._failures += 1
            if self._open or self._failures >= self._config.failure_threshold:
                self._open = True
                self._opened_at = self._clock()
                self._trials = 0

    def release(self) -> None:
        """The call was not made, or says nothing of the provider."""
        with self._lock:
            self._trials = max(0, self._trials - 1)

    def _state(self) -> CircuitState:
        if not self._open:
            return CircuitState.CLOSED
        cooled = (self._clock() - self._opened_at) * 1000 >= self._config.recovery_timeout_ms
        return CircuitState.HALF_OPEN if cooled else CircuitState.OPEN
