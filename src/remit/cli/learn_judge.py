"""``remit learn judge``: grades answers with a model, and measures how reliable the grades are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remit.cli.shared import NumberRange, emit, note, open_ledger, reads, whoami
from remit.kernel.words import count

if TYPE_CHECKING:
    from remit.learning.judges import JudgeReport
    from remit.ledger import LedgerClient

__all__ = ["judge"]


@click.command()
@click.argument("exchange_ids", metavar="[ID]...", nargs=-1)
@click.option("--contract", "contract_id", help="Grade the latest answers under this contract.")
@click.option(
    "--latest", type=click.IntRange(min=1), default=20, show_default=True,
    help="Number of answers to grade.",
)  # fmt: skip
@click.option("--model", help="The model that judges (default: the configured one).")
@click.option("--usd", type=NumberRange(min=0), help="Spending limit in US dollars.")
@click.option("--calls", type=click.IntRange(min=1), help="Limit of model calls.")
@click.option(
    "--width", type=NumberRange(min=0, min_open=True), default=0.1, show_default=True,
    help="Wanted width of the confidence interval; the report says how many labels it needs.",
)  # fmt: skip
@reads
def judge(
    root: Path | None,
    as_json: bool,
    exchange_ids: tuple[str, ...],
    contract_id: str | None,
    latest: int,
    model: str | None,
    usd: float | None,
    calls: int | None,
    width: float,
) -> None:
    """Have a model grade answers under PRC-JUDGE-001, within a budget. Without IDs or --contract,
    show how reliable each judge's grades are.

    ID is the id of an exchange. A grade is feedback with the source `judge`; it is used if no
    person or program graded the answer. Answers that this judge already graded are skipped.
    """
    from remit.learning.judges import read_judges

    if not exchange_ids and contract_id is None:
        with open_ledger(root) as ledger:
            found = read_judges(ledger, width=width)
        shown = [one.to_dict() for one in found]
        lines = _lines(found) if found else ["No judge has graded any answer yet."]
        emit(as_json, {"judges": shown}, lines)
        return
    if exchange_ids and contract_id is not None:
        raise click.UsageError("Give IDs, or --contract.")
    from remit.learning import open_account
    from remit.learning.judges import Judge
    from remit.runtime import Runtime

    with Runtime.open(root, model=model, by=whoami()) as runtime:
        runtime.require_model()
        open_account(runtime.budgeter, whoami())
        made = Judge(
            runtime.gateway, runtime.ledger, runtime.contracts, runtime.provider_id,
            runtime.model_id,
        )  # fmt: skip
        chosen = exchange_ids or tuple(_latest(runtime.ledger, contract_id or "", latest))
        done = made.run(
            chosen, usd=usd, calls=calls,
            progress=lambda number: note(f"{number} of {len(chosen)}"),
        )  # fmt: skip
        mine = [one for one in read_judges(runtime.ledger, width=width) if one.judge == made.name]
    shown = [one.to_dict() for one in mine]
    value = {"judge": made.name, **asdict(done), "judges": shown}
    line = (
        f"{len(done.graded)} graded, {done.passed_over} skipped, {done.failed} failed; "
        f"{count(done.calls, 'call')} for {done.usd:.6f} USD"
    )
    emit(as_json, value, (line, *_lines(mine)))
    if done.ended == "budget":
        note(
            "The budget was spent before all answers were graded. Run the command again to "
            "continue."
        )


def _latest(ledger: LedgerClient, contract_id: str, number: int) -> Iterator[str]:
    """Yield the ids of a contract's latest ``number`` answered exchanges, newest first.

    Learning's own calls are skipped.
    """
    from remit.learning import is_own_call

    entries = ledger.query(
        event_type="EXCHANGE", contract_id=contract_id, order="desc", with_content=False
    )
    good = (
        one.id
        for one in entries
        if one.metadata.get("outcome") == "success" and not is_own_call(one.metadata)
    )
    return islice(good, number)


def _lines(found: Sequence[JudgeReport]) -> Iterator[str]:
    for one in found:
        known = one.calibration
        yield f"{one.judge}, answers under {one.contract_id}"
        if not known.calibrated:
            yield f"  UNCALIBRATED: people graded {known.labelled} of its {known.judged} answers"
        yield f"  its own mean      {known.judge_mean:.3f} of {known.judged}"
        if known.mean is not None:
            mean = known.mean
            yield f"  calibrated mean   {mean.value:.3f} [{mean.low:.3f}, {mean.high:.3f}]"
        if known.agreement is not None:
            kappa = "" if known.kappa is None else f", kappa {known.kappa:.2f}"
            yield f"  agreement         {known.agreement:.0%} of {known.labelled}{kappa}"
            yield f"  judge - person    {known.bias:+.3f} on average"
        if known.length_slope is not None:
            slope = known.length_slope
            yield (
                f"  length            {slope.value:+.3f} [{slope.low:+.3f}, {slope.high:+.3f}] per "
                f"1,000 characters, correlation {known.length_correlation or 0:+.2f}"
            )
        yield "  position          not applicable: the judge sees one answer at a time"
        more = f"{one.labels_needed} more grades by people narrow the interval to {one.width:g}"
        yield f"  labels            {more}"
        if one.labels_needed and one.label_next:
            yield f"  grade next        {' '.join(one.label_next)}"
