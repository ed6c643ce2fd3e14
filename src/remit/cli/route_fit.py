"""``remit route calibrate`` and ``fit``: fits a route to graded answers."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remit.cli.learn_files import read_lines, require_exchanges
from remit.cli.shared import NumberRange, emit, note, progress, reads, whoami
from remit.kernel.errors import InvalidInputError
from remit.kernel.words import count

if TYPE_CHECKING:
    from remit.learning import Estimate
    from remit.learning.routes import RouteFit


@click.command()
@click.option(
    "--usd", type=NumberRange(0, min_open=True), required=True,
    help="Spending limit of all calls in US dollars; never exceeded.",
)  # fmt: skip
@click.option(
    "--references", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='JSON Lines of {"exchange_id": "LED-…", "reference": "42"}.',
)  # fmt: skip
@click.option(
    "--route", "name", default="auto", show_default=True, help="Route whose models are asked."
)
@click.option(
    "--max-tokens", type=click.IntRange(1), default=4096, show_default=True,
    help="Token limit of an answer; the budget reservation depends on it.",
)  # fmt: skip
@reads
def calibrate(
    root: Path | None, as_json: bool, usd: float, references: Path | None, name: str,
    max_tokens: int,
) -> None:  # fmt: skip
    """Ask each model of a route the recorded prompts for which it has no graded answer.

    The grade of an answer is 1 if it equals the reference answer, ignoring case, white space and
    a final full stop, else 0. References come from --references, which also grade the recorded
    answers, and from recorded answers that `remit feedback --reference` graded 1. Prompts without
    a reference are skipped. To grade by a schema, a test or a person, call
    `remit.learning.routes.calibrate` in Python with your own grader.
    """
    from remit.gateway.budget import BudgetScope
    from remit.kernel.budget import LEARNING, BudgetLimits
    from remit.kernel.loops import run_blocking
    from remit.learning import is_reference, open_account
    from remit.learning.routes import calibrate, power_plan
    from remit.runtime import Runtime, grade_recorded, prompts_of, right_answers

    given = {} if references is None else read_lines(references)
    session = f"SES-{secrets.token_hex(8).upper()}"
    with Runtime.open(root, by=whoami()) as runtime:
        require_exchanges(runtime.ledger, given)
        candidates = runtime.router.candidates(name)
        grade_recorded(runtime.ledger, given, by=whoami())
        known = {**right_answers(runtime.ledger), **given}
        every = prompts_of(runtime, name)
        found = {
            one.exchange_id: known[entry]
            for one in every
            for entry in one.evidence
            if entry in known
        }
        plan = power_plan(every, candidates, guard=runtime.loaded.settings.routing.guard)
        note(plan.text())
        scope = BudgetScope(session)
        limits = BudgetLimits(nano=round(usd * 1_000_000_000))
        runtime.budgeter.allocate(scope, limits=limits, by=whoami())
        open_account(runtime.budgeter, whoami())
        done = run_blocking(
            calibrate(
                runtime.gateway, runtime.ledger, candidates,
                [one for one in every if one.exchange_id in found],
                lambda one, _, answer: float(is_reference(answer, found[one.exchange_id])),
                usd=usd, prices=runtime.prices, by=whoami(), max_tokens=max_tokens,
                charged_to=(*scope.path, *LEARNING.path), progress=progress("calibrating"),
            )
        )  # fmt: skip
    value = {
        "calls": done.calls, "graded": done.graded, "usd": done.usd, "prompts": done.prompts,
        "without_reference": len(every) - len(found), "ended": done.ended, "session_id": session,
        "power": plan.to_dict(),
    }  # fmt: skip
    ended = "" if done.ended == "done" else "; stopped: the next call might exceed the limit"
    emit(as_json, value, [
        f"{count(done.calls, 'call')}, {done.graded} graded, {done.usd:.6f} USD of {usd:g}{ended}",
        f"{count(done.prompts, 'prompt')} with answers of all {count(len(candidates), 'model')}; "
        f"{len(every) - len(found)} without a reference answer",
    ])  # fmt: skip


@click.command()
@click.option(
    "--usd-per-call", type=NumberRange(0, min_open=True), required=True,
    help="Limit of the average cost of a call in US dollars.",
)  # fmt: skip
@click.option(
    "--quality-floor",
    type=NumberRange(0, 1),
    default=0.0,
    help="Choose the cheapest model with at least this expected reward.",
)
@click.option("--route", "name", default="auto", show_default=True, help="Route to fit.")
@click.option("--propose", is_flag=True, help="Create a proposal if nothing is missing.")
@click.option("--reason", default="", help="Reason of the proposal (recorded permanently).")
@reads
def fit(
    root: Path | None, as_json: bool, usd_per_call: float, quality_floor: float, name: str,
    propose: bool, reason: str,
) -> None:  # fmt: skip
    """Fit a route to graded answers, and estimate its effect by cross-fitting.

    The route in use does not change. --propose creates a proposal; `remit learn adopt` adopts it.
    """
    from remit.learning.routes import fit_route
    from remit.runtime import Runtime, figures_of, prompts_of, propose_route

    if propose and not reason.strip():
        raise InvalidInputError("A proposal needs a reason.", next_step="Give --reason.")
    with Runtime.open(root, by=whoami()) as runtime:
        found = fit_route(
            prompts_of(runtime, name), usd_per_call, rules=runtime.router.rules.weights,
            quality_floor=quality_floor, guard=runtime.loaded.settings.routing.guard,
            progress=progress("fitting"),
        )  # fmt: skip
        missing = [found] if isinstance(found, str) else list(found.missing)
        figures = {} if isinstance(found, str) else figures_of(found)
        figures |= {"price_version": runtime.prices.version} if figures else {}
        made = ""
        if not isinstance(found, str) and propose and not missing:
            made = propose_route(runtime, found, reason=reason, by=whoami()).proposal_id
    emit(as_json, {**figures, "missing": missing, "proposal_id": made}, _lines(found, missing))
    if made and not as_json:
        note(f"Proposed: `remit learn show {made[:12]}`, then `remit learn adopt`.")
    if propose and not made:
        raise SystemExit(1)


def _lines(found: RouteFit | str, missing: list[str]) -> Iterator[str]:
    if not isinstance(found, str):
        yield f"best single model  {found.best_single}"
        against = "it" if found.saves_against == found.best_single else "the current route"
        yield f"saved              {_shown(found.saved)} USD a call against {against}"
        yield f"reward             {_shown(found.reward)} against the best single model"
        yield f"cost               {found.usd_per_call:.6f} USD a call"
        shares = ", ".join(f"{model} {share:.1%}" for model, share in found.shares.items())
        yield f"takes              {shares}"
        yield f"estimated on       {count(found.held_out, 'prompt')}, each without its own answers"
    yield from (f"missing: {line}" for line in missing)


def _shown(estimate: Estimate) -> str:
    return f"{estimate.value:+.6f} [{estimate.low:+.6f}, {estimate.high:+.6f}]"
