"""What a package may use, compared with what it might before."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase

from remit.packages.manifest import Permissions

_BUDGETS = ("token_budget", "usd_budget")
_DEFINITION = "@sha256:"
_KINDS = {"tools": "tool", "models": "model", "paths": "path"}


@dataclass(frozen=True, slots=True)
class BudgetChange:
    """A changed ceiling.

    Attributes:
        name: ``token_budget`` (tokens) or ``usd_budget`` (US dollars).
        old: as the manifest writes it; ``None`` for no ceiling.
        new: likewise.
        wider: whether more may be spent now.
    """

    name: str
    old: int | str | None
    new: int | str | None
    wider: bool


@dataclass(frozen=True, slots=True)
class PermissionsDiff:
    """How the permissions of two versions differ.

    Attributes:
        widened: what is permitted now and was not, a line each; ``read_*`` after ``*`` is not.
        added: by kind (``tools``, ``models``, ``paths``) what is named now and was not.
        removed: by kind what was named and is not now.
        budgets: ceilings that changed.
    """

    widened: tuple[str, ...]
    added: dict[str, tuple[str, ...]]
    removed: dict[str, tuple[str, ...]]
    budgets: tuple[BudgetChange, ...]

    def lines(self) -> list[str]:
        """The same for people; empty when nothing changed."""
        found = []
        for kind, word in _KINDS.items():
            found += [f"- {word} {name}" for name in self.removed[kind]]
            found += [f"+ {word} {name}" for name in self.added[kind]]
        for budget in self.budgets:
            old, new = (
                "no ceiling" if value is None else value for value in (budget.old, budget.new)
            )
            found.append(f"~ {budget.name} {old} → {new}")
        return found


def compare_permissions(old: Permissions | None, new: Permissions) -> PermissionsDiff:
    """What changes from ``old`` to ``new``.

    A budget that rises or goes away is wider. Without an ``old``, all that is named is.
    """
    before = old or Permissions()
    added, removed, widened = {}, {}, []
    for kind, word in _KINDS.items():
        was, now = getattr(before, kind), getattr(new, kind)
        added[kind] = tuple(name for name in now if name not in was)
        removed[kind] = tuple(name for name in was if name not in now)
        covers = {"tools": _covers_tool, "paths": allows_path}.get(kind, permits)
        widened += [f"the {word} {name}" for name in added[kind] if not covers(was, name)]
    budgets = []
    for name in _BUDGETS:
        had, has = before.budgets.get(name), new.budgets.get(name)
        if had == has:
            continue
        wider = old is None or (had is not None and (has is None or Decimal(has) > Decimal(had)))
        budgets.append(BudgetChange(name, had, has, wider))
        if wider:
            ceiling = f"no {name}" if has is None else f"a {name} of {has}"
            widened.append(ceiling if old is None else f"{ceiling} instead of {had}")
    return PermissionsDiff(tuple(widened), added, removed, tuple(budgets))


def permits(patterns: Iterable[str], name: str) -> bool:
    """Whether one of the patterns names ``name``; ``*`` matches any text.

    ``name`` may be a pattern itself, permitted when all that it can match is. (That follows
    from matching its text, as ``*`` is the only character in them with a meaning.)
    """
    return any(pattern == name or fnmatchcase(name, pattern) for pattern in patterns)


def permits_tool(patterns: Iterable[str], tool_id: str) -> bool:
    """Whether one of the patterns names a tool.

    ``server__tool@sha256:…`` names an MCP server's tool by the hash of its definition too, which
    is held to it when it is used.
    """
    return permits((pattern.partition(_DEFINITION)[0] for pattern in patterns), tool_id)


def _covers_tool(patterns: Iterable[str], name: str) -> bool:
    """Whether patterns permit ``name``: with any definition, or with the one that it names."""
    known = list(patterns)
    return permits(known, name) or permits(known, name.partition(_DEFINITION)[0])


def allows_path(places: Iterable[str], path: str) -> bool:
    """Whether ``path`` is one of ``places``, or below one of them that ends with ``/``."""
    return any(path == one or (one.endswith("/") and path.startswith(one)) for one in places)
