"""Answers that code prints, where the model may choose tools and not speak for the system."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from remit.agents.tools import Tool

_LONGEST = 2_000
_HELLO = r"(hello|hi|hey|hiya|howdy|greetings|good (morning|day|afternoon|evening))\b.*"
_THANKS = r"(many |a lot of )?(thanks|thank you|thx|cheers)\b.*"
_BYE = r"(good ?bye|bye|farewell|see you|good night|so long|ciao)\b.*"
_TALK = {_HELLO: "Hello!", _THANKS: "You're welcome.", _BYE: "Goodbye."}
_SHORT_TALK = 6  # words: "hello, is the ledger intact?" is more than a greeting
_UNSURE = "I cannot tell which of my tools you mean, so I used none. I can"
_CANNOT = "I cannot answer that: no tool here was found for it, and I say only what tools show."


def printed_answer(
    message: str,
    used: Sequence[Mapping[str, str]],
    tools: Sequence[Tool],
    near: Sequence[Tool] = (),
) -> str:
    """The answer to a message: what its tool gave, a greeting, or what can be asked.

    Args:
        used: the tools that ran, with ``tool_id``, ``status`` and ``text``.
        tools: those that there are.
        near: those that may be meant, where that is not clear.
    """
    if used:
        by_id = {tool.tool_id: tool for tool in tools}
        return "\n".join(_result(one, by_id[one["tool_id"]]) for one in used)
    talk = _talk(message)
    if talk in (_TALK[_THANKS], _TALK[_BYE]):
        return talk
    if near and not talk:
        offers = [f"- {_does(tool)}: ask {_example(tool)!r}" for tool in near]
        return "\n".join([f"{_UNSURE}:", *offers])
    asked = [f"- {_example(tool)}" for tool in tools]
    offer = "\n".join(["You can ask, for example:", *asked]) if asked else ""
    return f"{talk or _CANNOT}\n{offer}".strip()


def _result(used: Mapping[str, str], tool: Tool) -> str:
    text = used["text"]
    if used["status"] != "ok":
        return f"{used['tool_id']} failed, so there is no answer: {text.partition(': ')[2]}"
    # What the tool does stands above, so that a wrong choice is seen to be one.
    heading = f"{tool.tool_id} ({_does(tool)}):"
    return f"{heading}\n{text if len(text) <= _LONGEST else text[:_LONGEST] + '…'}"


def _does(tool: Tool) -> str:
    """What a tool does, in the first words of its description."""
    does = re.split(r"[.:;\n](?:\s|$)", tool.description.strip(), maxsplit=1)[0] or tool.tool_id
    return does[:1].lower() + does[1:]


def _talk(message: str) -> str:
    said = " ".join(re.findall(r"[\w']+", message.lower()))
    if len(said.split()) <= _SHORT_TALK:
        for pattern, reply in _TALK.items():
            if re.fullmatch(pattern, said):
                return reply
    return ""


def _example(tool: Tool) -> str:
    if tool.examples:
        return tool.examples[0][0]
    return tool.description.partition("\n")[0].rstrip(".") or tool.tool_id
