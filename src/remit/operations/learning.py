"""Operations on what Remit learned: proposals, decisions on them, signals and the report."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from remit.kernel.errors import InvalidInputError, NotFoundError
from remit.kernel.message_text import count, cut, dollars, fixed
from remit.operations.operation import Document, Feed, feed_of, field, limit, verb
from remit.operations.orders import by
from remit.operations.ports import Caller, RootPort
from remit.operations.text import Note, Table, facts

if TYPE_CHECKING:
    from remit.learning.meta import Effect
    from remit.learning.proposals import Learner, Proposal, Proposals

_REASON_CHARS = 60
_LISTED = 50
_NAMED = 3  # missing requirements in the report of a contract
_STATE = "{proposal_id} {state} {decision}"
_DECIDED = (
    "`remit learn show {proposal_id}` shows the state. Restart programs that have this root open "
    "after a new policy epoch; servers reload it themselves."
)


def _latest(**traits: Any) -> Any:
    return field("Number of latest exchanges to read.", 2000, least=1, most=20_000, **traits)


_PROPOSAL_ID: Any = field(
    "Id of the proposal, a unique prefix of it, or `last`.", flag="", metavar="ID"
)


def _found(root: RootPort, proposal_id: str) -> tuple[Proposals, Proposal]:
    """Return the root's proposals, and the wanted one; raise NotFoundError without exactly one."""
    from remit.learning.proposals import ProposalError, Proposals

    known = Proposals(root.place, root.ledger)
    try:
        return known, known.get(proposal_id)
    except ProposalError as error:
        raise NotFoundError(error.message, next_step=error.next_step) from error


@verb(
    "learn proposals", "GET /learn/proposals", summary="List proposals", tag="learning",
    form="ProposalQuery", result="ProposalPage", member="proposals", nothing="No proposals.",
    columns=(
        ("id", lambda one: one["proposal_id"][:12]), "kind", "target", "version", "state",
        ("effect", lambda one: one["predicted"]),
        ("reason", lambda one: cut(one["reason"], _REASON_CHARS)),
    ),
)  # fmt: skip
def list_proposals(
    root: RootPort, caller: Caller, *,
    state: Literal["open", "adopted", "rejected", "rolled_back"] | None = field(
        "Only proposals in this state.", None
    ),
    limit: int | None = limit(),
) -> Feed:  # fmt: skip
    """List proposals, newest first.

    Returns:
        A list, page by page; of all states unless one is named.

    Raises:
        InvalidInputError: the cursor is unknown; raised when the list is read.
        LedgerError: the ledger cannot be read.
    """
    from remit.learning.proposals import Proposals

    found = Proposals(root.place, root.ledger).all()
    return feed_of(
        [one for one in found if state in (None, one.state)],
        lambda one: one.entry_id,
        lambda part: [one.to_dict() for one in part],
    )


def _estimate(found: dict[str, Any], digits: int = 4) -> str:
    value, low, high = (fixed(found[name], digits, "+") for name in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def _proposal_lines(found: dict[str, Any]) -> Iterator[str | Table]:
    """Yield the facts of the proposal, then its diff."""
    yield from facts(found, "diff")
    yield from ("", *found["diff"].splitlines())


@verb(
    "learn show", "GET /learn/proposals/{proposal_id}", summary="One proposal", tag="learning",
    result="ProposalDetail", endpoint="proposal", lines=_proposal_lines,
)  # fmt: skip
def show_proposal(
    root: RootPort, caller: Caller, *, proposal_id: str = _PROPOSAL_ID
) -> dict[str, Any]:
    """Show a proposal: the change, its reason, the predicted effect, the evidence and the canary.

    ID is a proposal's id, a unique prefix of it, or `last`.

    Returns:
        The proposal, with ``stale`` (why an open one can no longer be adopted, else empty),
        ``evidence_by_key`` and ``canary`` (None without one).

    Raises:
        NotFoundError: no such proposal exists, or several begin with the prefix.
        LedgerError: the ledger cannot be read.
    """
    from remit.learning.proposals import canary_of

    known, one = _found(root, proposal_id)
    stale = known.stale(one) if one.state == "open" else ""
    return {
        **one.to_dict(), "stale": stale, "evidence_by_key": known.evidence_by_key(one),
        "canary": canary_of(root.ledger, one),
    }  # fmt: skip


_REASON: Any = field("Reason (recorded permanently).", least=1, most=1000, pattern=r"\S")


@verb(
    "learn adopt", "POST /learn/proposals/{proposal_id}/adopt", summary="Adopt a proposal",
    tag="learning", needs="adopt", form="ProposalAdoption", result="ProposalShape", fails=(409,),
    prints=_STATE, then=_DECIDED,
)  # fmt: skip
def adopt_proposal(
    root: RootPort, caller: Caller, *,
    share: float = field("Share of the calls that take the proposed route, below 1.", 0.0, least=0,
                         most=1),
    usd: float = field(
        "Most that the canary may cost in US dollars: calls for which both routes choose "
        "different models.", 0.0, least=0,
    ),
    shadow: bool = field(
        "Record the choices of the proposed route, and use the current one.", False
    ),
    key: str = field("Name or id of the only key whose calls count.", "", most=128),
    task: str = field("The only task whose calls count, such as `code`.", "", most=64),
    reason: str = _REASON,
    by: str | None = by(),
    proposal_id: str = _PROPOSAL_ID,
) -> dict[str, Any]:  # fmt: skip
    """Adopt a proposal, or try its route on a share of the calls (canary).

    Running servers apply it within seconds.

    With --share, the proposed route answers a share of the calls until the comparison of the
    rewards decides: Remit then adopts the proposal, or stops the canary. With --shadow, the
    proposed route chooses, and the current route answers.

    Returns:
        The proposal in its new state; one with a canary stays open.

    Raises:
        NotFoundError: no such proposal or key exists, or several proposals begin with the prefix.
        InvalidInputError: the options contradict each other; or a canary is requested for a
            proposal that is not of the kind ``head``, or with a wrong share, budget or task.
        ConflictError: the key is revoked or expired.
        ProposalError: the state of the proposal, or a gate, does not permit the decision.
        PackageError: a gate refuses the change, or the package cannot be installed now.
        LedgerError: the ledger cannot be read or written.
    """
    _, one = _found(root, proposal_id)
    governance = root.governance(caller)
    if not (share or shadow):
        if usd or key or task:
            raise InvalidInputError(
                "A budget, a key and a task belong to a canary.",
                next_step="Start one: `remit learn adopt ID --share S --usd N`.",
            )
        return governance.adopt(one.proposal_id, reason=reason).to_dict()
    if shadow and (share or usd):
        raise InvalidInputError("A shadow has neither a share nor a budget.",
                                next_step="Run `remit learn adopt ID --shadow`.")  # fmt: skip
    if key:
        key = root.keys.current(key).key_id
    return governance.start_canary(
        one.proposal_id, reason=reason, share=share, usd=usd, for_key=key, task=task
    ).to_dict()


def _declare_decision(name: str, method: str, summary: str, doc: str) -> None:
    @verb(
        f"learn {name}", f"POST /learn/proposals/{{proposal_id}}/{name}", summary=summary,
        tag="learning", needs="adopt", form="ProposalDecision", result="ProposalShape",
        fails=(409,), prints=_STATE, then=_DECIDED, doc=doc,
    )  # fmt: skip
    def decide(
        root: RootPort, caller: Caller, *, reason: str = _REASON, by: str | None = by(),
        proposal_id: str = _PROPOSAL_ID,
    ) -> dict[str, Any]:  # fmt: skip
        """The decision of a person on a proposal."""
        _, one = _found(root, proposal_id)
        decided: Proposal = getattr(root.governance(caller), method)(one.proposal_id, reason=reason)
        return decided.to_dict()


for _decision in (
    ("reject", "reject", "Reject a proposal", "Reject a proposal."),
    ("rollback", "rollback", "Roll back a proposal", "Roll back an adopted proposal."),
    ("stop", "stop_canary", "Stop a canary", "Stop the canary of a proposal, which stays open."),
):
    _declare_decision(*_decision)


@verb("learn settle", changes=True)
def settle_canary(root: RootPort, caller: Caller) -> dict[str, Any]:
    """End the canary in force if the comparison of both routes has decided.

    Running servers do this themselves.

    Returns:
        The comparison; ``verdict`` is ``adopt`` or ``stop``, and the canary has ended so; or empty
        if it is undecided, or no canary is in force.

    Raises:
        ProposalError: another process decided meanwhile.
        PackageError: the package cannot be installed now.
        LedgerError: the ledger cannot be read or written.
    """
    found = root.governance(caller).settle_canary()
    nothing = {"verdict": "", "reason": "No canary is in force."}
    return nothing if found is None else asdict(found)


def _share(found: dict[str, Any]) -> str:
    if not found["samples"]:
        return "no samples"
    return f"{found['value']:.0%} [{found['low']:.0%}, {found['high']:.0%}] of {found['samples']:,}"


def _effect_lines(one: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of an adopted change: prediction, measurement and next command."""
    state = "" if one["state"] == "adopted" else f", {one['state'].replace('_', ' ')}"
    digits, unit = (6, "USD saved a call") if one["metric"] == "cost" else (4, "reward")
    name = one["proposal_id"][:12]
    yield f"  {name}  {one['kind']} of {one['target']}, epoch {one['epoch']}{state}"
    predicted = _estimate(one["predicted"], digits) if one["predicted"] else "erased"
    yield f"    predicted  {predicted} {unit}"
    if one["realised"] is None:
        yield "    measured   nothing yet: too few samples before or after the adoption"
        return
    verdict = {True: "held", False: "missed", None: "open"}[one["held"]]
    yield f"    measured   {_estimate(one['realised'], digits)} {unit}: {verdict}"
    if one["harmful"] and one["state"] == "adopted":
        yield f"    Results became worse. Undo the change: `remit learn rollback {name}`."


def _question_lines(one: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a contract: the measures of its question, and the finding."""
    name = f"{one['contract_id']} {one['contract_version']}".rstrip()
    pack = f", {one['prompt_pack_id']}" if one["prompt_pack_id"] else ""
    yield f"  {name}{pack}: {count(one['exchanges'], 'exchange')}"
    for title, member in (
        ("valid answers", "success"), ("corrected by the user", "repair"),
        ("same question, different answer", "disagreement"),
        ("requirements not in the prompt", "unstated"),
    ):  # fmt: skip
        yield f"    {title:<33}{_share(one[member])}"
    for need in one["missing"][:_NAMED]:
        yield f"    not in the prompt: {need['kind']} {need['name']} ({need['demanded_by']})"
    if len(one["missing"]) > _NAMED:
        yield f"    and {count(len(one['missing']) - _NAMED, 'more requirement')}"
    if one["wrong"]:
        yield "    The answer looked right, the question was wrong."


def _rollbacks(learner: Learner, effects: Iterable[Effect]) -> tuple[list[Proposal], list[str]]:
    """Propose rollbacks of changes in force that surely made results worse.

    Returns the proposals, and for each other change in force after which results became worse,
    surely or not, a sentence that tells why no rollback was proposed.
    """
    from remit.learning.proposals import ProposalError

    made, refused = [], []
    for one in effects:
        came = one.realised
        if one.state != "adopted" or one.kind == "rollback" or came is None or came.value >= 0:
            continue
        assert one.regained is not None  # As `realised`.
        low, high = fixed(came.low, 4, "+"), fixed(came.high, 4, "+")
        try:
            made.append(learner.propose_rollback(
                learner.proposals.get(one.proposal_id), evidence=one.evidence,
                predicted=one.regained,
                gate=replace(came, value=-came.value, low=-came.high, high=-came.low),
                replay={"metric": one.metric, "before": one.before, "after": one.after},
                reason=f"{one.metric} changed by {fixed(came.value, 4, '+')} [{low}, {high}] since "
                f"{one.proposal_id} was adopted.",
            ))  # fmt: skip
        except ProposalError as error:
            refused.append(f"{one.proposal_id[:12]}: {error.message} {error.next_step}")
    return made, refused


def _report_lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the report: proposals, effects, questions and judges."""
    states = ", ".join(
        f"{number} {state.replace('_', ' ')}" for state, number in found["proposals"].items()
    )
    yield f"policy epoch {found['policy_epoch']}; proposals: {states}"
    if found["effects"]:
        known = found["calibration"]
        yield from ("", "Did the changes have the predicted effect?")
        for one in found["effects"]:
            yield from _effect_lines(one)
        yield f"  predictions: {known['held']} held, {known['missed']} missed, {known['open']} open"
    if found["questions"] or found["attributions"]:
        yield from ("", "Did the contracts ask the right question?")
    for one in found["questions"]:
        yield from _question_lines(one)
    for one in found["attributions"]:
        name = f"{one['contract_id']} {one['contract_version']}".rstrip()
        yield f"  {name}, question or model: {one['cause']} ({count(one['exchanges'], 'exchange')})"
        for side in ("question", "model"):
            yield f"    another {side} gains {_estimate(one[side])}"
    for one in found["uncalibrated"]:
        graded = f"people graded {one['labelled']} of its {count(one['judged'], 'answer')}"
        yield from ("", f"UNCALIBRATED {one['judge']}", f"  under {one['contract_id']}: {graded}")
    for one in found.get("proposed", ()):
        yield from ("", f"{one['proposal_id']} proposed: {one['reason']}")
    yield from found.get("refused", ())
    if not found["complete"]:
        yield Note("Only the latest exchanges were read.")


@verb(
    "learn report", "GET /learn/report", summary="Report of learning", tag="learning",
    form="ReportQuery", result="LearningReport", instead_of_json=("page",),
    writes_with=("propose",), lines=_report_lines,
)  # fmt: skip
def report_learning(
    root: RootPort, caller: Caller, *,
    latest: int = _latest(door="route"),
    propose: bool = field(
        "Propose a rollback of changes that made answers significantly worse.", False,
        door="command",
    ),
    contracts: list[Path] = field(
        "Folder of contracts that a program brought (`contracts=`). Repeat for several folders.",
        [], metavar="FOLDER", place="input folder", door="command",
    ),
    page: Path | None = field(
        "Write a self-contained HTML page with charts; - is standard output.", None,
        flag="--html", metavar="FILENAME", door="command",
    ),
) -> dict[str, Any] | Document:  # fmt: skip
    """Report proposals, whether adopted changes had the predicted effect, and whether contracts
    ask the right question.

    Returns:
        The report, or the page as a document. A command reads all exchanges, a route the
        ``latest``. With ``propose``, a rollback of each adopted change that made answers
        significantly worse is recorded as a proposal, and the report gets ``proposed`` and
        ``refused``, a sentence for each other disappointing change. Nothing is rolled back.

    Raises:
        PackageError: a rollback is proposed, and another operation on packages is running.
        LedgerError: the ledger cannot be read or written.
    """
    from remit.contracts import ContractLoader
    from remit.gateway.auth import Identity
    from remit.kernel.installed_files import InstalledFiles
    from remit.learning.meta import read_report
    from remit.learning.proposals import Learner, Proposals
    from remit.views import learning_page

    installed, known = InstalledFiles(root.place.path), Proposals(root.place, root.ledger)
    own = ContractLoader(root.place.tier("ho1"), installed=installed)
    value, effects = read_report(
        root.ledger, known, own, latest=None if caller.is_local else latest,
        folders=[ContractLoader(folder) for folder in contracts],
    )  # fmt: skip
    if propose:
        learner = Learner(root.place, root.ledger, root.loaded, Identity(caller.name, "operator"))
        made, refused = _rollbacks(learner, effects)
        value |= {"proposed": [one.to_dict() for one in made], "refused": refused}
        if not made:
            root.note(
                "No adopted change made answers significantly worse, so no rollback was proposed."
            )
    if page is None:
        return value
    note = f"written to {page}" if str(page) != "-" else ""
    return Document(learning_page(value), page, note)


def _value(metric: str, value: float) -> str:
    if metric == "cost":
        return dollars(value / 1e9)
    return f"{value:,.0f} ms" if metric == "latency" else f"{value:.3f}"


def _signal_lines(found: dict[str, Any]) -> Iterator[str | Table]:
    """Yield the table of the signals, and notes on the exchanges and the recorded signals."""
    heads = ("of", "name", "metric", "baseline", "live", "95% interval", "samples", "")
    rows = []
    for one in sorted(found["signals"], key=lambda one: not one["crossed"]):
        metric, live, base = one["metric"], one["live"], one["baseline"]
        if live["samples"]:
            low, high = _value(metric, live["low"]), _value(metric, live["high"])
            judged = ["WORSE"] * one["crossed"] + ["UNCALIBRATED judge"] * bool(one["uncalibrated"])
            rows.append((
                one["dimension"], one["name"], metric, _value(metric, base["value"]),
                _value(metric, live["value"]), f"{low} to {high}",
                f"{base['samples']}, {live['samples']}", ", ".join(judged),
            ))  # fmt: skip
    yield Table(heads, rows, _LISTED) if rows else "No signals."
    read = "all" if found["complete"] else "the latest"
    yield Note(f"Based on {read} {count(found['exchanges'], 'exchange')}; window compared with "
               f"the baseline: {found['window']}.")  # fmt: skip
    for entry_id in found.get("written", ()):
        yield Note(f"{entry_id} SIGNAL_OBSERVED")


@verb(
    "learn signals", "GET /learn/signals", summary="Signals", tag="learning", form="SignalsQuery",
    result="Signals", writes_with=("observe",), lines=_signal_lines,
)  # fmt: skip
def list_signals(
    root: RootPort, caller: Caller, *,
    since: str | None = field(
        "Compare samples since this time (ISO 8601) with earlier ones.", None, most=64
    ),
    latest: int = _latest(
        flag_default="20000", flag_help="Number of latest exchanges to read (default: 20000)."
    ),
    crossed: bool = field("Show only signals past their threshold.", False),
    observe: bool = field(
        "Read every exchange, and record signals past their threshold (SIGNAL_OBSERVED).", False,
        door="command",
    ),
    limit: int | None = limit(),
) -> dict[str, Any]:  # fmt: skip
    """Compare models, contracts, tools, routes and agents with a baseline.

    Without a start, the baseline is the time before the current policy epoch; before the first
    epoch, it is the first samples of each. The intervals stay valid under repeated checks.

    Returns:
        ``signals``, at most ``limit``; the compared ``window``; the number of ``exchanges`` read;
        ``complete``, which is True if these are all; and for a command ``written``, the ids of
        newly recorded signals. ``observe`` ignores ``latest``, and records all crossed signals,
        shown or not, each once for each window.

    Raises:
        InvalidInputError: the start is not a time.
        NotInstalledError, ChangedFileError, ConfigError: no package installed the policy of
            signals, or the file was changed or is not one.
        LedgerError: the ledger cannot be read or written.
    """
    from remit.kernel.installed_files import InstalledFiles
    from remit.learning import (
        SignalPolicy,
        before_latest,
        observe as record,
        read_samples,
        read_signals,
    )
    from remit.learning.judges import calibrated_judges
    from remit.ledger import instant
    from remit.packages import policy_epoch

    policy, ledger = SignalPolicy.installed(InstalledFiles(root.place.path)), root.ledger
    before = instant(since) or ""
    epoch = 0 if before else policy_epoch(ledger)
    window = f"epoch {epoch}" if epoch else f"first {policy.reference}"
    # A record of signals needs a fixed start, because later intervals have it too.
    after = None if observe else before_latest(ledger, latest)
    number = itertools.count()
    found = read_samples(ledger, after=after, with_tasks=True)
    samples = (sample for sample, _ in zip(found, number, strict=False))
    signals = read_signals(
        samples, policy, before=before, before_epoch=epoch or None,
        calibrated=lambda: calibrated_judges(ledger),
    )  # fmt: skip
    window = f"since {before}" if before else window
    written = record(root.ledger, signals, window=window) if observe else []
    shown = [asdict(one) for one in signals if one.crossed or not crossed]
    return {
        "signals": shown[:limit], "window": window, "exchanges": next(number),
        "complete": after is None, **({"written": written} if caller.is_local else {}),
    }  # fmt: skip
