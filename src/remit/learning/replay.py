"""Replay: held-out exchanges are asked again through the gateway, within a hard budget.

Each exchange is asked again with a change. The new and the recorded answer are graded by the same
grader, and the difference of both grades is the effect. An interrupted replay continues from the
record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from remit.gateway import LLMGateway, PromptRequest
from remit.learning.exchanges import bound_of, cost_of, held_out_sides, is_whole
from remit.learning.replay_progress import KeptOnRecord, Pair, drift
from remit.ledger import LedgerClient, LedgerEntry

_NANO = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay.

    Attributes:
        pairs: pairs of all runs whose answers could be graded.
        wanted: number of held-out exchanges without erased ones.
        failed: number of calls without an answer that can be graded.
        calls: number of calls over all runs.
        spent_nano: cost over all runs in nano-dollars.
        ended: ``complete``, or ``budget`` if a limit ended the replay early.
    """

    pairs: tuple[Pair, ...]
    wanted: int
    failed: int
    calls: int
    spent_nano: int
    ended: str

    @property
    def differences(self) -> list[float]:
        """New grade minus recorded grade of each pair, in the order of ``pairs``."""
        return [pair.after - pair.before for pair in self.pairs]

    def summary(self) -> dict[str, object]:
        """Return counts, mean grades (0 without pairs) and cost as JSON data, for a proposal."""
        done = max(len(self.pairs), 1)
        return {
            "held_out": self.wanted, "replayed": len(self.pairs), "failed": self.failed,
            "mean_before": round(math.fsum(pair.before for pair in self.pairs) / done, 6),
            "mean_after": round(math.fsum(pair.after for pair in self.pairs) / done, 6),
            "spent_usd": round(self.spent_nano / _NANO, 9), "ended": self.ended,
        }  # fmt: skip


class Replay:
    """The replay of exchanges under one change.

    Args:
        ask: returns the request for an exchange under the change; the request names its model.
        grade: grades an answer to an exchange from 0 to 1; returns ``None`` if it cannot. The
            recorded answer is graded by the same function.
        kept: the progress of earlier runs.
    """

    def __init__(
        self, gateway: LLMGateway, ledger: LedgerClient,
        ask: Callable[[LedgerEntry], PromptRequest],
        grade: Callable[[LedgerEntry, str], float | None], kept: KeptOnRecord,
    ) -> None:  # fmt: skip
        self._gateway, self._ledger = gateway, ledger
        self._ask, self._grade, self._kept = ask, grade, kept
        self._sides: dict[str, bool] = {}

    def run(
        self, exchange_ids: Iterable[str], *, budget_nano: int, calls: int | None = None,
        held_out: bool = True, progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> ReplayResult:  # fmt: skip
        """Ask exchanges again, in their order, until all are done or a limit is reached.

        A call is made only if its upper bound fits into the rest of the budget, so no run exceeds
        it. Each call is recorded as an ``EXCHANGE``. A call that was paid before the process was
        killed is answered from the ledger.

        Args:
            exchange_ids: ids of exchanges. Exchanges of the other part, and missing or erased ones,
                are skipped.
            budget_nano: limit of the cost of all runs together, in nano-dollars.
            calls: limit of the calls of all runs together; ``None`` for no limit.
            held_out: True to ask held-out exchanges; False to ask the others, which a search may
                use.
            progress: called with the number done and the number in all.

        Raises:
            ConflictError: the prices or the model that answers changed since an earlier run.
            InvalidInputError: a call has no upper bound, because its model has no price.
            EntryNotFoundError: the recorded progress names an exchange that does not exist.
        """
        wanted = self.part(exchange_ids, held_out=held_out)
        earlier = self._kept.read(self._graded, self._bound)
        pairs = {pair.exchange_id: pair for pair in earlier}
        spent = sum(pair.cost_nano for pair in pairs.values()) + self._kept.lost_nano
        ended = "complete"
        # Exchanges of several models are each asked of their own: who answered, by who did before.
        models = {
            str(entry.metadata["model_id"]): pairs[entry.id].model_id
            for entry in self._ledger.read_many(pairs)
            if pairs[entry.id].model_id
        }
        erased: set[str] = set()
        for number, exchange_id in enumerate(wanted):
            progress(number, len(wanted))
            if exchange_id in pairs:
                continue
            entry = self._ledger.read(exchange_id)
            if not all(is_whole(entry.metadata[name]) for name in ("prompt", "response")):
                erased.add(exchange_id)  # Since the run began.
                continue
            request = self._ask(entry)
            bound = bound_of(self._gateway, request)
            if spent + bound > budget_nano or (calls is not None and len(pairs) >= calls):
                ended = "budget"
                break
            # A call that was paid before a kill is answered from the record, and not paid again.
            answer = self._gateway.route(self._kept.named(request, exchange_id))
            cost = cost_of(self._ledger, answer, bound)
            spent += cost
            grades = self._graded(entry, answer.content) if not answer.error_code else None
            model = ""
            if grades is not None:
                model = str(self._ledger.read(answer.exchange_entry_id).metadata["model_id"])
                before_it = models.setdefault(str(entry.metadata["model_id"]), model)
                if model != before_it:
                    raise drift(self._kept, f"{model} answers now, and {before_it} did before")
            before, after = grades or (0.0, 0.0)
            pair = Pair(exchange_id, answer.exchange_entry_id, model, before, after, cost)
            pairs[exchange_id] = pair
            self._kept.keep(pair)
        progress(len(wanted), len(wanted))
        asked = [pairs[one] for one in wanted if one in pairs]
        found = tuple(pair for pair in asked if pair.model_id)
        return ReplayResult(
            found, len(wanted) - len(erased), len(asked) - len(found), len(pairs), spent, ended
        )

    def part(self, exchange_ids: Iterable[str], *, held_out: bool = True) -> list[str]:
        """Return the ids of held-out exchanges, or with ``held_out`` False of all others, in order.

        Missing and erased exchanges are left out.
        """
        ids = list(exchange_ids)
        self._sides |= held_out_sides(self._ledger, (one for one in ids if one not in self._sides))
        return [one for one in ids if self._sides.get(one) == held_out]

    def _bound(self, entry: LedgerEntry) -> int:
        return bound_of(self._gateway, self._ask(entry))

    def _graded(self, entry: LedgerEntry, text: str) -> tuple[float, float] | None:
        before = self._grade(entry, str(entry.metadata["response"]))
        after = self._grade(entry, text)
        return None if before is None or after is None else (before, after)
