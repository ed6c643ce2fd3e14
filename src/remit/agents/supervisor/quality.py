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
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from remit.agents.supervisor.claims import hidden_failure, unsourced
from remit.agents.worker import IGNORABLE, visible
from remit.agents.workorders import WorkOrder, WorkOrderState
from remit.kernel.errors import InvalidInputError, excerpt
from remit.kernel.json_text import JsonTextError, dump, load_answer
from remit.kernel.schemas import first_problem, schema_problem

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

    Texts are compared without regard to case and invisible characters.

    Args:
        criteria: the criteria, see the module.
        tools: ids of the tools that the work may use.

    Raises:
        InvalidInputError: a criterion is unknown or of another type; ``tools_used`` names another
            tool; the schema is not valid; or the criteria contradict each other.
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
        """Return the reasons to reject an order's result; empty to accept.

        The result must meet the order's acceptance criteria, and those of ``DEFAULT_CRITERIA`` that
        the order does not change. The error of an order that was not completed is the only reason.

        Args:
            order: the ended order.
            shown: returns further text that the model was shown, such as its prompt pack. Called
                only if the answer states a figure, date or id that neither the order's input nor a
                tool result contains.
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
