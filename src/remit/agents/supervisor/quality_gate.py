"""The quality gate, which decides whether an answer may be delivered.

Criteria of a plan, all optional:

``non_empty``, ``no_error_marker``, ``claims_need_tools``
    booleans: the text has visible characters; it does not begin like a failure; it does not claim
    to have read or checked something if no tool returned a result in this order;
``values_need_source``, ``failures_are_told``
    booleans, for a text of an agent with tools: a message or a tool's result of the turn contains
    the ids, amounts and figures; if the last tool failed, the text mentions it;
``min_chars``, ``max_chars``
    integers, limits of the text's length;
``must_contain``, ``must_not_contain``
    lists of texts, searched in the answer's text and in the values of typed data, without regard
    to case, width (NFKC) and invisible characters;
``tools_used``
    list of tool ids that must have returned a result;
``output_schema``
    JSON Schema of the answer: of typed data, of the JSON in a text, or of a tool's result.

Claims are compared with the sources of the turn: ids, amounts of money, dates, percentages and
other figures, and failures of tools. Code, numbers of lists and steps, names such as ``HTTP 404``,
and years are ignored. A false alarm costs an answer, so a figure also counts as found if it is a
rounded or scaled value, a count, or computed from two values that were seen.
"""

from __future__ import annotations

import math
import re
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, DecimalException
from itertools import permutations
from typing import Any

from remit.agents.worker import IGNORABLE, visible
from remit.agents.workorders import WorkOrder, WorkOrderState
from remit.kernel.errors import InvalidInputError, excerpt
from remit.kernel.json_text import JsonTextError, dump, load_answer
from remit.kernel.schemas import first_problem, schema_problem

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
    r"(?i)(?:\b(?:is|are|was|were|has|have|had|costs?|totals?|equals?|to|exactly|currently)|[:=])"
    r"(?: now| only| still| at| set)* $"
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
    r"(?i)\b(?:fail\w*|error\w*|cannot|unable|unavailable|not|no|none|nothing|never|denied|declined|"
    r"refused|rejected|unfortunately|sorry|problem|issue|timed out|invalid|missing|unknown|only|"
    r"without|instead)\b|n['\u2019]t\b"
)
_ENGLISH = re.compile(  # also a short report of success: "Done.", "Refund issued."
    r"(?i)\b(?:the|is|are|was|of|and|to|it|your|has|have|done|sent|paid|success\w*|(?:complet|add|"
    r"finish|confirm|issu|creat|updat|delet|remov|refund|sav|schedul|process|book|cancell?)ed)\b"
)


def unsourced(text: str, sources: str, data: Any = None) -> list[str]:
    """Return the values in an answer that no source of its turn contains.

    Ids and dates always need a source. Code, list numbers, years and labels such as ``HTTP 404``
    are not examined. A figure also has a source if it is a rounded or scaled value, a count, or
    computed from two values that were seen.

    Args:
        text: the answer.
        sources: everything that the model was shown, as text.
        data: results of tools. If there are any, every figure of two or more digits needs a source;
            amounts of money, percentages and figures stated as facts always do.

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

    A failure that is followed by a successful tool call is ignored. Only English text is checked;
    words such as ``failed``, ``cannot``, ``not`` or ``only`` count as a mention.

    Args:
        text: the answer.
        results: results of tools in order, with ``tool_id`` and ``status``; any but ``ok`` failed.
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
    """Return a test for numbers that the turn saw, or that follow from such numbers.

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


DEFAULT_CRITERIA: Mapping[str, Any] = {
    "non_empty": True,
    "no_error_marker": True,
    "claims_need_tools": True,
    "values_need_source": True,
    "failures_are_told": True,
}
_KINDS: Mapping[str, type] = {
    **dict.fromkeys(DEFAULT_CRITERIA, bool),
    **dict.fromkeys(("min_chars", "max_chars"), int),
    **dict.fromkeys(("must_contain", "must_not_contain", "tools_used"), list),
    "output_schema": dict,
}


def check_criteria(criteria: Mapping[str, Any], tools: Collection[str]) -> None:
    """Raise InvalidInputError for an unknown criterion, or one that cannot be met.

    Texts are compared without regard to case, width and invisible characters. Whether items of
    lists are texts, or the schema contradicts another criterion, is not checked.

    Args:
        criteria: booleans ``non_empty``, ``no_error_marker``, ``claims_need_tools``,
            ``values_need_source`` and ``failures_are_told``; integers ``min_chars`` and
            ``max_chars``; lists ``must_contain``, ``must_not_contain`` and ``tools_used``; the
            object ``output_schema``. All are optional.
        tools: ids of the tools that the work may use.

    Raises:
        InvalidInputError: a criterion is unknown or of another type; ``tools_used`` names another
            tool; the schema is not valid; ``max_chars`` is below 1 or ``min_chars``; or a text of
            ``must_not_contain`` has no visible character, or is in one of ``must_contain``.
    """
    for name, value in criteria.items():
        kind = _KINDS.get(name)
        if kind is None:
            raise InvalidInputError(
                f"There is no acceptance criterion {name!r}.",
                next_step=f"Use one of {', '.join(_KINDS)}.",
            )
        if type(value) is not kind and not (kind is list and isinstance(value, tuple)):
            raise InvalidInputError(
                f"The acceptance criterion {name!r} takes a {kind.__name__}, not {value!r}."
            )
    for tool_id in criteria.get("tools_used", ()):
        if tool_id not in tools:
            raise _contradiction(
                f"tools_used names {excerpt(repr(tool_id))}, and the tools are "
                f"{', '.join(tools) or 'none'}"
            )
    if problem := schema_problem(criteria.get("output_schema", {})):
        raise InvalidInputError(f"The acceptance criterion output_schema is {problem}.")
    if criteria.get("max_chars", math.inf) < max(1, criteria.get("min_chars", 0)):
        raise _contradiction("max_chars is lower than min_chars, or than 1")
    unwanted = [_folded(str(each)) for each in criteria.get("must_not_contain", ())]
    wanted = [_folded(str(each)) for each in criteria.get("must_contain", ())]
    if "" in unwanted:
        raise _contradiction("must_not_contain holds a text without a visible character")
    if any(each in text for each in unwanted for text in wanted):
        raise _contradiction("a text of must_contain holds one of must_not_contain")


def _contradiction(why: str) -> InvalidInputError:
    return InvalidInputError(f"No answer can meet the acceptance criteria: {why}.")


def answer_text(order: WorkOrder) -> str:
    """Return the text of an order's result; data as JSON.

    Empty without a result; surrounding space is removed from a text.

    Args:
        order: a work order; its state does not matter.

    Raises:
        JsonTextError: data is nested too deep.
    """
    result: Any = order.output_result
    if isinstance(result, Mapping) and isinstance(result.get("text"), str):
        return str(result["text"]).strip()
    return "" if result is None else dump(result).decode()


_MAX_VALUES = 5
_MARKUP = re.compile(r"\A(?:\s|[>*_`~]|(?:(?<=```)|(?<=~~~))[\w+.-]+[ \t]*\n)*")
"""White space, quotes, emphasis and code fences at the start of a text."""


def _folded(text: str) -> str:
    """Return a text in the form used for comparison."""
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFKC", IGNORABLE.sub("", text)).casefold()
    return unicodedata.normalize("NFKC", folded)


class QualityGate:
    """A check of ended orders against markers of failure, claim patterns and criteria.

    :meth:`reasons` is the only method; it writes nothing. An object may check any number of orders.

    Args:
        error_markers: beginnings of texts that are failures.
        claim_patterns: regular expressions of claims that need a tool, without regard to case.

    Raises:
        InvalidInputError: a pattern is no regular expression.
    """

    def __init__(self, error_markers: Sequence[str], claim_patterns: Sequence[str]) -> None:
        self._markers = tuple(error_markers)
        try:
            self._claims = [re.compile(pattern, re.IGNORECASE) for pattern in claim_patterns]
        except re.error as error:
            raise InvalidInputError(
                f"[supervisor] claim_patterns: {error.pattern!r} is not a regular expression."
            ) from error

    def reasons(self, order: WorkOrder, shown: Callable[[], str] = str) -> list[str]:
        """Return the reasons to reject an order's result, as sentences; empty to accept.

        The result must meet the order's acceptance criteria, and those of ``DEFAULT_CRITERIA`` that
        the order does not change. Sources of values and mentions of failures are checked only in
        texts of models that had tools or results of tools. If the order was not completed, its
        error is the only reason. If an answer is required and empty, that is the only reason.
        Otherwise all reasons are listed. An answer that the provider filtered is rejected.

        Args:
            order: the ended order.
            shown: returns further text that the model was shown, such as its prompt pack; no text
                by default. Called only if the answer states a figure, date or id that neither the
                order's input nor a tool result contains; its errors are let through.

        Raises:
            JsonTextError: the result is nested too deep.
        """
        if order.state is not WorkOrderState.COMPLETED:
            error = order.error or {}
            return [f"{error.get('code', 'failed')}: {error.get('message', 'the order failed')}"]
        criteria = {**DEFAULT_CRITERIA, **order.acceptance_criteria}
        text = answer_text(order)
        text, delivered = visible(text), text
        if criteria["non_empty"] and not text:
            return ["the answer is empty"]
        result = order.output_result if isinstance(order.output_result, Mapping) else {}
        said = "\n".join([text, *_texts(result.get("output"))])
        reasons = []
        if result.get("finish_reason") == "content_filter":
            reasons.append("the provider filtered the answer")
        if criteria["no_error_marker"]:
            start = _MARKUP.sub("", text, count=1)
            reasons += [
                f"the answer begins with the error marker {marker!r}"
                for marker in self._markers
                if start.startswith(marker)
            ]
        used = {tool["tool_id"] for tool in order.tool_results if tool["status"] == "ok"}
        results = [*_earlier_results(order), *order.tool_results]
        gave = [tool["output"] for tool in results if tool["status"] == "ok"]
        known = gave or _carried_results(order)
        if criteria["claims_need_tools"] and not known and (claim := self._claim(said)):
            reasons.append(f"the answer claims {excerpt(claim)!r}, but no tool gave a result")
        words = isinstance(result.get("text"), str) and not result.keys() & {"output", "printed"}
        if words and (results or order.constraints.tools_allowed):
            if criteria["failures_are_told"] and (failed := hidden_failure(text, results)):
                reasons.append(f"the tool {failed} failed, and the answer does not say so")
            if criteria["values_need_source"]:
                reasons += _unsourced(order, text, gave, shown)
        reasons += _unmet(criteria, delivered, said, used)
        if "output_schema" in criteria:
            reasons += _misfits(criteria["output_schema"], order.output_result)
        return reasons

    def _claim(self, text: str) -> str:
        for pattern in self._claims:
            if found := pattern.search(text):
                return found.group(0)
        return ""


def _earlier_results(order: WorkOrder) -> list[Mapping[str, Any]]:
    """Return the tool results of the orders that this one continues."""
    found: list[Mapping[str, Any]] = []
    for prior in order.input_context.get("prior_results") or ():
        output = prior.get("output")
        if isinstance(output, Mapping):
            found += output.get("tool_results") or ()
    return found


def _carried_results(order: WorkOrder) -> bool:
    """Return True if a tool returned a result in an unanswered turn before this one."""
    effects = (order.input_context.get("assembled_context") or {}).get("effects") or ()
    return any(effect["status"] == "ok" for effect in effects)


def _unsourced(
    order: WorkOrder, text: str, gave: Sequence[Any], shown: Callable[[], str]
) -> list[str]:
    rejected = order.input_context.get("rejected_because") or ()
    given = {name: value for name, value in order.input_context.items() if value is not rejected}
    sources = dump([given, gave], str).decode()
    missing = unsourced(text, sources, gave)
    if missing:
        more = shown()
        for reason in rejected:  # Reasons quote the values without a source.
            more = more.replace(reason, "")
        missing = unsourced(text, f"{sources} {more}", gave)
    named = ", ".join(map(excerpt, missing[:_MAX_VALUES]))
    return [f"no message or tool result of this turn holds {named}"] if missing else []


def _texts(data: Any) -> Iterator[str]:
    """Yield the names and values in typed data as plain text, without the escapes of JSON."""
    if isinstance(data, Mapping):
        for name, value in data.items():
            yield str(name)
            yield from _texts(value)
    elif isinstance(data, list):
        for item in data:
            yield from _texts(item)
    elif data is not None:
        yield data if isinstance(data, str) else dump(data).decode()


def _misfits(schema: Mapping[str, Any], result: Any) -> list[str]:
    """Return why an answer does not fit the criterion ``output_schema``; empty if it does."""
    if (
        isinstance(result, Mapping) and "finish_reason" in result
    ):  # The result is an answer of a model.
        try:
            result = result["output"] if "output" in result else load_answer(result["text"])
        except JsonTextError as error:
            return [f"the output does not fit: {error.message}"]
    problem = first_problem(schema, result)
    return [f"the output does not fit: {problem}"] if problem else []


def _unmet(criteria: Mapping[str, Any], text: str, said: str, used: set[str]) -> list[str]:
    folded = _folded(said)
    reasons = []
    if len(text) < criteria.get("min_chars", 0):
        reasons.append(f"the answer is shorter than {criteria['min_chars']} characters")
    if "max_chars" in criteria and len(text) > criteria["max_chars"]:
        reasons.append(f"the answer is longer than {criteria['max_chars']} characters")
    reasons += [
        f"the answer does not contain {wanted!r}"
        for wanted in criteria.get("must_contain", ())
        if _folded(str(wanted)) not in folded
    ]
    reasons += [
        f"the answer contains {unwanted!r}"
        for unwanted in criteria.get("must_not_contain", ())
        if _folded(str(unwanted)) in folded
    ]
    reasons += [
        f"the tool {tool_id} gave no result"
        for tool_id in criteria.get("tools_used", ())
        if tool_id not in used
    ]
    return reasons
