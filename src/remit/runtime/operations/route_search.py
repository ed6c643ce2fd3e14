"""The operation that learns a route: from recorded prompts to a proposal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remit.kernel.errors import InvalidInputError
from remit.operations import Answer, Caller, RootPort, field, verb
from remit.operations.files import read_lines, read_prompts, read_table, require_exchanges


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
    models in a package, grades recorded answers, asks each model the prompts that it has not
    answered (no more than the fit needs), fits the route, and proposes it, also after a spent
    budget. `remit learn adopt last` puts the proposal in force. Run the command again to
    continue; graded answers are not paid for twice. With --yes, exit 1 if there is no proposal.

    Returns:
        ``plan``; with --yes also ``permitted``, ``calls``, ``graded``, ``usd``, ``ended`` and
        ``missing`` of :class:`RouteLearned`, ``proposal_id`` (empty without a proposal), ``models``
        (``reward`` and ``usd_per_call`` by model), and ``fit`` (None without a fit).

    Raises:
        InvalidInputError: a grader cannot be used, --test and --code are both given, a reference
            names no exchange, no prompt can be graded, a gate fails, the route has fewer than two
            models, or a model has no price.
        NotFoundError: the route does not exist.
        LedgerError: the ledger cannot be read or written.
        RemitError: the root cannot be opened, the models cannot be permitted, or the proposal
            cannot be written.
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
            root.note("Nothing was spent. Run the command again with --yes.")
            return Answer(value)
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
    if done.ended == "grader":
        root.note("A grader was not used further: it gave no grade for recorded answers, for its "
                  "first 2 prompts, or for 20 in a row. Test it, and try again.")  # fmt: skip
    elif not proposal_id:
        root.note("Give more prompts (--prompts), ask for less with --saving, or, if the budget "
                  "ended the run, raise --budget-usd; paid answers are kept.")  # fmt: skip
    return Answer(value, has_failed=not proposal_id)


def _progress(root: RootPort) -> Callable[[str, int, int], None]:
    """Return a function that shows the progress of each part, and notes when a part begins."""

    bars: dict[str, Callable[[int, int], None]] = {}

    def show(label: str, done: int, total: int) -> None:
        if label not in bars:
            root.note(f"{label}: {total}")
            bars[label] = root.progress(label)
        bars[label](done, total)

    return show
