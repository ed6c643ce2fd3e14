"""The rules of scoring: governed data with a hash, never code.

A rule file is JSON. Its numbers are decimals with at most 6 places and are read as exact
millionths, so scores are equal on every machine.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints as Text,
    ValidationError,
)

from remit.kernel.canonical import canonical_json, sha256_hex
from remit.kernel.errors import InvalidInputError
from remit.kernel.installed_files import (
    ChangedFileError,
    InstalledFiles,
    NotInstalledError,
    shipped_file,
)
from remit.kernel.json_text import JsonTextError, load_unique
from remit.kernel.pydantic_validation import first_error
from remit.routing.decision import RULES_UNAVAILABLE
from remit.routing.errors import WeightsError
from remit.routing.learned_head import LearnedHead, StrictModel, evidence_file

_log = logging.getLogger("remit.routing")

MILLION = 1_000_000
FindHead = Callable[[str], LearnedHead | None]
"""Gives the learned head of a digest; `None` or WeightsError where there is none."""
_MAX_WEIGHT = 1_000_000
_PREFIX_BYTES = 7
COMMON = b"abcdefghijklmnopqrstuvwxyz0123456789 \n.,'-"
"""Bytes that most texts have."""


def _millionths(value: Any) -> int:
    """Return a decimal from 0 to a million with at most 6 places in exact millionths."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not 0 <= value <= _MAX_WEIGHT
    ):
        raise ValueError(f"it must be a number from 0 to {_MAX_WEIGHT:,}")
    scaled = Decimal(repr(value)) * MILLION  # a float's shortest form is what the file says
    if scaled != int(scaled):
        raise ValueError("it must have at most 6 decimals")
    return int(scaled)


def _lower_case(value: Any) -> bytes:
    if not isinstance(value, str) or not value:
        raise ValueError("it must be a text that is not empty")
    raw = value.encode("utf-8", "replace")
    if raw.lower() != raw:
        raise ValueError(f"write {value!r} in lower case")
    return raw


_Feature = Literal["ability", "cost", "speed", "reliability", "language"]
_Penalty = Literal["context_window", "tools", "images"]
_Name = Annotated[str, Text(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
_Number = Annotated[int, BeforeValidator(_millionths)]
_Positive = Annotated[_Number, Field(gt=0)]
_Count = Annotated[int, Field(strict=True, ge=1, le=_MAX_WEIGHT)]
_Word = Annotated[bytes, BeforeValidator(_lower_case)]


class _Scales(StrictModel):
    usd_per_million_tokens: _Positive
    tokens_per_s: _Positive
    output_share: Annotated[_Number, Field(le=MILLION)]


class _Signs(StrictModel):
    """Signs that a prompt belongs to a task: words, and marks anywhere in it, in UTF-8."""

    words: frozenset[_Word]
    marks: tuple[_Word, ...]


def _sorted(items: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(items.items()))


class IntentRules(StrictModel):
    """The signs that show a prompt's intent.

    Attributes:
        characters_read: characters of a prompt that are read: half at its start, half at its end.
        bytes_per_token: for the estimate of its length.
        least_signs: fewest signs that decide.
        tasks: signs of each task, sorted by name.
        languages: common words of each language.
    """

    characters_read: _Count
    bytes_per_token: _Count
    least_signs: _Count
    tasks: Annotated[dict[_Name, _Signs], AfterValidator(_sorted)]
    languages: Annotated[dict[str, frozenset[_Word]], AfterValidator(_sorted)]

    @functools.cached_property
    def known_words(self) -> frozenset[bytes]:
        """The words of all tasks and languages."""
        words = [*(signs.words for signs in self.tasks.values()), *self.languages.values()]
        return frozenset[bytes]().union(*words)

    @functools.cached_property
    def marks(self) -> Sequence[tuple[bytes, bytes, Sequence[tuple[bytes, str]]]]:
        """Marks with their tasks, grouped by their first bytes.

        A group is (first bytes, a rare byte among them, marks). The rare byte is not in
        :data:`COMMON`; it is empty if there is none. A text without that byte needs no search for
        the group.
        """
        groups: dict[bytes, list[tuple[bytes, str]]] = {}
        for task, signs in self.tasks.items():
            for mark in dict.fromkeys(signs.marks):
                groups.setdefault(mark[:_PREFIX_BYTES], []).append((mark, task))
        return [
            (first, first.translate(None, COMMON)[:1], marks) for first, marks in groups.items()
        ]


class LearnedRules(StrictModel):
    """The use of a learned head.

    Attributes:
        head: SHA-256 (hex) of its canonical JSON.
        price_weight: the reward that a dollar is worth, in millionths.
        quality_floor: least expected reward of the cheapest model that may be chosen; 0 for none.
        cap_nano: highest mean cost of a call in nano-dollars, which real costs are steered to; 0
            for none.
    """

    head: Annotated[str, Text(pattern=r"^[0-9a-f]{64}$")]
    price_weight: _Number
    quality_floor: Annotated[_Number, Field(le=MILLION)] = 0
    cap_nano: Annotated[int, Field(strict=True, ge=0, le=10**15)] = 0


class _RuleFile(StrictModel):
    description: str = ""
    learned: LearnedRules | None = None
    features: Annotated[dict[_Feature, _Number], Field(min_length=len(get_args(_Feature)))]
    preferences: dict[_Name, dict[_Feature, _Number]]
    penalties: Annotated[dict[_Penalty, _Number], Field(min_length=len(get_args(_Penalty)))]
    scales: _Scales
    intent: IntentRules


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Checked rules of scoring. Numbers are millionths.

    Attributes:
        document: the rule file's content, which is hashed and recorded with decisions.
        rule_version_hash: ``rv:sha256:`` and the SHA-256 of the document's canonical JSON.
        encoded: that JSON.
        features: weight of each feature of a candidate.
        preferences: for each operator preference, a factor for each weight.
        penalties: deductions for a candidate that lacks a need of the call.
        scales: the price and the speed that give half a feature; the share of output in a price.
        intent: signs by which a prompt's intent is read.
        learned: the use of the learned head; None if the rules name none.
        head: the learned head that the rules name; else None.
    """

    document: Mapping[str, Any]
    rule_version_hash: str
    encoded: bytes = field(repr=False)
    features: Mapping[str, int]
    preferences: Mapping[str, Mapping[str, int]]
    penalties: Mapping[str, int]
    scales: Mapping[str, int]
    intent: IntentRules = field(repr=False)
    learned: LearnedRules | None = None
    head: LearnedHead | None = None

    @classmethod
    def from_document(cls, document: Any, find_head: FindHead | None = None) -> Self:
        """Return the rules in the content of a rule file.

        Args:
            document: the content.
            find_head: returns the learned head with a digest, if the rules name one; None if none
                is available.

        Raises:
            WeightsError: the content is not a rule file (the message names the key), or the head is
                missing.
        """
        head = None
        try:
            rules = _RuleFile.model_validate(document)
            encoded = canonical_json(dict(document))
            if rules.learned is not None:
                head = None if find_head is None else find_head(rules.learned.head)
                if head is None or head.digest != rules.learned.head:
                    raise WeightsError(
                        f"The learned head {rules.learned.head} of the routing rules is not "
                        "installed."
                    )
        except ValidationError as error:
            key, problem = first_error(error)
            raise WeightsError(f"{key or 'The document'} of the routing rules: {problem}.") from (
                error
            )
        except InvalidInputError as error:
            raise WeightsError(f"The routing rules have no canonical JSON: {error.message}") from (
                error
            )
        return cls(
            document=dict(document),
            rule_version_hash=version_hash(encoded),
            encoded=encoded,
            features={name: rules.features[name] for name in get_args(_Feature)},
            preferences={
                name: {feature: factors.get(feature, MILLION) for feature in get_args(_Feature)}
                for name, factors in rules.preferences.items()
            },
            penalties={name: rules.penalties[name] for name in get_args(_Penalty)},
            scales=dict(rules.scales),
            intent=rules.intent,
            learned=rules.learned,
            head=head,
        )

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Return the rules in a rule file, with the learned head in the file :func:`head_file`.

        Raises:
            WeightsError: the file cannot be read, or is not a rule file, or its head is missing or
                invalid.
        """
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise WeightsError(f"The routing rules {path} cannot be read: {error}.") from error
        return cls.from_text(text, str(path), lambda _: LearnedHead.from_path(head_file(path)))

    @classmethod
    def from_text(cls, text: str, name: str, find_head: FindHead | None = None) -> Self:
        """Return the rules in the text of a rule file.

        Args:
            text: the text, JSON without repeated keys.
            name: the name of the file, for messages.
            find_head: as in :meth:`from_document`.

        Raises:
            WeightsError: the text is not a rule file, or its head is missing.
        """
        try:
            document = load_unique(text)
        except JsonTextError as error:
            raise WeightsError(f"The routing rules {name}: {error.message}") from error
        return cls.from_document(document, find_head)

    @classmethod
    @functools.cache
    def shipped(cls) -> Self:
        """Return the rules that are shipped with Remit."""
        data = shipped_file("PKG-ROUTER-001", "HOT/routing/weights.json")
        return cls.from_text(data.decode(), "shipped with Remit")


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules in force, and the version that decisions record.

    Attributes:
        weights: the rules.
        version_hash: their ``rule_version_hash``, or ``RULES_UNAVAILABLE`` for the shipped rules in
            place of an unusable file.
    """

    weights: Weights
    version_hash: str

    @classmethod
    def shipped(cls) -> Self:
        """Return the rules that are shipped with Remit."""
        weights = Weights.shipped()
        return cls(weights, weights.rule_version_hash)


def version_hash(encoded: bytes) -> str:
    """Return the ``rule_version_hash`` of rules in canonical JSON."""
    return f"rv:sha256:{sha256_hex(encoded)}"


def head_file(rules: Path) -> Path:
    """Return the file of the learned head that belongs to a rule file."""
    return rules.with_suffix(".head.json")


def _installed_head(installed: InstalledFiles, path: Path) -> LearnedHead:
    beside = installed.path_of(evidence_file(path))
    return LearnedHead.from_bytes(
        installed.read(installed.path_of(path)),
        installed.read(beside) if installed.owner(beside) else b"",
    )


def load_rules(path: Path, installed: InstalledFiles | None = None) -> Rules:
    """Return the rules in a file, or the shipped rules if they cannot be used.

    The shipped rules then have the version ``RULES_UNAVAILABLE``. The reason is logged, so calls
    continue to be routed.

    Args:
        path: the file.
        installed: the installed files of the root, if the file belongs to a package. A changed file
            is then not used. None for a file of the operator.
    """
    try:
        if installed is None:
            weights = Weights.from_file(path)
        else:
            text = installed.read(installed.path_of(path)).decode("utf-8", "replace")
            weights = Weights.from_text(
                text,
                str(path),
                lambda _: _installed_head(installed, head_file(path)),
            )
    except (WeightsError, NotInstalledError, ChangedFileError) as error:
        _log.error(
            "%s The shipped defaults apply; `remit init` restores a missing file.",
            error.message,
        )
        return Rules(Weights.shipped(), RULES_UNAVAILABLE)
    return Rules(weights, weights.rule_version_hash)
