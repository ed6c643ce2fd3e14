"""``remit learn prompt``: searches for additions to a contract's prompt, within a hard budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remit.cli.learn_files import note_unused, read_references, read_table, require_exchanges
from remit.cli.shared import FILE, NumberRange, emit, note, reads, whoami
from remit.kernel.canonical import canonical_json, sha256_hex
from remit.kernel.errors import InvalidInputError
from remit.kernel.installation import InstalledFiles
from remit.kernel.words import count

if TYPE_CHECKING:
    from remit.learning.prompts import Found, Measured

__all__ = ["prompt"]

_SEARCH = 3  # a third of the budget is for the search, the rest for the held-out part
_NANO = 1_000_000_000


@click.command()
@click.argument("contract_id", metavar="CONTRACT")
@click.option("--usd", type=NumberRange(min=0), required=True, help="Spending limit in US dollars.")
@click.option(
    "--calls", type=click.IntRange(min=1), default=300, show_default=True,
    help="Limit of model calls of the search.",
)  # fmt: skip
@click.option(
    "--examples", type=click.IntRange(min=4), default=40, show_default=True,
    help="Number of latest exchanges that the search uses; half of them are for validation.",
)  # fmt: skip
@click.option(
    "--reflect", help="Model that proposes additions (default: derive them from the contract)."
)
@click.option(
    "--schema", type=FILE, help="Grade answers by this JSON Schema (default: the contract's)."
)
@click.option(
    "--references",
    type=FILE,
    help="Grade answers by references: a JSON object keyed by exchange id.",
)
@click.option(
    "--propose", is_flag=True, help="Create a proposal if the improvement is significant."
)
@click.option("--reason", default="", help="Reason of the proposal.")
@reads
def prompt(
    root: Path | None,
    as_json: bool,
    contract_id: str,
    usd: float,
    calls: int,
    examples: int,
    reflect: str | None,
    schema: Path | None,
    references: Path | None,
    propose: bool,
    reason: str,
) -> None:
    """Search for additions to a prompt that improve answers, and measure the best one.

    The search uses exchanges that are not held out. The best candidate is then tested once on the
    held-out exchanges, and only this test decides. If the budget runs out or the process is killed,
    run the command again to continue; recorded answers are not paid for twice.
    """
    from remit.gateway.auth import Identity
    from remit.learning import (
        gradable_exchanges,
        grader,
        held_out_sides,
        learnable_contract,
        open_account,
    )
    from remit.learning.prompts import PromptLoop, Purse
    from remit.learning.proposals import Learner, ProposalError
    from remit.packages import PackageError, file_lock
    from remit.runtime import Runtime

    if propose and not reason.strip():
        raise InvalidInputError("A proposal needs a reason.", next_step="Give --reason.")
    model = (reflect or "").partition("/")
    if reflect and not (model[0] and model[2]):
        raise click.UsageError("Give --reflect as provider/model.")
    budget = round(usd * _NANO)
    right = read_references(references) if references else None
    given = read_table(schema) if schema else None
    missing: list[str] = []
    made = ""
    with Runtime.open(root, by=whoami()) as runtime, ExitStack() as held:
        require_exchanges(runtime.ledger, right or ())
        contract = learnable_contract(runtime.ledger, runtime.contracts, contract_id)
        wanted = contract.output_schema if given is None else given
        grade = grader(wanted, right)
        open_account(runtime.budgeter, whoami())
        place = runtime.root.path / "replays" / "prompt" / contract_id
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            held.enter_context(file_lock(place / ".lock", 0))
        except PackageError as error:
            raise InvalidInputError(
                f"`remit learn prompt {contract_id}` is running in another process.",
                next_step="Wait until that process has ended, so that no answer is paid for twice.",
            ) from error
        loop = PromptLoop(
            runtime.gateway, runtime.ledger, runtime.contracts, InstalledFiles(runtime.root.path),
            contract_id, grade, prices=runtime.prices.version,
            kept=place / _name(wanted, right),
        )  # fmt: skip
        known = [
            one
            for one in gradable_exchanges(runtime.ledger, contract_id, contract)
            if right is None or one in right
        ]
        unused = note_unused(right or {}, known)
        parted = held_out_sides(runtime.ledger, known)
        learned = [one for one, held_out in parted.items() if not held_out][-examples:]
        note(f"searching on {count(len(learned), 'exchange')}")
        found = loop.search(
            learned, Purse(budget // _SEARCH, calls), schema=wanted if right is None else None,
            reflect=(model[0], model[2]) if reflect else None,
        )  # fmt: skip
        measured: Measured | None = None
        if not found.additions:
            missing.append(_why_none(found, reflect))
        else:
            measured = loop.measure(
                found.additions, known, budget_nano=budget - found.spent_nano,
                progress=lambda done, total: note(f"held out: {done} of {total}"),
            )  # fmt: skip
            if measured[0].ended == "budget":
                missing.append("The budget was spent before all held-out exchanges were tested.")
            elif propose:
                learner = Learner(
                    runtime.root, runtime.ledger, runtime.loaded, Identity(whoami(), "operator")
                )
                try:
                    made = loop.propose(learner, found, measured, learned, reason).proposal_id
                except ProposalError as error:
                    if error.code != "not_enough":
                        raise
                    missing += error.missing
    value = {"contract_id": contract_id, "search": asdict(found), "missing": missing,
             "unused_references": unused}  # fmt: skip
    if measured is not None:
        replay, predicted, gate = measured
        value |= {
            "held_out": replay.summary(),
            "effect": predicted.to_dict(),
            "gate": gate.to_dict(),
        }
    emit(as_json, {**value, "proposal_id": made}, _lines(found, measured, missing))
    if made and not as_json:
        note(f"Proposed: `remit learn show {made[:12]}`, then `remit learn adopt`.")
    if propose and not made:
        raise SystemExit(1)


def _name(schema: Any, references: Any) -> str:
    """Return the folder name for kept grades: a hash of the references, or else the schema."""
    return sha256_hex(canonical_json(schema if references is None else references))[:16]


def _why_none(found: Found, reflect: str | None) -> str:
    if found.ended == "budget":
        return "The search used up its budget. Raise --usd or --calls."
    if not found.candidates and not reflect:
        return "No candidate was found. Give a model that proposes additions with --reflect."
    return "No candidate was better than the current prompt."


def _lines(found: Found, measured: Measured | None, missing: Sequence[str]) -> Iterator[str]:
    yield f"candidates  {found.candidates}, {found.refused} additions refused, {found.ended}"
    if measured is not None:
        yield f"validation  {found.before:.3f} before, {found.after:.3f} after"
        yield from (f"addition    {one}" for one in found.additions)
        done, known, gate = measured
        yield f"held out    {len(done.pairs)} of {done.wanted} tested, {done.failed} failed"
        yield f"effect      {known.value:+.4f} [{known.low:+.4f}, {known.high:+.4f}]"
        yield f"            always valid [{gate.low:+.4f}, {gate.high:+.4f}]"
    yield from (f"missing: {line}" for line in missing)
