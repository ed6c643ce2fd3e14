"""Operations that fit a route to graded answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import InvalidInputError
from remit.operations import (
    PROPOSED,
    Answer,
    Caller,
    RootPort,
    by,
    field,
    proposal_reason,
    verb,
)
from remit.operations.files import read_lines, require_exchanges

if TYPE_CHECKING:
    from remit.learning.routes import GradedPrompt
    from remit.routing import Candidate, Weights

_NANO = 1_000_000_000


@verb("route calibrate", changes=True)
def calibrate_route(
    root: RootPort, caller: Caller, *,
    usd: float = field("Spending limit of all calls in US dollars; never exceeded.", least=0,
                       is_open=True),
    references: dict[str, str] = field(
        'JSON Lines of {"exchange_id": "LED-…", "reference": "42"}.', {}, metavar="FILE",
        read=read_lines,
    ),
    name: str = field("Route whose models are asked.", "auto", flag="--route"),
    max_tokens: int = field(
        "Token limit of an answer; the budget reservation depends on it.", 4096, least=1
    ),
) -> dict[str, Any]:  # fmt: skip
    """Ask each model of a route the recorded prompts for which it has no graded answer.

    The grade of an answer is 1 if it equals the reference answer, ignoring case, white space and
    a final full stop, else 0. References come from --references, which also grade the recorded
    answers, and from recorded answers that `remit feedback --reference` graded 1. Prompts without
    a reference are skipped. To grade by a schema, a test or a person, call
    `remit.learning.routes.calibrate` in Python with your own grader.

    Returns:
        The numbers of ``calls`` and ``graded`` answers, ``usd`` spent, ``prompts`` with answers of
        all models, prompts ``without_reference``, ``ended`` (``done`` or ``budget``), the paying
        ``session_id``, and ``power``, the plan of the evidence.

    Raises:
        InvalidInputError: a reference names no exchange of the ledger; or a model of the route has
            no price, and the grades of recorded answers stay.
        RemitError: no such route exists.
    """
    from remit.kernel.budget_values import LEARNING, BudgetLimits
    from remit.kernel.loops import run_blocking
    from remit.learning import is_reference, open_account
    from remit.learning.routes import calibrate, power_plan
    from remit.runtime.route_graders import grade_recorded, right_answers
    from remit.runtime.route_learner import prompts_of
    from remit.runtime.runtime import Runtime

    by, given = caller.name, references
    with Runtime.open(root.path, by=by) as runtime:
        require_exchanges(runtime.ledger, given)
        candidates = runtime.router.candidates(name)
        grade_recorded(runtime.ledger, given, by=by)
        known = {**right_answers(runtime.ledger), **given}
        every = prompts_of(runtime, name, all_grades=True)
        right = {one.exchange_id: known[entry]
                 for one in every for entry in one.evidence if entry in known}  # fmt: skip
        counted = prompts_of(runtime, name)
        plan = power_plan(counted, candidates, guard=runtime.loaded.settings.routing.guard)
        root.note(plan.text())
        scope = _new_session()
        runtime.budgeter.allocate(scope, limits=BudgetLimits(nano=round(usd * _NANO)), by=by)
        open_account(runtime.budgeter, by)
        done = run_blocking(calibrate(
            runtime.gateway, runtime.ledger, candidates,
            [one for one in every if one.exchange_id in right],
            lambda one, _, answer: float(is_reference(answer, right[one.exchange_id])),
            usd=usd, prices=runtime.prices, by=by, max_tokens=max_tokens,
            charged_to=(*scope.path, *LEARNING.path), progress=root.progress("calibrating"),
        ))  # fmt: skip
    return {
        "calls": done.calls, "graded": done.graded, "usd": done.usd, "prompts": done.prompts,
        "without_reference": len(every) - len(right), "ended": done.ended,
        "session_id": scope.session_id, "power": plan.to_dict(),
    }  # fmt: skip


@verb("route fit", changes=True)
def fit_route(
    root: RootPort, caller: Caller, *,
    usd_per_call: float = field("Limit of the average cost of a call in US dollars.", least=0,
                                is_open=True),
    quality_floor: float = field(
        "Choose the cheapest model with at least this expected reward.", 0.0, least=0, most=1
    ),
    name: str = field("Route to fit.", "auto", flag="--route"),
    propose: bool = field("Create a proposal if nothing is missing.", False),
    reason: str = field("Reason of the proposal (recorded permanently).", ""),
) -> Answer:  # fmt: skip
    """Fit a route to graded answers, and estimate its effect by cross-fitting.

    With --quality-floor 0, reward is weighed against cost to keep --usd-per-call. Above 0, the
    route takes the cheapest model with that reward, and ``missing`` states if that costs more. The
    route in use does not change. --propose creates a proposal; `remit learn adopt` adopts it. If no
    proposal can be created, --propose makes the command exit with 1. Each fit of other grades is
    recorded, and only the first [routing.guard] looks fits may decide.

    Returns:
        ``missing`` (sentences; empty if a proposal can be created) and ``proposal_id`` (empty
        without a proposal); with a fit also the keys of :func:`figures_of` and ``price_version``.

    Raises:
        InvalidInputError: a proposal has no reason.
        RemitError: no such route exists, or the proposal cannot be recorded.
    """
    from remit.learning import routes
    from remit.runtime.route_learner import figures_of, prompts_of, propose_route
    from remit.runtime.runtime import Runtime

    require_reason(propose, reason)
    with Runtime.open(root.path, by=caller.name) as runtime:
        rules, guard = runtime.router.rules.weights, runtime.loaded.settings.routing.guard
        fitted = routes.fit_route(
            prompts_of(runtime, name), usd_per_call, rules=rules, quality_floor=quality_floor,
            guard=guard, progress=root.progress("fitting"),
            look=partial(routes.record_look, runtime.ledger, name, rules=rules, most=guard.looks),
        )  # fmt: skip
        fit = None if isinstance(fitted, str) else fitted
        missing = [fitted] if isinstance(fitted, str) else list(fitted.missing)
        figures: dict[str, Any] = {}
        made = ""
        if fit is not None:
            figures = {**figures_of(fit), "price_version": runtime.prices.version}
            if propose and not missing:
                models = runtime.router.candidates(name)
                made = propose_route(
                    runtime, fit, models, reason=reason, by=caller.name
                ).proposal_id
    found = {**figures, "missing": missing, "proposal_id": made}
    return Answer(found, has_failed=propose and not made)


@verb(
    "route abilities", "POST /learn/proposals/abilities", tag="learning", needs="propose",
    summary="Propose abilities by grades", form="AbilitiesProposal", result="ProposalShape",
    endpoint="abilities", fails=(409,), then=PROPOSED,
)  # fmt: skip
def propose_abilities(
    root: RootPort, caller: Caller, *,
    name: str = field("Route whose models are compared.", "auto", flag="--route", most=128),
    reason: str = proposal_reason(),
    by: str | None = by(),
) -> dict[str, Any]:  # fmt: skip
    """Propose the models' abilities by their grades, so that routes choose the best graded model.

    The proposal is recorded, and its archive written; nothing is installed. A comparison by other
    grades counts as one of the [routing.guard] looks.

    Returns:
        The fields of the :class:`~remit.learning.proposals.Proposal`, by name.

    Raises:
        InvalidInputError: no held-out prompt has graded answers of all models, no other prompt is
            graded, or the change is not valid or changes nothing.
        ProposalError: the held-out prompts do not show that the change helps, no look remains, or
            evidence was erased.
        PackageError: another process holds the packages' lock, or the archive cannot be written.
        RemitError: no such route exists.
    """
    from remit.learning.proposals import Change, Learner, ProposalError
    from remit.learning.routes import record_look
    from remit.runtime.route_learner import prompts_of
    from remit.runtime.runtime import Runtime

    with Runtime.open(root.place.path, by=caller.name) as runtime:
        prompts, rules = prompts_of(runtime, name), runtime.router.rules.weights
        looks = runtime.loaded.settings.routing.guard.looks
        settings, case = abilities_case(prompts, runtime.router.candidates(name), rules, looks)
        said = record_look(
            runtime.ledger, name, prompts, rules=rules, most=looks, what="abilities"
        )  # fmt: skip
        if said:
            raise ProposalError("not_enough", f"No proposal was created. {said}", missing=[said])
        learner = Learner(runtime.root, runtime.ledger, runtime.loaded, caller.identity)
        return learner.propose(Change("route", settings=settings), reason=reason, **case).to_dict()


def abilities_case(
    prompts: Sequence[GradedPrompt], candidates: Sequence[Candidate], rules: Weights, looks: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return abilities by the grades as learned settings, and their case for a proposal.

    The abilities come from the prompts that are not held out. The predicted effect is the mean
    reward of the models that the router would choose with these abilities for held-out prompts,
    less the reward of the models that it chooses now. Nothing is recorded.

    Args:
        prompts: the graded prompts.
        candidates: the models of the route.
        rules: the rules in force.
        looks: number of looks that may decide.

    Returns:
        The settings ``routing.models.NAME.abilities`` as nested dicts; and the arguments
        ``evidence`` (ids of entries), ``predicted``, ``gate`` and ``replay`` (the numbers
        ``held_out`` and ``learned``) of :meth:`~remit.learning.proposals.Learner.propose`.

    Raises:
        InvalidInputError: no held-out prompt has graded answers of all candidates, or no other
            prompt is graded.
    """
    from remit.learning import is_held_out, paired_effect
    from remit.learning.routes import abilities_of
    from remit.routing import ScoringInputs, score_candidates

    learned = [one for one in prompts if not is_held_out(one.prompt)]
    names = {one.model_id for one in candidates}
    held = [one for one in prompts if is_held_out(one.prompt) and one.rewards.keys() >= names]
    if not (held and learned):
        raise InvalidInputError(
            "No held-out prompt has graded answers of all models.",
            next_step="`remit route calibrate` makes them.",
        )
    found = abilities_of(learned)
    better = [replace(one, abilities=found.get(one.model_id, one.abilities)) for one in candidates]

    def reward(one: GradedPrompt, of: Sequence[Candidate]) -> float:
        return one.rewards[
            score_candidates(ScoringInputs(one.prompt, one.task, "", of, rules)).winner
        ]

    predicted, gate = paired_effect(
        [reward(one, better) - reward(one, candidates) for one in held],
        [one.traffic for one in held], looks=looks,
    )  # fmt: skip
    settings = {"routing": {"models": {name: {"abilities": found[name]} for name in found}}}
    evidence = sorted({entry for one in (*learned, *held) for entry in one.evidence})
    replay = {"held_out": len(held), "learned": len(learned)}
    return settings, {"evidence": evidence, "predicted": predicted, "gate": gate, "replay": replay}


def require_reason(propose: bool, reason: str) -> None:
    """Raise InvalidInputError if a proposal is requested and its reason is empty or blank."""
    if propose and not reason.strip():
        raise InvalidInputError(
            "A proposal needs a reason.",
            next_step="Give one, as in `remit route fit --propose --reason TEXT`.",
        )


def _new_session() -> Any:
    import secrets

    from remit.gateway.budget import BudgetScope

    return BudgetScope(f"SES-{secrets.token_hex(8).upper()}")
