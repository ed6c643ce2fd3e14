"""The breaker as a state machine, against a plain model of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remit.gateway import CircuitBreaker, CircuitBreakerConfig, CircuitState


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_way_round() -> None:
    clock = _Clock()
    breaker = CircuitBreaker(CircuitBreakerConfig(3, 1_000, 1), clock)
    for _ in range(3):
        assert breaker.state is CircuitState.CLOSED
        assert breaker.acquire()
        breaker.fail()
    assert breaker.state is CircuitState.OPEN
    assert not breaker.acquire()
    clock.now = 1.0
    assert breaker.state is CircuitState.HALF_OPEN
    assert breaker.acquire()
    assert not breaker.acquire()  # one at a time
    breaker.fail()
    assert breaker.state is CircuitState.OPEN
    clock.now = 2.0
    assert breaker.acquire()
    breaker.succeed()
    assert breaker.state is CircuitState.CLOSED


def test_a_success_forgets_earlier_failures() -> None:
    breaker = CircuitBreaker(CircuitBreakerConfig(2))
    for _ in range(5):
        breaker.fail()
        breaker.succeed()
    assert breaker.state is CircuitState.CLOSED


def test_a_released_trial_lets_the_next_one_through() -> None:
    clock = _Clock()
    breaker = CircuitBreaker(CircuitBreakerConfig(1, 1_000, 1), clock)
    breaker.fail()
    clock.now = 1.0
    assert breaker.acquire()
    breaker.release()
    assert breaker.acquire()


@given(
    threshold=st.integers(1, 4),
    trials=st.integers(1, 3),
    steps=st.lists(
        st.tuples(st.sampled_from(["ok", "bad", "release"]), st.floats(0, 2)), max_size=60
    ),
)
def test_open_means_nobody_passes_and_trials_are_bounded(
    threshold: int, trials: int, steps: list[tuple[str, float]]
) -> None:
    clock = _Clock()
    breaker = CircuitBreaker(CircuitBreakerConfig(threshold, 1_000, trials), clock)
    out = 0
    for outcome, wait in steps:
        clock.now += wait
        before = breaker.state
        passed = breaker.acquire()
        if before is CircuitState.CLOSED:
            assert passed
        if before is CircuitState.OPEN:
            assert not passed
        if not passed:
            continue
        out += 1
        if before is CircuitState.HALF_OPEN:
            assert out <= trials
        {"ok": breaker.succeed, "bad": breaker.fail, "release": breaker.release}[outcome]()
        out -= 1
