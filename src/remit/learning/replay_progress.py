"""The progress of a replay, in a file or in the ledger, from which an interrupted one continues."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from remit.kernel.errors import ConflictError
from remit.kernel.exchange import PromptRequest
from remit.learning.exchanges import is_own_call, is_whole
from remit.ledger import LedgerClient, LedgerEntry

_SPLIT = "prompt"  # The rule of holding out; files with another rule are not read.
_NANO = 1_000_000_000
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


class KeptFile:
    """The progress of a replay in a file of ids and grades.

    The file begins with a line that names the run. Each further line is a pair.

    Args:
        path: the file, to which lines are appended; it need not exist.

    Attributes:
        lost_nano: 0, because no call is lost: the ledger answers a repeated one.
        from_the_beginning: the instruction for starting the replay again.
    """

    def __init__(self, path: Path, prices: str) -> None:
        self._path, self._prices = path, prices
        self._run = ""
        self.lost_nano = 0
        self.from_the_beginning = f"Move {path} elsewhere, and start again from the beginning."

    def read(self, graded: Graded, bound: Bound) -> Iterator[Pair]:
        """Yield the pairs of earlier runs, in the order of their calls.

        A last line that was cut off by a kill is removed from the file. Nothing is yielded if the
        file does not exist.

        Raises:
            ConflictError: the prices or the rule for holding out have changed, or a line is not
                valid.
        """
        lines = self._path.read_bytes().splitlines(keepends=True) if self._path.exists() else []
        if lines and not lines[-1].endswith(b"\n"):
            self._path.write_bytes(b"".join(lines[:-1]))
            lines.pop()
        for number, line in enumerate(lines):
            try:
                value = json.loads(line)
                if not number:
                    self._run, split = str(value["run"]), value.get("split")
                    if split != _SPLIT:
                        raise drift(self, "the rule for held-out exchanges changed")
                    continue
                prices, pair = value.pop("prices"), Pair(**value)
            except (ValueError, KeyError, TypeError, AttributeError):
                what = f"line {number + 1} of its file is not what it wrote"
                raise drift(self, what) from None
            if prices != self._prices:
                raise drift(self, "the prices changed since the start")
            yield pair

    def named(self, request: PromptRequest, exchange_id: str) -> PromptRequest:
        """Return the request under the idempotency key of its run and exchange.

        A repeated request is then answered from the ledger. The first call writes the head of the
        file.
        """
        if not self._run:
            self._run = secrets.token_hex(8)
            self._append({"run": self._run, "split": _SPLIT})
        return replace(request, idempotency_key=f"replay {self._run} {exchange_id}")

    def keep(self, pair: Pair) -> None:
        """Append a pair to the file as a line, with the version of the prices; raise OSError if the
        file cannot be written.
        """
        self._append({**asdict(pair), "prices": self._prices})

    def _append(self, value: dict[str, object]) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(value) + "\n")


class KeptOnRecord:
    """The progress of a replay in the ledger, among its calls; any machine can continue it.

    Each call belongs to a work order that is named after the replay and the exchange. Every paid
    call is counted, including calls whose answer a killed process did not read. The ledger is read
    at the first :meth:`read`, not before. Nothing is written here: the gateway records the calls.

    Args:
        name: id of the replay's order.

    Attributes:
        lost_nano: cost in nano-dollars of calls whose answers are lost; 0 until :meth:`read`.
        from_the_beginning: the instruction for starting the replay again.
    """

    from_the_beginning = "Submit the replay again as a new order."

    def __init__(
        self, ledger: LedgerClient, name: str, exchange_ids: Sequence[str], prices: str
    ) -> None:
        self._ledger, self._name, self._ids, self._prices = ledger, name, exchange_ids, prices
        self._pairs: dict[str, Pair] | None = None
        self.lost_nano = 0

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
        """Return the request under a work order and key made of the replay's name.

        The key makes the gateway answer a repeated request from the ledger.
        """
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


Kept = KeptFile | KeptOnRecord
"""The progress of a replay between its runs, in a file or in the record."""


def drift(kept: Kept, what: str) -> ConflictError:
    """Return (not raise) the error of a replay that cannot continue because of ``what``."""
    return ConflictError(
        f"The replay cannot continue: {what}. Its results would not measure the change alone.",
        next_step=kept.from_the_beginning,
    )
