"""The intent of a prompt, read from signs in its text.

The reading works on bytes and stated ranges of code points, so it does not depend on Python's
version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remit.kernel.canonical import exact_json
from remit.kernel.exchange import text_of
from remit.routing.weights import COMMON, IntentRules, Weights

CHAT = "chat"
"""The task of a prompt that shows no signs of another."""

_LETTERS = {*b"abcdefghijklmnopqrstuvwxyz0123456789_", *range(0x80, 0x100)}
_TO_WORDS = bytes(byte if byte in _LETTERS else 0x20 for byte in range(0x100))
_NUMBER_WORK = re.compile(rb"[0-9][0-9., ]{0,20}[-+*/^=%] {0,4}[0-9(]")
_SCRIPTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("ja", re.compile("[\u3040-\u30ff]")),
    ("ko", re.compile("[\uac00-\ud7af]")),
    ("zh", re.compile("[\u4e00-\u9fff]")),
    ("ru", re.compile("[\u0400-\u04ff]")),
    ("el", re.compile("[\u0370-\u03ff]")),
    ("ar", re.compile("[\u0600-\u06ff]")),
    ("he", re.compile("[\u0590-\u05ff]")),
    ("hi", re.compile("[\u0900-\u097f]")),
    ("th", re.compile("[\u0e00-\u0e7f]")),
)
_MIN_SCRIPT_CHARS = 4
_MATHEMATICS, _CODE = "mathematics", "code"


@dataclass(frozen=True, slots=True)
class Intent:
    """The intent of a prompt.

    Attributes:
        task: the task with most signs, or ``chat``.
        code: whether code occurs, whatever the task.
        mathematics: whether calculation occurs.
        language: ISO 639 code; empty if unknown.
        tokens: estimated length.
    """

    task: str
    code: bool
    mathematics: bool
    language: str
    tokens: int


def text_asked(prompt: str | Sequence[Mapping[str, Any]]) -> tuple[str, int]:
    """Return the text that states the request, and the bytes of the whole prompt.

    In a conversation the last user message with text states the request. Calls and results of tools
    count as bytes, images do not.

    Raises:
        NotCanonicalError: a tool's call or result has no canonical form.
    """
    if isinstance(prompt, str):
        return prompt, len(prompt) if prompt.isascii() else len(prompt.encode("utf-8", "replace"))
    asked, size = "", 0
    for message in prompt:
        content = message.get("content")
        text = text_of(content)
        size += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        if not isinstance(content, str):
            size += sum(map(_size_of_call, content or ()))
        if message.get("role") == "user" and text:
            asked = text
    return asked, size


def _size_of_call(block: Any) -> int:
    """Return the bytes of a tool's call or result without images; 0 for other blocks."""
    if not isinstance(block, Mapping) or block.get("type") not in ("tool_use", "tool_result"):
        return 0
    parts = block.get("content")
    if isinstance(parts, (list, tuple)):
        block = {**block, "content": [part for part in parts if not _is_image(part)]}
    return len(exact_json(dict(block)))


def _is_image(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "image"


def read_intent(prompt: str | Sequence[Mapping[str, Any]], weights: Weights) -> Intent:
    """Return the intent of ``prompt`` by the signs in ``weights``.

    Args:
        prompt: a text, or the messages of a conversation.
        weights: the rules of scoring.

    Raises:
        NotCanonicalError: a tool's call or result in the prompt has no canonical form.
    """
    rules = weights.intent
    asked, size = text_asked(prompt)
    head = part_read(asked, rules)
    raw = head.encode("utf-8", "replace").lower()
    words = rules.known_words.intersection(raw.translate(_TO_WORDS).split())
    marked: dict[str, int] = {}
    odd = raw.translate(None, COMMON)
    for beginning, sign, marks in rules.marks:
        if sign in odd and beginning in raw:
            for mark, task in marks:
                if mark in raw:
                    marked[task] = marked.get(task, 0) + 2
    has_digits = len(raw.translate(None, b"0123456789")) < len(raw)
    best, best_count = CHAT, 0
    signs: dict[str, int] = {}
    for task, signs_of_task in rules.tasks.items():
        count = marked.get(task, 0) + len(words & signs_of_task.words)
        if task == _MATHEMATICS and has_digits and _NUMBER_WORK.search(raw):
            count += 2
        if count >= rules.least_signs:
            signs[task] = count
            if count > best_count:
                best, best_count = task, count
    return Intent(
        best,
        _CODE in signs,
        _MATHEMATICS in signs,
        _language(head, words, rules),
        -(-size // rules.bytes_per_token),
    )


def part_read(asked: str, rules: IntentRules) -> str:
    """Return the part of a text that is read: all, or as many characters as the rules say.

    Half of these come from the beginning and half from the end, with a line feed in between.
    """
    most = rules.characters_read
    if len(asked) <= most:
        return asked
    return f"{asked[: most // 2]}\n{asked[-(most - most // 2) :]}"


def _language(text: str, words: frozenset[bytes], rules: IntentRules) -> str:
    if not text.isascii():
        for code, pattern in _SCRIPTS:
            if len(pattern.findall(text)) >= _MIN_SCRIPT_CHARS:
                return code
    best, most = "", 0
    for code, common in rules.languages.items():
        count = len(words & common)
        if count > most:
            best, most = code, count
    return best
