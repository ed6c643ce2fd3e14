"""Answers that code prints, where the model may choose tools and not speak for the system."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from remit.agents.tools import Tool
from remit.kernel.errors import excerpt

_LONGEST = 2_000
_HELLO = r"(hello|hi|hey|hiya|howdy|greetings|good (morning|day|afternoon|evening))\b.*"
_THANKS = r"(many |a lot of )?(thanks|thank you|thx|cheers)\b.*"
_BYE = r"(good ?bye|bye|farewell|see you|good night|so long|ciao)\b.*"
_TALK = {_HELLO: "Hello!", _THANKS: "You're welcome.", _BYE: "Goodbye."}
_SHORT_TALK = 6  # words: "hello, is the ledger intact?" is more than a greeting
_UNSURE = "I cannot tell which of my tools you mean, so I used none."
_ABILITIES = re.compile(
    r"(?:(?:hello|hi|hey|ok|so|and|please|then|(?:can|could|will|would) you|tell me|show me|explain"
    r"|list) )*(?:help(?: me)?|who are you|what are you(?: for)?"
    r"|what (?:all )?(?:(?:can|could|do) you (?:actually |really )?(?:do|help(?: me)? with|offer"
    r"|know|show(?: me)?|answer|tell me)|you can (?:do|show(?: me)?|answer))"
    r"|what (?:can|could|may|should) i (?:do|ask(?: you)?)(?: (?:here|you|about))?"
    r"|(?:(?:what|which) |(?:all )?(?:of )?)?(?:are )?(?:(?:your|the|my) )?(?:other )?"
    r"(?:tools?|abilities|capabilities|functions|skills)"
    r"(?: (?:do you have|have you(?: got)?|are there|can you (?:use|call)|do you (?:use|know|offer)"
    r"|are available|exist|you (?:have|can use)|can i use))?"
    r")(?: (?:for me|here|with this|now|please|to you|about))*"
)
_CANNOT = "I cannot answer that: no tool here was found for it, and I say only what tools show."


def printed_answer(
    message: str,
    used: Sequence[Mapping[str, str]],
    tools: Sequence[Tool],
    near: Sequence[Tool] = (),
    unknown: Sequence[str] = (),
) -> str:
    """The answer to a message: what its tool gave, a greeting, or what can be asked.

    Args:
        used: the tools that ran, with ``tool_id``, ``status`` and ``text``.
        tools: those that there are.
        near: those that may be meant, where that is not clear.
        unknown: words of the message that none of these accounts for.
    """
    if used:
        by_id = {tool.tool_id: tool for tool in tools}
        return "\n".join(_result(one, by_id[one["tool_id"]]) for one in used)
    if asks_for_abilities(message):
        return abilities(tools)
    talk = _talk(message)
    if talk in (_TALK[_THANKS], _TALK[_BYE]):
        return talk
    if near and not talk:
        unsure = _UNSURE
        if unknown:
            unsure = (
                f"I cannot answer that: no tool here speaks of {', '.join(map(repr, unknown))}."
            )
        return "\n".join([f"{unsure} I can:", *map(_offer, near)])
    asked = [f"- {_example(tool)}" for tool in tools]
    offer = "\n".join(["You can ask, for example:", *asked]) if asked else ""
    return f"{talk or _CANNOT}\n{offer}".strip()


def asks_for_abilities(message: str) -> bool:
    """Whether a message asks what the agent is, can do, or which tools it has; no more."""
    return _ABILITIES.fullmatch(" ".join(re.findall(r"[\w']+", message.lower()))) is not None


def abilities(tools: Sequence[Tool]) -> str:
    """What can be asked of an agent, tool by tool."""
    if not tools:
        return "I have no tools, so I can look up nothing."
    offers = [f"{_offer(tool)} ({tool.tool_id})" for tool in tools]
    return "\n".join(["I answer from what my tools show. With them I can:", *offers])


def _offer(tool: Tool) -> str:
    return f"- {_does(tool)}: ask {_example(tool)!r}"


def _result(used: Mapping[str, str], tool: Tool) -> str:
    text = used["text"]
    if used["status"] == "absent":
        return f"I cannot answer that from {used['tool_id']} ({_does(tool)}): {text}."
    if used["status"] != "ok":
        return f"{used['tool_id']} failed, so there is no answer: {text.partition(': ')[2]}"
    # What the tool does stands above, so that a wrong choice is seen to be one.
    heading = f"{tool.tool_id} ({_does(tool)}):"
    return f"{heading}\n{excerpt(text, _LONGEST)}"


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
