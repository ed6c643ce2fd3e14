"""Learning a route in one run: graders, permissions, calibration, fit and proposal.

:func:`plan_route` reads and checks everything and spends nothing. :func:`learn_route` then permits
the route's models, asks them within the budget, fits the route and proposes it. A person adopts.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from remit.gateway.auth import Identity
from remit.gateway.budget import BudgetScope
from remit.kernel.budget_values import LEARNING, BudgetLimits
from remit.kernel.errors import InvalidInputError
from remit.kernel.loops import run_blocking
from remit.learning import open_account
from remit.learning.proposals import Change, Learner, Proposal
from remit.learning.routes import (
    CALIBRATOR,
    ROUTE_SETTINGS,
    Calibration,
    PowerPlan,
    RouteFit,
    calibrate,
    fit_route,
    graded_prompts,
    power_plan,
    prices_at,
    record_look,
)
from remit.packages.gates import check_gates, check_settings, unpermitted_models
from remit.runtime.installation import gate_context
from remit.runtime.operator_models import permit_models
from remit.runtime.route_graders import (
    FIRST,
    IN_A_ROW,
    Found,
    Grader,
    Graders,
    find_prompts,
    grade_recorded_by,
    has_graded,
    judge_answers,
    right_answers,
)

if TYPE_CHECKING:
    from remit.learning.routes import GradedPrompt
    from remit.routing import Candidate
    from remit.runtime.runtime import Runtime

Progress = Callable[[str, int, int], None]
"""Called with the step, the number done and in all."""

_CONCURRENT_CALLS = 8

_NANO = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteWanted:
    """A request to learn a route.

    Immutable. Its numbers are not checked, except ``usd`` by :func:`learn_route`.

    Attributes:
        usd: budget of all calls in US dollars.
        route: name of the route.
        saving: share of the best single model's cost that the route is to save, 0 to 1.
        usd_per_call: highest mean cost of a call in US dollars; ``None`` to derive it from
            ``saving``.
        quality_floor: see :func:`remit.learning.routes.fit_route`.
        max_tokens: output limit of each call.
        graders: graders and references that the caller gives.
    """

    usd: float
    route: str = "auto"
    saving: float = 0.3
    usd_per_call: float | None = None
    quality_floor: float = 0.0
    max_tokens: int = 4096
    graders: Graders = field(default_factory=Graders)


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """The state of a route before anything is spent.

    Immutable; true at the time of :func:`plan_route`.

    Attributes:
        candidates: the models of the route.
        permits: models without permission, as ``provider/model``; the run permits them.
        graded: number of prompts with graded answers of all models that count in a fit.
        by_source: number of further prompts that can be graded, by kind of grader.
        waiting: the further prompts, grouped by their grader.
        ungraded: number of recorded prompts that no grader fits.
        power: the number of graded prompts that a fit needs, and the cost of the missing answers.
    """

    candidates: Sequence[Candidate]
    permits: Sequence[str]
    graded: int
    by_source: Mapping[str, int]
    waiting: Sequence[tuple[Grader, Sequence[Found]]] = field(repr=False)
    ungraded: int
    power: PowerPlan

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON data; the prompts themselves are left out.

        The keys are ``models``, ``permits``, ``graded``, ``gradable`` (prompts by kind of grader),
        ``ungraded``, ``needed`` (prompts), ``usd_needed`` and ``power``.
        """
        return {
            "models": [one.model_id for one in self.candidates],
            "permits": list(self.permits),
            "graded": self.graded,
            "gradable": dict(self.by_source),
            "ungraded": self.ungraded,
            "needed": self.power.prompts,
            "usd_needed": self.power.usd,
            "power": self.power.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class RouteLearned:
    """The result of a run.

    Immutable.

    Attributes:
        permitted: the package version that permits the models, as ``ID VERSION``; empty if none was
            needed.
        calls: number of answered calls.
        graded: number of graded answers.
        usd: cost in US dollars.
        ended: ``done``; ``budget`` if the budget ended the calibration or the judge; ``grader`` if
            a grader gave no grade for 20 prompts in a row or, if it never graded in this root, for
            2 or more recorded answers or its first 2 prompts. Its further prompts were not asked.
        fit: the fitted route, or a sentence about what is missing.
        means: mean reward and mean cost in US dollars of each model over prompts with graded
            answers of all.
        proposal: the proposal; ``None`` if something is missing.
    """

    permitted: str
    calls: int
    graded: int
    usd: float
    ended: str
    fit: RouteFit | str
    means: Mapping[str, tuple[float, float]]
    proposal: Proposal | None

    @property
    def missing(self) -> list[str]:
        """Reasons why the route is not proposed, one sentence each; empty if it is."""
        return [self.fit] if isinstance(self.fit, str) else list(self.fit.missing)


def plan_route(runtime: Runtime, wanted: RouteWanted) -> RoutePlan:
    """Return the plan of a run. No entry is written, and nothing is sent or spent.

    The gates G0B and G1 (under the packages' lock) and the settings of G3 are checked first. The
    marks of passed gates are stored.

    Args:
        runtime: the open root.
        wanted: the request.

    Raises:
        InvalidInputError: the route has fewer than two models, a model has no price, gate G3
            or a gate of packages refuses the root for another reason than a model without
            permission, or no prompt can be graded. The error names the next command.
        NotFoundError: the route does not exist.
        LedgerError: the ledger cannot be read or written.
        PackageError: an entry of the ledger does not describe a package.
        RemitError: the default model cannot be determined.
        ContractError: a contract's file is not valid.
    """
    candidates = runtime.router.candidates(wanted.route)
    if len(candidates) < 2:
        raise InvalidInputError(
            f"The route {wanted.route} has {len(candidates)} model, so there is nothing to choose.",
            next_step="Describe another model in [routing.models.NAME] of remit.toml; `remit "
            "route status` lists the models of each route.",
        )
    for one in candidates:
        if runtime.prices.find(one.provider_id, one.provider_model) is None:
            raise InvalidInputError(
                f"The price of {one.model_id} is unknown, so no budget can be kept.",
                next_step=f"Run `remit price set {one.provider_model} --provider "
                f"{one.provider_id} --input USD --output USD --context-window TOKENS "
                "--max-output-tokens TOKENS`.",
            )
    context = gate_context(runtime.root, runtime.ledger, runtime.loaded)
    for gate in check_gates(context, ("G0B", "G1"), record=False, by="route learn").gates:
        if not gate.passed:
            raise InvalidInputError(
                f"Gate {gate.gate} fails, so no route can be adopted.",
                next_step="`remit gate check --all` lists the faults.",
            )
    permits = unpermitted_models(context)
    refusals = [
        one for one in check_settings(context) if "which no package permits" not in one.message
    ]
    for refusal in refusals:
        raise InvalidInputError(
            f"Gate G3 would refuse the route: {refusal.message}", next_step=refusal.next_step
        )
    every = prompts_of(runtime, wanted.route)
    graded = prompts_of(runtime, wanted.route, all_grades=True)
    whole = [one for one in every if len(one.rewards) == len(candidates)]
    known = right_answers(runtime.ledger)
    waiting, ungraded = find_prompts(runtime, candidates, graded, known, wanted.graders)
    by_source: dict[str, int] = {}
    for grader, prompts in waiting:
        by_source[grader.name] = by_source.get(grader.name, 0) + len(prompts)
    if not whole and not by_source:
        raise _nothing_to_grade(ungraded)
    power = power_plan(
        every, candidates, guard=runtime.loaded.settings.routing.guard,
        asked=[one.prompt for _, prompts in waiting for one in prompts],
        max_tokens=wanted.max_tokens,
    )  # fmt: skip
    return RoutePlan(candidates, permits, len(whole), by_source, waiting, ungraded, power)


def learn_route(
    runtime: Runtime,
    wanted: RouteWanted,
    plan: RoutePlan,
    *,
    by: str,
    reason: str,
    progress: Progress = lambda what, done, total: None,
) -> RouteLearned:
    """Permit the models, calibrate within the budget, and fit and propose the route. Blocks.

    Recorded answers are graded first. Then as many prompts are asked as the plan lacks. The calls
    are charged to an account of this run whose limit is the budget, and to the account
    ``session:learning``. After a spent budget the route is fitted and proposed too, unless
    something is missing. Nothing is adopted. A run that ends early, by an error or a kill, keeps
    its recorded answers and grades, so that the next run does not pay for them again.

    Args:
        runtime: the open root.
        wanted: the request.
        plan: the plan of :func:`plan_route`.
        by: the person who acts, for the record.
        reason: the reason of the proposal.
        progress: called with the step, the number done and in all.

    Raises:
        PackageError: the models cannot be permitted, and nothing was spent; or an error of
            :func:`propose_route`.
        ProposalError, ConfigError: as for :func:`propose_route`.
        LedgerError: the ledger cannot be read or written.
        InvalidInputError: the budget is not a number of 0 or more.
        NotFoundError: the route does not exist any more.
        ContractError: the contract of the judge cannot be used.
    """
    permitted = ""
    if plan.permits:
        done = permit_models(runtime.root, runtime.ledger, runtime.loaded, plan.permits, by=by)
        permitted = f"{done.package_id} {done.version}"
    bought = _bought(runtime, wanted, plan, by, progress)
    every = prompts_of(runtime, wanted.route)
    means = _means(every, plan.candidates)
    found: RouteFit | str = "No prompt has graded answers of all models."
    proposal = None
    if means:
        limit = wanted.usd_per_call
        if limit is None:
            best = max(means, key=lambda name: (means[name][0], -means[name][1], name))
            limit = (1 - wanted.saving) * means[best][1]
        rules, guard = runtime.router.rules.weights, runtime.loaded.settings.routing.guard
        found = fit_route(
            every, limit, rules=rules, quality_floor=wanted.quality_floor, guard=guard,
            progress=lambda done, total: progress("fitting", done, total),
            look=partial(record_look, runtime.ledger, wanted.route, rules=rules, most=guard.looks),
        )  # fmt: skip
    if not isinstance(found, str) and not found.missing:
        proposal = propose_route(runtime, found, plan.candidates, reason=reason, by=by)
    return RouteLearned(
        permitted, bought.calls, bought.graded, bought.usd, bought.ended, found, means, proposal
    )


def figures_of(found: RouteFit) -> dict[str, Any]:
    """Return the figures of a fit as JSON data, in the form of a proposal's replay summary.

    The keys are ``best_single``, ``held_out``, ``saves_against``, ``saved_usd``, ``reward``,
    ``usd_per_call``, ``price_weight`` and ``shares``.

    Args:
        found: the fit.
    """
    return {
        "best_single": found.best_single,
        "held_out": found.held_out,
        "saves_against": found.saves_against,
        "saved_usd": asdict(found.saved),
        "reward": asdict(found.reward),
        "usd_per_call": found.usd_per_call,
        "price_weight": found.price_weight,
        "shares": dict(found.shares),
    }


def propose_route(
    runtime: Runtime, found: RouteFit, candidates: Sequence[Candidate], *, reason: str, by: str
) -> Proposal:
    """Record a proposal of a fitted route, and return the proposal.

    Args:
        runtime: the open root.
        found: a fit without gaps.
        candidates: the models of the route; a change of their prices makes the proposal stale.
        reason: the reason, for the record.
        by: the person who proposes.

    Raises:
        ProposalError: the evidence does not suffice or was erased.
        LedgerError: the ledger cannot be read or written.
        InvalidInputError: the fit changes nothing.
        ConfigError: the resulting settings cannot be used.
        PackageError: another process holds the lock of packages, or the archive cannot be written.
    """
    learner = Learner(runtime.root, runtime.ledger, runtime.loaded, Identity(by, "operator"))
    models = sorted(f"{one.provider_id}/{one.provider_model}" for one in candidates)
    prices = {"price_version": runtime.prices.version, "prices": prices_at(runtime.prices, models)}
    return learner.propose(
        Change("head", settings=ROUTE_SETTINGS, files=found.files),
        evidence=found.evidence, predicted=found.saved, reason=reason, holds=found.holds,
        gate=found.gate, replay=figures_of(found) | prices,
    )  # fmt: skip


def prompts_of(
    runtime: Runtime, route: str, *, all_grades: bool = False
) -> list[GradedPrompt]:  # fmt: skip
    """Return graded prompts with the answers of a route's models, at the prices in force.

    Prompts without any grade are left out; grades of other models leave a prompt without rewards.
    Nothing is written.

    Args:
        runtime: the open root.
        route: name of the route.
        all_grades: True to add grades that do not count in a fit; see
            :func:`remit.learning.routes.graded_prompts`.

    Raises:
        NotFoundError: the route does not exist.
        LedgerError: the ledger cannot be read, or a graded exchange is archived.
    """
    candidates = runtime.router.candidates(route)
    known = {one.model_id for one in candidates}
    found = graded_prompts(
        runtime.ledger, candidates=candidates, prices=runtime.prices,
        rules=runtime.router.rules.weights, all_grades=all_grades,
    )  # fmt: skip
    return [
        replace(one, rewards={name: one.rewards[name] for name in one.rewards if name in known})
        for one in found
    ]


def _bought(
    runtime: Runtime, wanted: RouteWanted, plan: RoutePlan, by: str, progress: Progress
) -> Calibration:
    """Grade recorded answers, and buy the missing ones within the budget, group by group.

    ``ended`` of the result is that of :class:`RouteLearned`.
    """
    scope = BudgetScope(f"SES-{secrets.token_hex(8).upper()}")
    runtime.budgeter.allocate(scope, limits=BudgetLimits(nano=round(wanted.usd * _NANO)), by=by)
    open_account(runtime.budgeter, by)
    total = Calibration(0, 0, 0.0, 0, "done")
    rest = max(0, plan.power.missing)
    every = min(rest, sum(plan.by_source.values()))
    is_broken = False

    def ask(grader: Grader, part: Sequence[Found], total: Calibration) -> Calibration:
        return run_blocking(
            calibrate(
                runtime.gateway, runtime.ledger, plan.candidates, [one.prompt for one in part],
                grader.grade or _ungraded, usd=wanted.usd - total.usd, prices=runtime.prices,
                by=by, source=grader.source, max_tokens=wanted.max_tokens,
                charged_to=(*scope.path, *LEARNING.path), at_once=_CONCURRENT_CALLS,
                progress=lambda done, _: progress("calibrating", total.prompts + done, every),
            )
        )  # fmt: skip

    for grader, waiting in plan.waiting:
        total = _bought_for(runtime, grader, waiting[:rest], wanted.usd, by, total, ask)
        if total.ended == "budget":
            return total
        if total.ended == "grader":
            is_broken = True
        else:
            rest -= len(waiting[:rest])
    return replace(total, ended="grader" if is_broken else "done")


def _bought_for(
    runtime: Runtime, grader: Grader, waiting: Sequence[Found], usd: float, by: str,
    total: Calibration, ask: Callable[[Grader, Sequence[Found], Calibration], Calibration],
) -> Calibration:  # fmt: skip
    """Return the total after one grader's prompts; ``ended`` is that of this grader.

    Args:
        usd: budget of the whole run in US dollars.
        total: the calls, grades and costs before.
        ask: asks the models some prompts, given the total before.
    """
    count, cost, ended = grade_recorded_by(runtime, grader, waiting, usd - total.usd, by)
    total, before = _added(total, count, cost, ended), total.graded
    is_known = has_graded(runtime, grader)
    for number, part in enumerate(_parts(waiting)):
        if total.ended != "done":
            break
        head = runtime.ledger.head()
        done = ask(grader, part, total)
        total = Calibration(
            total.calls + done.calls, total.graded + done.graded, total.usd + done.usd,
            total.prompts + done.prompts, done.ended,
        )  # fmt: skip
        if grader.grade is None:
            made = _made_since(runtime, head)
            judged, cost, ended = judge_answers(runtime, grader, made, usd - total.usd)
            total = _added(total, len(judged), cost, ended if done.ended == "done" else "budget")
        is_full = len(part) == (IN_A_ROW if number else FIRST)
        is_without = total.graded == before and done.calls > 0 and is_full
        if total.ended == "done" and is_without and (number or not is_known):
            total = replace(total, ended="grader")
        before = total.graded
    return total


def _added(total: Calibration, graded: int, usd: float, ended: str) -> Calibration:
    return replace(total, graded=total.graded + graded, usd=total.usd + usd, ended=ended)


def _ungraded(prompt: GradedPrompt, model: str, answer: str) -> None:
    """Grade nothing: a judge grades the recorded answers."""


def _parts(items: Sequence[Found]) -> Iterator[Sequence[Found]]:
    yield items[:FIRST]
    for start in range(FIRST, len(items), IN_A_ROW):
        yield items[start : start + IN_A_ROW]


def _made_since(runtime: Runtime, head: tuple[int, str] | None) -> list[str]:
    """Return the ids of the answers that calibration made after an entry, oldest first."""
    after = None if head is None else f"LED-{head[0]:08x}"
    found = runtime.ledger.query(event_type="EXCHANGE", after=after, with_content=False)
    return [one.id for one in found if one.metadata.get("agent_id") == CALIBRATOR]


def _means(
    prompts: Sequence[GradedPrompt], candidates: Sequence[Candidate]
) -> dict[str, tuple[float, float]]:
    """Return mean reward and cost of each model over prompts with all grades; empty if none has."""
    names = [one.model_id for one in candidates]
    whole = [one for one in prompts if len(one.rewards) == len(names)]
    return {
        name: (
            sum(one.rewards[name] for one in whole) / len(whole),
            sum(one.costs[name] for one in whole) / len(whole),
        )
        for name in (names if whole else ())
    }


def _nothing_to_grade(ungraded: int) -> InvalidInputError:
    if not ungraded:
        return InvalidInputError(
            "No prompt is recorded that could be asked again.",
            next_step='Give a file with lines of {"prompt": "…", "reference": "…"} by `remit route '
            "learn --prompts FILE`, or send calls through `remit serve` and run the command again.",
        )
    return InvalidInputError(
        f"None of the {ungraded} recorded prompts can be graded.",
        next_step="Give `remit route learn` a grader (`--references FILE`, `--schema FILE`, "
        "`--test COMMAND`, `--code MODULE:FUNCTION` or `--judge PROVIDER/MODEL`), or record right "
        "answers with `remit feedback ID --reference`.",
    )
