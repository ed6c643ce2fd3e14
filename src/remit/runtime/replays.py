"""Replays of held-out exchanges, for a command or an order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.kernel.canonical import canonical_json, sha256_hex
from remit.kernel.errors import InvalidInputError
from remit.kernel.installed_files import InstalledFiles
from remit.learning import (
    ChangedRequests,
    Replay,
    ReplayResult,
    gradable_exchanges,
    grader,
    learnable_contract,
    open_account,
    paired_effect,
)
from remit.learning.meta import Attribution, attribute, record_attribution, replay_both
from remit.learning.proposals import Change, Proposals

if TYPE_CHECKING:
    from remit.runtime.runtime import Runtime

REPLAY = "replay"
"""The kind of an order that asks for one, and the agent that its calls are of."""

_NANO = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayWanted:
    """A request for a replay; :attr:`task` and :meth:`of_task` convert it for an order.

    Immutable, and checked when it is made.

    Attributes:
        contract_id: id of the contract whose exchanges are replayed.
        usd: cost limit in US dollars; the number is not checked.
        change: fields of a :class:`~remit.learning.proposals.Change` of the contract's prompt or
            boundary.
        proposal: id of a proposal whose change is replayed, or ``last``; empty for none.
        model: provider and model that answer; the contract's or the recorded ones if left out.
        schema: JSON Schema to grade by; the contract's if left out.
        references: right answers to grade by, keyed by exchange id; only these exchanges are then
            replayed, and ``schema`` is ignored.
        both: True to replay the change alone and the model alone, alternately.

    Raises:
        InvalidInputError: the request has neither a change, a proposal nor a model, or both of the
            first two; or ``both`` is True without a model, or without a change or proposal.
    """

    contract_id: str
    usd: float
    change: Mapping[str, Any] | None = None
    proposal: str = ""
    model: tuple[str, str] | None = None
    schema: Mapping[str, Any] | None = None
    references: Mapping[str, str] | None = None
    both: bool = False

    def __post_init__(self) -> None:
        changed = (self.change is not None) + bool(self.proposal)
        if changed > 1 or not (changed or self.model):
            raise InvalidInputError(
                "A replay requires a change, a proposal or a model; a model can be combined with "
                "either of the others."
            )
        if self.both and not (changed and self.model):
            raise InvalidInputError("An attribution requires a model, and a change or a proposal.")

    @property
    def task(self) -> str:
        """The request as the task of an order: canonical JSON."""
        return canonical_json(asdict(self)).decode()

    @classmethod
    def of_task(cls, value: Any) -> ReplayWanted:
        """Return the request in an order's task, which is parsed JSON already.

        Args:
            value: the parsed task, as :attr:`task` writes it.

        Raises:
            InvalidInputError: the task is not a replay, or the request is invalid.
        """
        names = {one.name for one in fields(cls)}
        if not isinstance(value, dict) or not value.keys() <= names:
            raise InvalidInputError("The order's task is not a replay.")
        try:
            model = tuple(value["model"]) if value.get("model") else None
            return cls(**{**value, "model": model})
        except (TypeError, KeyError) as error:
            raise InvalidInputError(f"The order's task is not a replay: {error}.") from error


def replay_report(sides: tuple[ReplayResult, ...], cause: Attribution | None) -> dict[str, Any]:
    """Return the numbers and ids of a result of :meth:`Replays.run` as JSON data.

    A replay gives its summary (``held_out``, ``replayed``, ``failed``, ``mean_before``,
    ``mean_after``, ``spent_usd``, ``ended``), with the estimates ``effect`` and ``gate``. With
    ``cause``, the fields of the attribution come with ``replays``, the summaries of ``question``
    and ``model``.

    Args:
        sides: the replay; with ``cause``, the replay of the change and that of the model.
        cause: the attribution; ``None`` without one.
    """
    if cause is not None:
        question, model = sides
        replays = {"question": question.summary(), "model": model.summary()}
        return {**asdict(cause), "replays": replays}
    (made,) = sides
    known, gate = paired_effect(made.differences)
    return {**made.summary(), "effect": asdict(known), "gate": asdict(gate)}


class Replays:
    """A replay of recorded exchanges under a change or another model.

    Creation reads the exchanges and opens the account of replays if it is missing; :meth:`run` asks
    and pays. All methods block. Use an instance in one thread.

    Args:
        runtime: the root, whose default model answers if none is named.
        wanted: the request.
        by: the person who asks, for the record.

    Attributes:
        exchanges: ids of the exchanges that may be replayed, oldest first.

    Raises:
        InvalidInputError: the change is invalid or another contract's, or its answers cannot be
            graded.
        ProposalError: there is no such proposal, or its archive was changed or cannot be read, as
            after its adoption or rejection.
        ContractError: the contract cannot be used.
        LedgerError: the ledger cannot be read or written.
    """

    def __init__(self, runtime: Runtime, wanted: ReplayWanted, by: str) -> None:
        self._runtime, self._wanted = runtime, wanted
        ledger, right = runtime.ledger, wanted.references
        self._contract = learnable_contract(ledger, runtime.contracts, wanted.contract_id)
        self._files = _files(runtime, wanted)
        schema = self._contract.output_schema if wanted.schema is None else wanted.schema
        self._graded_by = schema if right is None else right
        self._grade = grader(schema, right)
        open_account(runtime.budgeter, by)
        self.exchanges = [
            one
            for one in gradable_exchanges(ledger, wanted.contract_id)
            if right is None or one in right
        ]

    @property
    def file(self) -> Path:
        """Path of the file that holds the name of this replay, if no order requested it.

        The file's own name is a hash of the contract and its version, the change, the model and the
        grader. :meth:`run` writes the file. With ``both`` the two replays have other files.
        """
        return self._file(self._files, self._wanted.model)

    def run(
        self, progress: Callable[[int, int], None], *, order_id: str = ""
    ) -> tuple[tuple[ReplayResult, ...], Attribution | None]:
        """Run the replay within its budget; continue an interrupted one. Blocks.

        Models are called, and their answers are recorded under the name of the order, or under
        the name in :attr:`file` (with ``both``, in a file for each replay). With ``both`` the
        attribution is recorded. The budget limits all runs of a replay together. A spent budget is
        no error: the replay's ``ended`` is ``budget``.

        Args:
            progress: called before each exchange (with ``both``, before each ten) with the number
                done and the total.
            order_id: id of the order that requested the replay; empty for a command.

        Returns:
            The replay and ``None``. With ``both``: the replay of the change and that of the model,
            and the part of each in the difference.

        Raises:
            ConflictError: prices or the answering model changed since an earlier run, or the file
                holds no name.
            InvalidInputError: a call has no upper bound, because its model has no price; or the
                change does not fit a recorded prompt.
            LedgerError: the ledger cannot be read or written.
            OSError: the file cannot be written.
        """
        wanted, budget_nano = self._wanted, round(self._wanted.usd * _NANO)
        if not wanted.both:
            made = self._replay(self._files, wanted.model, order_id)
            done = made.run(self.exchanges, budget_nano=budget_nano, progress=progress)
            return (done,), None
        sides = replay_both(
            self._replay(self._files, None, order_id and f"{order_id}-Q"),
            self._replay({}, wanted.model, order_id and f"{order_id}-M"),
            self.exchanges, budget_nano=budget_nano, progress=progress,
        )  # fmt: skip
        cause = attribute(*sides)
        record_attribution(self._runtime.ledger, cause, wanted.contract_id, self._contract.version)
        return sides, cause

    def _replay(
        self, files: Mapping[str, bytes], model: tuple[str, str] | None, name: str
    ) -> Replay:
        runtime = self._runtime
        installed = InstalledFiles(runtime.root.path)
        ask = ChangedRequests(runtime.ledger, installed, self._contract, files, model)
        return Replay(
            runtime.gateway, runtime.ledger, ask, self._grade, name or self._file(files, model),
            self.exchanges, runtime.prices.version,
        )  # fmt: skip

    def _file(self, files: Mapping[str, bytes], model: tuple[str, str] | None) -> Path:
        what = {
            "contract": self._wanted.contract_id, "version": self._contract.version,
            "model": model, "grader": self._graded_by,
            "files": {path: sha256_hex(data) for path, data in files.items()},
        }  # fmt: skip
        name = f"{sha256_hex(canonical_json(what))[:16]}.txt"
        return self._runtime.root.path / "replays" / name


def _files(runtime: Runtime, wanted: ReplayWanted) -> dict[str, bytes]:
    """Return the files that the requested change writes, keyed by path; empty without a change.

    Raises:
        InvalidInputError: the change is invalid, is of another contract, or is a rollback.
        ProposalError: the proposal is unknown, or its archive was changed or cannot be read.
    """
    contract_id = wanted.contract_id
    if wanted.proposal:
        known = Proposals(runtime.root, runtime.ledger)
        found = known.get(wanted.proposal)
        if found.target != contract_id:
            raise InvalidInputError(
                f"{found.proposal_id} changes {found.target}, not this contract."
            )
        if found.rolls_back:
            raise InvalidInputError(
                f"{found.proposal_id} is a rollback, whose target is recorded already.",
                next_step=f"`remit learn show {found.proposal_id[:12]}` shows the values before "
                "and after.",
            )
        archive = known.read(found, runtime.loaded.settings.packages)
        return {path: data for path, data in archive.files.items() if path.startswith("HO1/")}
    if wanted.change is None:
        return {}
    try:
        made = Change(**{"contract_id": contract_id, **wanted.change})
    except TypeError as error:
        raise InvalidInputError(f"The change is not valid: {error}.") from error
    made.check()
    if made.contract_id != contract_id:
        raise InvalidInputError(f"The change applies to {made.target}.")
    return made.made(InstalledFiles(runtime.root.path), runtime.contracts, 1)
