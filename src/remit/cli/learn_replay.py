"""``remit learn replay``: held-out exchanges asked again under a change, within a hard budget."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.shared import FILE, emit, note, reads, whoami
from remit.kernel.canonical import canonical_json, sha256_hex
from remit.kernel.errors import InvalidInputError
from remit.kernel.installed import InstalledFiles

if TYPE_CHECKING:
    from remit.runtime import Runtime

__all__ = ["read_table", "replay"]


@click.command()
@click.option("--contract", "contract_id", required=True, help="Of which exchanges.")
@click.option("--change", type=FILE, help="A change of its prompt or boundary, as JSON or TOML.")
@click.option("--proposal", help="Or that of a proposal: its id, or `last`.")
@click.option("--model", help="The model that answers (default: the contract's, or as recorded).")
@click.option("--usd", type=click.FloatRange(min=0), required=True, help="The most that it costs.")
@click.option("--schema", type=FILE, help="Grade by this JSON Schema (default: the contract's).")
@click.option("--references", type=FILE, help="Grade by right answers: JSON, by exchange id.")
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
) -> None:
    """Ask held-out exchanges again under a change, and grade both answers alike.

    The same command goes on after its budget ended or it was killed; no call is paid twice.
    """
    from remit.learning.calls import open_account
    from remit.learning.changed_requests import ChangedRequests
    from remit.learning.gradable import gradable_exchanges, grader
    from remit.learning.replay import Replay
    from remit.learning.statistics import paired_effect
    from remit.runtime import Runtime

    if sum(one is not None for one in (change, proposal)) > 1 or not (change or proposal or model):
        raise click.UsageError("Give --change or --proposal, --model, or one of these and a model.")
    with Runtime.open(root, model=model, by=whoami()) as runtime:
        open_account(runtime.budgeter, whoami())
        installed = InstalledFiles(runtime.root.path)
        files = _files(runtime, contract_id, change, proposal)
        contract = runtime.contracts.load(contract_id)
        of_model = (runtime.provider_id, runtime.model_id) if model else None
        what = {"contract": contract_id, "version": contract.version, "model": of_model,
                "files": {path: sha256_hex(data) for path, data in files.items()}}  # fmt: skip
        kept = runtime.root.path / "replays" / f"{sha256_hex(canonical_json(what))[:16]}.jsonl"
        made = Replay(
            runtime.gateway,
            runtime.ledger,
            ChangedRequests(runtime.ledger, installed, contract, files, of_model),
            grader(
                read_table(schema) if schema else contract.output_schema,
                read_table(references) if references else None,
            ),
            prices=runtime.prices.version,
            kept=kept,
        )
        found = made.run(
            gradable_exchanges(runtime.ledger, contract_id),
            budget_nano=round(usd * 1_000_000_000),
            progress=lambda done, total: note(f"{done} of {total}"),
        )
    known, gate = paired_effect(found.differences)
    effect = {"effect": known.to_dict(), "gate": gate.to_dict()}
    shown = (
        *(f"{name}  {item}" for name, item in found.summary().items()),
        f"effect  {known.value:+.4f} [{known.low:+.4f}, {known.high:+.4f}] n={known.samples}",
        f"always valid  [{gate.low:+.4f}, {gate.high:+.4f}]",
    )
    emit(as_json, {**found.summary(), **effect, "kept": str(kept)}, shown)
    if found.ended == "budget":
        note("The budget ended before all were asked: the same command with a larger one goes on.")


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


def read_table(file: Path) -> dict[str, Any]:
    """A table in a JSON or TOML file."""
    text = file.read_text(encoding="utf-8")
    try:
        value = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except ValueError as error:
        raise InvalidInputError(f"{file} cannot be read: {error}.") from error
    if not isinstance(value, dict):
        raise InvalidInputError(f"{file} is no object.")
    return value
