"""One root of the benchmark of swapped models and prices, and the steps that are taken in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.learning.recorded import MODELS, Recorded, RecordedProvider, write_price_package
from remit import Runtime
from remit.gateway.auth import Identity
from remit.kernel.root import Root
from remit.learning import ConfidenceSequence, SignalPolicy, give_feedback, read_samples
from remit.learning.proposals import Change, Learner, ProposalError
from remit.learning.routes import GradedPrompt, calibrate, graded_prompts
from remit.learning.signals import read_signals
from remit.routing import new_request

PROVIDER = "openai"  # that a shipped package permits; its answers are the recorded ones
NAMES = {model: model.partition("/")[2].partition("-")[0] for model in MODELS}
_TOKENS = 16_384
_USD = 0.0125
_BY = Identity("recorded data", "admin")


@dataclass(frozen=True)
class Sizes:
    """Numbers of exchanges: to learn from, before the change, after it, after each remedy, and
    between two looks at the signals."""

    learned: int = 1_800
    quiet: int = 300
    most: int = 450
    after: int = 200
    looks: int = 25


@dataclass
class Run:
    """One root, and what its exchanges came to."""

    place: Path
    provider: RecordedProvider
    rows: Sequence[Recorded]
    sizes: Sizes
    rewards: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    marks: list[tuple[int, str]] = field(default_factory=list)
    outcome: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def opened(self) -> Iterator[Runtime]:
        """The root, as a program that starts now sees it; that puts other prices on record."""
        providers = {PROVIDER: self.provider}
        with Runtime.open(self.place, providers=providers, by=_BY.name) as runtime:
            yield runtime

    def says(self, step: str, what: str) -> None:
        """Keep and print what a step came to."""
        self.outcome[step] = what
        print(f"  {step}: {what}", flush=True)

    def mark(self, what: str) -> None:
        self.marks.append((len(self.rewards), what))

    async def ask(self, runtime: Runtime, model: str = "auto") -> None:
        """One exchange, graded."""
        request = new_request(
            "benchmark", model_id=model, max_tokens=_TOKENS,
            messages=[{"role": "user", "content": self.rows[len(self.rewards)].prompt}],
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
                await self.ask(runtime, model)
        return self.latest(number)

    def latest(self, number: int) -> str:
        rewards, costs = self.rewards[-number:], self.costs[-number:]
        return (f"reward {sum(rewards) / len(rewards):.4f}, "
                f"{sum(costs) / len(costs):.5f} USD a call ({len(rewards)} calls)")  # fmt: skip

    async def until_alarm(self, look: Callable[[], str]) -> None:
        """Exchanges until a signal of the route or of a model in it is crossed."""
        before, found = len(self.rewards), ""
        with self.opened() as runtime:
            while len(self.rewards) - before < self.sizes.most and not found:
                for _ in range(self.sizes.looks):
                    await self.ask(runtime)
                found = look()
        number = len(self.rewards) - before
        self.says("alarm", f"after {number} exchanges: {found}" if found else f"none in {number}")
        self.mark("alarm" if found else "no alarm")
        self.says("during", self.latest(min(100, number)))

    def crossed(self) -> str:
        """Signals of this epoch's routed calls against its first 200: the change is not known."""
        with self.opened() as runtime:
            policy = SignalPolicy.installed(self.learner(runtime).installed)
            samples = [one for one in read_samples(runtime.ledger) if one.route == "auto"]
        latest = max((one.epoch for one in samples), default=0)
        signals = read_signals([one for one in samples if one.epoch == latest], policy)
        return _named([asdict(one) for one in signals if one.crossed])

    def crossed_since_prices(self) -> str:
        """Signals since the prices changed, which is on record: before against since."""
        with self.opened() as runtime:
            changes = runtime.ledger.query(event_type="CONFIG_CHANGED", order="desc", limit=1)
            since = next(iter(changes)).timestamp
        found = self.remit("learn", "signals", "--crossed", "--since", since, "--json")
        return _named(json.loads(found.stdout)["signals"])

    async def learn(self) -> str:
        """Calibrate, fit, propose and adopt; the proposal's id, empty where it was refused."""
        with self.opened() as runtime:
            bought = await self.calibrated(runtime, self.graded(runtime), tuple(NAMES.values()))
        done = self.remit("route", "fit", "--usd-per-call", str(_USD), "--propose", "--reason",
                          "Recorded grades say that it pays.", "--json", check=False)  # fmt: skip
        fit = json.loads(done.stdout)
        if "saved_usd" in fit:
            shares = ", ".join(f"{name} {share:.0%}" for name, share in fit["shares"].items())
            print(f"    {fit['held_out']} held out, calibration {bought:.2f} USD; saves "
                  f"{fit['saved_usd']['value']:.5f} ({fit['saved_usd']['low']:.5f} to "
                  f"{fit['saved_usd']['high']:.5f}) USD a call against {fit['saves_against']}, "
                  f"reward {fit['reward']['value']:+.4f} ({fit['reward']['low']:+.4f} to "
                  f"{fit['reward']['high']:+.4f}) against {fit['best_single']}; "
                  f"takes {shares}")  # fmt: skip
        return self.adopted("a learned route", fit["proposal_id"], " ".join(fit["missing"]))

    async def set_aside(self, name: str, other: str, after: str) -> str:
        """Set the model of a signal aside, by paired answers of another to its prompts."""
        with self.opened() as runtime:
            since = [one for one in self.graded(runtime) if one.exchange_id > after]
            its = [one for one in since if name in one.rewards]
            bought = await self.calibrated(runtime, its, (other,))
            its = [one for one in self.graded(runtime)
                   if one.exchange_id > after and {name, other} <= one.rewards.keys()]  # fmt: skip
            effect = ConfidenceSequence(low=-1.0, high=1.0)
            for one in its:
                effect.update(one.rewards[other] - one.rewards[name])
            found = effect.estimate
            print(f"    {len(its)} prompts of {name} put to {other} for {bought:.2f} USD; reward "
                  f"better by {found.value:.4f} ({found.low:.4f} to {found.high:.4f})")  # fmt: skip
            try:
                proposal = self.learner(runtime).propose(
                    Change("set_aside", settings={"routing": {"set_aside": [name]}}),
                    evidence=[entry for one in its for entry in one.evidence], predicted=found,
                    replay={"prompts": len(its)}, reason=f"The reward of {name} became worse.",
                ).proposal_id, ""  # fmt: skip
            except ProposalError as error:
                proposal = "", error.message
        return self.adopted(f"{name} set aside", *proposal)

    def adopted(self, what: str, proposal_id: str, missing: str) -> str:
        """Adopt what was proposed; its id."""
        if not proposal_id:
            self.says("refused", missing)
            self.mark("refused")
            return ""
        self.remit("learn", "adopt", proposal_id, "--reason", "It pays.")
        self.mark(f"adopted: {what}")
        return proposal_id

    async def calibrated(
        self, runtime: Runtime, prompts: Sequence[GradedPrompt], names: Sequence[str]
    ) -> float:
        candidates = [one for one in runtime.router.candidates("auto") if one.model_id in names]
        done = await calibrate(
            runtime.gateway, runtime.ledger, candidates, prompts,
            lambda prompt, model, answer: float(answer), usd=1_000.0, prices=runtime.prices,
            by=_BY.name, max_tokens=_TOKENS,
        )  # fmt: skip
        return done.usd

    def learner(self, runtime: Runtime) -> Learner:
        return Learner(Root(self.place), runtime.ledger, runtime.loaded, _BY)

    def graded(self, runtime: Runtime) -> list[GradedPrompt]:
        return graded_prompts(runtime.ledger, candidates=runtime.router.candidates("auto"))

    def prices(self, version: str, usd_per_million: Mapping[str, str]) -> None:
        """Bring prices, as a version of a package."""
        source, archive = self.place.parent / "prices", self.place.parent / f"{version}.tar.gz"
        write_price_package(source, version, usd_per_million, PROVIDER)
        self.remit("package", "pack", str(source), "--update", "--out", str(archive))
        self.remit("package", "install", "--dev", "--approve", str(archive))

    def remit(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """A command of Remit in this root."""
        done = subprocess.run(
            [sys.executable, "-m", "remit", *words], capture_output=True, text=True,
            env={**os.environ, "REMIT_ROOT": str(self.place)},
        )  # fmt: skip
        if check and done.returncode:
            raise RuntimeError(done.stderr)
        return done


def _named(signals: Sequence[dict[str, Any]]) -> str:
    return ", ".join(
        f"{one['metric']} of {one['dimension']} {one['name']}" for one in signals
        if one["metric"] in ("cost", "reward") and one["dimension"] in ("model", "route")
    )  # fmt: skip
