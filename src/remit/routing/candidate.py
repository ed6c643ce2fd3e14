"""A model that a call may go to, as far as choosing it needs to know it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints

from remit.kernel.errors import InvalidInputError
from remit.kernel.validation import check_fields

GENERAL = "general"
"""The ability that counts for every task that a candidate says nothing of."""

_Name = Annotated[str, StringConstraints(min_length=1, max_length=512)]
_Ability = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
_Language = Annotated[str, StringConstraints(pattern=r"^[a-z]{2,3}$")]
_Percent = Annotated[int, Field(ge=0, le=100)]
_Count = Annotated[int, Field(ge=0, le=2**50)]


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
