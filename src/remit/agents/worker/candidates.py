"""Making a choice small enough for a small model.

A tool may answer a message where it accounts for each word that carries the question: its
definition speaks of it, or an argument takes it. Of several such tools, word overlap with their
own examples finds the likeliest. Where none is clearly ahead, the message has to hold a name that
they take before a model decides. All here is generic: it knows English, and what the tool
definitions say.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from remit.agents.worker.arguments import bare_words, named, names, taken, takes_free_text
from remit.agents.worker.english import carrying, is_grammar, plain, speller, stem

_FILE_NAME = re.compile(r"[\w/-]*\w\.[a-z][a-z0-9]{0,4}\b")
_ID = re.compile(r"\b([A-Z]{2,})-[\w-]+")
_TOKEN = re.compile(r"[a-z]+|\d+")
_MARK = re.compile(r"<\w+>|[a-z]+|\d+")
_CLEAR = 1.15  # so far ahead of the second, the likeliest needs no model to confirm it
_SAME = 0.999
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
_FURTHER = re.compile(  # where a second question or order begins
    r"[,;.?!]?\s+(?:and|then|but|also)\s+(?:(?:also|then|please)\s+)?(?=(?:are|check|did|do|does"
    r"|explain|give|has|have|how|is|list|open|read|reconstruct|show|sum|tell|trace|verify|was|were"
    r"|what|when|where|which|who|whose|why)\b)",
    re.IGNORECASE,
)

Meant = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool, as far as its choice goes.

    Attributes:
        phrases: of users that call for it.
        hints: further texts that say what it does.
        schema: JSON Schema of its arguments.
    """

    phrases: Sequence[str]
    hints: Sequence[str]
    schema: Mapping[str, Any]

    @property
    def texts(self) -> tuple[str, ...]:
        """All that it says of itself."""
        return (*self.phrases, *self.hints)


@dataclass(frozen=True, slots=True)
class Choice:
    """What a message comes to.

    Attributes:
        chosen: the tool that is meant; empty where that is not clear.
        names: what the message names and no argument takes: the tool's result must hold it.
        between: two tools that both take a name that the message holds: a model may decide.
        examples: phrases of both with their tool, the most telling last.
        near: the likeliest tools, where none of them may answer.
        unknown: words of the message that the nearest of these does not account for.
    """

    chosen: str = ""
    names: tuple[str, ...] = ()
    between: tuple[str, ...] = ()
    examples: tuple[tuple[str, str], ...] = ()
    near: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def choose(
    message: str, offers: Mapping[str, Offer], talk: Sequence[str], shots: int = 3
) -> Choice:
    """The tool that accounts for all that ``message`` asks, and is clearly the likeliest.

    Args:
        offers: by tool id.
        talk: phrases that call for no tool.

    Returns:
        Of a message that asks for two things none, where two tools would have to answer.
    """
    parts = [_chosen(part, offers, talk, shots) for part in _FURTHER.split(message)]
    if len(parts) == 1:
        return parts[0]
    found = list(dict.fromkeys(part.chosen for part in parts))
    if len(found) == 1 and found[0]:
        return _chosen(message, offers, talk, shots)
    unknown = tuple(dict.fromkeys(word for part in parts for word in part.unknown))
    return Choice(near=tuple(filter(None, found)), unknown=unknown)


def _chosen(message: str, offers: Mapping[str, Offer], talk: Sequence[str], shots: int) -> Choice:
    texts = {id_: offer.texts for id_, offer in offers.items()}
    if not offers or asks_to_act(message, chain.from_iterable(texts.values())):
        return Choice()
    meant = speller(chain.from_iterable(texts.values()))
    taking = named({id_: offer.schema for id_, offer in offers.items()}, message)
    is_named = len(taking) < len(offers)
    left = {id_: unexplained(message, offers[id_], meant) for id_ in taking}
    score = _likeness(message, {**{id_: texts[id_] for id_ in taking}, "": talk}, meant)
    ranked = sorted(taking, key=lambda id_: -score[id_])
    whole = [id_ for id_ in ranked if not left[id_] and (is_named or score[id_] >= _UNLIKE)]
    if not is_named and score[""] > score[(whole or ranked)[0]]:
        return Choice()
    best, *others = ranked
    if not whole:
        alike = score[best] >= max([_UNLIKE, *(_CLEAR * score[other] for other in others)])
        if alike and _takes_the_rest(message, offers[best]):
            return Choice(best)
        if not is_named and score[ranked[0]] < _UNLIKE:
            return Choice()
        return Choice(near=tuple(ranked[:2]), unknown=tuple(left[ranked[0]]))
    if len(whole) == 1 or score[whole[0]] >= _CLEAR * score[whole[1]]:
        return Choice(whole[0], _not_taken(message, offers[whole[0]]))
    first, second, *_ = whole
    if not is_named:  # between tools that the message does not name, a small model guesses
        return Choice(near=(first, second))
    pairs = []
    for place in reversed(range(shots)):  # they take turns
        for id_ in (second, first):
            nearest = _nearest(message, offers[id_].phrases, meant)
            pairs += [(phrase, id_) for phrase in nearest[place : place + 1]]
    return Choice(between=(first, second), examples=tuple(pairs))


def unexplained(message: str, offer: Offer, meant: Meant = str) -> list[str]:
    """The words of what is asked that a tool neither speaks of nor takes as arguments.

    Args:
        meant: gives the word that a misspelt one stands for.
    """
    given = taken(offer.schema, message)
    known_names = {*given, *names(message)}
    rest = " ".join(word for word in bare_words(message) if word not in known_names)
    words = [meant(word) for word in _words(rest)]
    asked = dict.fromkeys(carrying(words))
    if not asked and not known_names:
        return bare_words(message)  # nothing that could be looked up
    of_it = (*offer.texts, *given, *offer.schema.get("properties", ()))
    known = {found for text in of_it for found in carrying(_words(text))}
    known |= {found.removeprefix("not ") for found in known}
    said = {stem(word): word for word in reversed(words)}
    return [said.get(word, word) for word in asked if word not in known]


def asks_to_act(message: str, texts: Iterable[str]) -> bool:
    """Whether a message wants something changed or sent that none of ``texts`` speaks of."""
    spoken_of = {word for text in texts for word in re.findall(r"[a-z]+", text.lower())}
    return any(found[1] not in spoken_of for found in _ACT.finditer(message.lower()))


def _takes_the_rest(message: str, offer: Offer) -> bool:
    """Whether words that a tool does not speak of can be what it is to be given."""
    return takes_free_text(offer.schema) and not taken(offer.schema, message)


def _not_taken(message: str, offer: Offer) -> tuple[str, ...]:
    given = taken(offer.schema, message)
    return tuple(name for name in names(message) if name not in given)


def _likeness(message: str, texts: Mapping[str, Sequence[str]], meant: Meant) -> dict[str, float]:
    """How like a message is to each class of texts."""
    counts = {name: [_counted(text) for text in group] for name, group in texts.items()}
    spread = Counter(word for group in counts.values() for word in set().union(*group))

    def vector(words: Mapping[str, int]) -> dict[str, float]:
        # A word that few classes use says more.
        weights = {
            word: number
            * math.log((len(texts) + 1) / ((spread[word] or 1) + 0.5))
            * (_LITTLE if word == "#" or is_grammar(word) else 1)
            for word, number in words.items()
        }
        length = math.sqrt(sum(weight * weight for weight in weights.values())) or 1.0
        return {word: weight / length for word, weight in weights.items()}

    query = vector(_counted(message, meant))

    def likeness(words: Mapping[str, int]) -> float:
        other = vector(words)
        return sum(weight * other.get(word, 0.0) for word, weight in query.items())

    return {name: _score(sorted(map(likeness, group))) for name, group in counts.items()}


def _nearest(message: str, phrases: Sequence[str], meant: Meant) -> list[str]:
    score = _likeness(message, {phrase: [phrase] for phrase in phrases}, meant)
    return sorted(phrases, key=lambda phrase: -score[phrase])


def _score(likenesses: Sequence[float]) -> float:
    """Likeness to a class: to its two nearest texts, or to the one that it is, word for word."""
    *_, nearest = likenesses
    return 2.0 if nearest > _SAME else sum(likenesses[-2:])


def _counted(text: str, meant: Meant = str) -> Counter[str]:
    """The stems of a text; ids and file names by their kind, numbers as ``#``."""
    marked = _FILE_NAME.sub(" <f> ", _ID.sub(r" <\1> ", text).replace("_", " "))
    found = (meant(word) for word in _MARK.findall(plain(marked)))
    return Counter("#" if word.isdigit() else stem(word) for word in found)


def _words(text: str) -> list[str]:
    return _TOKEN.findall(plain(text.replace("_", " ")))
