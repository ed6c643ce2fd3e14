"""``remit learn replay``: held-out exchanges asked again under a change, within a hard budget."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remit.cli.learn_files import note_unused, read_references, read_table, require_exchanges
from remit.cli.shared import FILE, NumberRange, emit, note, reads, whoami

if TYPE_CHECKING:
    from remit.learning import ReplayResult
    from remit.learning.meta import Attribution
    from remit.runtime.replays import ReplayDone

__all__ = ["replay"]

_CAUSES = {
    "question": "It was the question: changing it helps, and more than another model.",
    "model": "It was the model: another one helps, and more than the change of the question.",
    "both": "Either change helps, and neither surely more than the other.",
    "neither": "Neither helps: each gains less than 0.1, surely.",
    "undecided": "Too few exchanges to say: record more of them, or give more --usd.",
}


@click.command()
@click.option("--contract", "contract_id", required=True, help="Of which exchanges.")
@click.option("--change", type=FILE, help="A change of its prompt or boundary, as JSON or TOML.")
@click.option("--proposal", help="Or that of a proposal: its id, or `last`.")
@click.option("--model", help="The model that answers (default: the contract's, or as recorded).")
@click.option("--usd", type=NumberRange(min=0), required=True, help="The most that it costs.")
@click.option("--schema", type=FILE, help="Grade by this JSON Schema (default: the contract's).")
@click.option("--references", type=FILE, help="Grade by right answers: JSON, by exchange id.")
@click.option(
    "--attribute", "both", is_flag=True,
    help="Was it the question or the model: the change alone and the model alone, in turns.",
)  # fmt: skip
@click.option("--queue", help="Have a worker do it: submit it as an order to this queue.")
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
    """Ask held-out exchanges again under a change, and grade both answers alike.

    The same command goes on after its budget ended or it was killed; no call is paid twice.
    """
    from remit.agents.queue import Submission
    from remit.runtime import Runtime
    from remit.runtime.replays import REPLAY, Replays, ReplayWanted

    changed = sum(one is not None for one in (change, proposal))
    if changed > 1 or not (changed or model):
        raise click.UsageError("Give --change or --proposal, --model, or one of these and a model.")
    if both and not (changed and model):
        raise click.UsageError("--attribute takes a change or a proposal, and a --model.")
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
        found = made.run(lambda done, total: note(f"{done} of {total}"))
    if found.cause is not None:
        _say_attribution(found.cause, found.sides, as_json)
    else:
        _say_effect(found, made.file, as_json)
    if any(one.ended == "budget" for one in found.sides):
        note("The budget ended before all were asked: the same command with a larger one goes on.")


def _say_effect(found: ReplayDone, kept: Path, as_json: bool) -> None:
    made = found.to_dict()
    effect, gate = made.pop("effect"), made.pop("gate")
    shown = (
        *(f"{name}  {item}" for name, item in made.items()),
        f"effect  {effect['value']:+.4f} [{effect['low']:+.4f}, {effect['high']:+.4f}] "
        f"n={effect['samples']}",
        f"always valid  [{gate['low']:+.4f}, {gate['high']:+.4f}]",
    )
    emit(as_json, {**found.to_dict(), "kept": str(kept)}, shown)


def _say_attribution(made: Attribution, found: Sequence[ReplayResult], as_json: bool) -> None:
    question, model = found
    sides = {"question": question.summary(), "model": model.summary()}
    gains = (
        ("question changed", made.question),
        ("model changed", made.model),
        ("the first less the second", made.advantage),
    )
    shown = (
        f"{_CAUSES[made.cause]} ({made.cause})",
        f"asked again under both  {len(made.exchanges)} of {question.wanted}",
        f"spent  ${(question.spent_nano + model.spent_nano) / 1e9:.6f}",
        *(f"{what}  {one.value:+.4f} [{one.low:+.4f}, {one.high:+.4f}]" for what, one in gains),
    )
    emit(as_json, {**made.to_dict(), "replays": sides}, shown)
