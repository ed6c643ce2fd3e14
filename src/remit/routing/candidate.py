"""A model that a call may go to, as far as choosing it needs to know it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from remit.kernel.errors import InvalidInputError

__all__ = ["GENERAL", "Candidate"]

GENERAL = "general"
"""The ability that counts for every task that a candidate says nothing of."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_LANGUAGE = re.compile(r"[a-z]{2,3}")
_MOST = {
    "input_price": 2**50,
    "output_price": 2**50,
    "context_tokens": 2**50,
    "tokens_per_s": 2**50,
    "reliability": 100,
}
_LONGEST = 512


@dataclass(frozen=True, slots=True)
class Candidate:
    """One model and what is stated of it. All numbers are integers: scores are exact.

    Attributes:
        model_id: its name here, one for each candidate.
        provider_id: the provider that serves it.
        abilities: percent by task (``code``, ``mathematics``, …); ``general`` for all others.
        input_price: nano-dollars per million input tokens; ``None`` when unknown, which
            never counts as cheap.
        output_price: likewise for output.
        context_tokens: the most that a call can hold; 0 when unknown.
        tokens_per_s: output speed; 0 when unknown.
        languages: ISO 639 codes of those it is said to be good at; empty: no statement.
        tools: whether it takes tool definitions.
        images: whether it takes images.
        reliability: percent of its latest calls that were answered, as recorded.
        served_as: what the provider calls it, where that is another name.

    Raises:
        InvalidInputError: a value is not one of the above.
    """

    model_id: str
    provider_id: str
    abilities: Mapping[str, int] = field(default_factory=dict)
    input_price: int | None = None
    output_price: int | None = None
    context_tokens: int = 0
    tokens_per_s: int = 0
    languages: Sequence[str] = ()
    tools: bool = True
    images: bool = False
    reliability: int = 95
    served_as: str = ""

    def __post_init__(self) -> None:
        for name in ("model_id", "provider_id"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value or len(value) > _LONGEST:
                raise InvalidInputError(f"A candidate's {name} is {value!r}; it takes a name.")
        for ability, value in self.abilities.items():
            if not isinstance(ability, str) or not _NAME.fullmatch(ability):
                raise self._wrong("abilities", f"the name {ability!r}", "a-z, 0-9, - and _")
            if type(value) is not int or not 0 <= value <= 100:
                raise self._wrong(f"abilities.{ability}", value, "an integer from 0 to 100")
        for name, most in _MOST.items():
            value = getattr(self, name)
            optional = value is None and name in ("input_price", "output_price")
            if not optional and (type(value) is not int or not 0 <= value <= most):
                raise self._wrong(name, value, f"an integer from 0 to {most:,}")
        for language in self.languages:
            if not isinstance(language, str) or not _LANGUAGE.fullmatch(language):
                raise self._wrong("languages", language, "ISO 639 codes such as 'de'")

    def __hash__(self) -> int:
        return hash((self.model_id, self.provider_id))

    def _wrong(self, name: str, value: object, takes: str) -> InvalidInputError:
        return InvalidInputError(f"{name} of the candidate {self.model_id} is {value!r}.",
                                 next_step=f"It takes {takes}.")  # fmt: skip

    @property
    def provider_model(self) -> str:
        """What the provider calls it."""
        return self.served_as or self.model_id

    def profile(self) -> dict[str, Any]:
        """All of it but the model's name, as JSON: what a decision keeps, to be scored again."""
        profile = {name: getattr(self, name) for name in self.__slots__ if name != "model_id"}
        profile["abilities"] = dict(self.abilities)
        profile["languages"] = list(self.languages)
        if not self.served_as:
            del profile["served_as"]
        return profile

    @classmethod
    def from_profile(cls, model_id: str, profile: Mapping[str, Any]) -> Self:
        """From :meth:`profile`.

        Raises:
            InvalidInputError: it is not a profile.
        """
        try:
            return cls(model_id=model_id, **profile)
        except TypeError as error:
            raise InvalidInputError(f"The profile of {model_id} has other keys.") from error
