"""``remit learn prompt``: additions to a contract's prompt, searched for within a hard budget."""

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

if TYPE_CHECKING:
    from remit.learning.prompts import Found, Measured

__all__ = ["prompt"]

_SEARCH = 3  # a third of the budget is for the search, the rest for the held-out part
_NANO = 1_000_000_000


@click.command()
@click.argument("contract_id", metavar="CONTRACT")
@click.option("--usd", type=NumberRange(min=0), required=True, help="The most that it costs.")
@click.option(
    "--calls", type=click.IntRange(min=1), default=300, show_default=True,
    help="The most calls of the search.",
)  # fmt: skip
@click.option(
    "--examples", type=click.IntRange(min=4), default=40, show_default=True,
    help="How many recorded exchanges the search looks at, the latest; half of them validate.",
)  # fmt: skip
@click.option("--reflect", help="A model that proposes additions (default: what is demanded).")
@click.option("--schema", type=FILE, help="Grade by this JSON Schema (default: the contract's).")
@click.option("--references", type=FILE, help="Grade by right answers: JSON, by exchange id.")
@click.option("--propose", is_flag=True, help="Make a proposal, where the gain is sure.")
@click.option("--reason", default="", help="What the proposal is for.")
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
    """Search for additions to a prompt that make answers better, and measure the best of them.

    The search looks at exchanges that are not held out; the best candidate is then asked on the
    held-out ones, once, and that alone decides. The same command goes on after its budget ended or
    it was killed, and answers that are on record are not paid again.
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
        raise click.UsageError("Name the model that reflects as provider/model.")
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
                f"`remit learn prompt {contract_id}` is under way in another process.",
                next_step="Wait until it has ended, so that no answer is paid twice.",
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
        note(f"searching on {len(learned)} exchanges")
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
                missing.append("The budget ended before all held-out exchanges were asked.")
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
        replay, effect = measured
        value |= {
            "held_out": replay.summary(),
            "effect": effect.predicted.to_dict(),
            "gate": effect.gate.to_dict(),
        }
    emit(as_json, {**value, "proposal_id": made}, _lines(found, measured, missing))
    if made and not as_json:
        note(f"Proposed: `remit learn show {made[:12]}`, then `remit learn adopt`.")
    if propose and not made:
        raise SystemExit(1)


def _name(schema: Any, references: Any) -> str:
    """Of what is kept between runs: grades of one contract by one grader."""
    return sha256_hex(canonical_json(schema if references is None else references))[:16]


def _why_none(found: Found, reflect: str | None) -> str:
    if found.ended == "budget":
        return "The budget of the search ended first: give more --usd, or more --calls."
    if not found.candidates and not reflect:
        return "There was no candidate: name a model that proposes additions, --reflect."
    return "No candidate did better than the prompt as it is."


def _lines(found: Found, measured: Measured | None, missing: Sequence[str]) -> Iterator[str]:
    yield f"candidates  {found.candidates}, {found.refused} additions refused, {found.ended}"
    if measured is not None:
        yield f"validation  {found.before:.3f} before, {found.after:.3f} after"
        yield from (f"addition    {one}" for one in found.additions)
        done, (known, gate) = measured
        yield f"held out    {len(done.pairs)} of {done.wanted} asked again, {done.failed} failed"
        yield f"effect      {known.value:+.4f} [{known.low:+.4f}, {known.high:+.4f}]"
        yield f"            always valid [{gate.low:+.4f}, {gate.high:+.4f}]"
    yield from (f"missing: {line}" for line in missing)
