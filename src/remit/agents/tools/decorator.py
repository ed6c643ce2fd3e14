"""The decorator ``@tool``: make a tool of a Python function and its signature."""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, overload

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import WithDefaultSchema
from typing_extensions import override

from remit.agents.tools.definition import Context, OnUnknown, Tool, ToolError
from remit.kernel.pydantic_validation import readable_type, validated
from remit.kernel.schemas import schema_problem

_Function = Callable[..., Any]
_SECTION = re.compile(r"(Args|Arguments|Parameters):\s*")
_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s*(.*)")


@overload
def tool(function: _Function, /) -> Tool: ...


@overload
def tool(
    *,
    tool_id: str = "",
    description: str = "",
    label: str = "",
    examples: Iterable[tuple[str, Mapping[str, Any]]] = (),
    describe: Callable[[Any], str] | None = None,
    understand: Callable[[str], Mapping[str, Any] | None] | None = None,
    on_unknown: OnUnknown = "ask",
    timeout_s: float | None = None,
    price_usd: float = 0.0,
    max_calls: int | None = None,
    max_output_bytes: int | None = None,
) -> Callable[[_Function], Tool]:
    """Return a decorator that makes a :class:`Tool` with the given fields of a function.

    The fields have the meaning of :class:`Tool`; an empty ``tool_id`` or ``description`` is taken
    from the function. The decorator raises ToolError if the function or a field is not valid, and
    InvalidInputError if the price is not a valid amount.
    """


def tool(
    function: _Function | None = None,
    /,
    *,
    tool_id: str = "",
    description: str = "",
    label: str = "",
    examples: Iterable[tuple[str, Mapping[str, Any]]] = (),
    describe: Callable[[Any], str] | None = None,
    understand: Callable[[str], Mapping[str, Any] | None] | None = None,
    on_unknown: OnUnknown = "ask",
    timeout_s: float | None = None,
    price_usd: float = 0.0,
    max_calls: int | None = None,
    max_output_bytes: int | None = None,
) -> Tool | Callable[[_Function], Tool]:
    """Make a :class:`Tool` of a plain or ``async`` function: ``@tool`` or ``@tool(…)``.

    Every parameter needs a type; arguments are converted to it before the call. A parameter
    annotated with :class:`Context` receives the call's context and is not part of the schema. The
    first paragraph of the docstring becomes the description, its ``Args:`` section describes the
    parameters; a description in ``Annotated[…, Field(…)]`` takes precedence. A decorated method is
    bound to its object when it is looked up. ``@tool(…)`` checks only when a function is decorated.

    Args:
        function: the function; if omitted, the decorator is returned.
        tool_id: the id; the function's name if empty.
        description: the description; the docstring's if empty.
        label: a plain word for the tool, for small models.
        examples: phrases of a user, each with the arguments that they mean.
        describe: returns an output as a sentence; None to show the data.
        understand: returns the arguments that a phrase certainly means, or None; see :class:`Tool`.
        on_unknown: policy if a call's outcome is unknown: ``retry``, ``ask`` or ``fail``.
        timeout_s: time limit of a call, seconds; None for the setting.
        price_usd: price of a call in US dollars; see :class:`Tool`.
        max_calls: maximum number of calls in a work order; None for no limit.
        max_output_bytes: maximum size of an output as JSON; None for the setting.

    Raises:
        ToolError: the function has no docstring and no description is given, or it is a generator
            function or a class; a parameter has no type or a type that JSON cannot express, is
            variadic or positional-only, or has a ``Field`` as default; several parameters take the
            context; the id, ``on_unknown``, an example or a limit is not valid.
        InvalidInputError: the price is not a valid amount.
    """
    names = sys._getframe(1).f_locals  # Types may be local to the caller.

    def made(function: _Function) -> Tool:
        signature = _Signature(function, names)
        summary, parameters = _docstring(function)
        identity = tool_id or getattr(function, "__name__", "")
        if on_unknown not in typing.get_args(OnUnknown):
            raise ToolError(
                f"on_unknown of the tool {identity!r} is {on_unknown!r}.",
                next_step="Use 'retry', 'ask' or 'fail'.",
            )
        model = signature.model(parameters)
        schema = signature.schema(model)
        result = Tool(
            identity,
            description or summary or identity.replace("_", " "),
            schema,
            function,
            tuple(examples),
            describe,
            label,
            understand=understand,
            on_unknown=on_unknown,
            timeout_s=timeout_s,
            price_usd=price_usd,
            max_calls=max_calls,
            max_output_bytes=max_output_bytes,
            prepare=lambda arguments: _prepared(model, schema, arguments),
            context=signature.context,
            deps=signature.deps,
        )
        for phrase, arguments in result.examples:
            try:
                _prepared(model, schema, arguments)
            except ToolError as error:
                raise ToolError(f"The example {phrase!r} does not fit: {error.message}") from error
        if not (description or summary):
            raise ToolError(
                f"The tool {identity!r} has no docstring, so no model can know its purpose.",
                next_step="Write one sentence that says what the function does, or pass "
                "@tool(description=…).",
            )
        return result

    return made if function is None else made(function)


class _Schema(GenerateJsonSchema):
    # A default that JSON cannot show is left out of the schema; the function still has it.
    ignored_warning_kinds = frozenset({"skipped-choice", "non-serializable-default"})  # type: ignore[assignment]

    @override
    def default_schema(self, schema: WithDefaultSchema) -> JsonSchemaValue:
        shown = super().default_schema(schema)
        if (
            shown.get("default", 0) is None
        ):  # This default only says that the parameter is optional.
            del shown["default"]
        return shown


class _Signature:
    """A function's parameters, as a pydantic model and as a JSON Schema.

    Attributes:
        context: name of the parameter that takes a :class:`Context`; empty if there is none.
        deps: class of the ``deps`` that the context's annotation names; None if it names none.

    Raises:
        ToolError: the object is not a function, is a generator function, has types that cannot be
            read, or takes several contexts.
    """

    def __init__(self, function: _Function, names: Mapping[str, Any]) -> None:
        self._name = getattr(function, "__qualname__", type(function).__name__)
        if not callable(function) or inspect.isclass(function):
            raise ToolError(f"{self._name} is not a function, so it cannot be a tool.")
        if _yields(function):
            raise ToolError(
                f"{self._name} is a generator function; a tool returns one value.",
                next_step="Collect the values in a list and return it.",
            )
        try:
            found = inspect.signature(function).parameters.values()
            self._parameters = [parameter for number, parameter in enumerate(found)
                                if number or parameter.name != "self"]  # fmt: skip
            self._types = _types(function, names)
        except (TypeError, ValueError, NameError) as error:
            raise ToolError(
                f"The types of {self._name} cannot be read: {error}.",
                next_step="Use types that are defined where the function is defined.",
            ) from error
        taking = [
            parameter for parameter in self._parameters
            if _is_context(self._types.get(parameter.name))
        ]  # fmt: skip
        if len(taking) > 1:
            raise ToolError(
                f"{self._name} takes more than one Context.",
                next_step="Keep only one of these parameters.",
            )
        self.context = taking[0].name if taking else ""
        self._parameters = [one for one in self._parameters if one.name != self.context]
        (deps,) = typing.get_args(self._types.get(self.context)) or (None,)
        self.deps = deps if _can_be_checked(deps) else None

    def model(self, descriptions: Mapping[str, str]) -> type[BaseModel]:
        """Return a model whose fields are the parameters, under names that cannot clash.

        Raises:
            ToolError: a parameter has no type, is variadic, or cannot come from JSON.
        """
        fields: dict[str, Any] = {}
        for number, parameter in enumerate(self._parameters):
            self._check(parameter)
            wanted = self._types[parameter.name]
            field = Field(
                ... if parameter.default is parameter.empty else parameter.default,
                alias=parameter.name,
                description=_own_description(wanted) or descriptions.get(parameter.name),
            )
            fields[f"p{number}"] = (readable_type(wanted), field)
        try:
            return self._build(fields, "the parameters")
        except ToolError:
            # Build again one by one, so that the error names the parameter.
            for name, parameter in zip(fields, self._parameters, strict=True):
                self._build({"p": fields[name]}, f"the parameter {parameter.name!r}")
            raise

    def schema(self, model: type[BaseModel]) -> dict[str, Any]:
        """Return the JSON Schema of the arguments.

        Raises:
            ToolError: a type produces a schema that is not valid.
        """
        schema = model.model_json_schema(schema_generator=_Schema)
        schema.pop("title", None)
        for shown in schema.setdefault("properties", {}).values():
            shown.pop("title", None)
        if problem := schema_problem(schema):
            raise ToolError(f"The parameters of {self._name} give {problem}.")
        return schema

    def _check(self, parameter: inspect.Parameter) -> None:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ToolError(
                f"{self._name} has {str(parameter)!r}: {parameter.kind.description}.",
                next_step="Give each parameter a name: arguments are passed by name.",
            )
        if isinstance(parameter.default, FieldInfo):
            raise ToolError(
                f"The default of {parameter.name!r} of {self._name} is a pydantic Field.",
                next_step=f"Write {parameter.name}: Annotated[…, Field(…)] = default.",
            )
        if parameter.name not in self._types:
            raise ToolError(
                f"The parameter {parameter.name!r} of {self._name} has no type.",
                next_step=f"Write {parameter.name}: str, or another type.",
            )

    def _build(self, fields: dict[str, Any], what: str) -> type[BaseModel]:
        try:
            model: type[BaseModel] = create_model(
                "Arguments", __config__=ConfigDict(extra="forbid", frozen=True), **fields
            )
            model.model_json_schema(schema_generator=_Schema)
        except Exception as error:  # Pydantic and types raise errors of many kinds.
            first = str(error).partition("\n")[0]
            raise ToolError(
                f"The type of {what} of {self._name} cannot come from JSON: {first}",
                next_step="Use numbers, texts, lists, dicts, enums, dates, dataclasses or "
                "pydantic models.",
            ) from error
        return model


def _yields(function: _Function) -> bool:
    called = getattr(function, "func", function)  # functools.partial
    return any(
        is_generator(one)
        for one in (called, getattr(called, "__call__", None))  # noqa: B004 - an object with __call__
        for is_generator in (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    )


def _is_context(wanted: Any) -> bool:
    return wanted is Context or typing.get_origin(wanted) is Context


def _can_be_checked(deps: Any) -> bool:
    """Return True if ``isinstance`` works with a type; a TypedDict or plain protocol fails."""
    try:
        isinstance(None, deps)
    except TypeError:
        return False
    return isinstance(deps, type)


def _types(function: _Function, names: Mapping[str, Any]) -> dict[str, Any]:
    own = function if inspect.isroutine(function) else getattr(function, "func", None)
    source: Any = own or type(function).__call__
    return typing.get_type_hints(source, localns=dict(names), include_extras=True)


def _docstring(function: _Function) -> tuple[str, dict[str, str]]:
    """Return a docstring's first paragraph, and its parameter descriptions by name."""
    lines = (inspect.getdoc(function) or "").strip().splitlines()
    ends = (n for n, line in enumerate(lines) if not line.strip() or _SECTION.fullmatch(line))
    summary = " ".join(line.strip() for line in lines[: next(ends, len(lines))])
    start = next((n for n, line in enumerate(lines) if _SECTION.fullmatch(line)), len(lines))
    found: dict[str, str] = {}
    indent, name = 0, ""
    for line in filter(str.strip, lines[start + 1 :]):
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            break
        indent = indent or depth
        entry = _ENTRY.fullmatch(line.strip()) if depth <= indent else None
        if entry is not None:
            name = entry[1]
            found[name] = entry[2]
        elif name:
            found[name] = f"{found[name]} {line.strip()}".strip()
    return summary, found


def _own_description(wanted: Any) -> str | None:
    """Return the description in ``Annotated[…, Field(description=…)]``; None if there is none."""
    for extra in getattr(wanted, "__metadata__", ()):
        if isinstance(extra, FieldInfo) and extra.description:
            return extra.description
    return None


def _prepared(
    model: type[BaseModel], schema: Mapping[str, Any], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the given arguments, converted for the function.

    Raises:
        ToolError: the arguments do not fit.
    """
    given = dict(arguments)
    try:
        checked = validated(schema, given, lambda: model.model_validate(given))
    except ValueError as error:
        raise ToolError(str(error)) from error
    fields = type(checked).model_fields
    return {str(fields[name].alias): getattr(checked, name) for name in checked.model_fields_set}
