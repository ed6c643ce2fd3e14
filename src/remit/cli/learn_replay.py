"""``remit learn replay``: held-out exchanges asked again under a change, within a hard budget."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remit.cli.learn_files import note_unused, read_references, read_table, require_exchanges
from remit.cli.shared import FILE, NumberRange, emit, note, reads, whoami
from remit.kernel.canonical import canonical_json, sha256_hex
from remit.kernel.errors import InvalidInputError
from remit.kernel.installed import InstalledFiles

if TYPE_CHECKING:
    from remit.learning.meta import Attribution
    from remit.learning.replay import ReplayResult
    from remit.runtime import Runtime

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
) -> None:
    """Ask held-out exchanges again under a change, and grade both answers alike.

    The same command goes on after its budget ended or it was killed; no call is paid twice.
    """
    from remit.learning.calls import open_account
    from remit.learning.changed_requests import ChangedRequests
    from remit.learning.gradable import gradable_exchanges, grader, learnable_contract
    from remit.learning.meta import attribute, record_attribution, replay_both
    from remit.learning.replay import Replay
    from remit.runtime import Runtime

    changed = sum(one is not None for one in (change, proposal))
    if changed > 1 or not (changed or model):
        raise click.UsageError("Give --change or --proposal, --model, or one of these and a model.")
    if both and not (changed and model):
        raise click.UsageError("--attribute takes a change or a proposal, and a --model.")
    budget_nano = round(usd * 1_000_000_000)
    right = read_references(references) if references else None
    given = read_table(schema) if schema else None
    with Runtime.open(root, model=model, by=whoami()) as runtime:
        require_exchanges(runtime.ledger, right or ())
        installed = InstalledFiles(runtime.root.path)
        contract = learnable_contract(runtime.ledger, runtime.contracts, contract_id)
        files = _files(runtime, contract_id, change, proposal)
        wanted = contract.output_schema if given is None else given
        grade = grader(wanted, right)
        open_account(runtime.budgeter, whoami())
        other = (runtime.provider_id, runtime.model_id) if model else None

        def kept(files: dict[str, bytes], of_model: tuple[str, str] | None) -> Path:
            what = {"contract": contract_id, "version": contract.version, "model": of_model,
                    "grader": wanted if right is None else right,
                    "files": {path: sha256_hex(data) for path, data in files.items()}}  # fmt: skip
            return runtime.root.path / "replays" / f"{sha256_hex(canonical_json(what))[:16]}.jsonl"

        def replay_of(files: dict[str, bytes], of_model: tuple[str, str] | None) -> Replay:
            ask = ChangedRequests(runtime.ledger, installed, contract, files, of_model)
            return Replay(
                runtime.gateway, runtime.ledger, ask, grade, prices=runtime.prices.version,
                kept=kept(files, of_model),
            )  # fmt: skip

        def progress(done: int, total: int) -> None:
            note(f"{done} of {total}")

        exchanges = [
            one
            for one in gradable_exchanges(runtime.ledger, contract_id)
            if right is None or one in right
        ]
        note_unused(right or {}, exchanges)
        found: list[ReplayResult] = []
        if both:
            sides = replay_of(files, None), replay_of({}, other)
            found += replay_both(*sides, exchanges, budget_nano=budget_nano, progress=progress)
            cause = attribute(*found)
            record_attribution(runtime.ledger, cause, contract_id, contract.version)
        else:
            made = replay_of(files, other)
            found.append(made.run(exchanges, budget_nano=budget_nano, progress=progress))
    if both:
        _say_attribution(cause, found, as_json)
    else:
        _say_effect(found[0], kept(files, other), as_json)
    if any(one.ended == "budget" for one in found):
        note("The budget ended before all were asked: the same command with a larger one goes on.")


def _say_effect(found: ReplayResult, kept: Path, as_json: bool) -> None:
    from remit.learning.statistics import paired_effect

    known, gate = paired_effect(found.differences)
    effect = {"effect": known.to_dict(), "gate": gate.to_dict()}
    shown = (
        *(f"{name}  {item}" for name, item in found.summary().items()),
        f"effect  {known.value:+.4f} [{known.low:+.4f}, {known.high:+.4f}] n={known.samples}",
        f"always valid  [{gate.low:+.4f}, {gate.high:+.4f}]",
    )
    emit(as_json, {**found.summary(), **effect, "kept": str(kept)}, shown)


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


def _files(
    runtime: Runtime, contract_id: str, change: Path | None, proposal: str | None
) -> dict[str, bytes]:
    """The files that a change makes."""
    from remit.learning.proposals import Change, Proposals
    from remit.packages import read_archive

    if proposal is not None:
        known = Proposals(runtime.root, runtime.ledger)
        found = known.get(proposal)
        if found.target != contract_id:
            raise InvalidInputError(f"{found.proposal_id} is a change of {found.target}.")
        if found.rolls_back:
            raise InvalidInputError(
                f"{found.proposal_id} is a rollback: what it goes back to is on record already.",
                next_step=f"`remit learn show {found.proposal_id[:12]}` has what came before and "
                "after.",
            )
        with known.archive(found.proposal_id).open("rb") as stream:
            archive = read_archive(stream, runtime.loaded.settings.packages)
        return {path: data for path, data in archive.files.items() if path.startswith("HO1/")}
    if change is None:
        return {}
    value = read_table(change)
    try:
        made = Change(**{"contract_id": contract_id, **value})
    except TypeError as error:
        raise InvalidInputError(f"{change} is no change: {error}.") from error
    made.check()
    if made.contract_id != contract_id:
        raise InvalidInputError(f"{change} is a change of {made.target.name}.")
    return made.made(InstalledFiles(runtime.root.path), runtime.contracts, 1)
