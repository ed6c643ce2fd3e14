"""Comparison of an answer's claims with the sources of its turn.

The comparison covers ids, amounts of money, dates, percentages and other figures, and failures of
tools. It ignores code, the numbers of lists and steps, names such as ``HTTP 404``, and years. A
false alarm costs an answer, so a figure also counts as found if it is a rounded or scaled value, a
count, or computed from two values that were seen.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, DecimalException
from itertools import permutations
from typing import Any

# Each pattern begins at the start of a word, so that matching takes linear time.
_NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_MARKER = re.compile(r"^[^\S\n]*(?:\d+[.)]|[-*•])\s", re.MULTILINE)
_ID = re.compile(
    r"(?<![\w.+-])(?:[\w.+-]+@[\w-]+(?:\.\w+)+|(?=[A-Z]{2,}-)(?=[\w-]*\d)[A-Z]{2,}-[\w-]{4,}"
    r"|(?=[0-9a-f-]*\d)(?=[0-9a-f-]*[a-f])[0-9a-f][0-9a-f-]{7,}\b)"
)
_DATE = re.compile(r"\b\d{4}-\d\d-\d\d\b")
_WORD = re.compile(r"(?:\\[a-z])?([\w.+@-]+)")  # may follow a JSON escape
_MONEY = re.compile(
    rf"[$€£¥]\s?({_NUMBER})|(?<![\d.,])({_NUMBER})\s?"
    r"(?:[$€£¥]|(?:USD|EUR|GBP|CHF|(?:US )?dollars?|euros?)\b)"
)
_SHARE = re.compile(rf"(?<![\d.,])({_NUMBER})\s?(?:%|percent\b)")
_FIGURE = re.compile(rf"(?<![\w.,/:#-])({_NUMBER})(?![\w/:-]|[.,]\d)")
_STATEMENT = re.compile(
    r"(?:\b(?:is|are|was|were|has|have|had|costs?|totals?|equals?|to|exactly|currently)|[:=])"
    r"(?: now| only| still| at| set)* $",
    re.IGNORECASE,
)
_LABEL = re.compile(  # HTTP 404, step 12
    r"\b(?:[A-Z]{2,}|(?i:step|section|chapter|figure|part|option|article|phase|version|top))[ -]$"
)
_YEARS = range(1900, 2100)
_CONTEXT_CHARACTERS = 60  # characters before a figure that show its meaning
_MAX_DIGITS = 28  # A longer number is an id.
_MAX_SEARCHED = 100  # ids searched as parts of words
_MAX_PAIRED = 40  # With more numbers, pairs are not tried.
_SCALES = [Decimal(10) ** n for n in (-9, -6, -3, -2, 0, 2, 3, 6, 9)] + [
    Decimal(base) ** n for base in (60, 1024) for n in (-3, -2, -1, 1, 2, 3)
]

_ADMISSION = re.compile(
    r"\b(?:fail\w*|error\w*|cannot|unable|unavailable|not|no|none|nothing|never|denied|declined|"
    r"refused|rejected|unfortunately|sorry|problem|issue|timed out|invalid|missing|unknown|only|"
    r"without|instead)\b|n['\u2019]t\b",
    re.IGNORECASE,
)
_ENGLISH = re.compile(r"\b(?:the|is|are|was|of|and|to|it|your|has|have)\b", re.IGNORECASE)


def unsourced(text: str, sources: str, data: Any = None) -> list[str]:
    """Return the values in an answer that no source of its turn contains.

    Ids and dates always need a source. Code blocks and list numbers are not examined.

    Args:
        text: the answer.
        sources: everything that the model was shown, as text.
        data: results of tools. If there are any, every figure needs a source; otherwise only
            figures stated as facts do.

    Returns:
        The values in the form of the answer, each once: ids and dates first, then figures.
    """
    listed = len(_MARKER.findall(text))
    plain = _MARKER.sub(" ", _CODE.sub(" ", text))
    ids = dict.fromkeys([*_ID.findall(plain), *_DATE.findall(plain)])
    missing = _not_in(sources.casefold(), ids)
    plain = _DATE.sub(" ", _ID.sub(" ", plain))
    claimed = [*_figures(plain, every=bool(data))]
    if claimed:
        is_known = _number_test(sources, data, listed)
        missing += [value for value in dict.fromkeys(claimed) if not is_known(value)]
    return missing


def _not_in(sources: str, values: Iterable[str]) -> list[str]:
    """Return the values that casefolded sources do not contain, as a word or part of a word."""
    words = {word.strip(".+-") for word in _WORD.findall(sources)}
    others = [value for value in values if value.casefold().strip(".+-") not in words]
    # Searching the whole text for every value would take quadratic time.
    return [
        value
        for number, value in enumerate(others)
        if number >= _MAX_SEARCHED or value.casefold() not in sources
    ]


def hidden_failure(text: str, results: Sequence[Mapping[str, Any]]) -> str:
    """Return the id of the tool that failed last if the answer does not mention it; else empty.

    A failure that is followed by a successful tool call is ignored. Only English text is checked.

    Args:
        text: the answer.
        results: results of tools in order, with ``tool_id`` and ``status``.
    """
    if not results or results[-1]["status"] == "ok" or not _ENGLISH.search(text):
        return ""
    return "" if _ADMISSION.search(text) else str(results[-1]["tool_id"])


def _figures(text: str, *, every: bool) -> Iterator[str]:
    for pattern in (_MONEY, _SHARE):
        for found in pattern.finditer(text):
            yield next(filter(None, found.groups()))
    for found in _FIGURE.finditer(text):
        value, before = found[1], text[max(0, found.start() - _CONTEXT_CHARACTERS) : found.start()]
        if _LABEL.search(before) or (len(value) == 4 and value.isdigit() and int(value) in _YEARS):
            continue
        stated = bool(_STATEMENT.search(before))
        if stated or (every and len(value) > 1):
            yield value


def _number_test(sources: str, data: Any, listed: int) -> Callable[[str], bool]:
    """Return a test for numbers that the turn saw, or that follow from numbers it saw.

    The test returns True if such a number equals the given one at its precision.

    Args:
        sources: all text that the model was shown.
        data: results of tools, whose lengths and sums count as seen.
        listed: the number of list items in the answer.
    """
    plain = re.findall(rf"(?<![\w.-])-?{_NUMBER}", sources)
    ids = {value for value in plain if len(value) > _MAX_DIGITS}
    seen = {abs(_decimal(value)) for value in plain if len(value) <= _MAX_DIGITS}
    seen |= {Decimal(count) for count in (listed, *_counts(data))}
    seen |= {abs(total) for total in _sums(data)}
    ordered = sorted(seen)

    def is_known(value: str) -> bool:
        if len(value) > _MAX_DIGITS:
            return value in ids
        wanted = _decimal(value)
        step = Decimal(1).scaleb(-len(value.partition(".")[2]))

        def close(number: Decimal) -> bool:
            return abs(number - wanted) <= step / 2

        for scale in _SCALES:
            place = bisect_left(ordered, (wanted - step / 2) / scale)
            if place < len(ordered) and close(ordered[place] * scale):
                return True
        if len(seen) > _MAX_PAIRED:
            return False
        return any(
            wanted in (one + other, abs(one - other), one * other)
            or (one and other and (close(one / other) or close(100 * one / other)))
            for one, other in permutations(seen, 2)
        )

    return is_known


def _decimal(value: str) -> Decimal:
    try:
        return Decimal(value.replace(",", ""))
    except DecimalException:  # The number has more digits than the decimal context allows.
        return Decimal(0)


def _counts(data: Any) -> Iterator[int]:
    """Yield the lengths of lists, objects and multi-line texts in ``data``."""
    if isinstance(data, Mapping):
        yield len(data)
        for item in data.values():
            yield from _counts(item)
    elif isinstance(data, (list, tuple)):
        yield len(data)
        for item in data:
            yield from _counts(item)
    elif isinstance(data, str):
        yield data.count("\n") + 1


def _sums(data: Any) -> Iterator[Decimal]:
    """Yield the sum of each column of numbers in ``data``."""
    if isinstance(data, Mapping):
        for item in data.values():
            yield from _sums(item)
    elif isinstance(data, (list, tuple)):
        yield sum(map(_number, data), Decimal(0))
        columns: defaultdict[str, Decimal] = defaultdict(Decimal)
        for row in data:
            if isinstance(row, Mapping):
                for name, value in row.items():
                    columns[name] += _number(value)
        yield from columns.values()
        for item in data:
            yield from _sums(item)


def _number(value: Any) -> Decimal:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return Decimal(str(value)) if plain else Decimal(0)
