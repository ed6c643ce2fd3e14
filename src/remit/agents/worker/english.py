"""English as far as choosing a tool needs it: which words carry a question, and their forms.

What is asked for stands in a few words of a message. Others are grammar, politeness, or only say
"show me"; those need no tool that speaks of them. Words that turn a question into another one
(who, when, why, not, will, if, most, first) do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches

_CONTRACTED = (
    (re.compile(r"\b(?:can't|cannot)\b"), "can not"),
    (re.compile(r"\bwon't\b"), "will not"),
    (re.compile(r"n't\b"), " not"),
    (re.compile(r"\b(what|that|who|where|when|how|it|there|here|everything|let)'s\b"), r"\1 is"),
    (re.compile(r"'(?:ll|d)\b"), " would"),
    (re.compile(r"'(?:re|ve|m|s)\b"), ""),
)
_PHRASES = (  # what several words say together
    (re.compile(r"\bhow come\b"), "why"),
    (re.compile(r"\bwhat for\b"), "why"),
    (re.compile(r"\b(?:can|could|would|will) (?:you|u|ya)\b"), "you"),
    (re.compile(r"\b(?:can|could|may) (?:i|we) (?:please )?(?:see|have|get|look)\b"), "show"),
    (re.compile(r"\bi would (?:like|love)\b"), "show"),
    (re.compile(r"^\W*(?:are|were|do|did|have) you\b(?! (?:have|got|know|see)\b)"), "yourself"),
    (re.compile(r"\b(?:do|does|have|has) (?:you|we|i|they|it|one) (?:have|got)\b"), "there"),
)
_ALIKE = (  # words that ask for the same
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
_ASKING = (
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
_LONG = 5  # letters of a word in which a mistake leaves no doubt
_ALIKE_WORD = 0.83  # of two words, from 0 to 1: one letter missing, or two exchanged


def plain(message: str) -> str:
    """A message in lower case, without contractions and politeness."""
    text = message.lower().replace("\u2019", "'")
    for pattern, meant in (*_CONTRACTED, *_PHRASES):
        text = pattern.sub(meant, text)
    return text


def with_digits(message: str) -> str:
    """A message with the small numbers that it spells out as digits."""
    return re.sub(r"\b[a-z]+\b", lambda found: _DIGITS.get(found[0], found[0]), message)


def stem(word: str) -> str:
    """What the forms of a word have in common, and words that ask for the same."""
    word = word.lower()
    short = _ENDINGS.sub("", word)
    if len(short) > 3 and short[-1] == short[-2]:  # planned
        short = short[:-1]
    return _SAME.get(short, short)


def is_grammar(stemmed: str) -> bool:
    """Whether a word says little beside one that names a thing."""
    return stemmed in _LIGHT


def carries(stemmed: str) -> bool:
    """Whether a word is part of what is asked for."""
    return stemmed not in _LIGHT and stemmed not in _REQUEST


def carrying(words: Iterable[str]) -> list[str]:
    """Stems of the words that are part of what is asked for; a negation with what it denies."""
    found: list[str] = []
    for word in words:
        if found and found[-1] in _NEGATIONS and not is_grammar(stem(word)):
            found[-1] = f"not {stem(word)}"
        elif word in _NEGATIONS or carries(stem(word)):
            found.append(word if word in _NEGATIONS else stem(word))
    return found


def speller(texts: Iterable[str]) -> Callable[[str], str]:
    """Gives the word of ``texts`` that is probably meant by an unknown one.

    "sesions" and "bugdet" are misspelt, "teh" has letters exchanged; "shw" and "cfg" are words
    without their vowels.
    """
    known = {word for text in texts for word in _WORD.findall(text.lower())}
    known |= set(f"{_GRAMMAR} {_ASKING}".split())
    stems = {stem(word) for word in known}
    swapped: dict[tuple[str, ...], str] = {
        (word[0], *sorted(word)): word for word in sorted(known) if len(word) > 2
    }
    bare = {_consonants(word): word for word in sorted(known, key=len, reverse=True)}
    long = [word for word in known if len(word) >= _LONG]

    def meant(word: str) -> str:
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
        near = get_close_matches(word, long, 1, _ALIKE_WORD) if len(word) >= _LONG else []
        return near[0] if near and near[0][0] == word[0] else word

    return meant


def _consonants(word: str) -> str:
    """A word as people abbreviate it: without vowels and the doubling of ``ck``."""
    return word[:1] + re.sub("[aeiou]", "", word[1:]).replace("ck", "k")


_SAME: dict[str, str] = {}
_SAME.update({stem(word): stem(first) for first, *others in _ALIKE for word in others})
_LIGHT = frozenset(map(stem, _GRAMMAR.split()))
_REQUEST = frozenset(map(stem, _ASKING.split()))
