"""Operations of learning that call models: judges, searches for prompts, and replays."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.kernel.errors import InvalidInputError
from remit.kernel.message_text import count
from remit.operations import (
    PROPOSED,
    Answer,
    Caller,
    RootPort,
    by,
    field,
    proposal_reason,
    verb,
)
from remit.operations.files import note_unused, read_references, read_table, require_exchanges
from remit.runtime.operations.fits import require_reason

if TYPE_CHECKING:
    from remit.learning.prompts import Found, Measured, PromptLoop
    from remit.learning.proposals import ProposalError
    from remit.ledger import LedgerClient
    from remit.runtime.runtime import Runtime

_SEARCH, _NANO = 3, 1_000_000_000  # A third of the budget is for the search.


def _usd(default: Any = ...) -> Any:
    text, ends = "Spending limit in US dollars.", {"least": 0}
    return field(text, **ends) if default is ... else field(text, default, **ends)


def _schema(**traits: Any) -> Any:
    return field(
        "Grade answers by this JSON Schema (default: the contract's).", None, flag="--schema",
        metavar="FILE", read=read_table, **traits,
    )  # fmt: skip


_REFERENCES: Any = field(
    "Grade answers by references: a JSON object keyed by exchange id.", None, metavar="FILE",
    read=read_references,
)  # fmt: skip


@verb(
    "learn judge", changes=True, nothing="No judge has graded any answer yet.",
    writes=lambda root: False,  # The runtime opens the ledger.
)  # fmt: skip
def judge_answers(
    root: RootPort, caller: Caller, *,
    exchange_ids: list[str] = field("Ids of exchanges.", [], flag="", metavar="[ID]..."),
    contract_id: str | None = field("Grade the latest answers under this contract.", None,
                                    flag="--contract"),
    latest: int = field("Number of answers to grade.", 20, least=1),
    model: str | None = field("The model that judges (default: the configured one).", None),
    usd: float | None = _usd(None),
    calls: int | None = field("Limit of model calls.", None, least=1),
    width: float = field(
        "Wanted width of the confidence interval; the report says how many labels it needs.", 0.1,
        least=0, is_open=True,
    ),
) -> dict[str, Any]:  # fmt: skip
    """Have a model grade answers under PRC-JUDGE-001, within a budget. Without IDs or --contract,
    show how reliable each judge's grades are.

    ID is the id of an exchange. A grade is feedback with the source `judge`; it is used if no
    person or program graded the answer. Answers that this judge already graded are skipped.

    Returns:
        ``judges``, the fields of each :class:`~remit.learning.judges.JudgeReport`; after
        grading, only of the judge that graded, with its name ``judge`` and the fields of
        :class:`~remit.learning.judges.Judged`.

    Raises:
        InvalidInputError: ids and a contract are given, no budget is given, or the budget is in
            dollars and the judging model has no price.
        RemitError: an id names no exchange (earlier grades stay), or no model is reachable.
    """
    from remit.learning import open_account
    from remit.learning.judges import Judge, read_judges
    from remit.runtime.runtime import Runtime

    if not exchange_ids and contract_id is None:
        return {"judges": [one.to_dict() for one in read_judges(root.ledger, width=width)]}
    if exchange_ids and contract_id is not None:
        raise InvalidInputError("Give IDs, or --contract.")
    with Runtime.open(root.path, model=model, by=caller.name) as runtime:
        runtime.require_model()
        open_account(runtime.budgeter, caller.name)
        made = Judge(
            runtime.gateway, runtime.ledger, runtime.contracts, runtime.provider_id,
            runtime.model_id,
        )  # fmt: skip
        chosen = tuple(exchange_ids) or _latest(runtime.ledger, contract_id or "", latest)
        done = made.run(
            chosen, usd=usd, calls=calls,
            progress=lambda number: root.note(f"{number} of {len(chosen)}"),
        )  # fmt: skip
        found = read_judges(runtime.ledger, width=width)
    if done.ended == "budget":
        root.note("The budget was spent before all answers were graded. Run the command again "
                  "to continue.")  # fmt: skip
    own = [one.to_dict() for one in found if one.judge == made.name]
    return {"judge": made.name, **asdict(done), "judges": own}


def _latest(ledger: LedgerClient, contract_id: str, number: int) -> tuple[str, ...]:
    """Return the ids of a contract's latest ``number`` answered exchanges, newest first.

    Learning's own calls are skipped.
    """
    from itertools import islice

    from remit.learning import is_evidence

    entries = ledger.query(
        event_type="EXCHANGE", contract_id=contract_id, order="desc", with_content=False
    )
    good = (
        one.id
        for one in entries
        if one.metadata.get("outcome") == "success" and is_evidence(one.metadata)
    )
    return tuple(islice(good, number))


@verb("learn prompt", changes=True)
def search_prompt(
    root: RootPort, caller: Caller, *,
    contract_id: str = field("Id of the contract.", flag="", metavar="CONTRACT"),
    usd: float = _usd(),
    calls: int = field("Limit of model calls of the search.", 300, least=1),
    examples: int = field(
        "Number of latest exchanges that the search uses; half of them are for validation.", 40,
        least=4,
    ),
    reflect: str | None = field(
        "Model that proposes additions (default: derive them from the contract).", None
    ),
    json_schema: dict[str, Any] | None = _schema(),
    references: dict[str, str] | None = _REFERENCES,
    propose: bool = field("Create a proposal if the improvement is significant.", False),
    reason: str = field("Reason of the proposal.", ""),
) -> Answer:  # fmt: skip
    """Search for additions to a prompt that improve answers, and measure the best one.

    The search uses exchanges that are not held out, and a third of the spending limit. The best
    candidate is then tested once on the held-out exchanges, and only this test decides. If the
    budget runs out or the process is killed, run the command again to continue; recorded answers
    are not paid for twice. With --propose the command exits with 1 if no proposal is created.

    Returns:
        ``contract_id``; ``search``, the fields of :class:`~remit.learning.prompts.Found`;
        ``missing``, sentences that say why there is no proposal (without --propose, too weak an
        effect is not among them); ``unused_references``; and ``proposal_id``, empty without a
        proposal. If the search found additions, also
        ``held_out``, ``effect`` and ``gate``.

    Raises:
        InvalidInputError: a proposal has no reason, --reflect is not provider/model or has no
            provider or price, a reference names no exchange, fewer than four exchanges can be used,
            or the search runs in another process.
        ConflictError: the prices or the answering model changed since an earlier run.
        ProposalError: with ``propose``, fewer than 200 exchanges are held out, so that nothing is
            asked; or the content of an exchange was erased during the search.
        RemitError: the contract is unknown, or the extra ``learn`` is not installed.
    """
    from remit.kernel.installed_files import InstalledFiles
    from remit.learning import (
        gradable_exchanges,
        grader,
        held_out_sides,
        learnable_contract,
        open_account,
        read_samples,
        recorded_grader,
    )
    from remit.learning.meta import read_questions
    from remit.learning.prompts import PromptLoop, Purse
    from remit.runtime.runtime import Runtime

    require_reason(propose, reason)
    provider, _, model = (reflect or "").partition("/")
    if reflect and not (provider and model):
        raise InvalidInputError("Give --reflect as provider/model.")
    with Runtime.open(root.path, by=caller.name) as runtime, ExitStack() as held:
        ledger = runtime.ledger
        require_exchanges(ledger, references or ())
        contract = learnable_contract(ledger, runtime.contracts, contract_id)
        wanted = contract.output_schema if json_schema is None else json_schema
        open_account(runtime.budgeter, caller.name)
        loop = PromptLoop(
            runtime.gateway, ledger, runtime.contracts, InstalledFiles(runtime.root.path),
            contract_id, grader(wanted, references), prices=runtime.prices.version,
            kept=_locked(runtime.root.path, contract_id, held) / _name(wanted, references),
        )  # fmt: skip
        known = [one for one in gradable_exchanges(ledger, contract_id, contract)
                 if references is None or one in references]  # fmt: skip
        unused = note_unused(root, references or {}, known)
        lacking = _lacking(ledger, contract_id, known)
        if lacking and propose:
            raise lacking
        if lacking:
            root.note(f"{lacking.message} This search can only measure.")
        parted = held_out_sides(ledger, known)
        learned = [one for one, held_out in parted.items() if not held_out][-examples:]
        root.note(f"searching on {count(len(learned), 'exchange')}")
        budget = round(usd * _NANO)
        samples = read_samples(ledger, contract_id=contract_id)
        found = loop.search(
            learned, Purse(budget // _SEARCH, calls),
            schema=wanted if references is None else None,
            reflect=(provider, model) if reflect else None,
            findings=[one for question in read_questions(ledger, runtime.contracts, samples)
                      if question.contract_version in ("", contract.version)
                      for one, _ in question.missing],
        )  # fmt: skip
        measured: Measured | None = None
        missing, made = [], ""
        if not found.additions:
            missing.append(_why_none(found, has_model=bool(reflect)))
        else:
            measured = loop.measure(
                found.additions, known, budget_nano=budget - found.spent_nano,
                progress=lambda done, total: root.note(f"held out: {done} of {total}"),
            )  # fmt: skip
            if measured[0].ended == "budget":
                missing.append("The budget was spent before all held-out exchanges were tested.")
            elif propose:
                recorded = recorded_grader(ledger, wanted, references)
                made, refused = _proposed(
                    loop, runtime, caller, found, measured, learned, reason, recorded
                )
                missing += refused
    value = {"contract_id": contract_id, "search": asdict(found), "missing": missing,
             "unused_references": unused}  # fmt: skip
    if measured is not None:
        replay, predicted, gate = measured
        value |= {"held_out": replay.summary(), "effect": asdict(predicted),
                  "gate": asdict(gate)}  # fmt: skip
    return Answer({**value, "proposal_id": made}, has_failed=propose and not made)


def _locked(root: Path, contract_id: str, held: ExitStack) -> Path:
    """Return the directory of a search, after locking it against other processes.

    Raises:
        InvalidInputError: another process uses the directory.
    """
    from remit.packages import PackageError, file_lock

    place = root / "replays" / "prompt" / contract_id
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        held.enter_context(file_lock(place / ".lock", 0))
    except PackageError as error:
        raise InvalidInputError(
            f"`remit learn prompt {contract_id}` is running in another process.",
            next_step="Wait until that process has ended, so that no answer is paid for twice.",
        ) from error
    return place


def _proposed(
    loop: PromptLoop, runtime: Runtime, caller: Caller, found: Found, measured: Measured,
    learned: Sequence[str], reason: str, grader: dict[str, Any],
) -> tuple[str, list[str]]:  # fmt: skip
    """Return the id of a new proposal and the missing data; one of them is empty."""
    from remit.gateway.auth import Identity
    from remit.learning.proposals import Learner, ProposalError

    identity = Identity(caller.name, "operator")
    learner = Learner(runtime.root, runtime.ledger, runtime.loaded, identity)
    try:
        made = loop.propose(learner, found, measured, learned, reason, grader)
        return made.proposal_id, []
    except ProposalError as error:
        if error.code != "not_enough":
            raise
        return "", list(error.missing)


def _why_none(found: Found, *, has_model: bool) -> str:
    if found.ended == "budget":
        return "The search used up its budget. Raise --usd or --calls."
    if not found.candidates and not has_model:
        return "No candidate was found. Give a model that proposes additions with --reflect."
    return "No candidate was better than the current prompt."


def _name(schema: Any, references: Any) -> str:
    """Return the folder name for kept grades: a hash of the references, or else the schema."""
    from remit.kernel.canonical import canonical_json, sha256_hex

    return sha256_hex(canonical_json(schema if references is None else references))[:16]


@verb("learn replay", changes=True)
def replay_change(
    root: RootPort, caller: Caller, *,
    contract_id: str = field("Contract whose exchanges are replayed.", flag="--contract"),
    change: dict[str, Any] | None = field(
        "A change of the contract's prompt or boundary, as JSON or TOML.", None, metavar="FILE",
        read=read_table,
    ),
    proposal: str | None = field("Replay the change of this proposal: an id, or `last`.", None),
    model: str | None = field(
        "The model that answers (default: the contract's, else the recorded one).", None
    ),
    usd: float = _usd(),
    json_schema: dict[str, Any] | None = _schema(),
    references: dict[str, str] | None = _REFERENCES,
    both: bool = field(
        "Test the change alone and the model alone, to find out which one matters.", False,
        flag="--attribute",
    ),
    queue: str | None = field("Submit the replay as an order to this queue, for a worker.", None),
) -> dict[str, Any]:  # fmt: skip
    """Ask held-out exchanges again under a change, and grade both answers by the same rule.

    If the process is killed, run the command again to continue; no call is paid for twice. --usd
    limits all runs of a replay together: after a spent budget, continue with a larger --usd.

    Returns:
        The report of :func:`~remit.runtime.replays.replay_report`; without --attribute also
        ``kept``, the path of the file that a repetition continues. With --queue only
        ``order_id``; nothing is asked then.

    Raises:
        InvalidInputError: the change or the model is missing, or they contradict each other; a
            reference names no exchange, the answers cannot be graded, or the model has no price.
        ConflictError: the prices or the answering model changed since the first run.
        RemitError: the contract or the proposal is unknown, or no model is reachable.
    """
    from remit.agents.queue import Submission
    from remit.runtime.replays import REPLAY, Replays, ReplayWanted, replay_report
    from remit.runtime.runtime import Runtime

    with Runtime.open(root.path, model=model, by=caller.name) as runtime:
        require_exchanges(runtime.ledger, references or ())
        wanted = ReplayWanted(
            contract_id=contract_id, usd=usd, change=change, proposal=proposal or "",
            schema=json_schema, references=references, both=both,
            model=(runtime.provider_id, runtime.model_id) if model else None,
        )  # fmt: skip
        made = Replays(runtime, wanted, caller.name)
        note_unused(root, references or {}, made.exchanges)
        if queue is not None:
            order = Submission(agent_id=REPLAY, kind=REPLAY, task=wanted.task, queue=queue)
            order_id = runtime.orders.submit(order, by=caller.name)
            return {"order_id": order_id}
        sides, cause = made.run(lambda done, total: root.note(f"{done} of {total}"))
    if any(one.ended == "budget" for one in sides):
        root.note("The budget was spent before all exchanges were asked. Run the command again "
                  "with a larger --usd to continue.")  # fmt: skip
    report = replay_report(sides, cause)
    return report if cause is not None else {**report, "kept": str(made.file)}


@verb(
    "learn boundary", "POST /learn/proposals/boundary", tag="learning", needs="propose",
    summary="Propose a contract's boundary", form="BoundaryProposal", result="ProposalShape",
    endpoint="boundary", fails=(409,), then=PROPOSED,
)  # fmt: skip
def propose_boundary(
    root: RootPort, caller: Caller, *,
    contract_id: str = field("Id of the contract.", flag="", metavar="CONTRACT", most=128),
    max_tokens: int | None = field("Token limit of an answer.", None, least=1),
    temperature: float | None = field("Temperature of the model.", None, least=0, most=2),
    model: str | None = field("The model that answers, as provider/model.", None, most=256),
    usd: float = _usd(),
    json_schema: dict[str, Any] | None = _schema(door="command"),
    reason: str = proposal_reason(),
    by: str | None = by(),
) -> dict[str, Any]:  # fmt: skip
    """Propose a contract's limits or model, if a replay of held-out exchanges shows that it helps.

    The replay asks models, within the spending limit; a repetition continues it, and no call is
    paid for twice. The proposal is recorded, not adopted.

    Returns:
        The fields of the :class:`~remit.learning.proposals.Proposal`, by name.

    Raises:
        InvalidInputError: no change is given, the model is not provider/model, the answers cannot
            be graded, the budget ended, or no exchange was answered.
        ProposalError: fewer than 200 exchanges are held out, so that nothing is asked; or the
            replay does not show that the change helps.
        ConflictError: prices or the answering model changed since an earlier run.
        RemitError: the contract is unknown, or no model is reachable.
    """
    from remit.learning import paired_effect
    from remit.learning.proposals import Change, Learner
    from remit.runtime.replays import Replays, ReplayWanted
    from remit.runtime.runtime import Runtime

    provider, _, name = (model or "").partition("/")
    given = {"max_tokens": max_tokens, "temperature": temperature,
             "provider_id": provider or None, "model_id": name or None}  # fmt: skip
    boundary = {key: value for key, value in given.items() if value is not None}
    if not boundary or bool(provider) != bool(name):
        raise InvalidInputError("Give a limit, or a model as provider/model.")
    with Runtime.open(root.place.path, by=caller.name) as runtime:
        change = {"kind": "boundary", "boundary": boundary}
        wanted = ReplayWanted(contract_id=contract_id, usd=usd, change=change, schema=json_schema)
        replays = Replays(runtime, wanted, caller.name)
        if lacking := _lacking(runtime.ledger, contract_id, replays.exchanges):
            raise lacking
        (done,), _ = replays.run(root.progress("replaying"))
        if done.ended == "budget" or not done.pairs:
            raise InvalidInputError(
                f"{len(done.pairs)} of {done.wanted} held-out exchanges were tested.",
                next_step="Give a larger budget; paid calls are not repeated.",
            )
        predicted, _ = paired_effect(done.differences)
        _, gate = paired_effect([*done.differences, *[-1.0] * done.failed])
        learner = Learner(runtime.root, runtime.ledger, runtime.loaded, caller.identity)
        return learner.propose(
            Change("boundary", contract_id=contract_id, boundary=boundary), reason=reason,
            evidence=[one for pair in done.pairs for one in (pair.exchange_id, pair.replayed_id)],
            predicted=predicted, gate=gate, replay=done.summary(),
        ).to_dict()  # fmt: skip


def _lacking(
    ledger: LedgerClient, contract_id: str, exchange_ids: Sequence[str]
) -> ProposalError | None:
    """Return the error if a replay of these exchanges gives too few pairs for a proposal."""
    from remit.learning import held_out_sides
    from remit.learning.proposals import MIN_EFFECTIVE_SAMPLES, ProposalError

    held_out = sum(held_out_sides(ledger, exchange_ids).values())
    lacking = MIN_EFFECTIVE_SAMPLES - held_out
    if lacking <= 0:
        return None
    return ProposalError(
        "not_enough",
        f"{contract_id} has {count(len(exchange_ids), 'exchange')} that can be graded, of "
        f"which {held_out} are held out; a proposal needs {MIN_EFFECTIVE_SAMPLES}.",
        next_step="Nothing was asked. Three in ten prompts are held out, so record about "
        f"{lacking * 10 // 3 + 1:,} more exchanges with other prompts.",
    )
