"""The benchmark of swapped models and prices runs to its end, on a small made-up data set.

The long form is ``python -m benchmarks.learning swap``.
"""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path

from benchmarks.learning.recorded import Recorded
from benchmarks.learning.swap import Sizes, begin, change

from remit.learning.routes import GradedPrompt, held_out

LEARNED, HELD_OUT, REST = 60, 205, 200
COSTS = (0.0001, 0.002, 0.02)
# The last model is the best; each of the others is as good or better at something.
ADD = Recorded("add item {}", (0.1, 1.0, 1.0), COSTS)
GREET = Recorded("greet item {}", (1.0, 0.1, 0.3), COSTS)
PROVE = Recorded("prove item {}", (0.1, 0.5, 1.0), COSTS)


def rows() -> list[Recorded]:
    """Few to fit to and many held out, which a proposal takes; then any."""
    left = {False: LEARNED, True: HELD_OUT}
    found: list[Recorded] = []
    for number in count():
        kind = (ADD, GREET, ADD, PROVE)[number % 4]
        text = kind.prompt.format(number)
        side = held_out(GradedPrompt("", [{"role": "user", "content": text}], text, "", {}, {}))
        if left[side] or not any(left.values()):
            left[side] = max(0, left[side] - 1)
            found.append(Recorded(text, kind.rewards, kind.costs))
        if len(found) == LEARNED + HELD_OUT + REST:
            return found
    raise AssertionError


def test_a_swap_is_seen_met_and_rolled_back_or_refused_for_want_of_pairs(tmp_path: Path) -> None:
    asyncio.run(swaps(tmp_path / "root"))


async def swaps(place: Path) -> None:
    sizes = Sizes(learned=LEARNED + HELD_OUT, quiet=20, most=110, after=10, looks=110)
    begun = await begin(place, rows(), sizes)
    assert begun.outcome["signals before the change"] == "none"

    run = await change(begun, "prices")
    assert "cost of model mistralai/mistral-large-2512" in run.outcome["alarm"]
    assert [what for _, what in run.marks] == [
        "adopted: a learned route", "prices swapped", "alarm", "adopted: a learned route",
        "rolled back",
    ]  # fmt: skip
    recovered, rolled_back = sum(run.costs[-20:-10]), sum(run.costs[-10:])
    assert recovered < rolled_back / 2

    run = await change(begun, "models")
    assert run.outcome["alarm"] == "none in 110"  # the first 200 exchanges are the baseline
    assert "of 200: more graded exchanges are required" in run.outcome["refused"]
    assert [what for _, what in run.marks] == [
        "adopted: a learned route", "gemini answers as llama", "no alarm", "refused"
    ]  # fmt: skip
