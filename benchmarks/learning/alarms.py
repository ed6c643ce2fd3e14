"""False alarms of quiet streams, and how soon a true drop of 10 points is seen."""

from __future__ import annotations

import random

from remit.learning.statistics import Alarm, ConfidenceSequence

__all__ = ["detections", "false_alarms", "table"]


def _baseline(rng: random.Random, mean: float, samples: int) -> ConfidenceSequence:
    baseline = ConfidenceSequence()
    for _ in range(samples):
        baseline.update(float(rng.random() < mean))
    return baseline


def detections(
    runs: int, exchanges: int, before: float, after: float, seed: int, reference: int = 600
) -> list[int]:
    """Return after how many exchanges each run's alarm rose; 0 where it did not."""
    rng = random.Random(seed)
    raised = []
    for _ in range(runs):
        alarm = Alarm(_baseline(rng, before, reference))
        for _ in range(exchanges):
            if alarm.update(float(rng.random() < after)):
                break
        raised.append(alarm.raised_at)
    return raised


def false_alarms(runs: int, exchanges: int, mean: float, seed: int) -> int:
    """Return how many quiet runs raised an alarm, looked at after each exchange."""
    return sum(at > 0 for at in detections(runs, exchanges, mean, mean, seed))


def table(seed: int) -> None:
    """300 quiet runs of 600 exchanges, then drops of 10 points."""
    for mean in (0.5, 0.8, 0.9, 0.97):
        count = false_alarms(300, 600, mean, seed)
        print(f"quiet, mean {mean}: {count} of 300 runs raised an alarm", flush=True)
    looks = (50, 100, 200, 400, 800)
    print("share of runs that saw a drop of 10 points after " + ", ".join(map(str, looks)))
    for reference in (200, 600, 2000):
        for before in (0.9, 0.7):
            at = detections(100, looks[-1], before, before - 0.1, seed, reference)
            shares = [f"{sum(0 < a <= n for a in at) / len(at):.2f}" for n in looks]
            print(f"reference of {reference}, {before} to {before - 0.1:.1f}: {' '.join(shares)}",
                  flush=True)  # fmt: skip
