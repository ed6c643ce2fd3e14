"""Replay: held-out exchanges are asked again through the gateway, within a hard budget.

Each exchange is asked again with a change. The new and the recorded answer are graded by the same
grader, and the difference of both grades is the effect. An interrupted replay continues from the
record.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remit.contracts import PromptContract, cut_sections
from remit.gateway import LLMGateway
from remit.kernel.errors import ConflictError, InvalidInputError
from remit.kernel.exchange import PromptRequest
from remit.kernel.installed_files import InstalledFiles
from remit.learning.exchanges import (
    bound_of,
    cost_of,
    held_out_sides,
    is_own_call,
    is_whole,
    terms_of,
)
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
            InvalidInputError: a call has no upper bound, because its model has no price; or the
                change does not fit a recorded prompt.
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
        """Yield the recorded pairs; raise ConflictError if the prices changed since one.

        Calls whose answer is lost or erased are added to ``lost_nano`` and not yielded.
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
        """Add a pair in memory; the ledger holds the call already."""
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


_AGENT = "replay"
_TEMPLATE = ("{{", "{%", "{#")


class ChangedRequests:
    """Requests that repeat recorded exchanges under changed files or with another model.

    The ledger does not hold the values of a prompt's variables separately. A changed section must
    therefore be plain text before and after, or be extended by plain text at its end.

    Args:
        installed: the installed files, with the packs of recorded prompts.
        contract: the present contract.
        files: changed files by path, such as those of ``Change.made``; a contract among them
            replaces ``contract``.
        model: provider and model to ask; ``None`` for those of the contract, else of the exchange.

    Raises:
        ContractError: a changed contract is not valid.
    """

    def __init__(
        self, ledger: LedgerClient, installed: InstalledFiles, contract: PromptContract,
        files: Mapping[str, bytes], model: tuple[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._ledger = ledger
        self._installed = installed
        self._model = model
        self._pack = ""
        for path, data in files.items():
            if path.startswith("HO1/contracts/"):
                contract = PromptContract.parse(data, path)
            elif path.startswith("HO1/prompt_packs/"):
                self._pack = data.decode()
        self._contract = contract

    def __call__(self, exchange: LedgerEntry) -> PromptRequest:
        """Return the changed request of an exchange.

        No call is made.

        Args:
            exchange: a recorded ``EXCHANGE`` with its prompt.

        Raises:
            InvalidInputError: the change cannot be applied to this prompt: its pack is not
                installed, sections differ, or the changed section has variables.
        """
        data, contract = exchange.metadata, self._contract
        prompt = data["prompt"]
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        if self._pack:
            messages = self._changed(exchange, messages)
        limits = contract.boundary
        provider_id, model_id = self._model or (
            limits.provider_id or self._asked(exchange),
            limits.model_id or str(data["model_id"]),
        )
        return PromptRequest(
            "", contract.prompt_pack_id, contract.contract_id, _AGENT, "RESIDENT",
            contract.framework_id, contract.package_id, "", tier="ho1", messages=messages,
            provider_id=provider_id, model_id=model_id, max_tokens=limits.max_tokens,
            temperature=limits.temperature, output_schema=contract.output_schema,
            structured_output=None if data.get("tools") else limits.structured_output,
            tools=data.get("tools"), contract_version=contract.version,
            **terms_of(self._ledger, exchange),
        )  # fmt: skip

    def _asked(self, exchange: LedgerEntry) -> str:
        """Return the provider of an exchange.

        The ``EXCHANGE`` names it only if the request did not; else the ``DISPATCH`` does.
        """
        if named := exchange.metadata.get("provider_id"):
            return str(named)
        reason = self._ledger.read(exchange.metadata["dispatch_entry_id"]).reason
        return reason.removeprefix("Dispatching to ").partition("/")[0]

    def _changed(self, exchange: LedgerEntry, messages: Any) -> list[dict[str, Any]]:
        name = next(iter(exchange.prompts_used), "")
        paths = list(self._installed.paths(f"HO1/prompt_packs/{name}."))
        if not paths:
            raise _cannot(exchange, f"its prompt pack {name} is not installed")
        old = _sections(self._installed.read(paths[0]).decode())
        new = _sections(self._pack)
        made = [dict(message) for message in messages]
        # The old prompt had no system message.
        if len(new) == len(old) + 1 and new[0][0] == "system":
            made.insert(0, {"role": "system", "content": new.pop(0)[1]})
        if [role for role, _ in old] != [role for role, _ in new]:
            raise _cannot(exchange, "the prompt has other sections")
        for (role, before), (_, after) in zip(old, new, strict=True):
            if before == after:
                continue
            gained = after.removeprefix(before) if after.startswith(before) else ""
            for message in made:
                text = message["content"]
                if message["role"] != role or not isinstance(text, str):
                    continue
                if text == before and not _fills(after):
                    message["content"] = after
                    break
                if gained and not _fills(gained):
                    message["content"] = text + gained
                    break
            else:
                raise _cannot(exchange, f"the values in its [{role}] section are not recorded")
        return made


def _sections(text: str) -> list[tuple[str, str]]:
    return [(role, source.strip()) for role, _, source in cut_sections(text)]


def _fills(text: str) -> bool:
    return any(mark in text for mark in _TEMPLATE)


def _cannot(exchange: LedgerEntry, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"{exchange.id} cannot be asked again under this change: {why}.",
        next_step="Change the prompt by additions, or change sections without variables.",
    )
