"""The choice of a tool for a message, made small enough for a small model.

A tool may answer a message if it explains each word that carries the question: its definition
contains the word, or an argument takes it. Among several such tools, word overlap with their texts
finds the most likely one. If none is clearly ahead, a model decides, but only between tools that
take a name in the message. The rules know English and the tools' definitions, nothing else.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from remit.agents.tools import Tool
from remit.agents.worker.english_words import (
    bare_words,
    content_stems,
    is_grammar,
    names,
    plain,
    schemas_for_names,
    speller,
    stem,
    taken_values,
    takes_free_text,
)

_FILE_NAME = re.compile(r"[\w/-]*\w\.[a-z][a-z0-9]{0,4}\b")
_ID = re.compile(r"\b([A-Z]{2,})-[\w-]+")
_TOKEN = re.compile(r"[a-z]+|\d+")
_MARKED_TOKEN = re.compile(r"<\w+>|[a-z]+|\d+")
# Ratio to the second score from which the most likely tool needs no confirmation.
_CLEAR_LEAD = 1.15
_EXACT_SCORE = 0.999
# Score below which a message asks for nothing that a tool does.
_MIN_SCORE = 0.35
# Weight of grammar and numbers, relative to words that name things.
_GRAMMAR_WEIGHT = 0.3
# An order, at the beginning of a clause.
_ACT = re.compile(
    r"(?:^|[.;:!,]\s|\b(?:and|then|please|pls|just|now|(?:can|could|would|will) you|let's"
    r"|want (?:you )?to)\s)\s*"
    r"(add|approve|assign|ban|block|cancel|change|clear|copy|create|delete|deny|deploy"
    r"|disable|download|drop|edit|email|enable|erase|forget|forward|grant|increase|install|invite"
    r"|kill|lower|mail|make|move|notify|pay|post|publish|purge|raise|reboot|reduce|refund|remove"
    r"|rename|replace|reset|restart|restore|revoke|roll|rotate|save|schedule|send|set|shut|start"
    r"|stop|switch|transfer|uninstall|update|upgrade|upload|wipe|write)\b"
)
# The beginning of a second question or order.
_SECOND_PART = re.compile(
    r"[,;.?!]?\s+(?:and|then|but|also)\s+(?:(?:also|then|please)\s+)?(?=(?:are|check|did|do|does"
    r"|explain|give|has|have|how|is|list|open|read|reconstruct|show|sum|tell|trace|verify|was|were"
    r"|what|when|where|which|who|whose|why)\b)",
    re.IGNORECASE,
)

# Number of example phrases of each tool that a model is shown.
_EXAMPLES = 3

Correct = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Choice:
    """The result of choosing a tool for a message; tools are named by id.

    Immutable. An empty choice names nothing.

    Attributes:
        chosen: the tool; empty if the choice is unclear.
        names: names in the message that no argument takes; the tool's result must contain them.
        between: two tools that take a name in the message, for a model to choose from.
        examples: (phrase, tool) of both, the most similar phrase last.
        near: the most likely tools if none may answer; two about equally likely tools that fit a
            message without names; or the tools chosen for the several questions of a message.
        unknown: words that the first tool of ``near`` does not explain; for several questions,
            words of the questions that have no tool, even if ``near`` is empty.
    """

    chosen: str = ""
    names: tuple[str, ...] = ()
    between: tuple[str, ...] = ()
    examples: tuple[tuple[str, str], ...] = ()
    near: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def choose(message: str, tools: Mapping[str, Tool], talk: Sequence[str]) -> Choice:
    """Return the tool that explains all that a message asks and is clearly the most likely.

    If two tools that take a name in the message are about equally likely, the choice names both for
    a model (``between``). If no tool may answer, the choice names the nearest tools (``near``) and
    the words that the first of them does not explain. An empty choice means small talk, an order to
    act, or no likely tool. A message with two questions gets a tool only if one answers both.

    Args:
        message: the user's message.
        tools: the tools, by id.
        talk: phrases that call for no tool.
    """
    parts = [_choose_for_part(part, tools, talk) for part in _SECOND_PART.split(message)]
    if len(parts) == 1:
        return parts[0]
    found = list(dict.fromkeys(part.chosen for part in parts))
    if len(found) == 1 and found[0]:
        return _choose_for_part(message, tools, talk)
    unknown = tuple(dict.fromkeys(word for part in parts for word in part.unknown))
    return Choice(near=tuple(filter(None, found)), unknown=unknown)


def _choose_for_part(message: str, tools: Mapping[str, Tool], talk: Sequence[str]) -> Choice:
    texts = {id_: _texts_of(tool) for id_, tool in tools.items()}
    if not tools or asks_to_act(message, chain.from_iterable(texts.values())):
        return Choice()
    correct = speller(chain.from_iterable(texts.values()))
    able = schemas_for_names({id_: tool.input_schema for id_, tool in tools.items()}, message)
    is_named = len(able) < len(tools)
    unknown = {id_: _unexplained_words(message, tools[id_], correct) for id_ in able}
    score = _scores(message, {**{id_: texts[id_] for id_ in able}, "": talk}, correct)
    best, *others = ranked = sorted(able, key=lambda id_: -score[id_])
    fitting = [id_ for id_ in ranked if not unknown[id_] and (is_named or score[id_] >= _MIN_SCORE)]
    if not is_named and score[""] > score[(fitting or ranked)[0]]:
        return Choice()
    if not fitting:
        least = max([_MIN_SCORE, *(_CLEAR_LEAD * score[other] for other in others)])
        if score[best] >= least and _takes_rest(message, tools[best]):
            return Choice(best)
        if not is_named and score[best] < _MIN_SCORE:
            return Choice()
        return Choice(near=tuple(ranked[:2]), unknown=tuple(unknown[best]))
    first, *further = fitting
    if not further or score[first] >= _CLEAR_LEAD * score[further[0]]:
        taken = taken_values(tools[first].input_schema, message)
        return Choice(first, tuple(name for name in names(message) if name not in taken))
    if not is_named:  # Without a name in the message, a small model would guess.
        return Choice(near=(first, further[0]))
    pairs = []
    nearest = {id_: _nearest(message, tools[id_], correct) for id_ in (further[0], first)}
    for place in reversed(range(_EXAMPLES)):
        pairs += [(phrases[place], id_) for id_, phrases in nearest.items() if place < len(phrases)]
    return Choice(between=(first, further[0]), examples=tuple(pairs))


def _texts_of(tool: Tool) -> list[str]:
    """Return the texts that describe a tool: example phrases, id and first sentence."""
    # Further sentences say what a tool does not do.
    sentence = re.split(r"(?<=\.)\s", tool.description)[0]
    return [*(phrase for phrase, _ in tool.examples), tool.tool_id, sentence]


def _unexplained_words(message: str, tool: Tool, correct: Correct) -> list[str]:
    """Return the content words of a message that a tool neither contains nor takes, in order.

    All bare words are returned if the message has no content words and no names.
    """
    taken = taken_values(tool.input_schema, message)
    known_names = {*taken, *names(message)}
    rest = " ".join(word for word in bare_words(message) if word not in known_names)
    words = [correct(word) for word in _words(rest)]
    asked = dict.fromkeys(content_stems(words))
    if not asked and not known_names:
        return bare_words(message)
    texts = (*_texts_of(tool), *taken, *tool.input_schema.get("properties", ()))
    known = {found for text in texts for found in content_stems(_words(text))}
    known |= {found.removeprefix("not ") for found in known}
    by_stem = {stem(word): word for word in reversed(words)}
    return [by_stem.get(word, word) for word in asked if word not in known]


def asks_to_act(message: str, texts: Iterable[str]) -> bool:
    """Return True if a message orders a change or a dispatch that no text mentions.

    An order is one of a fixed list of English verbs, such as ``delete`` or ``send``, at the
    beginning of a clause or after words such as "please" or "can you".

    Args:
        message: the message, in any letter case.
        texts: texts that describe the tools; a verb counts as mentioned if one contains that word.
    """
    mentioned = {word for text in texts for word in re.findall(r"[a-z]+", text.lower())}
    return any(found[1] not in mentioned for found in _ACT.finditer(message.lower()))


def _takes_rest(message: str, tool: Tool) -> bool:
    """Return True if the unexplained words can be the tool's free-text argument."""
    schema = tool.input_schema
    return takes_free_text(schema) and not taken_values(schema, message)


def _scores(message: str, texts: Mapping[str, Sequence[str]], correct: Correct) -> dict[str, float]:
    """Return the similarity of a message to each group of texts."""
    counts = {name: [_count_stems(text) for text in group] for name, group in texts.items()}
    spread = Counter(word for group in counts.values() for word in set().union(*group))

    def vector(words: Mapping[str, int]) -> dict[str, float]:
        # A word that few groups use weighs more.
        weights = {
            word: number
            * math.log((len(texts) + 1) / ((spread[word] or 1) + 0.5))
            * (_GRAMMAR_WEIGHT if word == "#" or is_grammar(word) else 1)
            for word, number in words.items()
        }
        length = math.sqrt(sum(weight * weight for weight in weights.values())) or 1.0
        return {word: weight / length for word, weight in weights.items()}

    query = vector(_count_stems(message, correct))

    def similarity(words: Mapping[str, int]) -> float:
        other = vector(words)
        return sum(weight * other.get(word, 0.0) for word, weight in query.items())

    found = {name: sorted(map(similarity, group)) for name, group in counts.items()}
    # The two nearest texts count; a text that is equal to the message counts more.
    return {
        name: 2.0 if values[-1] > _EXACT_SCORE else sum(values[-2:])
        for name, values in found.items()
    }


def _nearest(message: str, tool: Tool, correct: Correct) -> list[str]:
    """Return the example phrases of a tool, the most similar first."""
    score = _scores(message, {phrase: [phrase] for phrase, _ in tool.examples}, correct)
    return sorted(score, key=lambda phrase: -score[phrase])


def _count_stems(text: str, correct: Correct = str) -> Counter[str]:
    """Count the stems of a text; ids and file names by kind, numbers as ``#``."""
    marked = _FILE_NAME.sub(" <f> ", _ID.sub(r" <\1> ", text).replace("_", " "))
    found = (correct(word) for word in _MARKED_TOKEN.findall(plain(marked)))
    return Counter("#" if word.isdigit() else stem(word) for word in found)


def _words(text: str) -> list[str]:
    return _TOKEN.findall(plain(text.replace("_", " ")))
