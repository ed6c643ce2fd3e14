"""``remit route``; by hand ``learn``, which shows its plan before it spends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.operations import add_commands
from remit.cli.shared import FILE, NumberRange, emit, note, progress_bar, reads, table, whoami
from remit.kernel.words import count
from remit.operations.files import read_lines, read_prompts, read_table, require_exchanges

if TYPE_CHECKING:
    from remit.runtime import RouteLearned, RoutePlan

_BAR = 30  # characters


@click.group()
def route() -> None:
    """Explain which model answers a call, and why."""


add_commands(route)


@route.command()
@click.option(
    "--budget-usd", "usd", type=NumberRange(0, min_open=True), required=True,
    help="Spending limit of all calls in US dollars; never exceeded.",
)  # fmt: skip
@click.option("--yes", is_flag=True, help="Spend. Without --yes, only show the plan.")
@click.option("--route", "name", default="auto", show_default=True, help="Route to learn.")
@click.option(
    "--saving", type=NumberRange(0, 1, min_open=True, max_open=True), default=0.3,
    show_default=True, help="Share of the best single model's cost to save.",
)  # fmt: skip
@click.option(
    "--usd-per-call", type=NumberRange(0, min_open=True),
    help="Limit of the average cost of a call in US dollars, instead of --saving.",
)  # fmt: skip
@click.option(
    "--quality-floor", type=NumberRange(0, 1), default=0.0,
    help="Choose the cheapest model with at least this expected reward.",
)  # fmt: skip
@click.option(
    "--prompts", type=FILE,
    help='Prompts to ask in addition: JSON Lines of {"prompt": "…", "reference": "42"}.',
)  # fmt: skip
@click.option(
    "--references", type=FILE, help='JSON Lines of {"exchange_id": "LED-…", "reference": "42"}.'
)  # fmt: skip
@click.option("--schema", type=FILE, help="Grade answers by this JSON Schema.")
@click.option(
    "--test",
    help="Grade answers by this command: exit 0 is right, 1 is wrong; it reads "
    '{"prompt": …, "answer": …}.',
)  # fmt: skip
@click.option(
    "--code", metavar="MODULE:FUNCTION",
    help="Grade answers by this Python function of prompt and answer.",
)  # fmt: skip
@click.option("--judge", metavar="PROVIDER/MODEL", help="Grade answers by this model.")
@click.option(
    "--max-tokens", type=click.IntRange(1), default=4096, show_default=True,
    help="Token limit of an answer; the budget reservation depends on it.",
)  # fmt: skip
@click.option("--reason", default="", help="Reason of the proposal (recorded permanently).")
@reads
def learn(
    root: Path | None, as_json: bool, usd: float, yes: bool, name: str, saving: float,
    usd_per_call: float | None, quality_floor: float, prompts: Path | None,
    references: Path | None, schema: Path | None, test: str | None, code: str | None,
    judge: str | None, max_tokens: int, reason: str,
) -> None:  # fmt: skip
    """Learn a cheaper route: grade, calibrate within a budget, fit, and propose.

    The command first checks gates and prices, finds graders for recorded prompts, and states how
    many graded prompts and dollars the fit needs. With --yes, the command then permits the route's
    models in a package, asks each model the prompts that it has not answered, fits the route, and
    proposes it. `remit learn adopt last` puts the proposal in force. Run the command again to
    continue; graded answers are not paid for twice. Exit 1 if there is no proposal.
    """
    from remit.runtime import (
        Graders,
        RouteWanted,
        Runtime,
        command_test,
        figures_of,
        learn_route,
        load_grader,
        plan_route,
    )

    provider, _, model = (judge or "").partition("/")
    if judge and not (provider and model):
        raise click.UsageError("Give --judge as provider/model.")
    if test and code:
        raise click.UsageError("Give --test or --code, not both.")
    given = {} if references is None else read_lines(references)
    wanted = RouteWanted(
        usd=usd, route=name, saving=saving, usd_per_call=usd_per_call,
        quality_floor=quality_floor, max_tokens=max_tokens,
        graders=Graders(
            references=given,
            prompts=[] if prompts is None else read_prompts(prompts),
            test=command_test(test) if test else None,
            code=load_grader(code) if code else None,
            schema=None if schema is None else read_table(schema),
            judge=(provider, model) if judge else None,
        ),
    )  # fmt: skip
    with Runtime.open(root, by=whoami()) as runtime:
        require_exchanges(runtime.ledger, given)
        plan = plan_route(runtime, wanted)
        value: dict[str, Any] = {"plan": plan.to_dict()}
        if not yes:
            emit(as_json, value, _plan_lines(plan, wanted.usd))
            if not as_json:
                note("Nothing was spent. Run the command again with --yes.")
            return
        if not as_json:
            emit(False, {}, _plan_lines(plan, wanted.usd))
        done = learn_route(
            runtime, wanted, plan, by=whoami(), progress=progress_bar(pipe=True),
            reason=reason.strip() or f"remit route learn: {saving:.0%} less cost, equal quality.",
        )  # fmt: skip
    made = done.proposal.proposal_id if done.proposal is not None else ""
    value |= {
        "permitted": done.permitted, "calls": done.calls, "graded": done.graded, "usd": done.usd,
        "ended": done.ended, "missing": done.missing, "proposal_id": made,
        "models": {
            one: {"reward": reward, "usd_per_call": cost}
            for one, (reward, cost) in done.means.items()
        },
        "fit": None if isinstance(done.fit, str) else figures_of(done.fit),
    }  # fmt: skip
    emit(as_json, value, _done_lines(done, usd))
    if made:
        if not as_json:
            note(f"Proposed: `remit learn show {made[:12]}`, then `remit learn adopt {made[:12]} "
                 "--reason …`.")  # fmt: skip
        return
    if not as_json:
        note(_next(done))
    raise SystemExit(1)


def _plan_lines(plan: RoutePlan, usd: float) -> Iterator[str]:
    yield f"models    {', '.join(one.model_id for one in plan.candidates)}"
    if plan.permits:
        yield f"permit    {', '.join(plan.permits)} (no package permits them yet)"
    by_source = ", ".join(f"{count} by {name}" for name, count in plan.by_source.items())
    yield (
        f"prompts   {plan.graded} have graded answers of all models; "
        f"{by_source or 'no other'} can be graded, {plan.ungraded} cannot"
    )
    yield f"needed    {plan.power.text()}"
    yield f"budget    {usd:g} USD"


def _done_lines(done: RouteLearned, usd: float) -> Iterator[str]:
    if done.permitted:
        yield f"permitted {done.permitted}"
    ended = "" if done.ended == "done" else "; the budget ended the calibration"
    spent = f"{done.usd:.6f} USD of {usd:g}{ended}"
    yield f"asked     {count(done.calls, 'call')}, {done.graded} graded, {spent}"
    if not isinstance(done.fit, str):
        fit = done.fit
        dearest = max([cost for _, cost in done.means.values()] + [fit.usd_per_call])
        rows = [
            (name, f"{reward:.3f}", f"{cost:.6f}", "#" * round(_BAR * cost / (dearest or 1)))
            for name, (reward, cost) in done.means.items()
        ]
        reward = done.means[fit.best_single][0] + fit.reward.value
        cost = fit.usd_per_call
        rows.append(
            ("the route", f"{reward:.3f}", f"{cost:.6f}", "#" * round(_BAR * cost / (dearest or 1)))
        )
        yield ""
        yield from table(("", "reward", "USD a call", ""), rows)
        yield ""
        shares = ", ".join(f"{model} {share:.0%}" for model, share in fit.shares.items())
        base = done.means[fit.best_single][1] or 1.0
        yield f"takes     {shares}"
        yield (
            f"saves     {fit.saved.value / base:.0%} of the cost of {fit.best_single} "
            f"[{fit.saved.low / base:.0%}, {fit.saved.high / base:.0%}]"
        )
        yield f"reward    {fit.reward.value:+.4f} [{fit.reward.low:+.4f}, {fit.reward.high:+.4f}]"
    yield from (f"missing: {line}" for line in done.missing)


def _next(done: RouteLearned) -> str:
    if done.ended == "budget":
        return "Run the command again with a larger --budget-usd; paid answers are kept."
    return (
        "Record or give more prompts (--prompts), or ask for less with --saving; `auto` stays with "
        "the best single model."
    )
