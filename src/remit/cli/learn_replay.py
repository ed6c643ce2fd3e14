"""``remit learn replay``: repeats held-out exchanges under a change, within a hard budget."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.learn_files import note_unused, read_references, read_table, require_exchanges
from remit.cli.shared import FILE, NumberRange, emit, note, reads, whoami

if TYPE_CHECKING:
    from remit.learning import ReplayResult
    from remit.learning.meta import Attribution

__all__ = ["replay"]

_CAUSES = {
    "question": "The question was the cause: changing it improves answers more than another "
    "model does.",
    "model": "The model was the cause: another model improves answers more than the changed "
    "question does.",
    "both": "Both changes improve answers; neither is significantly better than the other.",
    "neither": "Neither change improves answers: each gains significantly less than 0.1.",
    "undecided": "There are too few exchanges to decide. Record more, or raise --usd.",
}


@click.command()
@click.option(
    "--contract", "contract_id", required=True, help="Contract whose exchanges are replayed."
)
@click.option(
    "--change", type=FILE, help="A change of the contract's prompt or boundary, as JSON or TOML."
)
@click.option("--proposal", help="Replay the change of this proposal: an id, or `last`.")
@click.option(
    "--model", help="The model that answers (default: the contract's, else the recorded one)."
)
@click.option("--usd", type=NumberRange(min=0), required=True, help="Spending limit in US dollars.")
@click.option(
    "--schema", type=FILE, help="Grade answers by this JSON Schema (default: the contract's)."
)
@click.option(
    "--references",
    type=FILE,
    help="Grade answers by references: a JSON object keyed by exchange id.",
)
@click.option(
    "--attribute", "both", is_flag=True,
    help="Test the change alone and the model alone, to find out which one matters.",
)  # fmt: skip
@click.option("--queue", help="Submit the replay as an order to this queue, for a worker.")
@reads
def replay(
    root: Path | None,
    as_json: bool,
    contract_id: str,
    change: Path | None,
    proposal: str | None,
    model: str | None,
    usd: float,
    schema: Path | None,
    references: Path | None,
    both: bool,
    queue: str | None,
) -> None:
    """Ask held-out exchanges again under a change, and grade both answers by the same rule.

    If the budget runs out or the process is killed, run the command again to continue; no call is
    paid for twice.
    """
    from remit.agents.queue import Submission
    from remit.runtime import Runtime
    from remit.runtime.replays import REPLAY, Replays, ReplayWanted, replay_report

    changed = sum(one is not None for one in (change, proposal))
    if changed > 1 or not (changed or model):
        raise click.UsageError(
            "Give --change, --proposal or --model; --model can be combined "
            "with either of the others."
        )
    if both and not (changed and model):
        raise click.UsageError("--attribute requires --model and one of --change and --proposal.")
    right = read_references(references) if references else None
    given = read_table(schema) if schema else None
    with Runtime.open(root, model=model, by=whoami()) as runtime:
        require_exchanges(runtime.ledger, right or ())
        wanted = ReplayWanted(
            contract_id=contract_id, usd=usd, change=read_table(change) if change else None,
            proposal=proposal or "", schema=given, references=right, both=both,
            model=(runtime.provider_id, runtime.model_id) if model else None,
        )  # fmt: skip
        made = Replays(runtime, wanted, whoami())
        note_unused(right or {}, made.exchanges)
        if queue is not None:
            order = Submission(agent_id=REPLAY, kind=REPLAY, task=wanted.task, queue=queue)
            order_id = runtime.orders.submit(order, by=whoami())
            emit(as_json, {"order_id": order_id}, [order_id])
            return
        sides, cause = made.run(lambda done, total: note(f"{done} of {total}"))
    report = replay_report(sides, cause)
    if cause is not None:
        _say_attribution(cause, sides, report, as_json)
    else:
        _say_effect({**report, "kept": str(made.file)}, as_json)
    if any(one.ended == "budget" for one in sides):
        note(
            "The budget was spent before all exchanges were asked. Run the command again with a "
            "larger --usd to continue."
        )


def _say_effect(report: dict[str, Any], as_json: bool) -> None:
    listed = {**report}
    effect, gate, _ = (listed.pop(name) for name in ("effect", "gate", "kept"))
    shown = (
        *(f"{name}  {item}" for name, item in listed.items()),
        f"effect  {effect['value']:+.4f} [{effect['low']:+.4f}, {effect['high']:+.4f}] "
        f"n={effect['samples']}",
        f"always valid  [{gate['low']:+.4f}, {gate['high']:+.4f}]",
    )
    emit(as_json, report, shown)


def _say_attribution(
    made: Attribution, sides: Sequence[ReplayResult], report: dict[str, Any], as_json: bool
) -> None:
    question, model = sides
    gains = (
        ("question changed", made.question),
        ("model changed", made.model),
        ("difference", made.advantage),
    )
    shown = (
        f"{_CAUSES[made.cause]} ({made.cause})",
        f"asked again under both  {len(made.exchanges)} of {question.wanted}",
        f"spent  ${(question.spent_nano + model.spent_nano) / 1e9:.6f}",
        *(f"{what}  {one.value:+.4f} [{one.low:+.4f}, {one.high:+.4f}]" for what, one in gains),
    )
    emit(as_json, report, shown)
