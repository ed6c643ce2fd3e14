"""The prompt loop of one contract: search, measurement on held-out exchanges, proposal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.contracts import ContractLoader, PromptContract
from remit.gateway import LLMGateway
from remit.kernel.canonical import canonical_json, sha256_hex
from remit.kernel.errors import InvalidInputError
from remit.kernel.installed import InstalledFiles
from remit.learning.changed_requests import ChangedRequests
from remit.learning.gradable import Grade
from remit.learning.held_out import held_out_sides, is_whole
from remit.learning.meta.requirements import prompt_text
from remit.learning.prompts.purse import Purse
from remit.learning.prompts.quotes import Quotes
from remit.learning.prompts.reflection import Reflection
from remit.learning.prompts.rules import rules_of
from remit.learning.prompts.search import Found, PromptSearch
from remit.learning.proposals import Change, Learner, Proposal, ProposalError
from remit.learning.replay import Replay, ReplayResult
from remit.learning.statistics import PairedEffect, paired_effect
from remit.ledger import LedgerClient

__all__ = ["Measured", "PromptLoop"]


@dataclass(frozen=True, slots=True)
class Measured:
    """The effect of additions on held-out exchanges.

    Attributes:
        replay: the replay of the exchanges.
        effect: the difference of the grades.
    """

    replay: ReplayResult
    effect: PairedEffect


class PromptLoop:
    """Searches for additions to a contract's prompt, and measures them.

    Args:
        gateway: makes the calls.
        ledger: the record.
        contracts: of the root.
        installed: of the root.
        contract_id: whose prompt it is.
        grade: grades an answer to an exchange.
        prices: version of the prices in force.
        kept: a folder for what replays keep, so that a run that was ended goes on; beside it are
            those of the contract's other graders.
    """

    def __init__(
        self,
        gateway: LLMGateway,
        ledger: LedgerClient,
        contracts: ContractLoader,
        installed: InstalledFiles,
        contract_id: str,
        grade: Grade,
        *,
        prices: str,
        kept: Path,
    ) -> None:
        self._gateway = gateway
        self._ledger = ledger
        self._contracts = contracts
        self._installed = installed
        self._contract: PromptContract = contracts.load(contract_id)
        self._grade = grade
        self._prices = prices
        self._kept = kept

    def search(
        self,
        exchange_ids: Sequence[str],
        purse: Purse,
        *,
        schema: Any = None,
        reflect: tuple[str, str] | None = None,
    ) -> Found:
        """Search on exchanges of which none is held out.

        Additions are first those that state what the schema demands and the prompt does not say.

        Args:
            exchange_ids: recorded exchanges, of which every second one is for validation.
            purse: the budget.
            schema: that answers are graded by, if they are.
            reflect: provider and model that propose further additions.

        Raises:
            InvalidInputError: there are fewer than four, one is held out, or the prompt's pack is
                of no package; the model that reflects has no price.
            ProposalError: ``stale``: content of one was erased in the middle.
        """
        if any(held_out_sides(self._ledger, exchange_ids).values()):
            raise InvalidInputError("Held-out exchanges cannot be used for learning.")
        text = self._prompt()
        rules = rules_of(schema, text)
        reflection = (
            Reflection(self._gateway, self._ledger, reflect, text, purse) if reflect else None
        )

        stated = False  # the rules, as the first candidate

        def propose(
            additions: Sequence[str], exchange_id: str, grade: float, answer: str
        ) -> Sequence[str] | None:
            nonlocal stated
            if not stated and rules:
                stated = True
                return rules
            if reflection is None:
                return None
            return reflection(additions, exchange_id, answer, grade)

        quotes = Quotes(self._said(exchange_ids), [text, *rules])
        found = PromptSearch(self._ledger, self._replay, self._grade, propose, quotes, purse)
        made = found.run(exchange_ids)
        gone = set(exchange_ids) - held_out_sides(self._ledger, exchange_ids).keys()
        if gone:
            raise ProposalError(
                "stale",
                f"The content of {min(gone)}, which the search used, was erased during the search.",
                next_step="Run the search again; it then skips this exchange.",
            )
        return made

    def measure(
        self,
        additions: Sequence[str],
        exchange_ids: Sequence[str],
        *,
        budget_nano: int,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Measured:
        """Ask the held-out ones of these exchanges again, with the additions.

        Each set of additions that is ever measured is one more look at the same exchanges. With k
        of them the gate's error is 0.05 / (k (k + 1)), so that those of all together stay below
        0.05, however many runs there are.

        Raises:
            ConflictError: prices, or the model that answers, changed in the middle.
        """
        result = self._replay(additions, "held-out").run(
            exchange_ids, budget_nano=budget_nano, progress=progress
        )
        looks = len(list(self._kept.parent.glob("*/held-out-*.jsonl"))) or 1
        alpha = 0.05 / (looks * (looks + 1))
        # An addition may be why there was no answer: the gate takes it for the worst.
        lost = [*result.differences, *[-1.0] * result.failed]
        gate = paired_effect(lost, alpha=alpha).gate
        return Measured(result, paired_effect(result.differences)._replace(gate=gate))

    def propose(
        self,
        learner: Learner,
        found: Found,
        measured: Measured,
        learned: Sequence[str],
        reason: str,
    ) -> Proposal:
        """Propose additions to a prompt.

        Args:
            learner: the learner that proposes.
            found: the additions.
            measured: the measured effect.
            learned: ids of the exchanges that were searched on.
            reason: the purpose, in words.

        Raises:
            ProposalError: ``not_enough``: there are too few pairs, or the effect may be zero.
        """
        pairs = measured.replay.pairs
        return learner.propose(
            Change("prompt", contract_id=self._contract.contract_id, additions=found.additions),
            evidence=[
                *learned,
                *(one for pair in pairs for one in (pair.exchange_id, pair.replayed_id)),
            ],
            predicted=measured.effect.predicted,
            gate=measured.effect.gate,
            replay={**measured.replay.summary(), "validation": [found.before, found.after]},
            reason=reason,
        )

    def _replay(self, additions: Sequence[str], part: str = "search") -> Replay:
        change = Change("prompt", contract_id=self._contract.contract_id, additions=additions)
        files = change.made(self._installed, self._contracts, 1)
        what: Mapping[str, Any] = {path: sha256_hex(data) for path, data in files.items()}
        return Replay(
            self._gateway,
            self._ledger,
            ChangedRequests(self._ledger, self._installed, self._contract, files),
            self._grade,
            prices=self._prices,
            kept=self._kept / f"{part}-{sha256_hex(canonical_json(what))[:16]}.jsonl",
        )

    def _prompt(self) -> str:
        for path in self._installed.paths(f"HO1/prompt_packs/{self._contract.prompt_pack_id}."):
            return self._installed.read(path).decode()
        raise InvalidInputError(
            f"The prompt pack {self._contract.prompt_pack_id} does not belong to a package.",
            next_step="Put it into a package with `remit package new`.",
        )

    def _said(self, exchange_ids: Sequence[str]) -> list[str]:
        """Return the texts of exchanges, with the values filled into system messages."""
        said: list[str] = []
        for entry in self._ledger.read_many(exchange_ids):
            given = entry.metadata["prompt"]
            if not is_whole(given):  # Erased meanwhile.
                continue
            messages = given if isinstance(given, list) else [{"role": "user", "content": given}]
            said += (prompt_text(one.get("content")) for one in messages)
            said.append(prompt_text(entry.metadata["response"]))
        return said
