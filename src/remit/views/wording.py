"""Durations, tokens, money and content in words, the same on paper and in the terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeGuard

import orjson

from remit.kernel.canonical import canonical_json
from remit.kernel.json_text import dump
from remit.kernel.message_text import count, dollars

_GOOD = frozenset(
    {"completed", "success", "ok", "accept", "granted", "answered", "agrees", "adopted", "recorded"}
)
_WAIT = frozenset(
    {"waiting", "executing", "open", "unknown", "dispatched", "planned", "refused", "degraded",
     "resumed", "replayed", "not_reached", "skipped", "void", "rejected", "rolled back", "signed"}
)  # fmt: skip
WORDS: Mapping[str, str] = {
    # Events.
    "DISPATCH": "model call sent",
    "EXCHANGE": "exchange",
    "CONVERSATION_CHANGED": "stored conversation changed",
    "PROMPT_REJECTED": "call refused",
    "EXCHANGE_ORPHANED": "call without an answer",
    "BUDGET_ALLOCATED": "budget set",
    "BUDGET_DEBIT": "budget charged",
    "BUDGET_WARNING": "budget exceeded",
    "THOUGHT_RECORD": "thought recorded",
    "SESSION_START": "session started",
    "SESSION_END": "session ended",
    "TURN_RECORDED": "turn recorded",
    "ORDER_SUBMITTED": "order submitted to the workers",
    "ORDER_CHANGED": "order changed by a person",
    "ORDER_ENDED": "order ended",
    "THREAD_OPENED": "open question recorded",
    "THREAD_CLOSED": "open question closed",
    "WO_PLANNED": "work order planned",
    "WO_DISPATCHED": "work order dispatched",
    "WO_EXECUTING": "work order started or resumed",
    "LLM_CALL": "model call by a worker",
    "TOOL_INTENT": "tool call about to start",
    "TOOL_CALL": "tool call",
    "MCP_MESSAGE": "MCP message",
    "TOOL_PINNED": "tool definition pinned",
    "APPROVAL_REQUESTED": "approval requested",
    "APPROVAL_SIGNED": "approved by one of several people",
    "APPROVAL_GRANTED": "approved by a person",
    "APPROVAL_DENIED": "denied by a person",
    "ARCHIVED": "old entries moved to a segment",
    "INDEXED": "all entries of a session or order listed for a proof",
    "EVALUATION_REGISTERED": "choices fixed before an evaluation",
    "APPROVAL_DELEGATED": "approval delegated",
    "WO_COMPLETED": "work order completed",
    "WO_FAILED": "work order failed",
    "WO_CHAIN_COMPLETE": "all work orders ended",
    "WO_QUALITY_GATE": "answer checked",
    "ESCALATION": "no answer passed the quality gate",
    "DEGRADATION": "degraded to a simpler answer",
    "INSTALLED": "package installed",
    "REMOVED": "package removed",
    "GATE_PASSED": "gate passed",
    "GATE_FAILED": "gate failed",
    "FEEDBACK": "feedback",
    "SIGNAL_OBSERVED": "metric past its threshold",
    "SIGNAL_PROPOSED": "change proposed",
    "SIGNAL_CANARY": "canary of a proposal began or ended",
    "SIGNAL_ADOPTED": "proposal adopted",
    "SIGNAL_REJECTED": "proposal rejected",
    "SIGNAL_ROLLED_BACK": "change rolled back",
    "ERASURE": "content erased",
    "KEY_CREATED": "key created or changed",
    "KEY_REVOKED": "key revoked",
    "OWNER_NAMED": "user, team or organisation declared",
    "CONFIG_CHANGED": "configuration changed",
    "TENANT_CREATED": "tenant created",
    "TENANT_CHECKPOINT": "checkpoint of a tenant recorded",
    "TENANT_MOVED": "tenant moved",
    "TENANT_OLD_PLACE_REMOVED": "old ledger of a moved tenant removed",
    "TENANT_REMOVED": "tenant removed",
    # Codes of what was refused or failed.
    "AUTH_ERROR": "not allowed",
    "BUDGET_BUSY": "the budget is reserved by other calls",
    "BUDGET_EXHAUSTED": "the budget does not cover the call",
    "CANCELLED": "cancelled",
    "CIRCUIT_OPEN": "circuit breaker open",
    "CONTENT_FILTERED": "filtered by the provider",
    "CONTEXT_LENGTH": "too long for the model",
    "CONTRACT_ERROR": "contract violated",
    "ENSEMBLE_BUDGET": "the ensemble's budget does not cover the call",
    "ERROR": "failed",
    "FILE_NOT_FOUND": "the file was not found",
    "IDEMPOTENCY_CONFLICT": "the same request is in flight",
    "REPLAY_DIFFERS": "the request differs from the recorded one",
    "IDEMPOTENCY_ERASED": "the earlier answer was erased",
    "IDEMPOTENCY_MISMATCH": "idempotency key reused for another request",
    "INVALID_INPUT": "the request is not valid",
    "INVALID_REQUEST": "the provider refused the request",
    "LOCAL_ERROR": "an error on this machine",
    "MODEL_NOT_ALLOWED": "the model is not allowed",
    "NOT_ALLOCATED": "no budget",
    "NO_ADAPTER": "no adapter for the provider",
    "PREVIOUS_RESPONSE_NOT_FOUND": "the earlier response was not found",
    "PROVIDER_ERROR": "the provider's answer cannot be used",
    "PROVIDER_NOT_FOUND": "unknown provider",
    "RATE_LIMITED": "too many requests",
    "ROUTE_FAILED": "no model of the route answered",
    "SERVER_ERROR": "the provider failed",
    "SESSION_NOT_YOURS": "the session belongs to another caller",
    "TIMEOUT": "timed out",
    "TURN_LIMIT": "the turn has no calls left",
    "UNBOUNDED": "the cost has no upper bound",
    "UNPRICED": "the model has no price",
    # Results of a router's candidates.
    "not_reached": "not tried",
    "skipped": "skipped",
}
"""What machines say, in plain words: each event of the ledger, and codes of refusals."""

_CODE = re.compile(r"(?:(?<=, )|(?<=: )|(?<=\())[A-Z_]{3,40}(?=[:.,)]|$)")
_LONGEST_JSON = 1_000  # bytes that are shown in one line
_MAX_EXACT = 2**53  # beyond it no number of a record is exact


def words_of(code: Any) -> Any:
    """Return an event type or error code in plain words.

    ``BUDGET_ALLOCATED`` gives ``budget set``. A value that :data:`WORDS` lacks is returned
    unchanged.

    Args:
        code: any value.
    """
    return WORDS.get(code, code) if isinstance(code, str) else code


def in_words(sentence: str) -> list[tuple[str, str]]:
    """Split a sentence at known codes; return pairs of text and code.

    A code's text is its plain wording; unchanged text has an empty code. The texts joined are the
    sentence for people. The last pair may have an empty text. A code counts only at the end of the
    sentence or before ``.``, ``,``, ``:`` or ``)``, and after ``, ``, ``: `` or ``(``.

    Args:
        sentence: a sentence that may contain codes such as ``SERVER_ERROR``.
    """
    parts: list[tuple[str, str]] = []
    at = 0
    for found in _CODE.finditer(sentence):
        if (phrase := WORDS.get(found[0])) is not None:
            parts += [(sentence[at : found.start()], ""), (phrase, found[0])]
            at = found.end()
    return [*parts, (sentence[at:], "")]


def tone(state: Any) -> str:
    """Return the tone in which a state is shown: ``good``, ``wait`` or ``bad``.

    Unknown states, and values that are no text, are ``bad``.

    Args:
        state: a state or outcome.
    """
    if not isinstance(state, str):
        return "bad"
    return "good" if state in _GOOD else "wait" if state in _WAIT else "bad"


def offset(item: Mapping[str, Any]) -> str:
    """Return the time from a turn's beginning to an item, such as ``+1.42 s``.

    The text is empty if the time is unknown.

    Args:
        item: an item of a journey; ``offset_ms`` is in milliseconds.
    """
    return "" if item.get("offset_ms") is None else f"+{duration(item['offset_ms'])}"


def duration(ms: Any) -> str:
    """Return milliseconds as text: ``3 ms``, ``1.42 s``, ``2 min 05 s``, ``3 h 12 min`` or days.

    The text is empty if ``ms`` is not a number. Days are ``2 d 4 h``; below 10 ms, ``3.2 ms``.

    Args:
        ms: milliseconds; any value.
    """
    if not is_number(ms):
        return ""
    if ms < 10:
        return f"{ms:.1f} ms".replace(".0 ", " ")
    if ms < 999.5:
        return f"{ms:.0f} ms"
    if ms < 59_995:
        return f"{ms / 1000:.2f} s"
    seconds = round(ms / 1000)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if hours < 1:
        return f"{minutes} min {seconds % 60:02d} s"
    if days < 1:
        return f"{hours} h {minutes % 60:02d} min"
    return f"{days} d {hours % 24} h"


def tokens(item: Mapping[str, Any]) -> str:
    """Return input and output tokens as text: ``1,024 → 80 tokens``.

    An unknown number is ``?``.

    Args:
        item: metadata of a call, or sums.
    """
    return f"{number(item.get('input_tokens'))} → {number(item.get('output_tokens'))} tokens"


def money(used: Mapping[str, Any]) -> str:
    """Return the cost of several calls as text; calls without a price are counted, not summed.

    Empty without calls and cost. Examples: ``$0.25``, ``$0.25 and 2 calls without a price``, ``cost
    unknown: 2 calls without a price``.

    Args:
        used: sums of a journey, a turn or an order.
    """
    if not (used.get("llm_calls") or used.get("orphaned_calls") or used.get("cost_usd")):
        return ""
    if used.get("cost_usd") is not None:
        return dollars(used["cost_usd"])
    unpriced = count(used.get("unpriced_calls") or 0, "call") + " without a price"
    known = used.get("known_cost_usd") or 0
    return f"{dollars(known)} and {unpriced}" if known else f"cost unknown: {unpriced}"


def one_cost(used: Mapping[str, Any]) -> str:
    """Return the cost of a call as text, with its certainty unless measured.

    ``(estimated)`` or ``(upper bound)`` follows the amount. ``cost unknown`` without a price.

    Args:
        used: metadata of a call.
    """
    cost, certainty = used.get("cost_usd"), used.get("cost_certainty")
    if not is_number(cost):
        return "cost unknown"
    words = {"estimated": " (estimated)", "upper_bound": " (upper bound)"}
    return dollars(cost) + words.get(str(certainty), "")


def moment(timestamp: Any) -> str:
    """Return an ISO timestamp to the second: ``2026-11-22 08:20:11 UTC``.

    A text of under 20 characters is returned unchanged. None and empty give an empty text. The form
    is not checked, and nothing is converted to UTC.

    Args:
        timestamp: ISO 8601 in UTC.
    """
    text = str(timestamp or "")
    return f"{text[:10]} {text[11:19]} UTC" if len(text) > 19 else text


def is_missing(value: Any) -> bool:
    """Return True if a value of a journey is a marker for erased or omitted content.

    Only values of journeys may be passed: there a recorded key cannot look like a marker.

    Args:
        value: any value.
    """
    return isinstance(value, dict) and value.keys() in _MARKERS


def text_of(value: Any) -> str:
    """Return content as text: text unchanged, data as compact JSON.

    Content that is not there gives a notice: ``[erased under LED-…]``, ``[missing]``, or ``[content
    not shown]`` if it was not asked for.

    Args:
        value: content of a record; any value.
    """
    if isinstance(value, str):
        return value
    if is_missing(value):
        if "$erased" not in value:
            return "[content not shown]"
        under = value["$erased"]
        return f"[erased under {under}]" if under else "[missing]"
    return json_text(value)


def messages_of(prompt: Any) -> list[tuple[str, Any]]:
    """Return a prompt as pairs of role and content; empty for an empty prompt.

    A plain text is the user's. An item without a role gives ``message`` and itself. Other keys
    make the content a list of the message's blocks and, last, an object of these keys.

    Args:
        prompt: a text, a list of messages, or ``None``.
    """
    if not isinstance(prompt, list):
        return [("user", prompt)] if prompt not in (None, "", []) else []
    found = []
    for item in prompt:
        if isinstance(item, dict) and "role" in item:
            rest = {key: value for key, value in item.items() if key not in ("role", "content")}
            content = item.get("content")
            blocks = content if isinstance(content, list) else [content] if content else []
            found.append((str(item["role"]), [*blocks, rest] if rest else content))
        else:
            found.append(("message", item))
    return found


def json_text(value: Any) -> str:
    """Return ``value`` as compact JSON text. Values without a JSON form become text by ``str``.

    Args:
        value: any value; one nested too deep raises JsonTextError.
    """
    return dump(value, str).decode()


def pretty_json(value: Any) -> str:
    """Return ``value`` as JSON indented by two. Values without a JSON form become text by ``str``.

    Args:
        value: any value; one nested too deep raises JsonTextError.
    """
    return dump(value, str, orjson.OPT_INDENT_2).decode()


_MARKERS = (
    {"$erased"}, *({name, count, *form} for name, count in (("$content", "bytes"),
    ("$messages", "count")) for form in ((), ("form",))),
)  # fmt: skip
_TURNING = {*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C}
_MOVING = {*range(32), *range(127, 160), 0x2028, 0x2029, 0xFEFF, *range(0xFFFE, 0x10000)}
_SEEN = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in _TURNING | _MOVING
} | {code: f"\\u{code:04x}" for code in range(0xD800, 0xE000)}


_LINES = {code: shown for code, shown in _SEEN.items() if code not in (9, 10)}
_IN_JSON = {code: f"\\u{code:04x}" for code in _SEEN if code >= 127}


def visible(text: str, *, lines: bool = False) -> str:
    """Return ``text`` with control characters written out, as ``\\x1b``.

    Characters of text direction, U+2028, U+2029, U+FEFF, U+FFFE, U+FFFF and lone surrogates are
    written out too, so text of a record cannot act on a terminal. Zero-width spaces are unchanged.

    Args:
        text: the text.
        lines: True to leave tabs and line feeds unchanged; a carriage return is still written out.
    """
    return text.translate(_LINES if lines else _SEEN)


def call_text(tool_id: str, arguments: Any, most: int = 0) -> str:
    """Return a tool's call as text, such as ``refund(order=12)``.

    Values are JSON. Control characters are written out (:func:`visible`). A cut ends with ``…``.

    Args:
        tool_id: the id of the tool.
        arguments: the arguments, or a text in place of erased ones.
        most: the greatest length; 0 for no limit.
    """
    given = str(arguments)  # An erased value says so itself.
    if isinstance(arguments, Mapping):
        named = {key if str(key).isidentifier() else json_text(str(key)): json_text(value)
                 for key, value in arguments.items()}  # fmt: skip
        given = ", ".join(f"{name}={value}" for name, value in named.items())
    text = visible(f"{tool_id}({given})")
    return text if not most or len(text) <= most else f"{text[: most - 1]}…"


def visible_json(text: str) -> str:
    """Return a JSON text with the characters of :func:`visible` escaped, its value unchanged.

    Args:
        text: valid JSON.
    """
    return text.translate(_IN_JSON)


def is_number(value: Any) -> TypeGuard[float]:
    """Return True if ``value`` is an int or float of at most 2**53 in size; no bool and no NaN.

    Args:
        value: any value.
    """
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _MAX_EXACT
    )


def number(value: Any) -> str:
    """Return a number as text, such as ``1,024``; ``?`` if it is unknown.

    Args:
        value: any value; a number above 2**53 counts as unknown.
    """
    return f"{value:,}" if is_number(value) else "?"


def nano_dollars(nano: int) -> str:
    """Return nano-dollars as exact US dollars: ``$1,234.50``.

    At least two decimals are shown; further zeros are left out.

    Args:
        nano: billionths of a US dollar; may be negative.
    """
    sign, nano = ("-" if nano < 0 else ""), abs(nano)
    part = f"{nano % 1_000_000_000:09}".rstrip("0")
    return f"{sign}${nano // 1_000_000_000:,}.{part:0<2}"


def shown_value(value: Any) -> str:
    """Return a value of a record as a single line of text.

    Text is returned unchanged, and None as an empty text. Other values become canonical JSON;
    beyond 1,000 bytes only its length is stated. A commitment gives the size of its content.
    ``report.js`` does the same.

    Args:
        value: a value of a record, with commitments in place of content.

    Raises:
        NotCanonicalError: the value is not JSON.
    """
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, dict) and "$content" in value:
        return f"[content of {value.get('bytes')} bytes, not included]"
    if isinstance(value, dict) and "$messages" in value:
        return f"[{value.get('count')} messages, not included]"
    text = canonical_json(value)
    return text.decode() if len(text) <= _LONGEST_JSON else f"[JSON of {len(text)} bytes]"


def cents(value: float) -> str:
    """Return US dollars with two decimals, such as ``$1,234.50``.

    A positive amount below half a cent is ``<$0.01``; a negative one gives ``-$3.00``.

    Args:
        value: US dollars.
    """
    if 0 < value < 0.005:
        return "<$0.01"
    return f"{'-' if value < 0 else ''}${abs(value):,.2f}"


def set_aside(details: Any) -> str:
    """Return a decision to set something aside as text; empty if ``details`` describe none.

    ``tool stock: list instead, until the session ends``; without a substitute ``nothing instead``.

    Args:
        details: metadata of a ``SIGNAL_OBSERVED``; any value.
    """
    if (
        not isinstance(details, dict)
        or details.get("kind") != "set_aside"
        or not details.get("name")
    ):
        return ""
    instead = details.get("instead")
    what = f"{instead} instead" if instead else "nothing instead"
    return f"{details.get('dimension')} {details['name']}: {what}, until {details.get('until')}"


def failures(details: Mapping[str, Any]) -> list[str]:
    """Return the ids of the entries that made a session set something aside; empty if none.

    Args:
        details: metadata of a ``SIGNAL_OBSERVED``.
    """
    named = details.get("evidence")
    return [str(one) for one in named] if isinstance(named, list) else []
