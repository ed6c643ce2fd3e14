"""False alarms of quiet streams, and how soon a true drop of 10 points is seen."""

from __future__ import annotations

import random

from remit.learning.signals import Window, is_below

__all__ = ["detections", "false_alarms", "graded_detections", "table"]


def _drawn(rng: random.Random, mean: float, samples: int) -> list[tuple[float, tuple[str, ...]]]:
    return [(float(rng.random() < mean), ()) for _ in range(samples)]


def detections(
    runs: int, exchanges: int, before: float, after: float, seed: int, reference: int = 600
) -> list[int]:
    """Return after how many exchanges each run's alarm rose; 0 where it did not."""
    rng = random.Random(seed)
    raised = []
    for _ in range(runs):
        baseline, live = _window(_drawn(rng, before, reference)), Window(0.05)
        raised.append(0)
        for look, given in enumerate(_drawn(rng, after, exchanges), 1):
            live.add(*given)
            if is_below([(live, baseline)], 0.0, 0.05):
                raised[-1] = look
                break
    return raised


def false_alarms(runs: int, exchanges: int, mean: float, seed: int) -> int:
    """Return how many quiet runs raised an alarm, looked at after each exchange."""
    return sum(at > 0 for at in detections(runs, exchanges, mean, mean, seed))


def graded_detections(
    runs: int, exchanges: int, before: float, after: float, seed: int, *, late: int = 0
) -> list[int]:
    """As :func:`detections`, of rewards that six parties give, of whom the busiest changes.

    In each block of 100 exchanges one party gives about six grades in ten, so that weights move
    all the time. A grade comes up to `late` exchanges after its own, and counts at its own place.
    """
    rng = random.Random(seed)
    raised = []
    for _ in range(runs):
        baseline = _window(_graded(rng, 0, 600, before))
        live = _graded(rng, 600, exchanges, after)
        arrives = [number + rng.randint(0, late) for number in range(exchanges)]
        shown = Window(0.05)
        raised.append(0)
        for look in range(exchanges):
            if late:
                there = zip(live, arrives, strict=True)
                shown = _window([given for given, arrived in there if arrived <= look])
            else:
                shown.add(*live[look])
            if is_below([(shown, baseline)], 0.0, 0.05):
                raised[-1] = look + 1
                break
    return raised


def _graded(
    rng: random.Random, first: int, count: int, mean: float
) -> list[tuple[float, tuple[str, ...]]]:
    made: list[tuple[float, tuple[str, ...]]] = []
    for number in range(first, first + count):
        party = number // 100 % 6 if rng.random() < 0.5 else rng.randrange(6)
        made.append((float(rng.random() < mean), (f"party-{party}",)))
    return made


def _window(given: list[tuple[float, tuple[str, ...]]]) -> Window:
    window = Window(0.05)
    for value, raters in given:
        window.add(value, raters)
    return window


def table(seed: int) -> None:
    """300 quiet runs of 600 exchanges, then drops of 10 points."""
    for mean in (0.5, 0.8, 0.9, 0.97):
        count = false_alarms(300, 600, mean, seed)
        print(f"quiet, mean {mean}: {count} of 300 runs raised an alarm", flush=True)
    for mean, late in ((0.5, 0), (0.9, 0), (0.5, 100), (0.9, 100)):
        count = sum(at > 0 for at in graded_detections(300, 600, mean, mean, seed, late=late))
        print(f"quiet, six parties with moving weights, mean {mean}, grades up to {late} late: "
              f"{count} of 300 runs", flush=True)  # fmt: skip
    looks = (50, 100, 200, 400, 800)
    print("share of runs that saw a drop of 10 points after " + ", ".join(map(str, looks)))
    for reference in (200, 600, 2000):
        for before in (0.9, 0.7):
            at = detections(100, looks[-1], before, before - 0.1, seed, reference)
            shares = [f"{sum(0 < a <= n for a in at) / len(at):.2f}" for n in looks]
            print(f"reference of {reference}, {before} to {before - 0.1:.1f}: {' '.join(shares)}",
                  flush=True)  # fmt: skip
    for before in (0.9, 0.7):
        at = graded_detections(100, looks[-1], before, before - 0.1, seed)
        shares = [f"{sum(0 < a <= n for a in at) / len(at):.2f}" for n in looks]
        print(f"six parties, reference of 600, {before} to {before - 0.1:.1f}: "
              f"{' '.join(shares)}", flush=True)  # fmt: skip
