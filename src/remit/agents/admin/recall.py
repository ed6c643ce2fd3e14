"""The phrases that ask to repeat a message, for models that may not speak for the system.

Such a model cannot be trusted to copy a message. A pattern decides which phrases ask for one, and
the text comes from the ledger.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

RECALL = "recall_turn"
"""The tool's id."""

_LEAD = r"(?:please|and|so|now|hey|ok|okay|again|(?:can|could|do|would|will) you|tell me|kindly)"
_SAID = (
    r"(?:sa(?:y|id)|ask(?:ed)?|t(?:ell|old)|w(?:rite|rote|ritten)|typed?|answer(?:ed)?|"
    r"repl(?:y|ied))"
)
_WHEN = (
    r"(?:just now|now|last time|last|before (?:this|that)|before|earlier|previously|right now|"
    r"a moment ago)"
)
_LAST = r"(?:very )?(?:last|latest|previous|preceding)"
_TEXT = r"(?:message|question|sentence|prompt|input|words?|request|answer|reply|response)"
_REPEAT = r"(?:repeat|quote|recall|remember|show|say(?: again)?)"
_ACT = rf"(?P<who>i|you) (?:just |last |have )?{_SAID}(?: (?:to )?(?:you|me))?(?: {_WHEN})?"
_QUESTION = re.compile(
    rf"(?:{_LEAD} )*(?:"
    rf"what (?:did|have) (?P<who1>i|you) (?:just |last )?{_SAID}(?: (?:to )?(?:you|me))?"
    rf"(?: {_WHEN})?"
    rf"|(?:what (?:was|were|is) |{_REPEAT} )(?P<who2>my|your) {_LAST} {_TEXT}"
    rf"|(?:what (?:was|is) |{_REPEAT} )the {_LAST} (?:thing|{_TEXT})(?: that)? {_ACT}"
    rf"|{_REPEAT} what {_ACT.replace('<who>', '<who3>')}"
    r")(?: again)?(?: please)?"
)
_MAX_CHARS = 120  # A longer message asks for more than a repetition.


def asks_for_turn(message: str) -> Mapping[str, Any] | None:
    """Return arguments of ``recall_turn`` if the message's last sentence asks only to repeat; else
    None.

    A message of over 120 characters is not examined: the result is None. The arguments are
    ``speaker`` (``user`` or ``agent``) and ``turns_back`` (1, or 2 for "before that").

    Args:
        message: the user's message.
    """
    if len(message) > _MAX_CHARS:
        return None
    sentences = [part for part in re.split(r"[.?!]+(?:\s+|$)", message.lower()) if part.strip()]
    asked = " ".join(re.sub(r"[^\w\s]", " ", sentences[-1]).split()) if sentences else ""
    found = _QUESTION.fullmatch(asked)
    if found is None:
        return None
    by_user = next(filter(None, found.groups())) in ("i", "my")
    return {
        "speaker": "user" if by_user else "agent",
        "turns_back": 2 if "before that" in asked else 1,
    }


def describe_recall(output: Mapping[str, Any]) -> str:
    """Return the output of ``recall_turn`` as a sentence to the user.

    The sentence begins with ``You said:`` or ``I said:``; a text of None gives that nothing was
    said before.

    Args:
        output: output of ``recall_turn``; its ``text`` is None if the session has no such turn.
    """
    if output["text"] is None:
        return "Nothing was said before that in this session."
    return f"{'You' if output['speaker'] == 'user' else 'I'} said: {output['text']}"
