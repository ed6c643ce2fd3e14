"""The progress of a replay in the ledger, from which an interrupted one continues."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from remit.kernel.errors import ConflictError
from remit.kernel.exchange import PromptRequest
from remit.learning.exchanges import is_own_call, is_whole
from remit.ledger import LedgerClient, LedgerEntry

_NANO = 1_000_000_000
_NAME = re.compile(r"REPLAY-[0-9a-f]{16}")
_CALLS = ("EXCHANGE", "EXCHANGE_ORPHANED")

Graded = Callable[[LedgerEntry, str], tuple[float, float] | None]
"""Grades of the recorded answer to an exchange, and of a new one."""

Bound = Callable[[LedgerEntry], int]
"""Returns the highest cost of asking an exchange again, in nano-dollars."""


@dataclass(frozen=True, slots=True)
class Pair:
    """An exchange and its replay.

    Attributes:
        exchange_id: id of the recorded ``EXCHANGE``.
        replayed_id: id of the new ``EXCHANGE``.
        model_id: the model that answered; empty if none did, or if an answer cannot be graded.
        before: grade of the recorded answer, 0 to 1.
        after: grade of the new answer, 0 to 1.
        cost_nano: cost of the new call in nano-dollars.
    """

    exchange_id: str
    replayed_id: str
    model_id: str
    before: float
    after: float
    cost_nano: int


class KeptOnRecord:
    """The progress of a replay among its recorded calls; any machine can continue it.

    Each call belongs to a work order that is named after the replay and the exchange. Every paid
    call is counted, including calls whose answer a killed process did not read. The ledger is read
    at the first :meth:`read`. Nothing is written here: the gateway records the calls.

    Args:
        name: name of the replay, such as the id of its order.
        exchange_ids: all exchanges that the replay may ask again.

    Attributes:
        lost_nano: cost in nano-dollars of calls whose answers are lost; 0 until :meth:`read`.
        from_the_beginning: the instruction for starting the replay again.
    """

    def __init__(
        self, ledger: LedgerClient, name: str, exchange_ids: Sequence[str], prices: str
    ) -> None:
        self._ledger, self._name, self._ids, self._prices = ledger, name, exchange_ids, prices
        self._pairs: dict[str, Pair] | None = None
        self.lost_nano = 0
        self.from_the_beginning = "Submit the replay again as a new order."

    @classmethod
    def of_file(
        cls, file: Path, ledger: LedgerClient, exchange_ids: Sequence[str], prices: str
    ) -> KeptOnRecord:
        """Return the progress of the replay whose name a file holds; create a missing file.

        Raises:
            ConflictError: the file holds no such name.
            OSError: the file cannot be read or written.
        """
        if not file.exists():
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.write_text(f"REPLAY-{secrets.token_hex(8)}\n")
        made = cls(ledger, file.read_text(errors="replace").strip(), exchange_ids, prices)
        made.from_the_beginning = f"Move {file} elsewhere, and start again from the beginning."
        if not _NAME.fullmatch(made._name):
            raise drift(made, "its file does not hold the name of a replay")
        return made

    def read(self, graded: Graded, bound: Bound) -> Iterator[Pair]:
        """Yield the recorded pairs; the ledger is read at the first call only.

        Calls whose answer is lost or erased are added to ``lost_nano`` and not yielded.

        Raises:
            ConflictError: the prices have changed since a recorded call.
        """
        if self._pairs is None:
            pairs, self.lost_nano = {}, 0
            for exchange_id in self._ids:
                if (pair := self._recorded(exchange_id, graded, bound)) is not None:
                    pairs[exchange_id] = pair
            self._pairs = pairs
        yield from list(self._pairs.values())

    def named(self, request: PromptRequest, exchange_id: str) -> PromptRequest:
        """Return the request under an order and an idempotency key made of the replay's name."""
        name = self._of(exchange_id)
        return replace(request, work_order_id=name, idempotency_key=f"replay {name}")

    def keep(self, pair: Pair) -> None:
        """Add a pair in memory; nothing is written, because the ledger holds the call already."""
        if self._pairs is not None:
            self._pairs[pair.exchange_id] = pair

    def _of(self, exchange_id: str) -> str:
        return f"{self._name}-{exchange_id}"

    def _recorded(self, exchange_id: str, graded: Graded, bound: Bound) -> Pair | None:
        calls = [
            call
            for call in self._ledger.query(work_order_id=self._of(exchange_id))
            if call.event_type in _CALLS and is_own_call(call.metadata)
        ]
        if not calls:
            return None
        entry = self._ledger.read(exchange_id)
        is_there = all(is_whole(entry.metadata[name]) for name in ("prompt", "response"))
        cost = 0
        for call in calls:
            usd = call.metadata.get("cost_usd")
            if usd is None and is_there:
                cost += bound(entry)
            cost += round((usd or 0) * _NANO)
        answers = [call.metadata for call in calls if call.event_type == "EXCHANGE"]
        if not answers or not is_there or not is_whole(answers[-1]["response"]):
            self.lost_nano += cost
            return None
        answer = answers[-1]
        if answer.get("price_version") not in (None, self._prices):
            raise drift(self, "the prices changed since the start")
        grades = None
        if answer["outcome"] == "success":
            grades = graded(entry, str(answer["response"]))
        model = str(answer["model_id"]) if grades is not None else ""
        before, after = grades or (0.0, 0.0)
        replayed = [call.id for call in calls if call.event_type == "EXCHANGE"][-1]
        return Pair(exchange_id, replayed, model, before, after, cost)


def drift(kept: KeptOnRecord, what: str) -> ConflictError:
    """Return the error of a replay that cannot continue because of ``what``."""
    return ConflictError(
        f"The replay cannot continue: {what}. Its results would not measure the change alone.",
        next_step=kept.from_the_beginning,
    )
