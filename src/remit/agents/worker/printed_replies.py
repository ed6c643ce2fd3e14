"""Answers that code writes for models that only choose tools."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from remit.agents.tools import Tool
from remit.agents.worker.tool_candidates import Choice
from remit.kernel.errors import excerpt

_MAX_CHARS = 2_000
_HELLO = r"(hello|hi|hey|hiya|howdy|greetings|good (morning|day|afternoon|evening))\b.*"
_THANKS = r"(many |a lot of )?(thanks|thank you|thx|cheers)\b.*"
_BYE = r"(good ?bye|bye|farewell|see you|good night|so long|ciao)\b.*"
_SMALL_TALK = {_HELLO: "Hello!", _THANKS: "You're welcome.", _BYE: "Goodbye."}
_MAX_TALK_WORDS = 6  # A longer message, such as "hello, is the ledger intact?", is no greeting.
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
_CANNOT = "I cannot answer that: I found no tool for it, and I only report what tools show."


def fixed_answer(
    message: str,
    used: Sequence[Mapping[str, str]],
    tools: Sequence[Tool],
    choice: Choice,
) -> str:
    """Return the answer to a message: its tools' results, small talk, or suggestions.

    If tools ran, only their results are given, each under a heading and cut after 2,000 characters;
    a result that failed or lacks a name of the message becomes a sentence. Otherwise a request for
    help gets :func:`help_text`, and thanks or a farewell a short reply. If the choice is unclear,
    the nearest tools are suggested, with the unknown words. A greeting, or else a sentence that
    there is no answer, is followed by an example question for each tool. No model is asked.

    Args:
        message: the user's message.
        used: the tools that ran, with ``tool_id``, ``status`` and ``text``; empty if none did.
        tools: all tools of the agent.
        choice: the most likely tools, and the words of the message that they do not explain.
    """
    by_id = {tool.tool_id: tool for tool in tools}
    if used:
        return "\n".join(_result(one, by_id[one["tool_id"]]) for one in used)
    if asks_for_help(message):
        return help_text(tools)
    talk = _small_talk(message)
    if talk in (_SMALL_TALK[_THANKS], _SMALL_TALK[_BYE]):
        return talk
    if choice.near and not talk:
        reason = _UNSURE
        if choice.unknown:
            words = ", ".join(map(repr, choice.unknown))
            reason = f"I cannot answer that: no tool here mentions {words}."
        likely = (_suggestion(by_id[id_]) for id_ in choice.near)
        return "\n".join([f"{reason} I can:", *likely])
    asked = [f"- {_example(tool)}" for tool in tools]
    offer = "\n".join(["You can ask, for example:", *asked]) if asked else ""
    return f"{talk or _CANNOT}\n{offer}".strip()


def asks_for_help(message: str) -> bool:
    """Return True if a message only asks who the agent is or how it can help.

    Args:
        message: the user's message, in English.
    """
    return _ABILITIES.fullmatch(" ".join(re.findall(r"[\w']+", message.lower()))) is not None


def help_text(tools: Sequence[Tool]) -> str:
    """Return the questions that an agent can answer, tool by tool.

    A heading is followed by a line for each tool: the first clause of its description, an example
    question, and its id. Without tools, a sentence says that there are none.

    Args:
        tools: tools of the agent, in the order of the text.
    """
    if not tools:
        return "I have no tools, so I can look up nothing."
    offers = [f"{_suggestion(tool)} ({tool.tool_id})" for tool in tools]
    return "\n".join(["I answer from what my tools show. With them I can:", *offers])


def _suggestion(tool: Tool) -> str:
    return f"- {_summary(tool)}: ask {_example(tool)!r}"


def _result(used: Mapping[str, str], tool: Tool) -> str:
    text = used["text"]
    if used["status"] == "absent":
        return f"I cannot answer that from {used['tool_id']} ({_summary(tool)}): {text}."
    if used["status"] != "ok":
        return f"{used['tool_id']} failed, so there is no answer: {text.partition(': ')[2]}"
    # The heading says what the tool does, so that a reader notices a wrong choice.
    heading = f"{tool.tool_id} ({_summary(tool)}):"
    return f"{heading}\n{excerpt(text, _MAX_CHARS)}"


def _summary(tool: Tool) -> str:
    """Return the first clause of a tool's description."""
    does = re.split(r"[.:;\n](?:\s|$)", tool.description.strip(), maxsplit=1)[0] or tool.tool_id
    return does[:1].lower() + does[1:]


def _small_talk(message: str) -> str:
    words = " ".join(re.findall(r"[\w']+", message.lower()))
    if len(words.split()) <= _MAX_TALK_WORDS:
        for pattern, reply in _SMALL_TALK.items():
            if re.fullmatch(pattern, words):
                return reply
    return ""


def _example(tool: Tool) -> str:
    if tool.examples:
        return tool.examples[0][0]
    return tool.description.partition("\n")[0].rstrip(".") or tool.tool_id
