"""A canary: a proposed route that answers a share of the calls, within a budget.

The draw follows from the decision's id alone. Each decision records the share, the arm and the
model that the other route would have chosen, so that it can be replayed. Exchanges record the arm,
so that the budget and the comparison of both routes are read from the ledger. A share of 0 is a
shadow: the proposed route chooses, and the current route answers.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import orjson

from remit.kernel.errors import RemitError
from remit.ledger import (
    KERNEL_ROWS,
    LedgerClient,
    LedgerEntry,
    Transaction,
    entry_id,
    parse_entry_id,
)
from remit.routing.candidate_order import rank
from remit.routing.errors import WeightsError
from remit.routing.exploration import fraction
from remit.routing.learned_head import head_on_record
from remit.routing.scores import ScoringInputs, chain_of, kind_of_task, score_candidates
from remit.routing.spend_controller import Spend, exchanges_after
from remit.routing.weights import Rules, Weights

if TYPE_CHECKING:
    from remit.routing.choice import RouteChoice

Arm = Literal["new", "old"]

_SEED = "remit-canary:"
_LATEST = (
    "SELECT seq, record FROM entries WHERE event_type = 'SIGNAL_CANARY' "
    f"AND {KERNEL_ROWS} ORDER BY seq DESC LIMIT 1"
)
_LATER = (
    "SELECT record FROM entries WHERE seq > ? AND event_type IN "
    f"('SIGNAL_ADOPTED', 'SIGNAL_REJECTED', 'SIGNAL_ROLLED_BACK') AND {KERNEL_ROWS}"
)


@dataclass(frozen=True, slots=True)
class CanaryTerms:
    """The terms of a canary, as recorded at its start.

    Attributes:
        entry_id: id of the ``SIGNAL_CANARY`` entry of the start.
        at: time of that entry.
        proposal_id: the proposal whose route is tried.
        package_id: the package of the proposal.
        share: share of the calls that take the proposed route; 0 for a shadow.
        usd: most that calls of the proposed route may cost if the current route chooses another
            model, in US dollars.
        tolerance: largest accepted loss of reward.
        for_key: id of the only key whose calls count; empty for all.
        task: the only task whose calls count; empty for all.
        by: the person who started the canary.
    """

    entry_id: str
    at: str
    proposal_id: str
    package_id: str
    share: float
    usd: float
    tolerance: float
    for_key: str
    task: str
    by: str


def canary_in_force(record: LedgerClient | Transaction) -> CanaryTerms | None:
    """Return the terms of the canary in force; None if there is none.

    A canary ends with a ``SIGNAL_CANARY`` entry of the decision ``STOPPED``, with a decision on its
    proposal, and with any adoption or rollback of its package.

    Args:
        record: the ledger, or a transaction, which sees its own entries too.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    read = record.select if isinstance(record, LedgerClient) else record.execute
    for seq, stored in read(_LATEST):
        entry = orjson.loads(stored)
        data = entry["metadata"]
        if entry["decision"] != "STARTED":
            return None
        for (later,) in read(_LATER, (seq,)):
            decided = orjson.loads(later)
            is_own = decided["submission_id"] == data["proposal_id"]
            if is_own or (
                decided["event_type"] != "SIGNAL_REJECTED"
                and decided["metadata"]["package_id"] == data["package_id"]
            ):
                return None
        return _terms(entry_id(int(seq)), entry["timestamp"], data)
    return None


def terms_of(started: LedgerEntry) -> CanaryTerms:
    """Return the terms in the entry that started a canary; KeyError for another entry."""
    return _terms(started.id, started.timestamp, started.metadata)


def _terms(entry_id: str, at: str, data: Mapping[str, Any]) -> CanaryTerms:
    named = {one.name: data[one.name] for one in fields(CanaryTerms)[2:]}
    return CanaryTerms(entry_id, at, **named)


def proposed_rules(ledger: LedgerClient, started: str) -> Weights:
    """Return the rules of a canary's route, with the recorded head.

    Args:
        ledger: the ledger.
        started: id of the entry that started the canary.

    Raises:
        ErasedHeadError: the head was erased.
        WeightsError: the rules or the head are not recorded, or cannot be used.
        EntryNotFoundError: there is no such entry.
        TrailError: the thought that records the head is damaged.
        LedgerError: the ledger cannot be read.
    """
    document = ledger.read(started).metadata.get("rules")
    if not isinstance(document, Mapping):
        raise WeightsError(f"The rules of the canary {started} are not recorded.")
    return Weights.from_document(document, lambda digest: head_on_record(ledger, digest))


class Trial(NamedTuple):
    """The draw of a decision during a canary.

    Attributes:
        terms: the terms of the canary.
        arm: ``new`` if the call takes the proposed route, else ``old``.
        share: share of decisions that took the proposed route then; 0 in a shadow, and if the
            budget did not permit the call.
        first: the model that the chosen route puts first.
        other: the model that the other route puts first.
        balance_nano: balance of the proposed route's spend before the call, in nano-dollars.
    """

    terms: CanaryTerms
    arm: Arm
    share: float
    first: str
    other: str
    balance_nano: int

    @property
    def of_decision(self) -> dict[str, Any]:
        """The metadata that the draw adds to the decision's entry.

        ``propensity``, the probability of the first model, and ``canary``, an object with
        ``started`` (id of the entry of the start), ``proposal_id``, ``share``, ``arm``, ``other``
        and ``balance_nano``.
        """
        named = {"started": self.terms.entry_id, "proposal_id": self.terms.proposal_id}
        drawn = {"share": self.share, "arm": self.arm, "other": self.other}
        canary = {**named, **drawn, "balance_nano": self.balance_nano}
        return {"propensity": _propensity(canary, self.first), "canary": canary}

    def of_exchange(self, model: str, number: int) -> Mapping[str, Any]:
        """Return the metadata that the draw adds to an attempt.

        Always ``canary``, an object with ``proposal_id``, ``arm``, ``share`` and ``differs`` (True
        if the two routes put different models first). The first attempt at :attr:`first` also has
        ``propensity``, unless it is 1.

        Args:
            model: name of the model.
            number: number of the attempt, from 1.
        """
        canary = {
            "proposal_id": self.terms.proposal_id, "arm": self.arm, "share": self.share,
            "differs": self.first != self.other,
        }  # fmt: skip
        propensity: float = self.of_decision["propensity"]
        if number == 1 and model == self.first and propensity != 1:
            return {"propensity": propensity, "canary": canary}
        return {"canary": canary}


def _propensity(canary: Mapping[str, Any], first: str) -> float:
    """Return the probability with which the first model of a decision was chosen."""
    if first == canary["other"]:
        return 1.0
    share = float(canary["share"])
    return round(share if canary["arm"] == "new" else 1 - share, 6)


def _arm(decision_id: str, share: float) -> Arm:
    return "new" if fraction(_SEED, decision_id) < share else "old"


def trials_agree(
    meta: Mapping[str, Any], chain: list[str], ledger: LedgerClient | None
) -> bool | None:
    """Return True if a decision's arm, propensity and other model can be computed again.

    In the old arm, the proposed route chooses again. None if the decision belongs to no canary.

    Args:
        meta: metadata of its entry.
        chain: the models of the decision, best first.
        ledger: the ledger that contains the proposed rules; None to leave the choice out.

    Raises:
        ErasedHeadError: the head of the proposed route was erased.
        RemitError, KeyError, TypeError: the metadata cannot be used.
    """
    canary = meta.get("canary")
    if not isinstance(canary, Mapping):
        return None
    drawn = _arm(str(meta["decision_id"]), float(canary["share"]))
    agree: bool = drawn == canary["arm"] and meta["propensity"] == _propensity(canary, chain[0])
    if not agree or drawn == "new" or ledger is None:
        return agree
    from remit.routing.decision_replay import scored_inputs

    weights = proposed_rules(ledger, canary["started"])
    inputs = scored_inputs(meta, weights=weights, balance_nano=canary["balance_nano"])
    return bool(chain_of(score_candidates(inputs))[0] == canary["other"])


class Canary:
    """Draws the route of each call while a canary is in force.

    The cost is summed from the ledger over all processes. Calls in flight count with the upper
    bound of the dearest model, so a process never exceeds the budget. Calls of other processes
    count once they are recorded. If a model has no price, calls for which the two routes choose
    different models take the current route.

    Args:
        ledger: the ledger.
        terms: the terms of the canary.
    """

    def __init__(self, ledger: LedgerClient, terms: CanaryTerms) -> None:
        self._ledger = ledger
        self._terms = terms
        self._lock = threading.Lock()
        self._spend = Spend(ledger, canary=terms.proposal_id)
        self._rules: Rules | None = None
        self._seen = parse_entry_id(terms.entry_id) or 0  # the last exchange that was counted
        self._spent_usd = 0.0
        self._out: dict[str, float] = {}  # Upper bounds, keyed by decision.

    async def enter(self, choice: RouteChoice, inputs: ScoringInputs) -> bool:
        """Draw the route of a decision, and give the choice the draw and the order of that route.

        Reads the ledger. The upper bound of a call of the proposed route counts as spent until the
        choice is closed. If the budget might be exceeded, the current route is taken.

        Args:
            choice: the choice of the current route.
            inputs: the inputs of scoring.

        Returns:
            True if a route was drawn. False if the canary has ended, its rules cannot be read, or
            the call is of another key or task; the choice is then unchanged.

        Raises:
            LedgerError: the ledger cannot be read.
            InvalidInputError, RoutingError: the proposed route cannot be ranked.
        """
        terms, identity = self._terms, choice.asked.identity
        if terms.for_key and (identity is None or identity.key_id != terms.for_key):
            return False
        if terms.task and kind_of_task(inputs) != terms.task:
            return False
        return await asyncio.to_thread(self._enter, choice, inputs)

    def _enter(self, choice: RouteChoice, inputs: ScoringInputs) -> bool:
        options, terms = choice.options, self._terms
        with self._lock:
            rules = self._in_force()
            if rules is None:
                return False
            balance = self._spend.read(rules.weights.learned)
            proposed = replace(inputs, weights=rules.weights, balance_nano=balance)
            ranking = rank(proposed, options.scoring_fn)
            new, old = ranking.chain[0].model_id, choice.ranking.chain[0].model_id
            share, bound = terms.share, 0.0
            if share and new != old:
                bound = self._bound(choice)
                share = share if self._spent() + sum(self._out.values()) + bound <= terms.usd else 0
            arm = _arm(choice.id, share)
            if arm == "new":
                self._out[choice.id] = bound
                choice.release = self._ended
                choice.follow(ranking, rules)
        first, other = (new, old) if arm == "new" else (old, new)
        choice.draw = Trial(terms, arm, share, first, other, balance)
        return True

    def _ended(self, decision_id: str) -> None:
        with self._lock:
            self._out.pop(decision_id, None)

    def _in_force(self) -> Rules | None:
        """Return the rules of the proposed route; None if the canary has ended or has no rules."""
        if canary_in_force(self._ledger) != self._terms:
            return None
        if self._rules is None:
            try:
                weights = proposed_rules(self._ledger, self._terms.entry_id)
            except RemitError:  # The head is recorded just after the start.
                return None
            self._rules = Rules(weights, weights.rule_version_hash)
        return self._rules

    def _bound(self, choice: RouteChoice) -> float:
        """Return the upper bound of the dearest model in US dollars; infinite without a price."""
        gateway, request = choice.options.gateway, choice.asked.request
        bounds = [
            gateway.cost_bound(request, one.provider_id, one.model_id)
            for one in choice.models
            if one.obstacle is None
        ]
        return max((float("inf") if one is None else one / 1e9 for one in bounds), default=0.0)

    def _spent(self) -> float:
        """Return the cost of the canary so far; reads the entries since the last call."""
        for seq, metadata, _ in exchanges_after(self._ledger, self._seen):
            self._seen, canary = seq, metadata.get("canary") or {}
            if canary.get("proposal_id") == self._terms.proposal_id and canary["differs"]:
                self._spent_usd += (metadata.get("cost_usd") or 0) * (canary["arm"] == "new")
        return self._spent_usd
