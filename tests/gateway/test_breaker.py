"""The breaker as a state machine, against a plain model of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remit.gateway import CircuitBreaker, CircuitBreakerConfig, CircuitState
from remit.gateway.breaker import Permit


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def _take(breaker: CircuitBreaker) -> Permit:
    permit = breaker.acquire()
    assert permit is not None
    return permit


def test_the_way_round() -> None:
    clock = _Clock()
    breaker = CircuitBreaker(CircuitBreakerConfig(3, 1_000, 1), clock)
    for _ in range(3):
        assert breaker.state is CircuitState.CLOSED
        _take(breaker).fail()
    assert breaker.state is CircuitState.OPEN
    assert breaker.acquire() is None
    clock.now = 1.0
    assert breaker.state is CircuitState.HALF_OPEN
    trial = _take(breaker)
    assert breaker.acquire() is None  # one at a time
    trial.fail()
    assert breaker.state is CircuitState.OPEN
    clock.now = 2.0
    _take(breaker).succeed()
    assert breaker.state is CircuitState.CLOSED


def test_a_success_forgets_earlier_failures() -> None:
    breaker = CircuitBreaker(CircuitBreakerConfig(2))
    for _ in range(5):
        _take(breaker).fail()
        _take(breaker).succeed()
    assert breaker.state is CircuitState.CLOSED


def test_a_released_trial_lets_the_next_one_through() -> None:
    clock = _Clock()
    breaker = CircuitBreaker(CircuitBreakerConfig(1, 1_000, 1), clock)
    _take(breaker).fail()
    clock.now = 1.0
    _take(breaker).release()
    assert breaker.acquire() is not None


def test_a_late_answer_of_an_earlier_phase_says_nothing_now() -> None:
    clock = _Clock()
    breaker = CircuitBreaker(CircuitBreakerConfig(1, 1_000, 1), clock)
    early = [_take(breaker) for _ in range(4)]
    early[0].fail()
    early[1].succeed()  # sent while closed: it neither closes the circuit …
    assert breaker.state is CircuitState.OPEN
    clock.now = 1.0
    trial = _take(breaker)
    early[2].release()  # … nor frees a trial it never took
    assert breaker.acquire() is None
    trial.succeed()
    early[3].fail()
    assert breaker.state is CircuitState.CLOSED
    trial.fail()  # answered already
    assert breaker.state is CircuitState.CLOSED


@given(
    threshold=st.integers(1, 4),
    trials=st.integers(1, 3),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["take", "succeed", "fail", "release"]),
            st.integers(0, 5),
            st.floats(0, 2),
        ),
        max_size=80,
    ),
)
def test_open_means_nobody_passes_and_trials_are_bounded(
    threshold: int, trials: int, steps: list[tuple[str, int, float]]
) -> None:
    clock = _Clock()
    breaker = CircuitBreaker(CircuitBreakerConfig(threshold, 1_000, trials), clock)
    out: list[tuple[Permit, bool]] = []
    for action, pick, wait in steps:
        clock.now += wait
        before = breaker.state
        if action == "take":
            permit = breaker.acquire()
            assert (permit is not None) or before is not CircuitState.CLOSED
            assert permit is None or before is not CircuitState.OPEN
            if permit is not None:
                out.append((permit, before is CircuitState.HALF_OPEN))
        elif out:
            permit, _ = out.pop(pick % len(out))
            getattr(permit, action)()
        if breaker.state is CircuitState.CLOSED or before is CircuitState.OPEN:
            out = [(permit, False) for permit, _ in out]
        assert sum(trial for _, trial in out) <= trials
