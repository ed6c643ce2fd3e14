"""Quality of a contract's question: repair, disagreement, and requirements that it does not state.

Requirements come from schemas and acceptance criteria. A prompt states one by its words.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from remit.contracts import ContractError, ContractLoader
from remit.kernel.canonical import canonical_json
from remit.kernel.json_text import JsonTextError, dump, load_answer
from remit.learning.evidence.feedback import marks
from remit.learning.evidence.samples import Sample
from remit.learning.exchanges import is_erased
from remit.learning.statistics import ConfidenceSequence, Estimate
from remit.ledger import LedgerEntry, LedgerReader, entry_id

_DEEPEST = 8  # levels of a schema that are read
_WORD = re.compile(r"[^\W_]+|[€$£%°]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

# Words that name one unit: a prompt states it by any of them.
_UNITS = tuple(
    tuple(names.split())
    for names in (
        "eur euro euros €", "usd dollar dollars $", "gbp sterling £", "chf franken", "jpy yen",
        "cents cent", "percent percentage % pct", "milliseconds millisecond ms",
        "seconds second sec s", "minutes minute min", "hours hour h", "days day", "weeks week",
        "months month", "years year", "kg kilograms kilogram kilo kilos", "grams gram g",
        "pounds pound lb lbs", "tonnes tonne t", "ounces ounce oz", "km kilometres kilometers",
        "metres meters metre meter m", "cm centimetres centimeters", "mm millimetres millimeters",
        "miles mile", "inches inch", "feet foot ft", "celsius centigrade", "fahrenheit", "kelvin",
        "litres liters litre liter l", "ml millilitres milliliters", "bytes byte", "kb kilobytes",
        "mb megabytes", "gb gigabytes", "kwh", "watts watt", "utc",
    )
)  # fmt: skip
_UNIT_OF = {name: unit for unit in _UNITS for name in unit}
# In a description these are mostly other words: the second item, the day of the order.
_AMBIGUOUS = frozenset({
    "second", "minute", "hour", "day", "week", "month", "year", "pound", "meter", "metre", "foot",
    "feet", "mile", "inch", "sec", "min", "s", "h", "g", "t", "m", "l", "oz",
})  # fmt: skip

# How a prompt states a format of JSON Schema, beside its own name.
_FORMATS: Mapping[str, tuple[str, ...]] = {
    "date": ("yyyy mm dd", "iso 8601", "rfc 3339", "iso date"),
    "date-time": ("iso 8601", "rfc 3339", "iso date", "yyyy mm dd"),
    "time": ("iso 8601", "rfc 3339", "hh mm"), "duration": ("iso 8601",),
    "email": ("e mail", "mail address"), "uri": ("url", "link"), "uuid": ("guid",),
    "ipv4": ("ip address",), "ipv6": ("ip address",),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement that an answer must meet.

    Attributes:
        kind: `field`, `unit`, `format`, `value`, `text`, `length` or `tool`.
        name: the field, unit, format, permitted value, text, number of characters or tool.
        of: origin of the requirement: a place in a schema, or a criterion.
        phrases: phrases of consecutive words, any of which states the requirement.
    """

    kind: str
    name: str
    of: str
    phrases: tuple[tuple[str, ...], ...]


def words(text: str) -> tuple[str, ...]:
    """Return the words of a text, case-folded; `_`, camel case and punctuation separate words."""
    return tuple(word.casefold() for word in _WORD.findall(_CAMEL.sub(" ", text)))


def unstated(requirements: Iterable[Requirement], prompt: str) -> list[Requirement]:
    """Return the requirements that a prompt does not state, in their order.

    A prompt states a requirement if it contains one of its phrases as consecutive whole words, as
    in :func:`words`.
    """
    said = f" {' '.join(words(prompt))} "
    return [
        one
        for one in requirements
        if not any(f" {' '.join(phrase)} " in said for phrase in one.phrases)
    ]


def schema_requirements(schema: Mapping[str, Any], of: str) -> list[Requirement]:
    """Return the requirements of a JSON Schema for the required fields of an answer, each once.

    They are names, units given by names, titles and descriptions, texts in `enum` and `const`, and
    `format`; also of fields within required fields, `items` and `allOf`. Optional fields,
    `pattern`, `anyOf`, `oneOf`, other values than texts, schemas behind `$ref` and those more than
    8 levels deep add none.

    Args:
        of: name of the schema's owner, with which the requirements state their origin.
    """
    return list(dict.fromkeys(_of_schema(schema, of, names=True)))


def _tool_requirements(tools: Any, called: Iterable[str]) -> list[Requirement]:
    """Return the units and formats that called tools require of their arguments, each once.

    Names and permitted values are left out, because the provider shows these to the model. Tools of
    an unknown form are skipped.
    """
    names = set(called)
    found: list[Requirement] = []
    for tool in tools if isinstance(tools, list) else []:
        inner = tool.get("function", tool) if isinstance(tool, dict) else {}
        schema = inner.get("input_schema") or inner.get("parameters")
        if inner.get("name") in names and isinstance(schema, dict):
            found += _of_schema(schema, f"tool {inner['name']}", names=False)
    return list(dict.fromkeys(found))


def criteria_requirements(criteria: Mapping[str, Any]) -> list[Requirement]:
    """Return the requirements that acceptance criteria state.

    They come from ``must_contain``, ``must_not_contain``, ``tools_used``, ``min_chars``,
    ``max_chars`` and ``output_schema``, in this order. Other criteria, and texts without a word,
    add none.
    """
    found: list[Requirement] = []
    for name in ("must_contain", "must_not_contain"):
        found += (
            Requirement("text", text, name, (words(text),)) for text in _texts(criteria, name)
        )
    for tool in _texts(criteria, "tools_used"):
        found.append(Requirement("tool", tool, "tools_used", (words(tool),)))
    for name in ("min_chars", "max_chars"):
        if isinstance(number := criteria.get(name), int):
            found.append(Requirement("length", str(number), name, (words(str(number)),)))
    if isinstance(schema := criteria.get("output_schema"), dict):
        found += schema_requirements(schema, "acceptance output_schema")
    return found


def _texts(criteria: Mapping[str, Any], name: str) -> list[str]:
    found = criteria.get(name)
    return [one for one in found if isinstance(one, str) and words(one)] if (
        isinstance(found, list | tuple)
    ) else []  # fmt: skip


def _of_schema(
    schema: Mapping[str, Any], of: str, *, names: bool, depth: int = 0
) -> Iterator[Requirement]:
    if depth > _DEEPEST:
        return
    for name in ("allOf", "items"):
        inner = schema.get(name)
        for one in inner if isinstance(inner, list) else [inner]:
            if isinstance(one, dict):
                yield from _of_schema(one, of, names=names, depth=depth + 1)
    yield from _of_value(schema, of, names=names)
    fields = schema.get("properties")
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        inner = fields.get(name) if isinstance(fields, dict) else None
        inner = inner if isinstance(inner, dict) else {}
        place = f"{of}: {name}"
        own = words(str(name))
        unit = _UNIT_OF.get(own[-1]) if len(own) > 1 else None
        rest = own[:-1] if unit else own
        if names and rest:
            yield Requirement("field", str(name), of, (rest,))
        in_text = f"{inner.get('title', '')} {inner.get('description', '')}"
        said = [_UNIT_OF.get(word) for word in words(in_text) if word not in _AMBIGUOUS]
        for one in dict.fromkeys(found for found in (unit, *said) if found):
            yield Requirement("unit", one[0], place, tuple((alias,) for alias in one))
        yield from _of_schema(inner, place, names=names, depth=depth + 1)


def _of_value(schema: Mapping[str, Any], of: str, *, names: bool) -> Iterator[Requirement]:
    values = schema.get("enum")
    values = values if isinstance(values, list) else []
    for value in [*values, schema.get("const")] if names else ():
        if isinstance(value, str) and (own := words(value)):
            yield Requirement("value", value, of, (own,))
    if isinstance(name := schema.get("format"), str) and words(name):
        phrases = (words(name), *(tuple(one.split()) for one in _FORMATS.get(name, ())))
        if name == "date":  # every prompt that asks for a date says the word, not the format
            phrases = phrases[1:]
        yield Requirement("format", name, of, phrases)


def prompt_text(value: Any) -> str:
    """Return all texts of a recorded prompt, in any form, joined by line ends.

    Texts of nested lists and values of objects count, such as a message's role; names of members
    and other values give no text. Empty texts are left out.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return "\n".join(filter(None, map(prompt_text, value)))
    return ""


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
        success: share of answers that are valid: not rejected or asked again.
        repair: share of turns that the user's next message corrects or asks again (Q1).
        disagreement: share of pairs of valid answers to the same question that differ (Q2); each
            answer is in one pair at most.
        unstated: share of valid answers with requirements whose prompt leaves one unstated (Q3).
        missing: requirements that prompts leave unstated, with the number of valid answers, highest
            first.
        differing: the first 20 pairs of exchanges whose valid answers differ.
        examples: the first 20 valid exchanges whose prompt leaves a requirement unstated.
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
    ledger: LedgerReader, contracts: ContractLoader, samples: Iterable[Sample], *,
    folders: Sequence[ContractLoader] = (),
) -> list[Question]:  # fmt: skip
    """Return the quality of the question of each contract version and prompt pack, sorted by ids.

    Memory grows with questions, not exchanges. Tainted exchanges, and exchanges without a contract,
    do not count. A contract that is no longer installed requires nothing by its schema.

    Args:
        contracts: the loader of the root's contracts, for their output schemas.
        samples: samples of :func:`read_samples`, oldest first.
        folders: loaders of contracts that programs brought in folders of their own.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    seen: dict[tuple[str, str, str], _Seen] = {}
    demands: dict[tuple[str, str], tuple[list[Requirement], Any]] = {}
    rest = iter(samples)
    while page := list(itertools.islice(rest, _PAGE)):
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
            if not one.failed:
                of.shares["success"].update(float(_is_valid(one)))
            if one.turn_id and (turn := one.turn_id.encode()) not in of.turns:
                _put(of.turns, turn, True)
                of.shares["repair"].update(float(one.corrected))
            entry = entries.get(one.exchange_id)
            if entry is not None and not is_erased(entry):
                required, shown = demands[which]
                demanded = [
                    *required,
                    *_tool_requirements(entry.metadata.get("tools"), one.tools),
                    *criteria.get(one.work_order_id, ()),
                ]
                _count(of, one, entry, demanded, shown)
    return [
        Question(
            contract_id=key[0], contract_version=key[1], prompt_pack_id=key[2],
            exchanges=of.exchanges,
            missing=tuple(sorted(of.missing.items(),
                                 key=lambda item: (-item[1], item[0].kind, item[0].name))),
            differing=tuple(of.differing), examples=tuple(of.examples),
            **{name: share.estimate for name, share in of.shares.items()},
        )
        for key, of in sorted(seen.items(), key=lambda item: item[0])
    ]  # fmt: skip


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
        said = f"{prompt_text(prompt)}\n{dump(shown).decode() if shown else ''}"
        missing = unstated(dict.fromkeys(demanded), said)
        of.shares["unstated"].update(float(bool(missing)))
        of.missing.update(missing)
        if missing and len(of.examples) < _EXAMPLES:
            of.examples.append(sample.exchange_id)
    value = answer_value(entry.metadata.get("response"))
    if value is None:
        return
    question = _digest(dump(prompt, option=orjson.OPT_SORT_KEYS))
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

    A text of at most 60 characters counts whole, in lower case, with single spaces and without a
    final full stop. Of a longer text its figures count, each with the following word. Of JSON, the
    names and structure count too, and numbers to 12 digits. None for an answer that is no text.
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
