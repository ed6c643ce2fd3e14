"""The report of learning as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from remit.kernel.words import count

if TYPE_CHECKING:
    from remit.learning import Estimate
    from remit.learning.meta import Effect, Report

_NAMED = 5  # missing requirements in a line


def canary_lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a canary: its terms, both routes, and the next event.

    Args:
        found: the canary, as :func:`remit.learning.proposals.canary_of` returns it.
    """
    only = "".join(f", {name} {found[name]}" for name in ("for_key", "task") if found[name])
    share = f"{found['share']:.0%} of the calls" if found["share"] else "shadow"
    yield f"canary     {found['state']}: {share}{only}, since {found['at']} by {found['by']}"
    if not (calls := found.get("calls")):
        return
    yield "           calls: " + ", ".join(f"{number} {arm}" for arm, number in calls.items())
    gap = found["difference"]
    for arm, number in found["graded"].items():
        reward, usd = (found[name].get(arm) for name in ("rewards", "usd_per_call"))
        shown = "-" if reward is None else f"{reward:.4f}"
        cost = "-" if usd is None else f"{usd:.6f} USD a call"
        yield f"           {arm}: reward {shown} of {number}, {cost}"
    yield (
        f"           difference {gap['value']:+.4f} [{gap['low']:+.4f}, {gap['high']:+.4f}], "
        f"spent {found['spent_usd']:.6f} of {found['usd']:g} USD"
    )
    yield f"           {found['verdict'] or 'undecided'}: {found['reason']}"


def report_lines(found: Report) -> Iterator[str]:
    """Yield the lines of all sections of a report, for people.

    The sections are the proposals by state, the effects of adopted changes, the findings on the
    questions of contracts, and the cause of bad answers.

    Args:
        found: the report.
    """
    from remit.learning import Estimate

    yield f"policy epoch {found.epoch}" + (
        "" if found.epoch else ": no proposal has been adopted yet"
    )
    yield ", ".join(f"{n} {state.replace('_', ' ')}" for state, n in found.states.items())
    for one in found.proposals:
        if one.state == "adopted":
            yield (
                f"  {one.proposal_id[:12]} {one.kind} of {one.target}, since {one.adopted_at} by "
                f"{one.decided_by}"
            )
    for judge in found.uncalibrated:
        yield (
            f"UNCALIBRATED: only {judge.judge} graded these answers under {judge.contract_id}; "
            f"people graded {judge.labelled} of the {judge.judged} "
            "answers that it judged"
        )
    if found.effects:
        yield ""
        yield "Did the changes have the predicted effect?"
    for effect in found.effects:
        name = effect.proposal_id[:12]
        what = f"{name} {effect.kind} of {effect.target}, epoch {effect.epoch}"
        yield f"  {what}: {_came(effect)}"
        if effect.harmful and effect.disappoints:
            yield f"    answers became worse; undo the change with `remit learn rollback {name}`"
    if found.effects:
        known = found.calibration
        yield f"  predictions: {known.held} confirmed, {known.missed} missed, {known.open} open"
    if found.questions:
        yield ""
        yield "Did the contracts ask the right question?"
    for question in found.questions:
        name = f"{question.contract_id} {question.contract_version}".rstrip()
        pack = question.prompt_pack_id or "no pack"
        yield f"  {name} ({pack}), {count(question.exchanges, 'exchange')}"
        yield f"    valid answers           {_share(question.success)}"
        yield f"    corrected by the user   {_share(question.repair)}"
        yield f"    equal questions differ  {_share(question.disagreement)}"
        yield f"    unstated demands        {_share(question.unstated)}"
        if question.missing:
            shown = [f"{one.kind} {one.name} ({one.of})" for one, _ in question.missing[:_NAMED]]
            yield f"    not in the prompt: {', '.join(shown)}"
        if question.wrong:
            yield "    The answer looked right, the question was wrong."
    for cause in found.attributions:
        name = f"{cause['contract_id']} {cause['contract_version']}"
        gains = [_signed(Estimate(**cause[side])) for side in ("question", "model")]
        number = count(cause["exchanges"], "exchange")
        yield f"  {name}, question or model: {cause['cause']} ({number})"
        yield f"    another question gains {gains[0]}, another model {gains[1]}"


def _came(one: Effect) -> str:
    predicted = "erased" if one.predicted is None else _signed(one.predicted)
    if one.realised is None:
        return f"predicted {predicted}; too few samples of {one.metric} to measure the effect"
    word = {True: "held", False: "missed", None: "open"}[one.held]
    return f"predicted {predicted}, measured {_signed(one.realised)} of {one.metric}: {word}"


def _signed(one: Estimate) -> str:
    return f"{one.value:+.4f} [{one.low:+.4f}, {one.high:+.4f}]"


def _share(one: Estimate) -> str:
    if not one.samples:
        return "no samples"
    return f"{one.value:4.0%} [{one.low:.0%}, {one.high:.0%}] of {one.samples}"
