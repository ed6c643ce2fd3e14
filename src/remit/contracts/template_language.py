"""The language of prompt packs: the part of Jinja that always ends and reaches nothing.

A pack may insert values, choose (``if``), repeat (``for``), name (``set``) and use the filters
below. Calls, multiplication, concatenation, definitions and includes are refused. The remaining
work is proportional to the template and the values, and is counted and bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from jinja2 import Template, TemplateSyntaxError, Undefined, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.filters import do_truncate
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_STEPS = 100_000
"""Largest number of rounds of all loops of a section together."""

MAX_TEXT = 16 * 1024 * 1024
"""Largest number of characters of a section, intermediate texts included."""

_WORK = "\0work"  # No template can use this name.
_ROUNDS = "\0rounds"

_ALLOWED = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.If,
    nodes.For, nodes.Assign, nodes.CondExpr, nodes.And, nodes.Or, nodes.Not, nodes.Compare,
    nodes.Operand, nodes.Test, nodes.Filter, nodes.Keyword, nodes.Getattr, nodes.Getitem,
    nodes.Slice, nodes.List, nodes.Tuple, nodes.Add, nodes.Sub, nodes.Neg, nodes.Pos,
)  # fmt: skip


class Value(str):
    """The text of an expression, such as a variable, as opposed to text of the template.

    In every other respect a ``str``; ``str()`` returns the object itself, so the type stays. The
    text is inserted as it is; roles and template syntax in the text have no effect.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return self


class _Work:
    """The steps and characters that remain for one rendering."""

    def __init__(self) -> None:
        self._steps = MAX_STEPS
        self._text = MAX_TEXT

    def step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise SecurityError(f"its loops make more than {MAX_STEPS} rounds")

    def write(self, characters: int) -> None:
        self._text -= characters
        if self._text < 0:
            raise SecurityError(f"it makes more than {MAX_TEXT} characters")


class _Environment(ImmutableSandboxedEnvironment):
    """Values are data: they have items, never attributes."""

    intercepted_binops = frozenset("+-")

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return an item of an object, or a property of ``loop``; there are no other attributes."""
        if isinstance(obj, LoopContext | Undefined):
            return super().getattr(obj, attribute)
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return an item of a mapping, list, tuple or text; an undefined value if there is none."""
        if isinstance(obj, Undefined):
            return super().getitem(obj, argument)
        if isinstance(obj, Mapping | list | tuple | str):
            try:
                return obj[argument]
            except (TypeError, LookupError):
                pass
        return self.undefined(obj=obj, name=argument)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Add or subtract numbers; refuse texts and lists, which could grow without bound."""
        if not (isinstance(left, int | float) and isinstance(right, int | float)):
            raise SecurityError(f"{operator} is for numbers alone")
        return super().call_binop(context, operator, left, right)


def _join(value: Any, separator: str = "") -> Iterator[int | str]:
    parts = [str(part) for part in value]
    yield sum(map(len, parts)) + len(separator) * max(0, len(parts) - 1)
    yield str(separator).join(parts)


def _replace(value: Any, old: str, new: str) -> Iterator[int | str]:
    text = str(value)
    yield len(text) + text.count(old) * max(0, len(new) - len(old))
    yield text.replace(old, new)


def _tojson(value: Any) -> str:
    return json.dumps(None if isinstance(value, Undefined) else value, ensure_ascii=False)


def fence(value: Any, label: str = "") -> str:
    """Return a value between lines of backticks that the value cannot close.

    The first and the last line have the same number of backticks, at least three.

    Args:
        value: the value; other than text it becomes JSON. An undefined value becomes an empty text.
        label: the label of the first line; characters other than letters, digits and ``_.-`` are
            removed.

    Raises:
        TypeError, ValueError: the value cannot be expressed as JSON.
    """
    text = str(value) if isinstance(value, str | Undefined) else _tojson(value)
    longest = max(map(len, re.findall("`+", text)), default=0)
    mark = "`" * max(3, longest + 1)
    label = re.sub("[^0-9A-Za-z_.-]", "", str(label))
    return f"{mark}{label}\n{text}\n{mark}"


def _charged(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as a filter whose resulting text is counted."""

    @pass_context
    def counted(context: Context, *arguments: Any, **named: Any) -> Any:
        result = function(*arguments, **named)
        if isinstance(result, str):
            _work(context).write(len(result))
        return result

    return counted


def _measured(function: Callable[..., Iterator[int | str]]) -> Callable[..., Any]:
    """Return a function as a filter that counts the text's length before making the text."""

    @pass_context
    def counted(context: Context, *arguments: Any, **named: Any) -> Any:
        text = function(*arguments, **named)
        _work(context).write(int(next(text)))
        return next(text)

    return counted


def _work(context: Context) -> _Work:
    work: _Work = context[_WORK]
    return work


@pass_context
def _rounds(context: Context, values: Any) -> Iterator[Any]:
    """Yield the values of a loop, and count each as a step."""
    work = _work(context)
    for value in values:
        work.step()
        yield value


_environment = _Environment(
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=False,
    finalize=Value,
    optimized=False,  # Constants pass through finalize too.
)
_kept = ("default", "items", "length", "lower", "string", "trim", "upper")
_filters: dict[str, Callable[..., Any]] = {
    **{name: _charged(_environment.filters[name]) for name in _kept},
    "fence": _charged(fence),
    "join": _measured(_join),
    "replace": _measured(_replace),
    "tojson": _charged(_tojson),
    "truncate": _charged(lambda *given, **named: do_truncate(_environment, *given, **named)),
}
FILTERS = tuple(sorted(_filters))
"""The names of the filters that packs may use."""
_environment.filters = {**_filters, _ROUNDS: _rounds}
_environment.globals.clear()


@lru_cache(maxsize=256)  # Each runtime of a process parses the same packs.
def compile_section(text: str, first_line: int) -> Template:
    """Return the template of a section, ready for :func:`pieces`. The last 256 are cached.

    Args:
        text: the source of the section.
        first_line: number of its first line in the pack, from 1, for errors.

    Raises:
        ValueError: the source is not a template, is nested too deep, or uses a feature that packs
            may not use; the text names the line.
    """
    try:
        tree = _environment.parse(text)
        for node in tree.find_all(nodes.Node):
            if problem := _problem(node):
                raise TemplateSyntaxError(problem, getattr(node, "lineno", None) or 1)
        for loop in tree.find_all(nodes.For):
            loop.iter = nodes.Filter(
                loop.iter, _ROUNDS, [], [], None, None, lineno=loop.lineno
            ).set_environment(_environment)
        return Template.from_code(_environment, _environment.compile(tree), {})
    except TemplateSyntaxError as error:
        raise ValueError(f"line {first_line + error.lineno - 1}: {error.message}") from error
    except (RecursionError, MemoryError, SyntaxError) as error:
        raise ValueError(f"line {first_line}: it is nested too deeply") from error


def pieces(template: Template, variables: Mapping[str, Any]) -> Iterator[str]:
    """Yield the text of a section piece by piece; text of an expression is a :class:`Value`.

    An unknown variable gives an empty text. Errors are raised during the iteration.

    Args:
        template: a template of :func:`compile_section`.
        variables: values by name.

    Raises:
        SecurityError: the section makes more than ``MAX_STEPS`` rounds or ``MAX_TEXT`` characters,
            or adds or subtracts values that are no numbers.
        Exception: any other error in the template.
    """
    work = _Work()
    for piece in template.generate({**variables, _WORK: work}):
        work.write(len(piece))
        yield piece


def _problem(node: nodes.Node) -> str:
    """Return the reason why a node is refused in a pack; empty if it is allowed."""
    name = type(node).__name__
    if not isinstance(node, _ALLOWED):
        return f"a pack cannot use {_NAMES.get(name, name)}"
    if isinstance(node, nodes.Filter) and node.name not in _filters:
        return f"there is no filter {node.name!r}; the filters are {', '.join(FILTERS)}"
    if isinstance(node, nodes.Test) and node.name not in _environment.tests:
        return f"there is no test {node.name!r}"
    if isinstance(node, nodes.Getattr) and node.attr.startswith("_"):
        return f"{node.attr!r} cannot be reached"
    if isinstance(node, nodes.Getitem) and str(getattr(node.arg, "value", "")).startswith("__"):
        return f"{getattr(node.arg, 'value', '')!r} cannot be reached"
    if isinstance(node, nodes.For) and node.recursive:
        return "a loop cannot be recursive"
    if isinstance(node, nodes.Assign) and not isinstance(node.target, nodes.Name):
        return "set names one variable"
    if isinstance(node, nodes.List | nodes.Tuple) and getattr(node, "ctx", "load") == "load":
        literal = (nodes.Const, nodes.List, nodes.Tuple)
        if not all(isinstance(item, literal) for item in node.items):
            return "a list in a pack holds constants only"
    return ""


_NAMES = {
    "Call": "calls",
    "Mul": "*",
    "Pow": "**",
    "Mod": "%",
    "Div": "/",
    "FloorDiv": "//",
    "Concat": "~",
    "Macro": "macros",
    "Include": "include",
    "Import": "import",
    "FromImport": "import",
    "Extends": "extends",
    "Dict": "objects of its own",
    "AssignBlock": "set with a block",
}
