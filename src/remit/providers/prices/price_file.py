"""The file of a price table: its keys, its values and the prices that they state."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from remit.kernel.errors import RemitError
from remit.kernel.toml_text import load_toml
from remit.providers.prices.price import RATES, Price, Rates, Tier

SNAPSHOT_FORMS = {
    "YYYY-MM-DD": (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"), "%Y-%m-%d"),
    "YYYYMMDD": (re.compile(r"[0-9]{8}"), "%Y%m%d"),
}
"""The forms of a snapshot's date: a pattern of the text and its layout for strptime."""

_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_NANO = 1_000_000_000
_PROBLEMS = {
    "missing": "is missing",
    "model_type": "must be a table",
    "dict_type": "must be a table",
    "list_type": "must be a list",
    "string_type": "must be a text that is not empty",
    "string_too_short": "must be a text that is not empty",
    "bool_type": "is {input!r}; it must be true or false",
    "int_type": "is {input!r}; it must be a number of tokens above 0",
    "greater_than": "is {input!r}; it must be a number of tokens above 0",
    "literal_error": f"must be one of {', '.join(SNAPSHOT_FORMS)}",
}


class _Float(NamedTuple):
    """A TOML float as written, so that no digit is lost."""

    written: str

    def __repr__(self) -> str:
        return self.written


def _problem(key: str, problem: str, next_step: str = "") -> PydanticCustomError:
    """Return an error about a key, relative to the place of the check."""
    context = {"key": key, "problem": problem, "next_step": next_step}
    return PydanticCustomError("price_table", "{problem}", context)


def _day(value: object) -> str:
    """Return a day as ``YYYY-MM-DD``."""
    try:
        if type(value) is date:
            return value.isoformat()
        if type(value) is str and SNAPSHOT_FORMS["YYYY-MM-DD"][0].fullmatch(value):
            return date.fromisoformat(value).isoformat()
    except ValueError:
        pass
    raise _problem("", "must be a day, such as 2026-11-22")


def _nano(value: object, limits: Limits | None = None) -> int:
    """Return US dollars as integer nano-dollars; refuse a price outside the limits."""
    written = str(value)
    if not _NUMBER.fullmatch(written):
        problem = f"is {written}; it must be US dollars per million tokens, such as '0.15'"
        raise _problem("", problem)
    nano = Fraction(Decimal(written)) * _NANO
    if limits and nano and not limits.lowest <= nano <= limits.highest:
        raise _problem(
            "",
            f"is {written} US dollars per million tokens, outside what is believable",
            "Prices are per million tokens, not per token or per thousand; if the price is "
            f"right, set limits in the file (now {Decimal(limits.lowest) / _NANO} to"
            f" {Decimal(limits.highest) / _NANO}).",
        )
    if nano.denominator != 1:
        raise _problem("", f"is {written}; it has more than 9 places after the point")
    return nano.numerator


def _rate(value: object, info: ValidationInfo[dict[str, Limits]]) -> int:
    return _nano(value, info.context.get("limits"))


def _hold_limits(limits: Limits, info: ValidationInfo[dict[str, Limits]]) -> Limits:
    """Keep the limits for the prices, which pydantic checks after them."""
    info.context["limits"] = limits
    return limits


_Text = Annotated[str, Field(min_length=1)]
_Day = Annotated[str, BeforeValidator(_day)]
_Amount = Annotated[int, BeforeValidator(lambda value: _nano(value))]
_Rate = Annotated[int, BeforeValidator(_rate)]
_Factor = Annotated[_Amount, AfterValidator(lambda nano: -(-nano * 100 // _NANO))]
_Size = Annotated[int, Field(gt=0)]


class _Table(BaseModel):
    """A table of the file, all of whose keys are known."""

    model_config = ConfigDict(strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, raw: Any) -> Any:
        known = list(cls.model_fields)
        for key in raw if isinstance(raw, dict) else ():
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
                hint = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(known)}."
                raise _problem(key, "is not a key of a price table", hint)
        return raw


class Limits(_Table):
    """The bounds of a price other than 0; made from US dollars, as the file states them.

    Attributes:
        lowest: nano-dollars per million tokens, above 0.
        highest: nano-dollars per million tokens, at least ``lowest``.
    """

    lowest: _Amount
    highest: _Amount

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not 0 < self.lowest <= self.highest:
            raise _problem("", "must have 0 < lowest <= highest")
        return self


class _Rates(_Table):
    input: _Rate
    output: _Rate
    cached_input: _Rate | None = None
    cache_write: _Rate | None = None
    cache_write_long: _Rate | None = None
    reasoning: _Rate | None = None

    def stated(self) -> dict[str, int]:
        """Return the rates that the file states."""
        return self.model_dump(include=set(RATES), exclude_none=True)

    def rates(self) -> Rates:
        """Return all rates; a rate that the file omits is the one of input or output."""
        stated = self.stated()
        write = stated.get("cache_write", self.input)
        usual = {"cached_input": self.input, "cache_write": write, "cache_write_long": write}
        return Rates(**{**usual, "reasoning": self.output, **stated})


class _Tier(_Rates):
    above_input_tokens: _Size


class Model(_Rates):
    """An entry of a price table; money is in nano-dollars per million tokens.

    An entry is refused (ValidationError) if it has an unknown key, a price outside the limits, or
    tiers that do not rise or omit a rate that the entry states.

    Attributes:
        aliases: further names of the model; ``None`` if the file states none.
        snapshots: a key of :data:`SNAPSHOT_FORMS`; ``None`` if dated names are other models.
        server_tools: the table that has the prices of its tools; ``None`` for the provider's.
    """

    provider: _Text
    date: _Day
    max_output_tokens: _Size | None = None
    context_window: _Size | None = None
    audio_input: _Rate = 0
    audio_output: _Rate = 0
    per_second: _Amount = 0
    per_million_characters: _Rate = 0
    aliases: list[_Text] | None = None
    snapshots: Literal["YYYY-MM-DD", "YYYYMMDD"] | None = None
    server_tools: _Text | None = None
    thinks: bool = False
    max_completion_tokens: bool = False
    tiers: list[_Tier] = []
    source: str = ""

    @model_validator(mode="after")
    def _check_tiers(self) -> Self:
        above = 0
        for number, tier in enumerate(self.tiers):
            # An omitted rate would be charged as input or output, which may be cheaper or dearer.
            if missing := [rate for rate in self.stated() if rate not in tier.stated()]:
                key = f"tiers[{number}].{missing[0]}"
                raise _problem(key, "is missing; a tier states every rate again")
            if tier.above_input_tokens <= above:
                key = f"tiers[{number}].above_input_tokens"
                raise _problem(key, "must rise from tier to tier")
            above = tier.above_input_tokens
        return self

    def completed(self, below: Model | None) -> Model:
        """Return the entry with the names, sizes and flags of ``below`` that it does not state.

        ``server_tools`` is inherited too; rates, tiers, date and source are not. A flag that is
        false counts as not stated. Without ``below`` the entry itself is returned.
        """
        if below is None:
            return self
        inherited = {
            name: getattr(below, name)
            for name in _INHERITED
            if getattr(self, name) in (None, False)
        }
        return self.model_copy(update=inherited)

    def names(self, name: str) -> list[str]:
        """Return all names of the model, given the key of the entry."""
        return [name, name.removeprefix(f"{self.provider}/"), *(self.aliases or ())]


_INHERITED = (
    "max_output_tokens", "context_window", "thinks", "max_completion_tokens", "aliases",
    "snapshots", "server_tools",
)  # fmt: skip
_PRICE_FIELDS = sorted(
    set(Model.model_fields) & set(Price.__dataclass_fields__) - {"tiers", "server_tools"}
)


class _Tool(_Table):
    per_use: _Amount
    per_call: bool = False
    date: _Day
    source: str = ""


class TableFile(_Table):
    """The content of a price table's file; unknown keys are refused (ValidationError).

    Attributes:
        same_prices: the provider whose prices another provider has, keyed by that other one.
        server_tools: price of one use or call, by provider and type of tool.
        surcharges: factors of rates in hundredths, by provider, field and value.
        models: entries, keyed by name of the model.
    """

    version: _Day
    limits: Annotated[Limits, AfterValidator(_hold_limits)]
    same_prices: dict[str, _Text] = {}
    server_tools: dict[str, dict[str, _Tool]] = {}
    surcharges: dict[str, dict[str, dict[str, _Factor]]] = {}
    models: dict[_Text, Model] = {}

    def over(self, below: TableFile) -> TableFile:
        """Return ``below`` with the same prices, server tools and surcharges of this file; this
        file wins.

        Version, limits and models stay those of ``below``.
        """
        tables = {
            name: _merged(getattr(below, name), getattr(self, name))
            for name in ("server_tools", "surcharges")
        }
        same = {**below.same_prices, **self.same_prices}
        return below.model_copy(update={**tables, "same_prices": same})

    def tools_table(self, model: Model) -> str | None:
        """Return the name of the table with the prices of a model's tools; ``None`` without one."""
        named = (model.server_tools, model.provider, self.same_prices.get(model.provider))
        return next((name for name in named if name in self.server_tools), None)

    def price(self, name: str, model: Model, assumed: str | None = None) -> Price:
        """Return the price of an entry; nothing is checked.

        Rates that the entry omits are those of input or output. Tools have the prices of the
        entry's own table (:meth:`tools_table`), else of ``assumed``, which sets ``assumes_tools``.

        Args:
            name: the entry's key.
            model: the entry.
            assumed: name of the table with the prices of its tools if none is the entry's own; None
                for none.
        """
        table = self.tools_table(model)
        tools = self.server_tools.get(table or assumed or "", {})
        return Price(
            model=name,
            rates=model.rates(),
            tiers=tuple(Tier(one.above_input_tokens, one.rates()) for one in model.tiers),
            per_character=model.per_million_characters,
            server_tools={tool: one.per_use for tool, one in tools.items()},
            tools_per_call=frozenset(tool for tool, one in tools.items() if one.per_call),
            assumes_tools=table is None and bool(tools),
            surcharges=self.surcharges.get(model.provider, {}),
            **{field: getattr(model, field) for field in _PRICE_FIELDS},
        )


def _merged(
    below: Mapping[str, Mapping[str, Any]], above: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    return {
        provider: {**below.get(provider, {}), **above.get(provider, {})}
        for provider in {**below, **above}
    }


def parse(text: str, name: str, defaults: Limits | None) -> TableFile:
    """Return the content of a table.

    Args:
        text: the file's TOML.
        name: the file's name in errors.
        defaults: limits for a table that states none; ``None`` if the table must state them.

    Raises:
        RemitError: the text is not TOML, or a key is missing, unknown or of a wrong value, such as
            a price outside the limits. The message names the first such key.
    """
    try:
        raw = load_toml(text, parse_float=_Float)
    except ValueError as error:
        raise RemitError(f"{name} is not valid TOML: {error}.") from error
    if defaults:
        raw.setdefault("limits", defaults)
    try:
        return TableFile.model_validate(raw, context={})
    except ValidationError as error:
        found = error.errors()[0]
    context = found.get("ctx", {})
    problem = _PROBLEMS.get(found["type"])
    message = problem.format(input=found["input"]) if problem else found["msg"]
    key = ".".join(part for part in (_path(found["loc"]), context.get("key")) if part)
    raise RemitError(f"{name}: {key} {message}.", next_step=context.get("next_step", ""))


def _path(places: Sequence[int | str]) -> str:
    path = ""
    for place in places:
        if isinstance(place, int):
            path += f"[{place}]"
        else:
            path += f'."{place}"' if path == ".models" else f".{place}"
    return path.removeprefix(".").removesuffix(".[key]")
