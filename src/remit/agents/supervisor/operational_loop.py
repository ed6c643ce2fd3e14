"""Exclusion of models, tools and contract versions that keep failing in a session.

A name is excluded (recorded as *set aside*) after failures in several consecutive turns, until the
session ends. The state follows from the ledger alone, so any process that takes the session over
excludes the same names.
"""

from __future__ import annotations

import logging
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from remit.agents.sessions import Marks
from remit.agents.supervisor.entries import SupervisorJournal
from remit.kernel.errors import RemitError
from remit.ledger import LedgerEntry, LedgerPort, is_authentic

_log = logging.getLogger("remit.supervisor")

_WITHOUT = {
    "model": "it has no fallback, so routes alone avoid it",
    "tool": "it is not offered",
    "contract": "there is no version before it that allows no more, so it stays in use",
}
_INSTEAD = {"model": "{} is asked", "tool": "{} is offered", "contract": "{} is used"}

_MODEL_ERRORS = frozenset(
    {"TIMEOUT", "RATE_LIMITED", "SERVER_ERROR", "PROVIDER_ERROR", "AUTH_ERROR"}
)
"""Error codes that a model causes. A refusal for length or budget is the request's fault."""

_INCOMPLETE = frozenset({"length", "content_filter"})
"""Finish reasons of incomplete answers, which are not the contract's fault."""

_MAX_USES = 50  # exchanges or tool calls that one check reads
_MAX_ORDERS = 100  # entries of each kind that one check reads about the orders of those uses

SubstitutesOf = Callable[[str, Collection[str]], Sequence[str]]
"""Returns the substitutes of a name, best first, given all excluded names."""

EntriesOf = Callable[[str, int], list[LedgerEntry]]
"""Returns the latest entries of an event type, latest first, at most the given number."""


class Outcome(NamedTuple):
    """The outcome of one use of a model, tool or contract version.

    Attributes:
        entry_id: the entry that records the use.
        name: the model (``provider/model``), tool or contract version (``contract@version``).
        turn: ``turn NUMBER``; outside of turns, the id of the entry.
        failed: True if the name failed by its own fault; False if it succeeded; None if the entry
            does not tell, for example after a cancellation.
    """

    entry_id: str
    name: str
    turn: str
    failed: bool | None


@dataclass(eq=False, repr=False)
class Exclusions:
    """The names that one session excludes.

    :meth:`refresh` reads :attr:`names` from the ledger, and :meth:`observe` adds to them and holds
    the entry in the journal. A name stays excluded until the session ends.

    Args:
        journal: journal of the session's supervisor.
        substitutes: substitutes, keyed by dimension: ``model``, ``tool`` or ``contract``.
        max_turns: returns the number of consecutive turns with a failure that excludes a name;
            called only after a failure.
        own: provider and model of the agent, for exchanges that do not record a provider; None if
            it has none.

    Attributes:
        names: excluded models (``provider/model``), tools, and contract versions
            (``contract@version``).
    """

    _journal: SupervisorJournal
    _substitutes: Mapping[str, SubstitutesOf]
    _max_turns: Callable[[], int]
    _own: tuple[str, str] | None = None
    _read: tuple[int, int] | None = field(
        default=None, init=False
    )  # sequence numbers of the latest signal and end
    _ended: int = field(default=-1, init=False)
    names: tuple[str, ...] = field(default=(), init=False)

    def refresh(self, marks: Marks) -> None:
        """Read the excluded models, tools and contract versions again if the session has a new
        signal or end.

        Signals before the session's latest end no longer count. If the read fails, :attr:`names`
        stays as before, and the next call reads again.

        Args:
            marks: the session's latest sequence numbers.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        signal = -1 if marks.signal is None else marks.signal
        ended = -1 if marks.ended is None else marks.ended
        if (signal, ended) == self._read:
            return
        names: tuple[str, ...] = ()
        if signal > ended:
            entries = exclusion_entries(self._journal.ledger, self._journal.session_id)
            present = (entry for entry in entries if entry.seq > ended)
            names = tuple(dict.fromkeys(entry.metadata["name"] for entry in present))
        self._read, self._ended, self.names = (signal, ended), ended, names

    def observe(self, work_order_id: str, *dimensions: str) -> None:
        """Exclude names that keep failing; hold the ``SIGNAL_OBSERVED`` in the journal for its next
        write.

        A name is excluded if, since its last success, it failed in as many turns as ``max_turns``
        returns. The names join :attr:`names` at once. Only entries after the session's latest end
        count: its latest 100 orders, and 50 uses of models and of tools. Names that are excluded
        already are not recorded again. If the settings cannot be read, a warning is logged and
        nothing further is excluded.

        Args:
            work_order_id: the order that just ended; named in the entry.
            dimensions: ``model``, ``tool`` or ``contract``, to check only these; all by default.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        plans = self._entries("WO_PLANNED", _MAX_ORDERS)
        for dimension in dimensions or ("model", "tool", "contract"):
            if dimension == "model":
                outcomes = list(_model_outcomes(self._entries, plans, self._own))
            elif dimension == "tool":
                outcomes = list(_tool_outcomes(self._entries, plans))
            else:
                outcomes = list(_contract_outcomes(self._entries, plans))
            if not any(one.failed and one.name not in self.names for one in outcomes):
                continue
            try:
                max_turns = self._max_turns()
            except RemitError as error:  # A turn must not fail because of the settings.
                _log.warning("nothing is set aside in %s: %s", self._journal.session_id, error)
                return
            same = is_version_of if dimension == "model" else operator.eq
            for name, evidence in failing(outcomes, max_turns, same).items():
                if name not in self.names:
                    self._exclude(work_order_id, dimension, name, evidence)

    def _exclude(
        self, work_order_id: str, dimension: str, name: str, evidence: Sequence[str]
    ) -> None:
        self.names += (name,)
        found = self._substitutes[dimension](name, self.names)
        instead = next((one for one in found if one not in self.names), "")
        entry = self._journal.entry(
            "SIGNAL_OBSERVED", work_order_id, kind="set_aside", dimension=dimension, name=name,
            instead=instead, until="the session ends", evidence=list(evidence),
        )  # fmt: skip
        what = _INSTEAD[dimension].format(instead) if instead else _WITHOUT[dimension]
        entry.reason = f"{name} kept failing: {what} until the session ends"
        self._journal.hold(entry)
        self._read = None  # The held entry may never be written, so the next refresh reads again.

    def _entries(self, event_type: str, limit: int) -> list[LedgerEntry]:
        found = self._journal.ledger.query(
            session_id=self._journal.session_id, event_type=event_type, order="desc", limit=limit,
            with_content=False,
        )  # fmt: skip
        return [entry for entry in found if entry.seq > self._ended and is_authentic(entry)]


def exclusion_entries(ledger: LedgerPort, session_id: str) -> Iterator[LedgerEntry]:
    """Yield the ``SIGNAL_OBSERVED`` entries with which a session excluded a name, oldest first.

    Entries before the session's latest end are included; entries that are not authentic are not.

    Args:
        ledger: a handle that may read the session.
        session_id: the session.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    signals = ledger.query(session_id=session_id, event_type="SIGNAL_OBSERVED", with_content=False)
    for entry in filter(is_authentic, signals):
        if entry.metadata.get("kind") == "set_aside":
            yield entry


def failing(
    outcomes: Iterable[Outcome],
    max_turns: int,
    same: Callable[[str, str], bool] = operator.eq,
) -> dict[str, list[str]]:
    """Return the entry ids of each name's failures since its last success, oldest first.

    Keyed by name. Failures in the same turn count as one, so that a single message excludes
    nothing.

    Outcomes that are neither success nor failure (``failed`` is None) are ignored. Names with too
    few such turns are left out.

    Args:
        outcomes: outcomes, latest first.
        max_turns: number of different turns with such a failure that is needed.
        same: returns True if a success of the second name is one of the first.
    """
    runs: dict[str, list[Outcome]] = {}
    successes: set[str] = set()
    for outcome in outcomes:
        if outcome.failed is False:
            successes.add(outcome.name)
        elif outcome.failed and not any(same(outcome.name, one) for one in successes):
            runs.setdefault(outcome.name, []).append(outcome)
    return {
        name: [outcome.entry_id for outcome in reversed(run)]
        for name, run in runs.items()
        if len({outcome.turn for outcome in run}) >= max_turns
    }


def is_version_of(asked: str, answered: str) -> bool:
    """Return True if ``answered`` is the model ``asked``, or a dated version of it.

    A dated version is the name followed by ``-`` and digits, which may have hyphens between them:
    ``gpt-x-20250101`` and ``gpt-x-2025-01-01`` are versions of ``gpt-x``.

    Args:
        asked: the requested model.
        answered: the model that the provider says has answered.
    """
    return answered == asked or re.fullmatch(re.escape(asked) + r"-\d[\d-]*", answered) is not None


def _model_outcomes(
    entries: EntriesOf, plans: Sequence[LedgerEntry], own: tuple[str, str] | None
) -> Iterator[Outcome]:
    """Yield the outcomes of models in the session's orders, without calls of gateway clients."""
    for exchange in entries("EXCHANGE", _MAX_USES):
        data = exchange.metadata
        if data.keys() & {"key_id", "wire"}:
            continue
        model, code = str(data.get("model_id", "")), str(data.get("error_code", ""))
        if code == "TIMEOUT" and "time_to_first_token_ms" in data:
            code = ""  # The model was answering; the length of an answer is the request's fault.
        succeeded = data.get("outcome") == "success"
        if succeeded and not (data.get("fallback_from") or data.get("decision_id")):
            model = str(data.get("requested_model_id") or model)  # not the name of its version
        default = own[0] if own is not None and own[1] == model else ""
        if provider := data.get("provider_id") or default:
            failed = False if succeeded else True if code in _MODEL_ERRORS else None
            yield _outcome(exchange, f"{provider}/{model}", failed, plans)


def _tool_outcomes(entries: EntriesOf, plans: Sequence[LedgerEntry]) -> Iterator[Outcome]:
    """Yield the outcomes of tool calls; a refused call has ``failed`` None."""
    for call in entries("TOOL_CALL", _MAX_USES):
        data = call.metadata
        failed = False if data["status"] == "ok" else True if data.get("fault") else None
        yield _outcome(call, str(data["tool_id"]), failed, plans)


def _contract_outcomes(entries: EntriesOf, plans: Sequence[LedgerEntry]) -> Iterator[Outcome]:
    """Yield the outcomes of contract versions.

    Completed orders count by their verdict at the quality gate. Of failed orders, only those count
    whose answer did not match the contract's schema. Incomplete answers have ``failed`` None, and
    orders with a caller's own schema are skipped.
    """
    limits = {
        plan.submission_id: plan.metadata["constraints"]
        for plan in plans
        if plan.metadata.get("turn_number") is not None
    }
    verdicts = {gate.submission_id: gate for gate in entries("WO_QUALITY_GATE", _MAX_ORDERS)}
    ends = entries("WO_COMPLETED", _MAX_ORDERS)
    ends += [
        entry
        for entry in entries("WO_FAILED", _MAX_ORDERS)
        if entry.metadata.get("error_code") == "output_schema_invalid"
    ]
    versions = {
        entry.submission_id: str(entry.metadata["contract_version"])
        for entry in entries("WO_EXECUTING", _MAX_ORDERS)
        if "contract_version" in entry.metadata
    }
    incomplete = {
        _order_of(exchange)
        for exchange in entries("EXCHANGE", _MAX_ORDERS)
        if exchange.metadata.get("finish_reason") in _INCOMPLETE
    }
    for end in sorted(ends, key=attrgetter("seq"), reverse=True):
        order = end.submission_id
        if order not in limits or order not in versions or "output_schema" in limits[order]:
            continue
        name = f"{limits[order]['prompt_contract_id']}@{versions[order]}"
        entry = end if end.event_type == "WO_FAILED" else verdicts.get(order, end)
        bad = end.event_type == "WO_FAILED" or entry.metadata.get("verdict") == "reject"
        failed = (None if order in incomplete else True) if bad else False
        yield _outcome(entry, name, failed, plans)


def _outcome(
    entry: LedgerEntry, name: str, failed: bool | None, plans: Sequence[LedgerEntry]
) -> Outcome:
    order = _order_of(entry)
    numbers = (plan.metadata.get("turn_number") for plan in plans if plan.submission_id == order)
    turn = next((f"turn {number}" for number in numbers if number is not None), entry.id)
    return Outcome(entry.id, name, turn, failed)


def _order_of(entry: LedgerEntry) -> str:
    """Return the id of the work order that an entry names; exchanges have another field."""
    provenance = entry.metadata.get("provenance") or {}
    return str(entry.metadata.get("work_order_id") or provenance.get("work_order_id") or "")
