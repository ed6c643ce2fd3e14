"""A learned route when its best model becomes another.

    python -m benchmarks.learning swap

Recorded answers through a real root: gateway, ledger, signals, proposals. A route is
learned and adopted; the change; the alarm; the model that became worse set aside; a rollback.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.learning import curve
from benchmarks.learning.recorded import (
    MODELS,
    USD_PER_MILLION,
    Recorded,
    RecordedProvider,
    price_file,
    read,
)
from remit import Runtime
from remit.gateway.auth import Identity
from remit.kernel.root import Root
from remit.learning.evidence import read_samples
from remit.learning.evidence.feedback import give_feedback
from remit.learning.proposals import Change, Learner, ProposalError
from remit.learning.routes import GradedPrompt, calibrate, fit_route, graded_prompts
from remit.learning.signals import SignalPolicy, read_signals
from remit.learning.statistics import ConfidenceSequence
from remit.providers.prices import PriceTable
from remit.routing.asked import new_request
from remit.testing import new_root

_PROVIDER = "openai"  # that a shipped package permits; its answers are the recorded ones
_NAMES = {model: model.partition("/")[2].partition("-")[0] for model in MODELS}
_BEST = _NAMES[MODELS[-1]]
_LEARNED_FROM = 1_800
_QUIET = 300
_MOST = 450  # exchanges after the change
_AFTER = 200
_LOOKS = 25  # exchanges between two looks at the signals
_TOKENS = 16_384
_USD = 0.0125
_BY = Identity("recorded data", "admin")
_PICTURE = Path(__file__).parents[1] / "swap.svg"


@dataclass
class _Run:
    """One root, and what its exchanges came to."""

    place: Path
    provider: RecordedProvider
    rows: Iterator[Recorded]
    rewards: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    marks: list[tuple[int, str]] = field(default_factory=list)

    @contextmanager
    def opened(self) -> Iterator[Runtime]:
        """The root, as a program that starts now sees it."""
        flags = {"budget.mode": "off", "budget.prices": str(self.place / "prices.toml")}
        with Runtime.open(self.place, providers={_PROVIDER: self.provider}, flags=flags) as runtime:
            yield runtime

    def mark(self, what: str) -> None:
        self.marks.append((len(self.rewards), what))

    async def ask(self, runtime: Runtime, row: Recorded, model: str = "auto") -> None:
        """One exchange, graded."""
        request = new_request(
            "benchmark", model_id=model, max_tokens=_TOKENS,
            messages=[{"role": "user", "content": row.prompt}],
        )  # fmt: skip
        answer = await runtime.gateway.aroute(request)
        assert not answer.error_code, answer
        give_feedback(
            runtime.ledger, answer.exchange_entry_id, score=float(answer.content),
            source="reference", by=_BY.name,
        )  # fmt: skip
        self.rewards.append(float(answer.content))
        self.costs.append(answer.cost_incurred)

    async def some(self, number: int, model: str = "auto") -> str:
        """Exchanges; reward and cost of a call."""
        with self.opened() as runtime:
            for _ in range(number):
                await self.ask(runtime, next(self.rows), model)
        return self.latest(number)

    def latest(self, number: int) -> str:
        rewards, costs = self.rewards[-number:], self.costs[-number:]
        return (f"reward {sum(rewards) / len(rewards):.4f}, "
                f"{sum(costs) / len(costs):.5f} USD a call ({number} calls)")  # fmt: skip

    async def until_alarm(self) -> str:
        """Exchanges until a signal of the route or a model in it is crossed; which."""
        before = len(self.rewards)
        with self.opened() as runtime:
            policy = SignalPolicy.installed(Learner(
                Root(self.place), runtime.ledger, runtime.loaded, _BY
            ).installed)  # fmt: skip
            while len(self.rewards) - before < _MOST:
                for _ in range(_LOOKS):
                    await self.ask(runtime, next(self.rows))
                if crossed := self.crossed(runtime, policy):
                    return f"after {len(self.rewards) - before} exchanges: {crossed}"
        return ""

    def crossed(self, runtime: Runtime, policy: SignalPolicy) -> str:
        """Signals of this epoch's routed calls against its first 200."""
        samples = [one for one in read_samples(runtime.ledger) if one.route == "auto"]
        latest = max((one.epoch for one in samples), default=0)
        signals = read_signals([one for one in samples if one.epoch == latest], policy)
        return ", ".join(
            f"{one.metric} of {one.dimension} {one.name}" for one in signals
            if one.crossed and one.metric in ("cost", "reward")
            and one.dimension in ("model", "route")
        )  # fmt: skip

    async def learn(self, prompts: int) -> str:
        """Calibrate on the latest prompts, fit, propose and adopt; the proposal's id."""
        with self.opened() as runtime:
            graded = self.graded(runtime)[-prompts:]
            candidates = runtime.router._registry.candidates(tuple(_NAMES.values()))
            bought = await calibrate(
                runtime.gateway, runtime.ledger, candidates, graded, _grade, usd=1_000.0,
                prices=PriceTable.from_bytes((self.place / "prices.toml").read_bytes(), "prices"),
                by=_BY.name, max_tokens=_TOKENS,
            )  # fmt: skip
            graded = self.graded(runtime)[-prompts:]
            fit = fit_route(graded, _USD)
            if isinstance(fit, str) or fit.missing:
                print(f"  no proposal: {fit if isinstance(fit, str) else fit.missing}")
                return ""
            shares = ", ".join(f"{name} {share:.0%}" for name, share in fit.shares.items())
            print(f"  {len(graded)} prompts, {bought.calls} calls for {bought.usd:.2f} USD; "
                  f"predicted {fit.saved.value:.5f} USD saved a call against {fit.best_single}, "
                  f"reward {fit.reward.value:+.4f}; {shares}")  # fmt: skip
            return self.adopted(
                runtime, Change("head", settings=fit.settings, files=fit.files),
                evidence=fit.evidence, holds=fit.holds, predicted=fit.saved, gate=fit.gate,
                replay={"reward": fit.reward.to_dict(), "usd_per_call": fit.usd_per_call},
                reason="Recorded grades say that it pays.",
            )  # fmt: skip

    async def set_aside(self, name: str, other: str, after: str) -> str:
        """Set the model of a signal aside, by paired answers of another to its prompts."""
        with self.opened() as runtime:
            since = [one for one in self.graded(runtime) if one.exchange_id > after]
            its = [one for one in since if name in one.rewards]
            best = runtime.router._registry.candidates((other,))
            bought = await calibrate(
                runtime.gateway, runtime.ledger, best, its, _grade, usd=1_000.0,
                prices=PriceTable.from_bytes((self.place / "prices.toml").read_bytes(), "prices"),
                by=_BY.name, max_tokens=_TOKENS,
            )  # fmt: skip
            its = [one for one in self.graded(runtime)
                   if one.exchange_id > after and {name, other} <= one.rewards.keys()]  # fmt: skip
            gains = [one.rewards[other] - one.rewards[name] for one in its]
            effect = ConfidenceSequence(low=-1.0, high=1.0)
            for gain in gains:
                effect.update(gain)
            found = effect.estimate
            print(f"  set {name} aside: {len(its)} of its prompts put to {other} for "
                  f"{bought.usd:.2f} USD; reward better by {found.value:.5f} "
                  f"({found.low:.5f} to {found.high:.5f}) for each of them")  # fmt: skip
            return self.adopted(
                runtime, Change("set_aside", settings={"routing": {"set_aside": [name]}}),
                evidence=[entry for one in its for entry in one.evidence], predicted=found,
                replay={"prompts": len(its)}, reason=f"The reward of {name} became worse.",
            )  # fmt: skip

    def adopted(self, runtime: Runtime, change: Change, **proposed: Any) -> str:
        """Propose and adopt; the proposal's id, empty where there is none."""
        learner = Learner(Root(self.place), runtime.ledger, runtime.loaded, _BY)
        try:
            proposal = learner.propose(change, **proposed)
        except ProposalError as error:
            print(f"  no proposal: {error.message}")
            return ""
        _command(self.place, "learn", "adopt", proposal.proposal_id, "--reason", "It pays.")
        return proposal.proposal_id

    def graded(self, runtime: Runtime) -> list[GradedPrompt]:
        return graded_prompts(runtime.ledger, names=_NAMES)


def _grade(prompt: GradedPrompt, model: str, answer: str) -> float:
    return float(answer)


def _command(place: Path, *words: str) -> None:
    environment = {**os.environ, "REMIT_ROOT": str(place)}
    command = [sys.executable, "-m", "remit", *words]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


async def _play(place: Path, rows: Sequence[Recorded], what: str) -> _Run:
    stated = "".join(
        f'[routing.models.{name}]\nprovider = "{_PROVIDER}"\nserved_as = "{model}"\n'
        for model, name in _NAMES.items()
    )
    new_root(place)
    (place / "prices.toml").write_bytes(price_file(USD_PER_MILLION, _PROVIDER))
    with (place / "remit.toml").open("a") as file:
        file.write(f"\n{stated}"
                   f"[routing.routes.auto]\nmodels = {list(_NAMES.values())}\n")  # fmt: skip
    run = _Run(place, RecordedProvider(rows), iter(rows))
    print(f"{what}:\n before: {await run.some(_LEARNED_FROM, _BEST)}, all by {_BEST}")
    run.mark("adopted")
    first = await run.learn(_LEARNED_FROM)
    print(f" learned: {await run.some(_QUIET)}")
    with run.opened() as runtime:
        policy = SignalPolicy.installed(
            Learner(Root(place), runtime.ledger, runtime.loaded, _BY).installed
        )
        print(f" signals before the change: {run.crossed(runtime, policy) or 'none'}")
        head = runtime.ledger.head()
        changed_at = f"LED-{head[0]:08x}" if head else ""
    run.mark(what)
    run.provider.answers_of[MODELS[2]] = MODELS[0]
    print(f" alarm {await run.until_alarm() or 'none'}")
    run.mark("alarm")
    print(f" during: {run.latest(_LOOKS * 4)}")
    await run.some(_MOST - (len(run.rewards) - run.marks[-2][0]))
    second = await run.set_aside(_BEST, _NAMES[MODELS[1]], changed_at)
    run.mark("adopted")
    print(f" recovered: {await run.some(_AFTER)}")
    if first and second:
        _command(place, "learn", "rollback", second, "--reason", "To show it.")
        run.mark("rolled back")
        print(f" rolled back: {await run.some(_AFTER)}")
    return run


def table(seed: int) -> None:
    """Print what it came to, and draw it."""
    rows = [*read("val"), *read("test_holdout")]
    random.Random(seed).shuffle(rows)
    print(f"{len(rows)} prompts")
    what = f"{_BEST} answers as {_NAMES[MODELS[0]]}"
    with tempfile.TemporaryDirectory(prefix="remit-swap-") as scratch:
        run = asyncio.run(_play(Path(scratch) / "root", rows, what))
    panels = [
        (f"{what}: reward", run.rewards, run.marks),
        (f"{what}: USD a call", run.costs, run.marks),
    ]
    _PICTURE.write_text(curve.drawn(panels))
    print(f"drawn: {_PICTURE.name}")
