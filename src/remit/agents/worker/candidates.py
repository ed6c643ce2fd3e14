"""Making a choice small enough for a small model.

A model of a hundred million parameters chooses badly among many tools and well between two.
Word overlap with the tools' own examples finds the two; the model decides. All here is
generic: it knows nothing but what the tool definitions say.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from remit.kernel.schemas import first_problem

_FILE_NAME = re.compile(r"[\w/-]*\w\.[a-z]\w*\b")
_NUMBER = re.compile(r"\b\d+\b")
_WHOLE_NUMBER = re.compile(r"(?<![\w.-])\d+(?!\w|\.\d)")
_CLEAR = 2.0  # the best is so far ahead that only "none" can contest it


def narrow(
    message: str,
    examples: Mapping[str, Sequence[str]],
    hints: Mapping[str, Sequence[str]],
    none: str,
    shots: int = 3,
) -> tuple[list[str], list[tuple[str, str]]]:
    """The two likeliest classes for ``message``, and examples to show of them.

    Args:
        examples: by class, phrases that belong to it; ``none`` among the classes.
        hints: by class, further texts that only count for likeness.
        none: the class that means no tool; always kept when a tool is clearly ahead.

    Returns:
        ``([likeliest, second], [(phrase, class), …])``, the most telling phrase last.
    """
    texts = {name: [*phrases, *hints.get(name, ())] for name, phrases in examples.items()}
    spread = Counter(
        word for group in texts.values() for word in set().union(*(_words(text) for text in group))
    )

    def vector(text: str) -> dict[str, float]:
        # A word that few classes use says more.
        weights = {
            word: number * math.log((len(texts) + 1) / ((spread[word] or 1) + 0.5))
            for word, number in _words(text).items()
        }
        length = math.sqrt(sum(weight * weight for weight in weights.values())) or 1.0
        return {word: weight / length for word, weight in weights.items()}

    query = vector(message)

    def likeness(text: str) -> float:
        other = vector(text)
        return sum(weight * other.get(word, 0.0) for word, weight in query.items())

    score = {name: sum(sorted(map(likeness, group))[-2:]) for name, group in texts.items()}
    best, second = sorted(score, key=lambda name: -score[name])[:2]
    clear = score[best] >= _CLEAR * score[second]
    if clear and best != none:
        second = none
    nearest = {
        name: sorted(examples[name], key=likeness, reverse=True)[:shots] for name in (best, second)
    }
    pairs = [(phrase, name) for name in (second, best) for phrase in reversed(nearest[name])]
    if not clear:
        pairs.sort(key=lambda pair: -nearest[pair[1]].index(pair[0]))  # take turns
    return [best, second], pairs


def narrowed_schema(schema: Mapping[str, Any], message: str) -> dict[str, Any]:
    """An arguments schema that leaves only values the message itself contains.

    A text becomes one of the message's words, an integer one of its numbers, an enum those of
    its values that are mentioned. What the message does not mention is left out, or stays as it
    was where it is required.
    """
    words = list(dict.fromkeys(filter(None, map(_bare, message.split()))))
    stems = {_stem(word) for word in words}
    properties: dict[str, Any] = {}
    for name, prop in schema.get("properties", {}).items():
        found: list[Any] = []
        if "enum" in prop:
            found = [
                value
                for value in prop["enum"]
                if all(_stem(part) in stems for part in re.split(r"[_\s-]", str(value)))
            ]
        elif prop.get("type") == "integer":
            numbers = map(int, _WHOLE_NUMBER.findall(message))
            low, high = prop.get("minimum", -math.inf), prop.get("maximum", math.inf)
            found = [number for number in dict.fromkeys(numbers) if low <= number <= high]
        elif prop.get("type") == "string" and "pattern" in prop:
            found = [word for word in words if not first_problem(prop, word)]
        elif prop.get("type") == "string" and name in schema.get("required", ()):
            found = words or [message]
        if found:
            properties[name] = {"enum": found}
        elif name in schema.get("required", ()):
            properties[name] = dict(prop)
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _words(text: str) -> Counter[str]:
    """Words without case, plural and underscores; file names and numbers as such."""
    plain = _FILE_NAME.sub(" <f> ", text.lower().replace("_", " "))
    found = re.findall(r"[\w<>#']+", _NUMBER.sub("#", plain))
    return Counter(w[:-1] if len(w) > 3 and w.endswith("s") else w for w in found)


def _bare(word: str) -> str:
    return word.strip("\"'`?!,;:()").rstrip(".")


def _stem(word: str) -> str:
    return word.lower().rstrip("s")
