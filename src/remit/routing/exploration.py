"""Exploration: sometimes another model than the best answers, to learn from. Off by default.

The draw follows from the decision's id alone, and each decision records the probability with which
its model was chosen.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from remit.kernel.settings import ExplorationSettings
from remit.ledger import LedgerClient
from remit.routing.candidate import Candidate
from remit.routing.scores import ScoringInputs, kind_of_task
from remit.routing.spend_controller import exchanges_after

_SEED = "remit-exploration:"


class Drawn(NamedTuple):
    """The chain of a decision and its draw.

    Attributes:
        chain: the candidates, in the order in which they are called.
        first: the candidate that the draw put first.
        propensity: probability with which that candidate comes first.
        share: share of decisions that explored then; 0 if this one could not.
        explored: True if another candidate than the best comes first.
        left_out: candidates that could not be drawn.
    """

    chain: tuple[Any, ...]
    first: Any
    propensity: float = 1.0
    share: float = 0.0
    explored: bool = False
    left_out: tuple[str, ...] = ()

    @property
    def of_decision(self) -> dict[str, Any]:
        """The metadata that the draw adds to the decision's entry.

        ``propensity``; and if the decision could explore, ``exploration`` (the share) and, unless
        empty, ``not_drawn`` (the candidates that could not be drawn).
        """
        if not self.share:
            return {"propensity": self.propensity}
        shown = {"propensity": self.propensity, "exploration": self.share}
        return {**shown, "not_drawn": list(self.left_out)} if self.left_out else shown

    def of_exchange(self, model: str, number: int) -> Mapping[str, Any]:
        """Return the metadata that the draw adds to an attempt.

        Empty unless the attempt is the first and at the drawn candidate. Else ``propensity``,
        unless it is 1, and ``explored`` (True), if another candidate than the best was drawn.

        Args:
            model: name of the model.
            number: number of the attempt, from 1.
        """
        if number != 1 or model != self.first.model_id:
            return {}
        shown: dict[str, Any] = {} if self.propensity == 1 else {"propensity": self.propensity}
        return {**shown, "explored": True} if self.explored else shown


def draws_agree(meta: Mapping[str, Any], record: Mapping[str, Any]) -> bool | None:
    """Return True if a decision's propensity and first call match the draw of its id.

    None if the decision records no propensity, or if its mode is neither ``single`` nor ``fail``.
    The propensity is not compared for a decision of a canary, nor the call if none was made.

    Args:
        meta: metadata of its entry.
        record: its 8 fields.
    """
    if "propensity" not in meta or record["routing_mode"] not in ("single", "fail"):
        return None
    drawn = draw(
        str(meta["decision_id"]),
        record["candidates_considered"],
        float(meta.get("exploration", 0)),
        tuple(meta.get("not_drawn", ())),
    )
    if "canary" not in meta and drawn.propensity != meta["propensity"]:
        return False
    asked = [one["model_id"] for name in ("skipped", "attempts") for one in meta.get(name) or ()
             if isinstance(one, Mapping)]  # fmt: skip
    return not asked or drawn.first in asked


def fraction(seed: str, decision_id: str) -> float:
    """Return the first 8 bytes of SHA-256(seed + decision id) as a fraction of 2^64."""
    digest = hashlib.sha256(f"{seed}{decision_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / (1 << 64)


def draw(
    decision_id: str,
    chain: Sequence[Any],
    share: float,
    left_out: Sequence[str] = (),
    name: Callable[[Any], str] = str,
) -> Drawn:
    """Return the chain of a decision. With probability ``share`` a random candidate goes first.

    Let u be the first 8 bytes of SHA-256("remit-exploration:" + the decision's id) as a fraction of
    2^64, and K the number of candidates that can be drawn. If u < share, candidate number floor(u /
    share * K) goes first. The best therefore comes first with probability 1 - share + share / K,
    and each other with share / K. With ``share`` 0 or K below 2 the chain stays as it is, with
    propensity 1.

    Args:
        decision_id: the decision.
        chain: the candidates, best first.
        share: share of decisions that explore.
        left_out: names of candidates that cannot be drawn; they keep their places.
        name: returns the name of a candidate.
    """
    drawable = [one for one in chain if name(one) not in left_out]
    count = len(drawable)
    if share <= 0 or count < 2:
        return Drawn(tuple(chain), chain[0])
    number = fraction(_SEED, decision_id)
    place = min(int(number / share * count), count - 1) if number < share else 0
    first = drawable[place]
    propensity = round(share / count + (0.0 if place else 1 - share), 6)
    order = (first, *(one for one in chain if one is not first)) if place else tuple(chain)
    return Drawn(order, first, propensity, share, place > 0, tuple(left_out))


class Exploration:
    """Draws the chains of decisions within a daily budget.

    The cost of exploring is summed from the ledger over all processes: the exchanges of the day
    (UTC) that another model than the best answered. Calls in flight count with their upper bound,
    so a process never exceeds the limit. Calls of other processes count once they are recorded.

    Args:
        ledger: the ledger.
        settings: share, tasks and budget.
    """

    def __init__(self, ledger: LedgerClient, settings: ExplorationSettings) -> None:
        self._ledger = ledger
        self._settings = settings
        self._lock = threading.Lock()
        self._day = ""
        self._seen = -1  # the last exchange that was counted
        self._spent_usd = 0.0
        self._out: dict[str, float] = {}  # Upper bounds, keyed by decision.

    async def draw(
        self,
        decision_id: str,
        inputs: ScoringInputs,
        chain: Sequence[Candidate],
        bounds: Mapping[str, float],
    ) -> Drawn:
        """Return the drawn chain of a decision. Reads the ledger.

        If another candidate than the best comes first, its upper bound counts as spent until
        :meth:`ended`. The best comes first if the daily budget could be exceeded, or if the
        settings name tasks and the call has another.

        Args:
            decision_id: the decision; :meth:`ended` must follow.
            inputs: the inputs of scoring.
            chain: the candidates, best first.
            bounds: upper bound of each candidate in US dollars, keyed by name. Other candidates
                cannot be drawn.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        settings = self._settings
        if settings.tasks and kind_of_task(inputs) not in settings.tasks:
            return draw(decision_id, chain, 0)
        left_out = [one.model_id for one in chain if one.model_id not in bounds]
        return await asyncio.to_thread(self._draw, decision_id, chain, left_out, bounds)

    def ended(self, decision_id: str) -> None:
        """Release the upper bound of a decision whose calls are recorded."""
        with self._lock:
            self._out.pop(decision_id, None)

    def _draw(
        self,
        decision_id: str,
        chain: Sequence[Candidate],
        left_out: Sequence[str],
        bounds: Mapping[str, float],
    ) -> Drawn:
        with self._lock:
            # The dearest decides, whichever is drawn: else the propensity would not be true.
            most = max(bounds.values(), default=0.0)
            held = sum(self._out.values())
            enough = self._spent() + held + most <= self._settings.usd_per_day
            share = self._settings.share if enough else 0
            drawn = draw(decision_id, chain, share, left_out, lambda one: str(one.model_id))
            if drawn.explored:
                self._out[decision_id] = bounds[drawn.first.model_id]
            return drawn

    def _spent(self) -> float:
        """Return the US dollars spent on exploring today; reads the entries since the last call."""
        today = datetime.now(UTC).date().isoformat()
        if today != self._day:
            self._day, self._spent_usd = today, 0.0
            first = next(self._ledger.query(since=today, limit=1, with_content=False), None)
            head = self._ledger.head()
            last = head[0] if head else -1
            self._seen = last if first is None else first.seq - 1
        for seq, metadata, _ in exchanges_after(self._ledger, self._seen):
            self._seen = seq
            if metadata.get("explored"):
                self._spent_usd += float(metadata.get("cost_usd") or 0)
        return self._spent_usd
