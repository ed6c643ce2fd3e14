"""Making a choice small enough for a small model.

A model of a hundred million parameters chooses badly among many tools and well between two.
Word overlap with the tools' own examples finds the two. Where neither is clearly ahead, the
message has to hold a name that both take before the model decides. All here is generic: it knows
English words of grammar and of acting, and what the tool definitions say.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain
from typing import Any

from remit.kernel.schemas import first_problem

_FILE_NAME = re.compile(r"[\w/-]*\w\.[a-z][a-z0-9]{0,4}\b")
_NUMBER = re.compile(r"\b\d+\b")
_WHOLE_NUMBER = re.compile(r"(?<![\w.-])\d+(?!\w|\.\d)")
_NAME = re.compile(r"(?!\d+$)\S*[\d_/.]\S*|[A-Z]{2,}-\S+|[A-Z][A-Z-]{2,}")
_PATH = re.compile(r"\S*/\S*|\S+\.[A-Za-z][A-Za-z0-9]{0,4}")
_WORD = re.compile(r"\b[A-Za-z]{5,}\b")
_ALIKE_WORD = 0.83  # of two words, from 0 to 1: one letter missing, or two exchanged
_CLEAR = 1.15  # so far ahead of the second, the likeliest needs no model to confirm it
_COVERED = 0.22  # of a message's weight, what the likeliest has to speak of
_SAME = 0.999
_STEM = 5  # letters of a word by which its other forms are known too
_UNLIKE = 0.35  # a message that is less like anything that is known asks for nothing of it
_LITTLE = 0.3  # what a word of grammar, or a number, weighs beside one that names a thing
_ACT = re.compile(  # an order, where one begins
    r"(?:^|[.;:!,]\s|\b(?:and|then|please|pls|just|now|(?:can|could|would|will) you|let's"
    r"|want (?:you )?to)\s)\s*"
    r"(add|approve|assign|ban|block|cancel|change|clear|copy|create|delete|deny|deploy"
    r"|disable|download|drop|edit|email|enable|erase|forget|forward|grant|increase|install|invite"
    r"|kill|lower|mail|make|move|notify|pay|post|publish|purge|raise|reboot|reduce|refund|remove"
    r"|rename|replace|reset|restart|restore|revoke|roll|rotate|save|schedule|send|set|shut|start"
    r"|stop|switch|transfer|uninstall|update|upgrade|upload|wipe|write)\b"
)
_GRAMMAR = re.findall(
    r"\S+",
    "# a am an and any are at be been by can could did do does for from give had has have here"
    " how i in into is it its just me my of on or our please show so some tell that the their"
    " there these they this to told under up us was we were what which who will with would you"
    " your",
)


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What is left of a choice.

    Attributes:
        classes: the likeliest and the second.
        examples: phrases of both with their class, the most telling last.
        alike: whether the message is like the likeliest at all.
        clear: whether the likeliest is far ahead of the second, and speaks of what is asked.
    """

    classes: tuple[str, str]
    examples: list[tuple[str, str]]
    alike: bool
    clear: bool


def narrow(
    message: str,
    examples: Mapping[str, Sequence[str]],
    hints: Mapping[str, Sequence[str]],
    shots: int = 3,
) -> Narrowed:
    """The two likeliest classes for ``message``, and examples to show of them.

    Args:
        examples: by class, phrases that belong to it; also to the one that means no tool.
        hints: by class, further texts that only count for likeness.
    """
    texts = {name: [*phrases, *hints.get(name, ())] for name, phrases in examples.items()}
    spread = Counter(
        word for group in texts.values() for word in set().union(*(_words(text) for text in group))
    )

    def vector(text: str) -> dict[str, float]:
        # A word that few classes use says more.
        weights = {
            word: number
            * math.log((len(texts) + 1) / ((spread[word] or 1) + 0.5))
            * (_LITTLE if word in _LIGHT else 1)
            for word, number in _words(text).items()
        }
        length = math.sqrt(sum(weight * weight for weight in weights.values())) or 1.0
        return {word: weight / length for word, weight in weights.items()}

    query = vector(_spelt(message, chain.from_iterable(texts.values())))

    def likeness(text: str) -> float:
        other = vector(text)
        return sum(weight * other.get(word, 0.0) for word, weight in query.items())

    score = {name: _score(sorted(map(likeness, group))) for name, group in texts.items()}
    best, second = sorted(score, key=lambda name: -score[name])[:2]
    alike = score[best] >= _UNLIKE
    spoken_of = set().union(*map(_words, texts[best]))
    covered = sum(weight * weight for word, weight in query.items() if word in spoken_of)
    clear = score[best] >= _CLEAR * score[second] and covered >= _COVERED
    nearest = {
        name: sorted(examples[name], key=likeness, reverse=True)[:shots] for name in (best, second)
    }
    pairs = [(phrase, name) for name in (second, best) for phrase in reversed(nearest[name])]
    pairs.sort(key=lambda pair: -nearest[pair[1]].index(pair[0]))  # take turns
    return Narrowed((best, second), pairs, alike, clear)


def named(schemas: Mapping[str, Mapping[str, Any]], message: str) -> list[str]:
    """The classes whose schema takes a name that the message holds as it stands.

    Names are ids, event types, paths: what nobody types who means another tool. All classes,
    where none takes one.
    """
    names = [word for word in _bare_words(message) if _NAME.fullmatch(word)]
    taking = [
        class_
        for class_, schema in schemas.items()
        if any(_takes(prop, name) for prop in _properties(schema) for name in names)
    ]
    return taking or list(schemas)


def narrowed_schema(schema: Mapping[str, Any], message: str) -> dict[str, Any]:
    """An arguments schema that leaves only values the message itself contains.

    A text becomes one of the message's words, an integer one of its numbers, an enum those of
    its values that are mentioned. What the message does not mention is left out, or stays as it
    was where it is required.
    """
    words = _bare_words(message)
    stems = {_stem(word) for word in words}
    names = [word for word in words if _NAME.fullmatch(word)]
    of_others = {  # what a stricter property takes is not meant for a free text beside it
        word
        for name, prop in schema.get("properties", {}).items()
        for word in names
        if _takes(prop, word)
        and ({"enum", "pattern"} & {*prop} or name in schema.get("required", ()))
    }
    properties: dict[str, Any] = {}
    for name, prop in schema.get("properties", {}).items():
        required = name in schema.get("required", ())
        found: list[Any] = []
        if "enum" in prop:
            # A value typed as it stands is the one that is meant.
            found = [value for value in prop["enum"] if value in words] or [
                value
                for value in prop["enum"]
                if all(_stem(part) in stems for part in re.split(r"[_\s-]", str(value)))
            ]
        elif prop.get("type") == "integer":
            numbers = map(int, _WHOLE_NUMBER.findall(message))
            low, high = prop.get("minimum", -math.inf), prop.get("maximum", math.inf)
            found = [number for number in dict.fromkeys(numbers) if low <= number <= high]
        elif prop.get("type") == "string":
            found = [word for word in names if not first_problem(prop, word)]
            if not required and "pattern" not in prop:
                found = [word for word in found if word not in of_others]
            if required and not found:
                found = [word for word in words if not first_problem(prop, word)] or [message]
        if found:
            properties[name] = {"enum": found}
        elif required:
            properties[name] = dict(prop)
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def only_value(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The one object that fits a schema of :func:`narrowed_schema`; ``None`` where several do."""
    values = {name: prop.get("enum", ()) for name, prop in schema["properties"].items()}
    if any(len(allowed) != 1 for allowed in values.values()):
        return None
    return {name: allowed[0] for name, allowed in values.items()}


def _properties(schema: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    return properties.values()


def _takes(prop: Mapping[str, Any], name: str) -> bool:
    """Whether a property's value can be this name: what it lists, its pattern, or a path."""
    if "enum" in prop:
        return name in prop["enum"]
    if prop.get("type") != "string":
        return False
    return not first_problem(prop, name) if "pattern" in prop else bool(_PATH.fullmatch(name))


def _words(text: str) -> Counter[str]:
    """Words without case and endings; file names and numbers as such."""
    plain = _FILE_NAME.sub(" <f> ", text.lower().replace("_", " "))
    found = re.findall(r"[\w<>#']+", _NUMBER.sub("#", plain))
    return Counter(_stem(word)[:_STEM] for word in found)


def _bare_words(message: str) -> list[str]:
    return list(dict.fromkeys(filter(None, map(_bare, message.split()))))


def _bare(word: str) -> str:
    return word.strip("\"'`?!,;:()").rstrip(".")


def _stem(word: str) -> str:
    word = word.lower()
    return word[:-1] if len(word) > 3 and word.endswith("s") else word


def asks_to_act(message: str, texts: Iterable[str]) -> bool:
    """Whether a message wants something changed or sent that none of ``texts`` speaks of."""
    spoken_of = {word for text in texts for word in re.findall(r"[a-z]+", text.lower())}
    return any(found[1] not in spoken_of for found in _ACT.finditer(message.lower()))


def _score(likenesses: Sequence[float]) -> float:
    """Likeness to a class: to its two nearest texts, or to the one that it is, word for word."""
    *_, nearest = likenesses
    return 2.0 if nearest > _SAME else sum(likenesses[-2:])


def _spelt(message: str, texts: Iterable[str]) -> str:
    """The message with unknown words as they are probably meant: "sesions", "bugdet"."""
    known = {word for text in texts for word in _WORD.findall(text.lower())}
    stems = {_stem(word)[:_STEM] for word in known}

    def meant(found: re.Match[str]) -> str:
        word = found[0].lower()
        if _stem(word)[:_STEM] in stems:
            return word
        near = get_close_matches(word, known, 1, _ALIKE_WORD)
        return near[0] if near and near[0][0] == word[0] else word

    return _WORD.sub(meant, message)


_LIGHT = frozenset(_stem(word)[:_STEM] for word in _GRAMMAR)
