"""A model that may answer a call, described for the choice among models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints

from remit.kernel.errors import InvalidInputError
from remit.kernel.pydantic_validation import check_fields

GENERAL = "general"
"""The ability that counts for every task that a candidate says nothing of."""

_Name = Annotated[str, StringConstraints(min_length=1, max_length=512)]
_Ability = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
_Language = Annotated[str, StringConstraints(pattern=r"^[a-z]{2,3}$")]
_Percent = Annotated[int, Field(ge=0, le=100)]
_Count = Annotated[int, Field(ge=0, le=2**50)]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model and its stated properties. All numbers are integers, so scores are exact.

    Attributes:
        model_id: its name in the registry, unique among candidates.
        provider_id: its provider.
        abilities: percent by task (``code``, ``mathematics``, …); ``general`` for all others.
        input_price: nano-dollars per million input tokens; None if unknown, which never counts as
            cheap.
        output_price: nano-dollars per million output tokens; None if unknown.
        context_tokens: size of the context window; 0 if unknown.
        tokens_per_s: output speed; 0 if unknown.
        languages: ISO 639 codes of its good languages; empty if nothing is stated.
        tools: whether it accepts tool definitions.
        images: whether it accepts images.
        reliability: percent of its latest calls that were answered.
        served_as: the provider's name of the model, if different.

    Raises:
        InvalidInputError: a value has another type or range.
    """

    model_id: _Name
    provider_id: _Name
    abilities: Mapping[_Ability, _Percent] = field(default_factory=dict)
    input_price: _Count | None = None
    output_price: _Count | None = None
    context_tokens: _Count = 0
    tokens_per_s: _Count = 0
    languages: Sequence[_Language] = ()
    tools: bool = True
    images: bool = False
    reliability: _Percent = 95
    served_as: str = ""

    def __post_init__(self) -> None:
        check_fields(self, f"the candidate {self.model_id!r}")

    def __hash__(self) -> int:
        return hash((self.model_id, self.provider_id))

    @property
    def provider_model(self) -> str:
        """The provider's name of the model."""
        return self.served_as or self.model_id

    def profile(self) -> dict[str, Any]:
        """Return all fields but the name as JSON, so that a decision can be scored again.

        ``served_as`` is left out if it is empty.
        """
        profile = {name: getattr(self, name) for name in self.__slots__ if name != "model_id"}
        profile["abilities"] = dict(self.abilities)
        profile["languages"] = list(self.languages)
        if not self.served_as:
            del profile["served_as"]
        return profile

    @classmethod
    def from_profile(cls, model_id: str, profile: Mapping[str, Any]) -> Self:
        """Return the candidate with a profile that :meth:`profile` wrote.

        Raises:
            InvalidInputError: the profile has other keys or values.
        """
        try:
            return cls(model_id=model_id, **profile)
        except TypeError as error:
            raise InvalidInputError(f"The profile of {model_id} has other keys.") from error
