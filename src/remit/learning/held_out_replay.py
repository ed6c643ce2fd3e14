"""Replay: held-out exchanges are asked again through the gateway, within a hard budget.

Each exchange is asked again with a change. The new and the recorded answer are graded by the same
grader, and the difference of both grades is the effect. An interrupted replay continues from the
record.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    is_whole_exchange,
    terms_of,
)
from remit.ledger import LedgerClient, LedgerEntry

_NANO = 1_000_000_000
_NAME = re.compile(r"REPLAY-[0-9a-f]{16}")
_CALLS = ("EXCHANGE", "EXCHANGE_ORPHANED")


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


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay.

    Attributes:
        pairs: pairs of all runs whose answers could be graded.
        wanted: number of exchanges of the requested part, without erased ones.
        failed: number of exchanges that were asked and have no answer that can be graded.
        calls: number of exchanges that were asked over all runs, the other part included.
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
        """Return counts, mean grades (0 without pairs) and cost as JSON data, for a proposal.

        The keys are ``held_out`` (``wanted``), ``replayed`` (number of pairs), ``failed``,
        ``mean_before``, ``mean_after``, ``spent_usd`` and ``ended``. Means have 6 decimals.
        """
        done = max(len(self.pairs), 1)
        return {
            "held_out": self.wanted, "replayed": len(self.pairs), "failed": self.failed,
            "mean_before": round(math.fsum(pair.before for pair in self.pairs) / done, 6),
            "mean_after": round(math.fsum(pair.after for pair in self.pairs) / done, 6),
            "spent_usd": round(self.spent_nano / _NANO, 9), "ended": self.ended,
        }  # fmt: skip


class Replay:
    """The replay of exchanges under one change; any machine can continue it.

    The progress is the recorded calls. Each belongs to a work order that is named after the replay
    and the exchange. Every paid call counts, also if a killed process did not read its answer.

    Args:
        ask: returns the request for an exchange under the change; the request names its model.
        grade: grades an answer to an exchange from 0 to 1; returns ``None`` if it cannot. The
            recorded answer is graded by the same function.
        name: name of the replay, such as the id of its order; or the path of a file with the name,
            which is created if it is missing.
        exchange_ids: all exchanges that the replay may ask again.
        prices: version of the prices in force.

    Raises:
        ConflictError: the file does not hold the name of a replay.
        OSError: the file cannot be read or written.
    """

    def __init__(
        self, gateway: LLMGateway, ledger: LedgerClient,
        ask: Callable[[LedgerEntry], PromptRequest],
        grade: Callable[[LedgerEntry, str], float | None], name: str | Path,
        exchange_ids: Sequence[str], prices: str,
    ) -> None:  # fmt: skip
        self._gateway, self._ledger = gateway, ledger
        self._ask, self._grade = ask, grade
        self._ids, self._prices = exchange_ids, prices
        self._sides: dict[str, bool] = {}
        self._pairs: dict[str, Pair] | None = None
        self._models: dict[str, str] = {}
        self._lost_nano = 0
        self._again = "Submit the replay again as a new order."
        if isinstance(name, Path):
            self._again = f"Move {name} elsewhere, and start again from the beginning."
            if not name.exists():
                name.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                name.write_text(f"REPLAY-{secrets.token_hex(8)}\n")
            name = name.read_text(errors="replace").strip()
            if not _NAME.fullmatch(name):
                raise self._drift("its file does not hold the name of a replay")
        self._name = name

    def run(
        self, exchange_ids: Iterable[str], *, budget_nano: int, calls: int | None = None,
        held_out: bool = True, progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> ReplayResult:  # fmt: skip
        """Ask exchanges again, in their order, until all are done or a limit is reached.

        A call is made only if its upper bound fits into the rest of the budget, so no run exceeds
        it. Each call is recorded as an ``EXCHANGE`` (refused by the gateway, as
        ``PROMPT_REJECTED``). A call that was paid before the process was killed is answered from
        the ledger.

        Args:
            exchange_ids: ids of exchanges. Exchanges of the other part, and missing or erased ones,
                are skipped.
            budget_nano: limit of the cost of all runs together, in nano-dollars.
            calls: limit of the calls of all runs together; ``None`` for no limit.
            held_out: True to ask held-out exchanges; False to ask the others, which a search may
                use.
            progress: called with the number done and the number in all; at the end with both
                equal, unless a limit ended the run.

        Raises:
            ConflictError: the prices or the model that answers changed since an earlier run.
            InvalidInputError: a call has no upper bound, because its model has no price; or the
                change does not fit a recorded prompt.
            EntryNotFoundError: the recorded progress names an exchange that does not exist.
            LedgerError: the ledger cannot be read or written. Errors of ``ask`` and ``grade`` are
                raised too.
        """
        wanted = self.part(exchange_ids, held_out=held_out)
        pairs = self._recorded()
        spent = sum(pair.cost_nano for pair in pairs.values()) + self._lost_nano
        ended = "complete"
        models = self._models
        erased: set[str] = set()
        for number, exchange_id in enumerate(wanted):
            progress(number, len(wanted))
            if exchange_id in pairs:
                continue
            entry = self._ledger.read(exchange_id)
            if not is_whole_exchange(entry):
                erased.add(exchange_id)  # Since the run began.
                continue
            request = self._ask(entry)
            bound = bound_of(self._gateway, request)
            if spent + bound > budget_nano or (calls is not None and len(pairs) >= calls):
                ended = "budget"
                break
            name = f"{self._name}-{exchange_id}"
            # A call that was paid before a kill is answered from the record, and not paid again.
            answer = self._gateway.route(
                replace(request, work_order_id=name, idempotency_key=f"replay {name}")
            )
            cost = cost_of(self._ledger, answer, bound)
            spent += cost
            text = None if answer.error_code else answer.content
            pair = self._pair(entry, answer.exchange_entry_id, text, cost)
            if pair.model_id:
                before_it = models.setdefault(str(entry.metadata["model_id"]), pair.model_id)
                if pair.model_id != before_it:
                    raise self._drift(f"{pair.model_id} answers now, and {before_it} did before")
            pairs[exchange_id] = pair
        else:
            progress(len(wanted), len(wanted))
        asked = [pairs[one] for one in wanted if one in pairs]
        found = tuple(pair for pair in asked if pair.model_id)
        return ReplayResult(
            found, len(wanted) - len(erased), len(asked) - len(found), len(pairs), spent, ended
        )

    def part(self, exchange_ids: Iterable[str], *, held_out: bool = True) -> list[str]:
        """Return the ids of held-out exchanges, or with ``held_out`` False of all others, in order.

        Missing and erased exchanges are left out; an exchange is read once. LedgerError is raised
        if the ledger cannot be read.
        """
        ids = list(exchange_ids)
        self._sides |= held_out_sides(self._ledger, (one for one in ids if one not in self._sides))
        return [one for one in ids if self._sides.get(one) == held_out]

    def _recorded(self) -> dict[str, Pair]:
        """Return the recorded pairs by exchange, read from the ledger at the first call; raise
        ConflictError if the prices changed since one.

        The cost of calls whose answer is lost or erased is stored in ``_lost_nano``.
        """
        if self._pairs is None:
            pairs: dict[str, Pair] = {}
            lost = 0
            for exchange_id in self._ids:
                order = f"{self._name}-{exchange_id}"
                calls = [
                    call
                    for call in self._ledger.query(work_order_id=order)
                    if call.event_type in _CALLS and is_own_call(call.metadata)
                ]
                if not calls:
                    continue
                entry = self._ledger.read(exchange_id)
                cost = sum(self._cost(call, entry) for call in calls)
                answers = [call for call in calls if call.event_type == "EXCHANGE"]
                last = answers[-1].metadata if answers else {"response": None}
                if not (is_whole_exchange(entry) and is_whole(last["response"])):
                    lost += cost
                    continue
                if last.get("price_version") not in (None, self._prices):
                    raise self._drift("the prices changed since the start")
                text = str(last["response"]) if last["outcome"] == "success" else None
                pairs[exchange_id] = self._pair(entry, answers[-1].id, text, cost)
            # Exchanges of several models are each asked of their own: who answered, by who did
            # before.
            self._models = {
                str(entry.metadata["model_id"]): pairs[entry.id].model_id
                for entry in self._ledger.read_many(pairs)
                if pairs[entry.id].model_id
            }
            self._pairs, self._lost_nano = pairs, lost
        return self._pairs

    def _cost(self, call: LedgerEntry, exchange: LedgerEntry) -> int:
        """Return the recorded cost of a call in nano-dollars; its bound if none is recorded."""
        usd: float | None = call.metadata.get("cost_usd")
        if usd is None and is_whole_exchange(exchange):
            return bound_of(self._gateway, self._ask(exchange))
        return round((usd or 0) * _NANO)

    def _pair(self, exchange: LedgerEntry, replayed_id: str, text: str | None, cost: int) -> Pair:
        """Return the pair of an exchange and its replay; ``text`` is None without an answer."""
        before = after = None
        if text is not None:
            before = self._grade(exchange, str(exchange.metadata["response"]))
            after = self._grade(exchange, text)
        if before is None or after is None:
            return Pair(exchange.id, replayed_id, "", 0.0, 0.0, cost)
        model = str(self._ledger.read(replayed_id).metadata["model_id"])
        return Pair(exchange.id, replayed_id, model, before, after, cost)

    def _drift(self, what: str) -> ConflictError:
        return ConflictError(
            f"The replay cannot continue: {what}. Its results would not measure the change alone.",
            next_step=self._again,
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
        """Return the changed request of a recorded ``EXCHANGE``.

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
