"""The permissions of a package, and their changes between versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Self

BUDGETS = ("token_budget", "usd_budget")
KINDS = {"tools": "tool", "models": "model", "paths": "path"}
"""By the name of a list of permissions, the word for one of its items."""

_DEFINITION = "@sha256:"


@dataclass(frozen=True, slots=True)
class Permissions:
    """The tools, models, budgets and paths that a package's agents may use; empty permits nothing.

    Immutable. The methods compare a tool, model, path or budget with the permissions.

    A tool written ``server__tool@sha256:…`` is an MCP server's tool with the hash of its
    definition, which is compared at every use of the tool.

    Attributes:
        tools: names, or patterns in which ``*`` stands for any text.
        models: ``provider/model``, or patterns such as ``openai/*``.
        budgets: the ceilings of one work order, ``token_budget`` (tokens) and ``usd_budget`` (US
            dollars as decimal text); an absent one is no ceiling.
        paths: paths of assets; a path that ends with ``/`` is a folder with everything below it.
    """

    tools: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    budgets: Mapping[str, int | str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()

    @classmethod
    def joined(cls, several: Iterable[Permissions]) -> Self:
        """Return permissions with the tools and models of several; budgets and paths are empty.

        Each name occurs once, in no fixed order.

        Args:
            several: permissions; none gives empty permissions.
        """
        known = list(several)
        return cls(
            tuple({tool for one in known for tool in one.tools}),
            tuple({model for one in known for model in one.models}),
        )

    def covers(self, kind: str, name: str) -> bool:
        """Return True if the ``tools``, ``models`` or ``paths`` include ``name``.

        Args:
            kind: the name of the list.
            name: an item or a pattern; a pattern is included if everything that it matches is. A
                tool with the hash of a definition is included if the list has it with this hash or
                without any.
        """
        if kind == "paths":
            return allows_path(self.paths, name)
        known: tuple[str, ...] = getattr(self, kind)
        return permits(known, name) or (
            kind == "tools" and permits(known, name.partition(_DEFINITION)[0])
        )

    def allows_tool(self, tool_id: str) -> bool:
        """Return True if a pattern in :attr:`tools` permits a tool.

        The hash of a definition in a pattern is ignored.

        Args:
            tool_id: the id of the tool, without a hash.
        """
        return permits((name.partition(_DEFINITION)[0] for name in self.tools), tool_id)

    def allows_model(self, provider_id: str, model_id: str) -> bool:
        """Return True if a model may be used.

        An empty ``provider_id`` is an unknown provider, for which a permission at any provider is
        enough.

        Args:
            provider_id: id of the provider; may be empty.
            model_id: the provider's name of the model.
        """
        if provider_id:
            return permits(self.models, f"{provider_id}/{model_id}")
        models = (one.partition("/")[2] if "/" in one else one for one in self.models)
        return permits(models, model_id)

    def budget_problem(self, name: str, value: int | str | None) -> str:
        """Return the reason why a budget exceeds the ceiling here; empty if it does not.

        The reason continues a sentence that begins with the budget's owner.

        Args:
            name: ``token_budget`` or ``usd_budget``.
            value: tokens, or US dollars as decimal text (another text raises
                decimal.InvalidOperation); ``None`` for no budget, which exceeds any ceiling. An
                absent ceiling permits every value.
        """
        ceiling = self.budgets.get(name)
        if ceiling is None:
            return ""
        if value is None:
            return f"states no {name}; the maximum is {ceiling}"
        if Decimal(str(value)) > Decimal(str(ceiling)):
            return f"has a {name} of {value}; the maximum is {ceiling}"
        return ""


def widened_permissions(old: Permissions | None, new: Permissions) -> list[str]:
    """Return what ``new`` permits and ``old`` does not, a line each, such as ``the tool pay``.

    A name that an old pattern covers is none: ``read_*`` after ``*``. A budget that rises or is
    removed widens the permissions.

    Args:
        old: the permissions of the earlier version; ``None`` if there was none, so that every
            permission and budget is new.
        new: the permissions of the later version.
    """
    before = old or Permissions()
    found = [
        f"the {word} {name}"
        for kind, word in KINDS.items()
        for name in getattr(new, kind)
        if not before.covers(kind, name)
    ]
    for name in BUDGETS:
        had, has = before.budgets.get(name), new.budgets.get(name)
        ceiling = f"no {name}" if has is None else f"a {name} of {has}"
        if old is None and has is not None:
            found.append(ceiling)
        elif had is not None and (has is None or Decimal(has) > Decimal(had)):
            found.append(f"{ceiling} instead of {had}")
    return found


def permits(patterns: Iterable[str], name: str) -> bool:
    """Return True if a pattern matches ``name``; ``*`` in a pattern stands for any text. Case
    counts.

    ``name`` may be a pattern itself, which is permitted if everything that it matches is. That
    follows from matching its text, as ``*`` is the only character in them with a meaning.

    Args:
        patterns: names or patterns; none permits nothing.
        name: a name or a pattern.
    """
    return any(pattern == name or fnmatchcase(name, pattern) for pattern in patterns)


def allows_path(places: Iterable[str], path: str) -> bool:
    """Return True if ``path`` is one of ``places``, or below one of them that ends with ``/``.

    Args:
        places: files, and folders that end with ``/``; none allows nothing.
        path: path relative to the root.
    """
    return any(path == one or (one.endswith("/") and path.startswith(one)) for one in places)
