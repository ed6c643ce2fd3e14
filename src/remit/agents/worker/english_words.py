"""The words of a user's message: English, and the ids, event types, paths and numbers that are
arguments of tools.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from remit.kernel.schemas import first_problem

_CONTRACTIONS = (
    (re.compile(r"\b(?:can't|cannot)\b"), "can not"),
    (re.compile(r"\bwon't\b"), "will not"),
    (re.compile(r"n't\b"), " not"),
    (re.compile(r"\b(what|that|who|where|when|how|it|there|here|everything|let)'s\b"), r"\1 is"),
    (re.compile(r"'(?:ll|d)\b"), " would"),
    (re.compile(r"'(?:re|ve|m|s)\b"), ""),
)
# Phrases that mean a single word.
_PHRASES = (
    (re.compile(r"\bhow come\b"), "why"),
    (re.compile(r"\bwhat for\b"), "why"),
    (re.compile(r"\b(?:can|could|would|will) (?:you|u|ya)\b"), "you"),
    (re.compile(r"\b(?:can|could|may) (?:i|we) (?:please )?(?:see|have|get|look)\b"), "show"),
    (re.compile(r"\bi would (?:like|love)\b"), "show"),
    (re.compile(r"^\W*(?:are|were|do|did|have) you\b(?! (?:have|got|know|see)\b)"), "yourself"),
    (re.compile(r"\b(?:do|does|have|has) (?:you|we|i|they|it|one) (?:have|got)\b"), "there"),
)
_SYNONYMS = (
    ("many", "number", "count", "amount"),
    ("there", "exist", "available"),
    ("last", "latest", "newest", "recent", "lately"),
    ("why", "reason"),
    ("spend", "spent"),
)
_GRAMMAR = (
    "a am an and are as at be been being but by did do does doing done for from had has have"
    " having he her hers him his how i in inside into is it its just me mine my of on onto or our"
    " ours please she show so some tell than that the their them then these they this those"
    " through to told under up upon us was we were what which with within you your yours"
)
_REQUEST_WORDS = (
    "all also any anything again about actually around basically called come"
    " came current currently complete dear describe detail display dump each entire entirely"
    " every everything ever exactly far fetch find full fully get getting gimme give given go"
    " going good got hello here hey hi info information instance kind kindly know let like list"
    " look maybe moment morning need now ok okay one ones only out over overall overview part"
    " particular pls plz present print provide quick quickly quite really remit report retrieve"
    " right root see seen shown simply sort start still stuff such sum summarise summarize"
    " summary system take thank thanks thing think too true type use used uses using very view"
    " want wanted well whole wish yes yet"
)
_DIGITS = {
    "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8",
    "nine": "9", "ten": "10",
}  # fmt: skip
_NEGATIONS = ("not", "no", "never", "without")
_ENDINGS = re.compile(
    r"(?<=\w{3})(?:ications?|ations?|ings?|ions?|ments?|ers?|ors?|ies|ied|ively|ively|ly|ed|es|s"
    r"|e|y)$"
)
_WORD = re.compile(r"[a-z]+")
_MIN_CORRECTED = 5  # Shorter words are not corrected by similarity.
_MIN_SIMILARITY = 0.83  # From 0 to 1: a letter is missing, or two are exchanged.


def plain(message: str) -> str:
    """Return a message in lower case, with contractions expanded ("can't" to "can not").

    Phrases that mean one word become that word: "can you" becomes "you", "how come" "why". Other
    words of politeness, such as "please", stay.

    Args:
        message: the user's message, in English.
    """
    text = message.lower().replace("\u2019", "'")
    for pattern, replacement in (*_CONTRACTIONS, *_PHRASES):
        text = pattern.sub(replacement, text)
    return text


def with_digits(message: str) -> str:
    """Return a message with the words "two" to "ten" as digits.

    Only words in lower case are replaced.

    Args:
        message: the message.
    """
    return re.sub(r"\b[a-z]+\b", lambda found: _DIGITS.get(found[0], found[0]), message)


def stem(word: str) -> str:
    """Return the stem of a word; synonyms have the same stem.

    The result is in lower case. Short words, and words without a known ending, are their own stem.

    Args:
        word: the word, in any case.
    """
    word = word.lower()
    short = _ENDINGS.sub("", word)
    if len(short) > 3 and short[-1] == short[-2]:  # As in "planned".
        short = short[:-1]
    return _CANONICAL_STEM.get(short, short)


def is_grammar(stemmed: str) -> bool:
    """Return True if a stem is that of a word of grammar, such as "the" or "of"."""
    return stemmed in _GRAMMAR_STEMS


def content_stems(words: Iterable[str]) -> list[str]:
    """Return the stems of the content words; a negation is joined to the negated word.

    A negation joins the next word that is not one of grammar and has then the form ``not STEM``,
    whether "not", "no", "never" or "without" was said; a negation without such a word stays as it
    was said. Words of grammar are left out, and so are words that only ask to be shown something,
    unless they are negated.

    Args:
        words: English words in lower case, in order, as in a result of :func:`plain`.
    """
    found: list[str] = []
    for word in words:
        if found and found[-1] in _NEGATIONS and not is_grammar(stem(word)):
            found[-1] = f"not {stem(word)}"
        elif word in _NEGATIONS or stem(word) not in _GRAMMAR_STEMS | _REQUEST_STEMS:
            found.append(word if word in _NEGATIONS else stem(word))
    return found


def speller(texts: Iterable[str]) -> Callable[[str], str]:
    """Return a function that corrects a lower-case word to one of ``texts``, or returns the word.

    A word without vowels, such as "cfg", is completed to a known word with these consonants, with
    or without a final s, or returned as it is. For a word with vowels, a known word of the same
    letters is taken ("bugdet"), else for words of five or more letters the most similar one
    ("sesions"). A correction keeps the first letter. A word with the stem of a known one, or of
    fewer than three letters, is returned as it is. Words of grammar and of everyday requests are
    known too.

    Args:
        texts: texts with the known words; letter case does not matter.
    """
    known = {word for text in texts for word in _WORD.findall(text.lower())}
    known |= set(f"{_GRAMMAR} {_REQUEST_WORDS}".split())
    stems = {stem(word) for word in known}
    swapped: dict[tuple[str, ...], str] = {
        (word[0], *sorted(word)): word for word in sorted(known) if len(word) > 2
    }
    bare = {_consonants(word): word for word in sorted(known, key=len, reverse=True)}
    long = [word for word in known if len(word) >= _MIN_CORRECTED]

    def correct(word: str) -> str:
        if stem(word) in stems or len(word) < 3:
            return word
        if not re.search("[aeiou]", word):
            short = _consonants(word)
            return next(
                (bare[form] for form in (short, f"{short}s", short.rstrip("s")) if form in bare),
                word,
            )
        if (word[0], *sorted(word)) in swapped:
            return swapped[word[0], *sorted(word)]
        similar = (
            get_close_matches(word, long, 1, _MIN_SIMILARITY) if len(word) >= _MIN_CORRECTED else []
        )
        return similar[0] if similar and similar[0][0] == word[0] else word

    return correct


def _consonants(word: str) -> str:
    """Return the abbreviation of a word: without vowels, and ``ck`` as ``k``."""
    return word[:1] + re.sub("[aeiou]", "", word[1:]).replace("ck", "k")


_CANONICAL_STEM: dict[str, str] = {}
_CANONICAL_STEM.update({stem(word): stem(first) for first, *others in _SYNONYMS for word in others})
_GRAMMAR_STEMS = frozenset(map(stem, _GRAMMAR.split()))
_REQUEST_STEMS = frozenset(map(stem, _REQUEST_WORDS.split()))


NAME = re.compile(r"(?!\d+$)\S*[\d_/.]\S*|[A-Z]{2,}-\S+|[A-Z][A-Z-]{2,}")
"""A word that is an id, an event type, a path or a setting: not one of a sentence."""
_PATH = re.compile(r"\S*/\S*|\S+\.[A-Za-z][A-Za-z0-9]{0,4}")
_INTEGER = re.compile(r"(?<![\w.-])\d+(?!\w|\.\d)")


def schemas_for_names(schemas: Mapping[str, Mapping[str, Any]], message: str) -> list[str]:
    """Return the keys of the schemas that take a name in the message; all keys if none does.

    Names are ids, event types and paths. A person who types a name means a tool that takes it.

    Args:
        schemas: JSON Schemas of arguments, keyed by tool id.
        message: the message.
    """
    found = [word for word in bare_words(message) if NAME.fullmatch(word)]
    taking = [
        id_
        for id_, schema in schemas.items()
        if any(_takes(prop, name) for prop in _properties(schema).values() for name in found)
    ]
    return taking or list(schemas)


def narrow_schema(schema: Mapping[str, Any], message: str) -> dict[str, Any]:
    """Return an arguments schema that allows only values contained in the message.

    A string becomes one of the message's ids, paths or settings, an integer one of its numbers
    within the limits, an enum its mentioned values. A required string that no name fits becomes one
    of the fitting words, else the whole message. An optional free text gets no name that a stricter
    property takes. Any other property without such a value is omitted, or unchanged if it is
    required; so are properties of other types.

    Args:
        schema: schema of an object; it is not changed.
        message: the text that holds the values.

    Returns:
        A schema that requires all its properties and permits no others.
    """
    words = bare_words(message)
    stems = {stem(word) for word in words}
    names = [word for word in words if NAME.fullmatch(word)]
    # Words that a stricter property takes are not meant for a free text.
    reserved = {
        word
        for name, prop in _properties(schema).items()
        for word in names
        if _takes(prop, word)
        and ({"enum", "pattern"} & {*prop} or name in schema.get("required", ()))
    }
    properties: dict[str, Any] = {}
    for name, prop in _properties(schema).items():
        required = name in schema.get("required", ())
        found: list[Any] = []
        if "enum" in prop:
            # A value in its exact spelling is the intended one.
            found = [value for value in prop["enum"] if value in words] or [
                value
                for value in prop["enum"]
                if all(stem(part) in stems for part in re.split(r"[_\s-]", str(value)))
            ]
        elif prop.get("type") == "integer":
            numbers = map(int, _INTEGER.findall(message))
            low, high = prop.get("minimum", -math.inf), prop.get("maximum", math.inf)
            found = [number for number in dict.fromkeys(numbers) if low <= number <= high]
        elif prop.get("type") == "string":
            found = [word for word in names if not first_problem(prop, word)]
            if not required and "pattern" not in prop:
                found = [word for word in found if word not in reserved]
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
    """Return the single object that fits a narrowed schema; None if several or none may fit.

    A property without an ``enum`` counts as several. A schema without properties gives an empty
    object.

    Args:
        schema: a result of :func:`narrow_schema`.
    """
    values = {name: prop.get("enum", ()) for name, prop in schema["properties"].items()}
    if any(len(allowed) != 1 for allowed in values.values()):
        return None
    return {name: allowed[0] for name, allowed in values.items()}


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    properties: Mapping[str, Mapping[str, Any]] = schema.get("properties", {})
    return properties


def _takes(prop: Mapping[str, Any], name: str) -> bool:
    """Return True if a property takes a name: by its enum, its pattern, or as a path."""
    if "enum" in prop:
        return name in prop["enum"]
    if prop.get("type") != "string":
        return False
    return not first_problem(prop, name) if "pattern" in prop else bool(_PATH.fullmatch(name))


def names(message: str) -> list[str]:
    """Return the distinct words of a message that look like ids, paths or settings, in order.

    These words contain a digit, ``_``, ``/`` or ``.``, or consist of capitals and hyphens, or begin
    with two capitals or more and a hyphen. Plain numbers, words of letters alone, and punctuation
    around a word are left out.

    Args:
        message: the user's message.
    """
    found = (word for word in bare_words(message) if NAME.fullmatch(word))
    return [word for word in found if not word.isalpha()]


def taken_values(schema: Mapping[str, Any], message: str) -> set[str]:
    """Return the names, numbers and enum values of a message that arguments take, as texts.

    Words that only free-text arguments could take are left out.

    Args:
        schema: JSON Schema of the arguments.
        message: the message.
    """
    properties = narrow_schema(schema, message)["properties"]
    return {
        str(value)
        for name, prop in properties.items()
        for value in prop.get("enum", ())
        if "enum" in schema["properties"][name] or isinstance(value, int) or NAME.fullmatch(value)
    }


def takes_free_text(schema: Mapping[str, Any]) -> bool:
    """Return True if a required argument can be any text.

    A text argument with an ``enum`` or a ``pattern`` is not free.

    Args:
        schema: JSON Schema of the arguments.
    """
    properties = _properties(schema)
    return any(
        properties[name].get("type") == "string" and not {"enum", "pattern"} & {*properties[name]}
        for name in schema.get("required", ())
        if name in properties
    )


def bare_words(message: str) -> list[str]:
    """Return the distinct words of a message in their order, without quotes and punctuation at
    their ends.

    Words are separated by white space and keep their case. Brackets other than round ones, and
    dashes, stay; a word of punctuation alone is left out.

    Args:
        message: the user's message.
    """
    return list(dict.fromkeys(filter(None, map(_bare, message.split()))))


def _bare(word: str) -> str:
    return word.strip("\"'`?!,;:()").rstrip("\"'`?!,;:().")
