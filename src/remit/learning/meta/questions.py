"""Quality of a contract's question: repair, disagreement, and unstated requirements."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from remit.contracts import ContractError, ContractLoader
from remit.kernel.canonical import canonical_json
from remit.kernel.json_text import JsonTextError, load_answer
from remit.learning.evidence.feedback import marks
from remit.learning.evidence.samples import Sample, read_samples
from remit.learning.meta.requirements import (
    Requirement,
    criteria_requirements,
    prompt_text,
    schema_requirements,
    tool_requirements,
    unstated,
    words,
)
from remit.learning.proposals.proposal import is_erased
from remit.learning.statistics import ConfidenceSequence, Estimate
from remit.ledger import LedgerEntry, LedgerReader, entry_id

_SHARES = ("success", "repair", "disagreement", "unstated")
_HIGH = 0.1  # A share is high if its lower end is above this.
_PAGE = 200  # The content of so many exchanges is in memory.
_MAX_QUESTIONS = 100_000  # Older questions are not compared.
_EXAMPLES = 20
_SHORT = 60  # Longer texts are compared by their figures.
_FIGURE = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?![\w.]*\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The record of a contract's question, in one version and prompt pack.

    Attributes:
        contract_id: the contract.
        contract_version: its version; empty if the entries state none.
        prompt_pack_id: the prompt pack of the prompts; empty for none.
        exchanges: number of untainted exchanges.
        success: share of exchanges with a valid answer: not failed, rejected or asked again.
        repair: share of turns that the user's next message corrects or asks again (Q1).
        disagreement: share of pairs of valid answers to the same question that differ (Q2).
        unstated: share of valid answers whose prompt leaves a requirement unstated (Q3).
        missing: requirements that prompts leave unstated, with the number of valid answers, highest
            first.
        differing: pairs of exchanges whose valid answers differ.
        examples: valid exchanges whose prompt leaves a requirement unstated.
    """

    contract_id: str
    contract_version: str
    prompt_pack_id: str
    exchanges: int
    success: Estimate
    repair: Estimate
    disagreement: Estimate
    unstated: Estimate
    missing: tuple[tuple[Requirement, int], ...]
    differing: tuple[tuple[str, str], ...]
    examples: tuple[str, ...]

    @property
    def wrong(self) -> bool:
        """True if disagreement (Q2) or unstated requirements (Q3) are surely above 10 %."""
        return self.disagreement.low > _HIGH or self.unstated.low > _HIGH

    def to_dict(self) -> dict[str, Any]:
        """Return all fields and ``wrong``, for JSON.

        ``missing`` is a list of objects with ``kind``, ``name``, ``demanded_by`` and ``answers``,
        the number of valid answers.
        """
        missing = [
            {"kind": one.kind, "name": one.name, "demanded_by": one.of, "answers": count}
            for one, count in self.missing
        ]
        return {**asdict(self), "missing": missing, "wrong": self.wrong}


@dataclass(slots=True)
class _Seen:
    exchanges: int = 0
    shares: dict[str, ConfidenceSequence] = field(
        default_factory=lambda: {name: ConfidenceSequence() for name in _SHARES}
    )
    missing: Counter[Requirement] = field(default_factory=Counter)
    differing: list[tuple[str, str]] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)
    turns: OrderedDict[bytes, bool] = field(default_factory=OrderedDict)
    waiting: OrderedDict[bytes, tuple[bytes, str]] = field(default_factory=OrderedDict)


def read_questions(
    ledger: LedgerReader, contracts: ContractLoader, *, samples: Iterable[Sample] | None = None,
    contract_id: str | None = None, folders: Sequence[ContractLoader] = (),
) -> list[Question]:  # fmt: skip
    """Return the quality of the question of each contract version and prompt pack, sorted by ids.

    Memory grows with questions, not exchanges. Tainted exchanges, and exchanges without a contract,
    do not count. A contract that is no longer installed requires nothing by its schema.

    Args:
        contracts: the loader of the root's contracts, for their output schemas.
        samples: samples, oldest first; all recorded ones if left out.
        folders: loaders of contracts that programs brought in folders of their own.
        contract_id: only this contract; ``None`` for all. Has no effect on given ``samples``.
    """
    seen: dict[tuple[str, str, str], _Seen] = {}
    demands: dict[tuple[str, str], tuple[list[Requirement], Any]] = {}
    found = read_samples(ledger, contract_id=contract_id) if samples is None else iter(samples)
    while page := list(itertools.islice(found, _PAGE)):
        page = [one for one in page if one.contract_id and not one.tainted]
        valid = [one.exchange_id for one in page if _is_valid(one)]
        entries = {entry.id: entry for entry in ledger.read_many(valid)}
        criteria = _criteria(ledger, {one.work_order_id for one in page} - {""})
        for one in page:
            which = (one.contract_id, one.contract_version)
            if which not in demands:
                demands[which] = _demanded((contracts, *folders), *which)
            of = seen.setdefault((*which, one.prompt_pack_id), _Seen())
            of.exchanges += 1
            of.shares["success"].update(float(_is_valid(one)))
            if one.turn_id and (turn := one.turn_id.encode()) not in of.turns:
                _put(of.turns, turn, True)
                of.shares["repair"].update(float(one.corrected))
            entry = entries.get(one.exchange_id)
            if entry is not None and not is_erased(entry):
                required, shown = demands[which]
                demanded = [
                    *required,
                    *tool_requirements(entry.metadata.get("tools"), one.tools),
                    *criteria.get(one.work_order_id, ()),
                ]
                _count(of, one, entry, demanded, shown)
    return [_question(key, of) for key, of in sorted(seen.items(), key=lambda item: item[0])]


def _is_valid(sample: Sample) -> bool:
    return not (sample.failed or sample.rejected or sample.repaired)


def _put(known: OrderedDict[bytes, Any], key: bytes, value: Any) -> None:
    known[key] = value
    if len(known) > _MAX_QUESTIONS:
        known.popitem(last=False)


def _demanded(
    contracts: Iterable[ContractLoader], contract_id: str, version: str
) -> tuple[list[Requirement], Any]:
    """Return the requirements of a contract's output, and the schema that its model receives.

    Both are empty if the contract is no longer installed.
    """
    for one in contracts:
        with suppress(ContractError):
            contract = one.load(contract_id, version or None)
            break
    else:
        return [], None
    shown: Any = contract.boundary.structured_output
    if shown is True:
        shown = contract.output_schema
    return schema_requirements(contract.output_schema or {}, "output_schema"), shown or None


def _criteria(ledger: LedgerReader, orders: set[str]) -> dict[str, list[Requirement]]:
    """Return the requirements of work orders' acceptance criteria, by order."""
    if not orders:
        return {}
    rows = ledger.select(
        f"SELECT seq, work_order_id FROM entries WHERE work_order_id IN ({marks(orders)}) "
        "AND event_type || '' = 'WO_PLANNED'",
        sorted(orders),
    )
    order_of = {entry_id(seq): str(order) for seq, order in rows}
    found: dict[str, list[Requirement]] = {}
    for entry in ledger.read_many(order_of):
        criteria = entry.metadata.get("acceptance_criteria")
        if isinstance(criteria, Mapping):
            found[order_of[entry.id]] = list(criteria_requirements(criteria))
    return found


def _count(
    of: _Seen, sample: Sample, entry: LedgerEntry, demanded: list[Requirement], shown: Any
) -> None:
    prompt = [entry.metadata.get(name) for name in ("system", "prompt")]
    if demanded:
        said = f"{prompt_text(prompt)}\n{orjson.dumps(shown).decode() if shown else ''}"
        missing = unstated(dict.fromkeys(demanded), said)
        of.shares["unstated"].update(float(bool(missing)))
        of.missing.update(missing)
        if missing and len(of.examples) < _EXAMPLES:
            of.examples.append(sample.exchange_id)
    value = answer_value(entry.metadata.get("response"))
    if value is None:
        return
    question = _digest(orjson.dumps(prompt, option=orjson.OPT_SORT_KEYS))
    answer = _digest(value.encode())
    before = of.waiting.pop(question, None)
    if before is None:
        _put(of.waiting, question, (answer, sample.exchange_id))
        return
    differs = before[0] != answer
    of.shares["disagreement"].update(float(differs))
    if differs and len(of.differing) < _EXAMPLES:
        of.differing.append((before[1], sample.exchange_id))


def answer_value(answer: Any) -> str | None:
    """Return the comparable part of an answer or of the values of its JSON; None if it has none.

    A text of at most 60 characters counts whole, without case, white space and a final full stop.
    Of a longer text its figures count, each with the following word.
    """
    if not isinstance(answer, str):
        return None
    try:
        value = load_answer(answer)
    except JsonTextError:
        return _text_value(answer)
    return canonical_json(_json_value(value)).decode()


def _json_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _json_value(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_json_value(item) for item in value]
    if isinstance(value, str):
        return _text_value(value) or ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return f"{value:.12g}"
        except OverflowError:
            return str(value)
    return value


def _text_value(text: str) -> str | None:
    squeezed = " ".join(text.split()).casefold().removesuffix(".")
    if len(squeezed) <= _SHORT:
        return squeezed or None
    figures = [
        f"{float(match[0].replace(',', '')):.12g} {' '.join(words(squeezed[match.end() :])[:1])}"
        for match in _FIGURE.finditer(squeezed)
    ]
    return "; ".join(figures) or None


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _question(key: tuple[str, str, str], of: _Seen) -> Question:
    missing = sorted(of.missing.items(), key=lambda item: (-item[1], item[0].kind, item[0].name))
    return Question(
        contract_id=key[0], contract_version=key[1], prompt_pack_id=key[2], exchanges=of.exchanges,
        **{name: share.estimate for name, share in of.shares.items()}, missing=tuple(missing),
        differing=tuple(of.differing), examples=tuple(of.examples),
    )  # fmt: skip
