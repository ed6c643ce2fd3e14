"""Words for the turns, orders and events of a journey."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.views.wording import text_of, words_of


def turn_title(turn: Mapping[str, Any]) -> str:
    """Return the title of a turn: ``turn 3``, or ``turn`` without a number.

    A call or order outside turns gives ``gateway call`` or ``order without a turn``.

    Args:
        turn: a turn of a journey.
    """
    if turn.get("kind") == "call":
        return "gateway call"
    if turn.get("kind") == "order":
        return "order without a turn"
    number = turn.get("turn_number")
    return "turn" if number is None else f"turn {number}"


def turn_state(turn: Mapping[str, Any]) -> str:
    """Return the outcome of a turn for people.

    The recorded outcome is returned. A turn without a call (``noted``) gives ``refused`` if a
    request was refused, else ``recorded``. Empty without an outcome.

    Args:
        turn: a turn of a journey, as data.
    """
    outcome = str(turn.get("outcome") or "")
    if outcome != "noted":
        return outcome
    events = [note.get("event_type") for note in turn.get("notes") or ()]
    return "refused" if "PROMPT_REJECTED" in events else "recorded"


def contract_of(order: Mapping[str, Any]) -> str:
    """Return an order's contract with its version, as far as known.

    Example: ``PRC-ANSWER-001 1.2.0``. The text is empty if neither is known.

    Args:
        order: a work order of a journey.
    """
    named = (order.get("contract_id"), order.get("contract_version"))
    return " ".join(str(part) for part in named if part)


def failure(attempt: Mapping[str, Any]) -> str:
    """Return the cause of a failed call or order.

    Example: ``the provider failed (SERVER_ERROR: 529 overloaded)``. A code without a wording stands
    alone with its message. Without a code the text begins with ``None``.

    Args:
        attempt: a failed call or order, as data.
    """
    code = attempt.get("error_code")
    said = f"{code}: {text_of(attempt.get('error_message', ''))}"
    phrase = words_of(code)
    return said if phrase == code else f"{phrase} ({said})"


def reasons(event: Mapping[str, Any]) -> str:
    """Return the reasons of a gate, an escalation or a degradation, joined by ``; ``.

    An event without reasons gives its error message, or an empty text.

    Args:
        event: an event of a journey.
    """
    why = event.get("reasons") or event.get("error_message") or ""
    return "; ".join(map(str, why)) if isinstance(why, list) else text_of(why)
