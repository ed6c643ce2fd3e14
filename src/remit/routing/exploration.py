"""Exploration: now and then another model than the best answers, to learn from. Off by default.

Whether, and which, follows from the decision's id alone, and each decision says with what
probability its model was chosen.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from remit.kernel.settings import ExplorationSettings
from remit.ledger import LedgerClient
from remit.routing.candidate import Candidate
from remit.routing.intent import read_intent
from remit.routing.scoring import ANY_TASK, ScoringInputs

__all__ = ["Drawn", "Exploration", "draw", "draws_agree"]

_SEED = "remit-exploration:"


class Drawn(NamedTuple):
    """The chain of a decision, and how it was drawn.

    Attributes:
        chain: the candidates, in the order in which they are asked.
        propensity: probability with which the first of them comes first.
        share: of decisions that explored then; 0: this one could not.
        explored: whether another than the best comes first.
    """

    chain: tuple[Any, ...]
    propensity: float = 1.0
    share: float = 0.0

    explored: bool = False

    @property
    def of_decision(self) -> dict[str, float]:
        """What the decision's entry says of it."""
        shown = {"propensity": self.propensity}
        return {**shown, "exploration": self.share} if self.share else shown

    @property
    def of_exchange(self) -> dict[str, Any]:
        """What the exchange of the first candidate says of it."""
        shown: dict[str, Any] = {} if self.propensity == 1 else {"propensity": self.propensity}
        return {**shown, "explored": True} if self.explored else shown


def draws_agree(meta: Mapping[str, Any], record: Mapping[str, Any]) -> bool | None:
    """Whether a decision's propensity and first call are what its id draws.

    ``None`` where it says nothing of them.

    Args:
        meta: of its entry.
        record: its 8 fields.
    """
    if "propensity" not in meta or record["routing_mode"] not in ("single", "fail"):
        return None
    chain = record["candidates_considered"]
    drawn = draw(str(meta["decision_id"]), chain, float(meta.get("exploration", 0)))
    if drawn.propensity != meta["propensity"]:
        return False
    asked = [one["model_id"] for name in ("skipped", "attempts") for one in meta.get(name) or ()
             if isinstance(one, Mapping)]  # fmt: skip
    return not asked or drawn.chain[0] in asked


def draw(decision_id: str, chain: Sequence[Any], share: float) -> Drawn:
    """The chain of one decision: with probability ``share``, one of all at random goes first.

    With u = the first 8 bytes of SHA-256("remit-exploration:" + the decision's id) as a fraction
    of 2^64, and K candidates: where u < share, candidate number floor(u / share * K) of the chain.
    So the best comes first with probability 1 - share + share / K, each other with share / K.
    """
    count = len(chain)
    if share <= 0 or count < 2:
        return Drawn(tuple(chain))
    digest = hashlib.sha256(f"{_SEED}{decision_id}".encode()).digest()
    number = int.from_bytes(digest[:8], "big") / (1 << 64)
    first = min(int(number / share * count), count - 1) if number < share else 0
    propensity = share / count + (0.0 if first else 1 - share)
    drawn = (chain[first], *chain[:first], *chain[first + 1 :])
    return Drawn(drawn, round(propensity, 6), share, first > 0)


class Exploration:
    """Draws the chains of decisions while the day's money for it lasts.

    What exploring cost counts by the record, over all processes: the exchanges of the day (UTC)
    that another than the best model answered. Calls that are out at the same time may together go
    beyond the limit by what they cost.

    Args:
        ledger: where exchanges are.
        settings: how much, of what, for how much.
    """

    def __init__(self, ledger: LedgerClient, settings: ExplorationSettings) -> None:
        self._ledger = ledger
        self._settings = settings
        self._lock = threading.Lock()
        self._day = ""
        self._seen = -1  # the last exchange that was counted
        self._spent_usd = 0.0

    async def draw(
        self, decision_id: str, inputs: ScoringInputs, chain: Sequence[Candidate]
    ) -> Drawn:
        """The chain of one decision. Reads the ledger where exploration is on.

        Args:
            decision_id: of the decision.
            inputs: what was scored.
            chain: best first.
        """
        settings = self._settings
        if not settings.share or len(chain) < 2:
            return Drawn(tuple(chain))
        task = inputs.task.partition("+")[0]
        if settings.tasks:
            if task == ANY_TASK:
                task = read_intent(inputs.prompt, inputs.weights).task
            if task not in settings.tasks:
                return Drawn(tuple(chain))
        if await asyncio.to_thread(self._spent) >= settings.usd_per_day:
            return Drawn(tuple(chain))
        return draw(decision_id, chain, settings.share)

    def _spent(self) -> float:
        """US dollars that exploring cost today; reads what came since the last time."""
        with self._lock:
            return self._read()

    def _read(self) -> float:
        today = datetime.now(UTC).date().isoformat()
        if today != self._day:
            self._day, self._spent_usd = today, 0.0
            first = next(self._ledger.query(since=today, limit=1, with_content=False), None)
            head = self._ledger.head()
            last = head[0] if head else -1
            self._seen = last if first is None else int(first.id[4:], 16) - 1
        rows = self._ledger.select(
            "SELECT seq, record FROM entries WHERE event_type = 'EXCHANGE' AND seq > ? "
            "ORDER BY seq",
            (self._seen,),
        )
        for seq, record in rows:
            self._seen = int(seq)
            metadata = orjson.loads(record)["metadata"]
            if metadata.get("explored"):
                self._spent_usd += float(metadata.get("cost_usd") or 0)
        return self._spent_usd
