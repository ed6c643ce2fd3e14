"""The type of an agent's answers: its JSON Schema, and values parsed from a model's data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic

import orjson
from pydantic import TypeAdapter
from typing_extensions import TypeVar

from remit.kernel.errors import InvalidInputError
from remit.kernel.json_text import dump, sound_text
from remit.kernel.pydantic_validation import readable_type, validated
from remit.kernel.schemas import schema_problem

OutputT = TypeVar("OutputT", default=Any)

_WRAPPER = "result"  # Providers accept only objects, so other values become a member of one.


class OutputType(Generic[OutputT]):
    """The type of an agent's answers, with its JSON Schema.

    :meth:`value` converts an answer into the type, :meth:`problem` says why that fails, and
    :meth:`partial` shows an answer that is still arriving. Types that are not objects are wrapped
    in an object with the member ``result`` for the model. An instance does not change.

    Args:
        wanted: the type: ``str`` or anything that pydantic can describe by JSON Schema.

    Attributes:
        name: name of the type.
        schema: JSON Schema of the model's data, in which objects with ``properties`` allow no
            others unless the type says so; None for ``str``, for which no method may be called.

    Raises:
        InvalidInputError: the type cannot be described by a usable JSON Schema.
    """

    def __init__(self, wanted: type[OutputT] | Any) -> None:
        self.name = getattr(wanted, "__name__", str(wanted))
        self.schema: dict[str, Any] | None = None
        if wanted is str:
            return
        try:
            self._adapter: TypeAdapter[OutputT] = TypeAdapter(readable_type(wanted))
            schema = orjson.loads(orjson.dumps(self._adapter.json_schema()))
        except Exception as error:  # Types may raise any error.
            raise self._unusable(str(error).partition("\n")[0]) from error
        if problem := schema_problem(schema):
            raise self._unusable(problem)
        self._wrapped = schema.get("type") != "object"
        if self._wrapped:
            definitions = schema.pop("$defs", None)
            schema = {
                "type": "object",
                "properties": {_WRAPPER: schema},
                "required": [_WRAPPER],
                **({"$defs": definitions} if definitions else {}),
            }
        self.schema = _closed(schema)

    def value(self, data: Any) -> OutputT:
        """Return the value of a model's data, for a type other than ``str``.

        Args:
            data: the data that the model returned; another type than an object is read from its
                member ``result``.

        Raises:
            ValueError: the data does not have the type; the message names the place and may quote
                data.
        """
        schema = self.schema or {}
        if self._wrapped and (not isinstance(data, Mapping) or _WRAPPER not in data):
            raise ValueError(f"it is not an object with the member {_WRAPPER!r}")
        text = dump(data[_WRAPPER] if self._wrapped else data)
        return validated(schema, data, lambda: self._adapter.validate_json(text))

    def problem(self, data: Any) -> str:
        """Return the reason why data does not have the type; empty if it has the type.

        The reason is the message of the ValueError that :meth:`value` raises.

        Args:
            data: a JSON value.
        """
        try:
            self.value(data)
        except ValueError as error:
            return str(error)
        return ""

    def partial(self, data: Any) -> Any:
        """Return the part of an answer received so far, as plain data that is not validated.

        None if the member that holds the value has not begun.

        Args:
            data: the JSON data received so far.
        """
        if self._wrapped:
            return data.get(_WRAPPER) if isinstance(data, Mapping) else None
        return data

    def _unusable(self, why: str) -> InvalidInputError:
        return InvalidInputError(
            f"The output type {sound_text(self.name)} cannot be described by JSON Schema: "
            f"{why.rstrip('.')}.",
            next_step="Use a Pydantic model, dataclass, TypedDict, or lists, unions, enums, dates, "
            "numbers and texts.",
        )


def _closed(schema: Any) -> Any:
    """Return the schema with closed objects, as providers require for structured output."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {
        name: {key: _closed(inner) for key, inner in value.items()}
        if name in ("properties", "$defs")
        else value
        if name in ("default", "const", "enum", "examples")
        else _closed(value)
        for name, value in schema.items()
    }
    if schema.get("type") == "object" and "properties" in schema:
        closed.setdefault("additionalProperties", False)
    return closed
