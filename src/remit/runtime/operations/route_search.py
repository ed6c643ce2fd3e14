"""The operation that learns a route: from recorded prompts to a proposal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import InvalidInputError
from remit.kernel.message_text import count
from remit.operations import Answer, Caller, Note, RootPort, Table, field, verb
from remit.operations.files import read_lines, read_prompts, read_table, require_exchanges

if TYPE_CHECKING:
    from remit.learning.routes import RouteFit
    from remit.runtime.route_learner import RouteLearned, RoutePlan

_BAR = 30  # characters


@verb("route learn", changes=True)
def learn_route(
    root: RootPort, caller: Caller, *,
    usd: float = field("Spending limit of all calls in US dollars; never exceeded.", least=0,
                       is_open=True, flag="--budget-usd"),
    spend: bool = field("Spend. Without --yes, only show the plan.", False, flag="--yes"),
    name: str = field("Route to learn.", "auto", flag="--route"),
    saving: float = field("Share of the best single model's cost to save.", 0.3, least=0, most=1,
                          is_open=True),
    usd_per_call: float | None = field(
        "Limit of the average cost of a call in US dollars, instead of --saving.", None, least=0,
        is_open=True,
    ),
    quality_floor: float = field(
        "Choose the cheapest model with at least this expected reward.", 0.0, least=0, most=1
    ),
    prompts: list[tuple[Any, str]] = field(
        'Prompts to ask in addition: JSON Lines of {"prompt": "…", "reference": "42"}.', [],
        metavar="FILE", read=read_prompts,
    ),
    references: dict[str, str] = field(
        'JSON Lines of {"exchange_id": "LED-…", "reference": "42"}.', {}, metavar="FILE",
        read=read_lines,
    ),
    json_schema: dict[str, Any] | None = field(
        "Grade answers by this JSON Schema.", None, flag="--schema", metavar="FILE",
        read=read_table,
    ),
    test: str | None = field(
        "Grade answers by this command: exit 0 is right, 1 is wrong; it reads "
        '{"prompt": …, "answer": …}.', None,
    ),
    code: str | None = field("Grade answers by this Python function of prompt and answer.", None,
                             metavar="MODULE:FUNCTION"),
    judge: str | None = field("Grade answers by this model.", None, metavar="PROVIDER/MODEL"),
    max_tokens: int = field(
        "Token limit of an answer; the budget reservation depends on it.", 4096, least=1
    ),
    reason: str = field("Reason of the proposal (recorded permanently).", ""),
) -> Answer:  # fmt: skip
    """Learn a cheaper route: grade, calibrate within a budget, fit, and propose.

    The command first checks gates and prices, finds graders for recorded prompts, and states how
    many graded prompts and dollars the fit needs. With --yes, the command then permits the route's
    models in a package, asks each model the prompts that it has not answered, fits the route, and
    proposes it. `remit learn adopt last` puts the proposal in force. Run the command again to
    continue; graded answers are not paid for twice. Exit 1 if there is no proposal.

    Returns:
        ``plan``; with --yes also ``permitted``, ``calls``, ``graded``, ``usd``, ``ended`` and
        ``missing`` of :class:`RouteLearned`, ``proposal_id`` (empty without a proposal), ``models``
        (``reward`` and ``usd_per_call`` by model), and ``fit`` (None without a fit).

    Raises:
        InvalidInputError: two graders contradict each other, a reference names no exchange, or
            no prompt can be graded.
        RemitError: a gate fails, or a model has no price.
    """
    from remit.runtime import route_learner
    from remit.runtime.route_graders import Graders, command_test, load_grader
    from remit.runtime.runtime import Runtime

    provider, _, model = (judge or "").partition("/")
    if judge and not (provider and model):
        raise InvalidInputError("Give --judge as provider/model.")
    if test and code:
        raise InvalidInputError("Give --test or --code, not both.")
    wanted = route_learner.RouteWanted(
        usd=usd, route=name, saving=saving, usd_per_call=usd_per_call,
        quality_floor=quality_floor, max_tokens=max_tokens,
        graders=Graders(
            references=references, prompts=prompts, test=command_test(test) if test else None,
            code=load_grader(code) if code else None, schema=json_schema,
            judge=(provider, model) if judge else None,
        ),
    )  # fmt: skip
    with Runtime.open(root.path, by=caller.name) as runtime:
        require_exchanges(runtime.ledger, references)
        plan = route_learner.plan_route(runtime, wanted)
        value: dict[str, Any] = {"plan": plan.to_dict()}
        if not spend:
            note = Note("Nothing was spent. Run the command again with --yes.")
            return Answer(value, [*_plan_lines(plan, usd), note])
        said = f"remit route learn: {saving:.0%} less cost, equal quality."
        done = route_learner.learn_route(
            runtime, wanted, plan, by=caller.name, progress=_progress(root),
            reason=reason.strip() or said,
        )  # fmt: skip
    proposal_id = "" if done.proposal is None else done.proposal.proposal_id
    value |= {
        "permitted": done.permitted, "calls": done.calls, "graded": done.graded,
        "usd": done.usd, "ended": done.ended, "missing": done.missing,
        "proposal_id": proposal_id,
        "models": {
            one: {"reward": reward, "usd_per_call": cost}
            for one, (reward, cost) in done.means.items()
        },
        "fit": None if isinstance(done.fit, str) else route_learner.figures_of(done.fit),
    }  # fmt: skip
    lines = [*_plan_lines(plan, usd), *_done_lines(done, usd), _next_step(done, proposal_id[:12])]
    return Answer(value, lines, not proposal_id)


def _next_step(done: RouteLearned, made: str) -> Note:
    """Return a note on the next command.

    Args:
        done: the result of the learning.
        made: the beginning of the proposal's id; empty without a proposal.
    """
    if made:
        return Note(f"Proposed: `remit learn show {made}`, then `remit learn adopt {made} "
                    "--reason …`.")  # fmt: skip
    if done.ended == "budget":
        return Note("Run the command again with a larger --budget-usd; paid answers are kept.")
    return Note("Record or give more prompts (--prompts), or ask for less with --saving; "
                "`auto` stays with the best single model.")  # fmt: skip


def _progress(root: RootPort) -> Callable[[str, int, int], None]:
    """Return a function that shows the progress of each part, and notes when a part begins."""

    bars: dict[str, Callable[[int, int], None]] = {}

    def show(label: str, done: int, total: int) -> None:
        if label not in bars:
            root.note(f"{label}: {total}")
            bars[label] = root.progress(label)
        bars[label](done, total)

    return show


def _plan_lines(plan: RoutePlan, usd: float) -> Iterator[str]:
    yield f"models    {', '.join(one.model_id for one in plan.candidates)}"
    if plan.permits:
        yield f"permit    {', '.join(plan.permits)} (no package permits them yet)"
    by_source = ", ".join(f"{number} by {name}" for name, number in plan.by_source.items())
    yield (
        f"prompts   {plan.graded} have graded answers of all models; "
        f"{by_source or 'no other'} can be graded, {plan.ungraded} cannot"
    )
    yield f"needed    {plan.power.text()}"
    yield f"budget    {usd:g} USD"


def _done_lines(done: RouteLearned, usd: float) -> Iterator[str | Table]:
    if done.permitted:
        yield f"permitted {done.permitted}"
    ended = "" if done.ended == "done" else "; the budget ended the calibration"
    spent = f"{done.usd:.6f} USD of {usd:g}{ended}"
    yield f"asked     {count(done.calls, 'call')}, {done.graded} graded, {spent}"
    if not isinstance(done.fit, str):
        yield from _fit_lines(done, done.fit)
    yield from (f"missing: {line}" for line in done.missing)


def _fit_lines(done: RouteLearned, fit: RouteFit) -> Iterator[str | Table]:
    """Yield the table of models with the route, and the effect against the best single model."""
    reward, base = done.means[fit.best_single]
    means = {**done.means, "the route": (reward + fit.reward.value, fit.usd_per_call)}
    dearest = max(cost for _, cost in means.values()) or 1
    rows = [(name, f"{reward:.3f}", f"{cost:.6f}", "#" * round(_BAR * cost / dearest))
            for name, (reward, cost) in means.items()]  # fmt: skip
    yield from ("", Table(("", "reward", "USD a call", ""), rows), "")
    shares = ", ".join(f"{model} {share:.0%}" for model, share in fit.shares.items())
    yield f"takes     {shares}"
    saved, base = fit.saved, base or 1.0
    yield (f"saves     {saved.value / base:.0%} of the cost of {fit.best_single} "
           f"[{saved.low / base:.0%}, {saved.high / base:.0%}]")  # fmt: skip
    yield f"reward    {fit.reward.value:+.4f} [{fit.reward.low:+.4f}, {fit.reward.high:+.4f}]"
