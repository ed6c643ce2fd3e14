"""The circuit as values, against a plain model of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from hypothesis import given, strategies as st

from remit.gateway import CircuitBreakerConfig, CircuitState
from remit.gateway.circuit import Circuit, Outcome
from remit.gateway.circuit_breakers import Permit

_LASTS_MS = 10_000


class _Breaker:
    """A circuit in hand: what a board does with it, without a board."""

    def __init__(self, failures: int = 3, cools_ms: int = 1_000, trials: int = 1) -> None:
        self.config = CircuitBreakerConfig(failures, cools_ms, trials)
        self.circuit = Circuit()
        self.now = 1_000_000

    @property
    def state(self) -> CircuitState:
        return self.circuit.state(self.config, self.now)

    def acquire(self) -> Permit | None:
        if self.circuit.open:
            tried = self.circuit.tried(self.config, self.now, _LASTS_MS)
            if tried is None:
                return None
            self._became(tried)
        generation = self.circuit.generation

        def answer(outcome: Outcome) -> None:
            self._became(self.circuit.answered(self.config, generation, outcome, self.now))

        return Permit(answer)

    def _became(self, circuit: Circuit) -> None:
        if circuit is not self.circuit:
            assert circuit.changed_at_ms > self.circuit.changed_at_ms
            assert circuit != replace(self.circuit, changed_at_ms=circuit.changed_at_ms)
        self.circuit = circuit


def _take(breaker: _Breaker) -> Permit:
    permit = breaker.acquire()
    assert permit is not None
    return permit


def test_a_late_answer_of_an_earlier_phase_says_nothing_now() -> None:
    breaker = _Breaker(1)
    early = [_take(breaker) for _ in range(4)]
    early[0].report("bad")
    early[1].report("ok")  # sent while closed: it neither closes the circuit …
    assert breaker.state is CircuitState.OPEN
    breaker.now += 1_000
    trial = _take(breaker)
    early[2].report("nothing")  # … nor frees a trial it never took
    assert breaker.acquire() is None
    trial.report("ok")
    early[3].report("bad")
    assert breaker.state is CircuitState.CLOSED
    trial.report("bad")  # answered already
    assert breaker.state is CircuitState.CLOSED


def test_a_trial_that_is_never_answered_is_given_to_another() -> None:
    breaker = _Breaker(1)
    _take(breaker).report("bad")
    breaker.now += 1_000
    dead = _take(breaker)
    breaker.now += _LASTS_MS - 1
    assert breaker.acquire() is None
    breaker.now += 1
    trial = _take(breaker)
    dead.report("nothing")  # it was not dead after all; what it held is another's now
    assert breaker.acquire() is None
    trial.report("ok")
    assert breaker.state is CircuitState.CLOSED


def test_a_clock_set_back_does_not_keep_a_circuit_open_for_long() -> None:
    breaker = _Breaker(1)
    _take(breaker).report("bad")
    breaker.now -= 10
    assert breaker.state is CircuitState.OPEN  # machines differ by that much
    assert breaker.circuit.retry_after_s(breaker.config, breaker.now) == 1.0
    breaker.now -= 3_600_000
    assert breaker.state is CircuitState.HALF_OPEN
    assert breaker.circuit.retry_after_s(breaker.config, breaker.now) is None
    _take(breaker).report("ok")
    assert breaker.state is CircuitState.CLOSED


_Action = Literal["take", "ok", "bad", "nothing"]


@given(
    threshold=st.integers(1, 4),
    trials=st.integers(1, 3),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["take", "ok", "bad", "nothing"]),
            st.integers(0, 5),
            st.integers(0, 2_000),
        ),
        max_size=80,
    ),
)
def test_open_means_nobody_passes_and_trials_are_bounded(
    threshold: int, trials: int, steps: list[tuple[_Action, int, int]]
) -> None:
    breaker = _Breaker(threshold, 1_000, trials)
    out: list[tuple[Permit, int]] = []  # and until when it counts as a trial
    for action, pick, wait in steps:
        breaker.now += wait
        before = breaker.state
        if action == "take":
            permit = breaker.acquire()
            assert (permit is not None) or before is not CircuitState.CLOSED
            assert permit is None or before is not CircuitState.OPEN
            if permit is not None:
                trial = before is CircuitState.HALF_OPEN
                out.append((permit, breaker.now + _LASTS_MS if trial else 0))
        elif out:
            permit, _ = out.pop(pick % len(out))
            permit.report(action)
        if breaker.state is CircuitState.CLOSED or before is CircuitState.OPEN:
            out = [(permit, 0) for permit, _ in out]
        assert sum(until > breaker.now for _, until in out) <= trials
