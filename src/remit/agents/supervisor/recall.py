"""What was just said, read back from the record: word for word, with any model."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from remit.agents.sessions import Turn

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
_LONGEST = 120


def recall(message: str, recent_turns: Callable[[int], Sequence[Turn]]) -> str | None:
    """What was said a turn ago, where ``message`` asks for just that; ``None`` otherwise.

    Args:
        recent_turns: gives so many of the latest turns, the oldest of them first.
    """
    if len(message) > _LONGEST:
        return None
    sentences = [part for part in re.split(r"[.?!]+(?:\s+|$)", message.lower()) if part.strip()]
    asked = " ".join(re.sub(r"[^\w\s]", " ", sentences[-1]).split()) if sentences else ""
    found = _QUESTION.fullmatch(asked)
    if found is None:
        return None
    by_user = next(filter(None, found.groups())) in ("i", "my")
    turns = recent_turns(2 if "before that" in asked else 1)
    if not turns or ("before that" in asked and len(turns) < 2):
        return "Nothing was said before that in this session."
    return f"You said: {turns[0].user_message}" if by_user else f"I said: {turns[0].response}"
