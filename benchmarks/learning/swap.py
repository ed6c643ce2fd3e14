"""A learned route when models, or prices, are swapped in the middle.

    python -m benchmarks.learning swap --seed 1

Recorded answers through a real root: gateway, ledger, signals, proposals, commands. A route is
learned at 0.0125 USD a call and adopted; the change; the alarm; what the learner proposes against
it; recovery; a rollback by one command. A refusal ends the run and is a result. The scenarios:

- models: the dearest model, which is the best, answers as the cheapest one does. Remedy: the model
  is set aside by paired answers of the second. (It was chosen after refusals, on seed 1.)
- prices: the two dearest models, those that the route uses, exchange their prices, so that one
  becomes 6.7 times dearer and the other, the best, as much cheaper. Remedy: ``remit route
  calibrate`` and ``fit`` again, with the same limit. (It was chosen before its first run.)
- rise: the price of the dearest model doubles, which makes the route too dear. The same remedy.
  (It was chosen before its first run, when prices had been refused on seeds 1 and 2.)
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.learning import curve
from benchmarks.learning.recorded import (
    MODELS,
    PRICES_FILE,
    USD_PER_MILLION,
    Recorded,
    RecordedProvider,
    read,
)
from benchmarks.learning.swap_run import NAMES, PROVIDER, Run, Sizes
from remit.testing import new_root

PICTURE = Path(__file__).parents[1] / "swap.svg"
SCENARIOS = {"models": "Models swapped", "prices": "Prices swapped", "rise": "A price doubled"}
_WORST, _SECOND, _BEST = NAMES.values()


async def begin(place: Path, rows: Sequence[Recorded], sizes: Sizes) -> Run:
    """A new root in which a route is learned and in use, unless it was refused."""
    stated = "".join(
        f'[routing.models.{name}]\nprovider = "{PROVIDER}"\nserved_as = "{model}"\n'
        for model, name in NAMES.items()
    )
    settings = f'[budget]\nmode = "off"\nprices = "{PRICES_FILE}"\n'
    new_root(place)
    with (place / "remit.toml").open("a") as file:
        file.write(f"\n{settings}{stated}[routing.routes.auto]\nmodels = {[*NAMES.values()]}\n")
    run = Run(place, RecordedProvider(rows), rows, sizes)
    run.prices("1.0.0", USD_PER_MILLION)
    run.says(f"{_BEST} alone", await run.some(sizes.learned, _BEST))
    if await run.learn():
        run.says("learned", await run.some(sizes.quiet))
        run.says("signals before the change", run.crossed() or "none")
    return run


async def change(begun: Run, what: str) -> Run:
    """What becomes of a copy of the root when something of `SCENARIOS` changes."""
    place = begun.place.parent / what / "root"
    shutil.copytree(begun.place, place, symlinks=True)
    run = Run(
        place, RecordedProvider(begun.rows), begun.rows, begun.sizes, [*begun.rewards],
        [*begun.costs], [*begun.marks], {},
    )  # fmt: skip
    print(f" {what}", flush=True)
    _, second, best = MODELS
    if what == "models":
        with run.opened() as runtime:
            head = runtime.ledger.head()
        changed = len(run.rewards)
        run.mark(f"{_BEST} answers as {_WORST}")
        run.provider.answers_of[best] = MODELS[0]
        await run.until_alarm(run.crossed)
        await run.some(run.sizes.most - (len(run.rewards) - changed))
        remedy = await run.set_aside(_BEST, _SECOND, f"LED-{head[0]:08x}" if head else "")
    else:
        now = {best: USD_PER_MILLION[second], second: USD_PER_MILLION[best]}
        if what == "rise":
            now = {best: f"{2 * float(USD_PER_MILLION[best]):g}"}
        run.mark(f"price of {_BEST} doubled" if what == "rise" else "prices swapped")
        run.prices("1.1.0", {**USD_PER_MILLION, **now})
        await run.until_alarm(run.crossed_since_prices)
        remedy = await run.learn()
    if remedy:
        run.says("recovered", await run.some(run.sizes.after))
        run.remit("learn", "rollback", remedy, "--reason", "To show it.")
        run.mark("rolled back")
        run.says("rolled back", await run.some(run.sizes.after))
    return run


def table(seed: int) -> None:
    """Print what both scenarios came to; of seed 1 draw it."""
    rows = [*read("val"), *read("test_holdout")]
    random.Random(seed).shuffle(rows)
    print(f"seed {seed}, {len(rows)} prompts")
    with tempfile.TemporaryDirectory(prefix="remit-swap-") as scratch:
        asyncio.run(_play(Path(scratch), seed, rows))


async def _play(scratch: Path, seed: int, rows: Sequence[Recorded]) -> None:
    begun = await begin(scratch / "root", rows, Sizes())
    if "refused" in begun.outcome:
        return
    panels = []
    for what, title in SCENARIOS.items():
        run = await change(begun, what)
        panels.append((f"{title}: reward", run.rewards, run.marks))
        panels.append((f"{title}: US dollars a call", run.costs, run.marks))
    if seed == 1:
        PICTURE.write_text(curve.drawn(panels, Sizes.learned - Sizes.quiet))
        print(f"drawn: {PICTURE.name}")
