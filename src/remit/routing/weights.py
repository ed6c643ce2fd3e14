"""The rules of scoring: governed data, hashed, never code.

A rule file is JSON. Its numbers are decimals with at most 6 places, read as exact millionths, so
that scores come out equal to the last digit wherever they are computed.
"""

from __future__ import annotations

import functools
import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Self

from remit.kernel.canonical import canonical_json, sha256_hex
from remit.kernel.errors import InvalidInputError
from remit.kernel.installed import (
    ChangedFileError,
    InstalledFiles,
    NotInstalledError,
    shipped_file,
)
from remit.routing.decision import RULES_UNAVAILABLE
from remit.routing.errors import WeightsError

__all__ = ["MILLION", "Rules", "TaskSigns", "Weights", "load_rules"]

_log = logging.getLogger("remit.routing")

MILLION = 1_000_000
_MOST = 1_000_000
_BEGINNING = 7  # bytes
_FEATURES = ("ability", "cost", "speed", "reliability", "language")
_PENALTIES = ("context_window", "tools", "images")
_SCALES = ("usd_per_million_tokens", "tokens_per_s", "output_share")
_INTENT = ("characters_read", "bytes_per_token", "least_signs", "tasks", "languages")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class TaskSigns:
    """What shows that a prompt is of a task: words, and marks anywhere in it.

    In UTF-8, the letters a to z small.
    """

    words: frozenset[bytes]
    marks: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Rules of scoring, checked. Numbers are millionths.

    Attributes:
        document: the rule file's content; what is hashed, and what a decision keeps.
        rule_version_hash: ``rv:sha256:`` and the SHA-256 of the document's canonical JSON.
        encoded: that JSON.
        features: weight of each feature of a candidate.
        preferences: by operator preference, a factor for each weight.
        penalties: what is taken off a candidate that lacks what the call needs.
        scales: where a price, a speed count half; the share of output in a price.
        tasks: signs of each task, in order of their names.
        languages: common words of each language.
        characters_read: how much of a prompt is looked at, half of it at its end.
        bytes_per_token: for the estimate of its length.
        least_signs: fewer signs than this say nothing.
        known_words: all words that any task or language has.
        marks: of all tasks, each with its task, under what they begin with.
    """

    document: Mapping[str, Any]
    rule_version_hash: str
    encoded: bytes = field(repr=False)
    features: Mapping[str, int]
    preferences: Mapping[str, Mapping[str, int]]
    penalties: Mapping[str, int]
    scales: Mapping[str, int]
    tasks: Mapping[str, TaskSigns] = field(repr=False)
    languages: Mapping[str, frozenset[bytes]] = field(repr=False)
    characters_read: int
    bytes_per_token: int
    least_signs: int
    known_words: frozenset[bytes] = field(repr=False)
    marks: Sequence[tuple[bytes, Sequence[tuple[bytes, str]]]] = field(repr=False)

    @classmethod
    def from_document(cls, document: Any) -> Self:
        """From the content of a rule file.

        Raises:
            WeightsError: it is none; the key is named.
        """
        top = _object(document, "", ("features", "preferences", "penalties", "scales", "intent"),
                      optional=("description",))  # fmt: skip
        if not isinstance(top.get("description", ""), str):
            raise WeightsError("description of the routing rules is not a text.")
        features = _numbers(top["features"], "features", _FEATURES)
        preferences = {}
        for name, factors in _object(top["preferences"], "preferences").items():
            place = f"preferences.{name}"
            if not _NAME.fullmatch(name):
                raise WeightsError(f"{place} of the routing rules is no name (a-z, 0-9, - and _).")
            given = _object(factors, place, optional=_FEATURES, free=False)
            told = _numbers(given, place, tuple(given))
            preferences[name] = {one: told.get(one, MILLION) for one in _FEATURES}
        penalties = _numbers(top["penalties"], "penalties", _PENALTIES)
        scales = _numbers(top["scales"], "scales", _SCALES)
        if not (scales["usd_per_million_tokens"] and scales["tokens_per_s"]):
            raise WeightsError("A scale of the routing rules is 0; it takes a number above 0.")
        if scales["output_share"] > MILLION:
            raise WeightsError("scales.output_share of the routing rules is above 1.")
        intent = _object(top["intent"], "intent", _INTENT)
        tasks = {}
        for name, signs in sorted(_object(intent["tasks"], "intent.tasks").items()):
            if not _NAME.fullmatch(name):
                raise WeightsError(f"intent.tasks.{name} of the routing rules is no name.")
            place = f"intent.tasks.{name}"
            both = _object(signs, place, ("words", "marks"))
            tasks[name] = TaskSigns(
                frozenset(_texts(both["words"], f"{place}.words")),
                tuple(_texts(both["marks"], f"{place}.marks")),
            )
        languages = {
            name: frozenset(_texts(words, f"intent.languages.{name}"))
            for name, words in sorted(_object(intent["languages"], "intent.languages").items())
        }
        try:
            encoded = canonical_json(dict(top))
        except InvalidInputError as error:
            raise WeightsError(f"The routing rules have no canonical JSON: {error.message}") from (
                error
            )
        return cls(
            document=top,
            rule_version_hash=f"rv:sha256:{sha256_hex(encoded)}",
            encoded=encoded,
            features=features,
            preferences=preferences,
            penalties=penalties,
            scales=scales,
            tasks=tasks,
            languages=languages,
            characters_read=_count(intent["characters_read"], "intent.characters_read"),
            bytes_per_token=_count(intent["bytes_per_token"], "intent.bytes_per_token"),
            least_signs=_count(intent["least_signs"], "intent.least_signs"),
            known_words=frozenset[bytes]().union(
                *(one.words for one in tasks.values()), *languages.values()
            ),
            marks=_by_beginning(tasks),
        )

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """From a rule file.

        Raises:
            WeightsError: it cannot be read, or is none.
        """
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise WeightsError(f"The routing rules {path} cannot be read: {error}.") from error
        return cls.from_text(text, str(path))

    @classmethod
    def from_text(cls, text: str, name: str) -> Self:
        """From the text of a rule file.

        Raises:
            WeightsError: it is none.
        """
        try:
            document = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once)
        except (ValueError, RecursionError) as error:
            raise WeightsError(f"The routing rules {name} are not JSON: {error}.") from error
        return cls.from_document(document)

    @classmethod
    @functools.cache
    def shipped(cls) -> Self:
        """The rules that come with Remit."""
        data = shipped_file("PKG-ROUTER-001", "HOT/routing/weights.json")
        return cls.from_text(data.decode(), "shipped with Remit")


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules in force, and the version that decisions state."""

    weights: Weights
    version_hash: str


def load_rules(path: Path, installed: InstalledFiles | None = None) -> Rules:
    """The rules in a file; where they cannot be read, the shipped ones without a version.

    The reason is logged: calls go on being routed.

    Args:
        path: the file.
        installed: of the root that it lies in, where it came in a package: it counts only as it
            was installed.
    """
    try:
        if installed is None:
            weights = Weights.from_file(path)
        else:
            text = installed.read(installed.path_of(path)).decode("utf-8", "replace")
            weights = Weights.from_text(text, str(path))
    except (WeightsError, NotInstalledError, ChangedFileError) as error:
        _log.error(
            "%s The shipped defaults are in force; `remit init` puts a missing file back.",
            error.message,
        )
        return Rules(Weights.shipped(), RULES_UNAVAILABLE)
    return Rules(weights, weights.rule_version_hash)


def _by_beginning(
    tasks: Mapping[str, TaskSigns],
) -> Sequence[tuple[bytes, Sequence[tuple[bytes, str]]]]:
    """Marks under their first bytes: where these are not, none of them has to be looked for."""
    groups: dict[bytes, list[tuple[bytes, str]]] = {}
    for task, told in tasks.items():
        for mark in dict.fromkeys(told.marks):
            groups.setdefault(mark[:_BEGINNING], []).append((mark, task))
    return tuple((beginning, tuple(group)) for beginning, group in groups.items())


def _object(
    value: Any,
    place: str,
    required: tuple[str, ...] = (),
    optional: tuple[str, ...] = (),
    *,
    free: bool | None = None,
) -> dict[str, Any]:
    """A JSON object with the keys it must and may have; ``free``: with any."""
    name = place or "The document"
    if not isinstance(value, Mapping):
        raise WeightsError(f"{name} of the routing rules is no object.")
    if missing := [key for key in required if key not in value]:
        raise WeightsError(f"{name} of the routing rules lacks {missing[0]}.")
    free = not required and not optional if free is None else free
    for key in value:
        if not isinstance(key, str) or not (free or key in required or key in optional):
            known = ", ".join((*required, *optional))
            raise WeightsError(
                f"{name} of the routing rules has the unknown key {key!r}.",
                next_step=f"Known there: {known}.",
            )
    return dict(value)


def _numbers(value: Any, place: str, names: tuple[str, ...]) -> dict[str, int]:
    return {
        name: _millionths(number, f"{place}.{name}")
        for name, number in _object(value, place, names, free=False).items()
    }


def _millionths(value: Any, place: str) -> int:
    """A decimal from 0 to a million with at most 6 places, in exact millionths."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WeightsError(f"{place} of the routing rules is {value!r}, no number.")
    try:
        # A float's shortest form is what the file says.
        scaled = Decimal(repr(value)) * MILLION
        whole = int(scaled)
    except (InvalidOperation, ValueError, OverflowError) as error:
        raise WeightsError(f"{place} of the routing rules is {value!r}.",
                           next_step="It takes a finite number.") from error  # fmt: skip
    if whole != scaled or not 0 <= whole <= _MOST * MILLION:
        raise WeightsError(
            f"{place} of the routing rules is {value!r}.",
            next_step=f"It takes a number from 0 to {_MOST:,} with at most 6 decimals.",
        )
    return whole


def _count(value: Any, place: str) -> int:
    if type(value) is not int or not 1 <= value <= _MOST:
        raise WeightsError(f"{place} of the routing rules is {value!r}; it takes 1 or more.")
    return value


def _texts(value: Any, place: str) -> list[bytes]:
    if not isinstance(value, (list, tuple)):
        raise WeightsError(f"{place} of the routing rules is no list.")
    found = []
    for text in value:
        if not isinstance(text, str) or not text:
            raise WeightsError(f"{place} of the routing rules holds {text!r}, which is no text.")
        raw = text.encode("utf-8", "replace")
        if raw.lower() != raw:
            raise WeightsError(f"{place} of the routing rules holds {text!r}; write lower case.")
        found.append(raw)
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in which no key stands twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found
