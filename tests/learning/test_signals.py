"""Signals over samples, their policy, and their entries on a real ledger."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remit.kernel.errors import ConfigError
from remit.kernel.installation import shipped_file
from remit.learning import Sample, Signal, SignalPolicy, observe
from remit.learning.evidence import SettledWeights
from remit.learning.signals import read_signals
from remit.learning.windows import Window, is_below
from remit.ledger import LedgerClient

_SHIPPED = shipped_file("PKG-LEARNING-001", "HOT/documents/signals.json")
POLICY = SignalPolicy.from_json(_SHIPPED)


def _samples(count: int, failure: float, seed: int = 1, **fields: Any) -> Iterator[Sample]:
    rng = random.Random(seed)
    for number in range(count):
        yield Sample(
            exchange_id=f"LED-{number:08x}",
            contract_id="PRC-CLASSIFY-001",
            contract_version="1.0.0",
            tools=("read_file",),
            failed=rng.random() < failure,
            latency_ms=round(rng.lognormvariate(6, 0.3)),
            cost_nano=1_000_000,
            **{"model_id": "m", **fields},
        )


def _one(signals: list[Signal], dimension: str, metric: str) -> Signal:
    (found,) = (s for s in signals if (s.dimension, s.metric) == (dimension, metric))
    return found


def test_quiet_samples_cross_nothing_and_name_every_thing() -> None:
    signals = read_signals(_samples(600, 0.1), POLICY)
    assert not any(signal.crossed for signal in signals)
    assert {signal.dimension for signal in signals} == {"contract", "model", "tool"}
    latency = _one(signals, "model", "latency")
    assert latency.live.low < 403 < latency.live.high  # e**6
    assert _one(signals, "model", "cost").live.value == pytest.approx(1_000_000, rel=0.02)
    assert (latency.baseline.samples, latency.live.samples) == (200, 400)


def test_what_became_worse_is_crossed_with_the_exchanges_that_say_so() -> None:
    worse = [replace(s, at="2") for s in _samples(300, 0.4, seed=2)]
    signals = read_signals([*_samples(300, 0.05), *worse], POLICY, before="1")
    signal = _one(signals, "model", "failure")
    assert signal.crossed
    failed = [sample.exchange_id for sample in worse if sample.failed]
    assert list(signal.evidence) == failed[-50:]
    assert not _one(signals, "model", "latency").crossed


def test_a_better_epoch_crosses_nothing_and_a_worse_one_does() -> None:
    then = [replace(s, epoch=1) for s in _samples(400, 0.02, seed=3)]
    after = [replace(s, epoch=2) for s in _samples(400, 0.3, seed=4)]
    first = list(_samples(400, 0.3))
    better = read_signals([*first, *then], POLICY, before_epoch=1)
    assert not _one(better, "model", "failure").crossed
    worse = read_signals([*first, *then, *after], POLICY, before_epoch=2)
    assert _one(worse, "model", "failure").baseline.samples == 800
    assert _one(worse, "model", "failure").crossed


@pytest.mark.parametrize("taint", ["fallback", "degradation", "erased"])
def test_tainted_samples_do_not_count(taint: str) -> None:
    samples = [*_samples(300, 0.0), *_samples(300, 1.0, tainted=taint)]
    signal = _one(read_signals(samples, POLICY), "model", "failure")
    assert (signal.baseline.samples, signal.live.samples) == (200, 100)
    assert not signal.crossed


def test_too_few_samples_cross_nothing() -> None:
    samples = [*_samples(200, 0.0), *_samples(POLICY.least - 1, 1.0)]
    assert not any(signal.crossed for signal in read_signals(samples, POLICY))


def test_a_crossing_is_on_record_once_for_each_window(tmp_path: Path) -> None:
    signals = read_signals([*_samples(200, 0.0), *_samples(300, 0.5)], POLICY)
    with LedgerClient(tmp_path / "ledger.db") as ledger:
        first = observe(ledger, signals, window="first 200")
        assert len(first) == 2  # the contract and the model fail
        assert observe(ledger, signals, window="first 200") == []
        assert len(observe(ledger, signals, window="epoch 1")) == 2
        entry = ledger.read(first[0])
        assert entry.metadata["metric"] == "failure"
        assert len(entry.metadata["evidence"]) == 50


def test_two_that_observe_at_once_write_once(target: str) -> None:
    signals = read_signals([*_samples(200, 0.0), *_samples(300, 0.5)], POLICY)
    with LedgerClient(target) as one, LedgerClient(target) as other:
        start = threading.Barrier(2)

        def write(ledger: LedgerClient) -> list[str]:
            start.wait()
            return observe(ledger, signals, window="first 200")

        with ThreadPoolExecutor(2) as pool:
            written = [name for ids in pool.map(write, (one, other)) for name in ids]
        assert len(written) == one.count() == 2


def test_a_failing_tool_is_named_and_what_was_cancelled_is_not() -> None:
    good = list(_samples(300, 0.0))
    failing = [replace(sample, failed_tools=("read_file",)) for sample in good]
    signals = read_signals([*good, *failing], POLICY)
    assert _one(signals, "tool", "failure").crossed
    assert not _one(signals, "model", "failure").crossed
    gone = [replace(sample, failed=True, cancelled=True) for sample in good]
    assert not any(signal.crossed for signal in read_signals([*good, *gone], POLICY))


def test_one_partys_flood_crosses_nothing() -> None:
    def graded(rater: str, count: int, reward: float) -> list[Sample]:
        return [replace(s, reward=reward, raters=(rater,)) for s in _samples(count, 0.0)]

    people = [sample for name in "abcd" for sample in graded(name, 100, 1.0)]
    flood = graded("flood", 2_000, 0.0)
    mixed = [replace(s, reward=float(n % 2)) for n, s in enumerate(people)]
    now = [replace(s, epoch=1) for s in (*mixed[::10], *mixed[1::10], *flood)]
    among = _one(read_signals([*mixed, *now], POLICY, before_epoch=1), "model", "reward")
    assert among.live.value == pytest.approx(0.375, abs=0.01)  # 0.5, a quarter of it nothing but 0
    assert not among.crossed
    before = [replace(sample, epoch=0) for sample in people]
    live = [replace(sample, epoch=1) for sample in [*graded("a", 20, 1.0), *flood]]
    signal = _one(read_signals([*before, *live], POLICY, before_epoch=1), "model", "reward")
    assert (signal.live.samples, signal.live.effective_samples) == (2_020, pytest.approx(40))
    assert not signal.crossed
    worse = [replace(s, epoch=1, reward=0.0) for s in people]
    both = read_signals([*before, *worse], POLICY, before_epoch=1)
    assert _one(both, "model", "reward").crossed


def _window(*given: tuple[str, int, float]) -> Window:
    made = Window(0.05)
    for rater, count, reward in given:
        for _ in range(count):
            made.add(reward, (rater,))
    return made


def test_weights_that_move_cross_nothing_alone() -> None:
    baseline = _window(("a", 200, 1.0), ("a", 22, 0.0))
    live = _window(("a", 200, 1.0), ("a", 22, 0.0), ("b", 22, 0.0))
    estimate = live.estimate()
    assert estimate.value == pytest.approx(0.45, abs=0.001)  # half of it is the second party's
    assert estimate.low < 0.45 < 0.81 < estimate.high  # and it holds for what came as it came
    assert not is_below(live, baseline, 0.02, 0.05)
    assert is_below(_window(("a", 100, 0.5), ("b", 100, 0.5)), baseline, 0.02, 0.05)


def test_settled_weights_bound_a_flood_among_others() -> None:
    weights = SettledWeights()
    given = dict.fromkeys("abcdf", 0.0)
    for number in range(2_000):
        rater = "f" if number % 10 else "abcd"[number // 10 % 4]
        given[rater] += weights.weigh((rater,))
    assert given["a"] == given["b"] == given["c"] == given["d"] == 50
    assert 200 / 3 <= given["f"] <= 200 / 3 + 2


@pytest.mark.parametrize(
    "change",
    [
        {"alpha_permille": 0},
        {"least": "50"},
        {"unknown": 1},
        {"set_aside_after": 0},
        {"set_aside_after": 51},
        {"tool_fallbacks": {"stock": "list"}},
        {"margin_permille": {"failure": 20}},
        {"margin_permille": {**json.loads(_SHIPPED)["margin_permille"], "reward": 1000}},
    ],
)
def test_a_policy_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="signal policy"):
        SignalPolicy.from_json(json.dumps({**json.loads(_SHIPPED), **change}).encode())
