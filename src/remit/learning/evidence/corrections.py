"""Corrections in a user's message, recognised by words in English and German."""

from __future__ import annotations

import re

_MIN_WORDS = 3  # Fewer words do not distinguish a message.
_WORD = re.compile(r"[^\W_]{3,}")

# These phrases sound like corrections and are none.
_SMALL_TALK = re.compile(
    r"(no|nope|nein|nö)\b[\s,.!:;\u2013-]*(thanks?|thank you|thx|problem|worries|need|more|further|"
    r"that'?s (all|it|fine|great|good|ok)|that (is|was) (all|it|fine|great|good)|that will be all|"
    r"danke|passt|alles (gut|klar)|das (passt|reicht|war'?s|war alles|ist (alles|gut|in ordnung))|"
    r"(ich habe )?keine? (weitere|frage|problem))|no one|no idea|no doubt|no matter|"
    r"(not bad|nicht schlecht|kein problem|never ?mind|schon gut)\b",
    re.IGNORECASE,
)
_CORRECTION = re.compile(
    r"(no|nope|nein|nö)\s*[,.!:;\u2013-]+\s*\w|(wrong|incorrect|falsch|not (quite|that|what|like)|"
    r"nicht (ganz|das|was|so)|so nicht|noch ?mal|noch einmal|try (it )?again|do it again|once more|"
    r"versuch\w* es|nicht richtig)\b|"
    r"(that|this|it)( i|')s (still )?(not|wrong|incorrect|too|missing)\b|"
    r"(das|es) (ist|war|stimmt) (so |immer noch |leider |doch )*(nicht|falsch|zu|unvollständig)\b|"
    r"stimmt (so )?nicht|"
    r"i (meant|said|asked|wanted)\b|i did ?n['o]t (ask|mean|say|want)\b|"
    r"ich (meinte|sagte|fragte|wollte)\b|ich (habe|hatte)\b.*\b(gefragt|gesagt|gemeint|gebeten)\b|"
    r"you (misunderstood|forgot|missed|ignored|left out|got)\b|"
    r"du hast\b.*\b(vergessen|übersehen|missverstanden|falsch|ignoriert)\b|"
    r"sie haben\b.*\b(vergessen|übersehen|missverstanden|falsch|ignoriert)\b|"
    r"(please |bitte )?(fix|correct|korrigier\w*) (that|this|it|das|es|dies)\b|"
    r"actually,? (i|it|that|no)\b|eigentlich (meinte|wollte|ist)\b",
    re.IGNORECASE,
)


def corrects(message: str, asked: str) -> bool:
    """Return True if a message corrects the answer before it, or repeats the question.

    A message corrects if it begins with words of correction (``no, …``, ``that's wrong``, ``I
    meant``, ``nein, …``, ``das stimmt nicht``, ``ich meinte``) and not with small talk such as ``no
    thanks``. A message repeats the question if it contains each word of it with three letters or
    more, and the question has at least three such words.

    Args:
        asked: the user's previous message.
    """
    text = " ".join(message.split()).replace("\u2019", "'")
    if _SMALL_TALK.match(text):
        return False
    if _CORRECTION.match(text):
        return True
    before = _words(asked)
    return len(before) >= _MIN_WORDS and before <= _words(text)


def _words(text: str) -> set[str]:
    return {word.casefold() for word in _WORD.findall(text)}
