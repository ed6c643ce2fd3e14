"""What a package may use, beside what it might before (SPEC 10)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any

from remit.packages.manifest import Permissions

__all__ = ["BudgetChange", "PermissionsDiff", "compare_permissions", "permits", "widened"]

_BUDGETS = ("token_budget", "usd_budget")
_KINDS = {"tools": "tool", "models": "model", "paths": "path"}


@dataclass(frozen=True, slots=True)
class BudgetChange:
    """A ceiling that is another now.

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
        added: by kind (``tools``, ``models``, ``paths``) what is named now and was not.
        removed: by kind what was named and is not now.
        budgets: ceilings that changed.
        widened: what is permitted now and was not, a line each; ``read_*`` after ``*`` is not.
    """

    added: dict[str, tuple[str, ...]]
    removed: dict[str, tuple[str, ...]]
    budgets: tuple[BudgetChange, ...]
    widened: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "widened": list(self.widened),
            "added": {kind: list(names) for kind, names in self.added.items()},
            "removed": {kind: list(names) for kind, names in self.removed.items()},
            "budgets": [
                {"name": one.name, "old": one.old, "new": one.new, "wider": one.wider}
                for one in self.budgets
            ],
        }

    def lines(self) -> list[str]:
        """The same for people; empty when nothing changed."""
        told = []
        for kind, word in _KINDS.items():
            told += [f"- {word} {name}" for name in self.removed[kind]]
            told += [f"+ {word} {name}" for name in self.added[kind]]
        for one in self.budgets:
            told.append(f"~ {one.name} {_ceiling(one.old)} → {_ceiling(one.new)}")
        return told


def compare_permissions(old: Permissions | None, new: Permissions) -> PermissionsDiff:
    """What changes from ``old`` to ``new``.

    A budget that rises or goes away is wider. Without an ``old``, all that is named is.
    """
    before = old or Permissions()
    added, removed, wider = {}, {}, []
    for kind, word in _KINDS.items():
        was, now = getattr(before, kind), getattr(new, kind)
        known, named = set(was), set(now)
        added[kind] = tuple(name for name in now if name not in known)
        removed[kind] = tuple(name for name in was if name not in named)
        covers = _path_covered if kind == "paths" else permits
        wider += [f"the {word} {name}" for name in added[kind] if not covers(was, name)]
    budgets = []
    for name in _BUDGETS:
        one = BudgetChange(name, before.budgets.get(name), new.budgets.get(name), False)
        if old is None:
            wider += [f"a {name} of {one.new}"] if one.new is not None else []
        elif rises := _rises(one.old, one.new):
            now_is = f"no {name}" if one.new is None else f"a {name} of {one.new}"
            wider.append(f"{now_is} instead of {one.old}")
        if one.old != one.new:
            budgets.append(BudgetChange(name, one.old, one.new, old is None or rises))
    return PermissionsDiff(added, removed, tuple(budgets), tuple(wider))


def widened(old: Permissions | None, new: Permissions) -> list[str]:
    """What ``new`` permits and ``old`` did not, a line each; ``None`` permitted nothing."""
    return list(compare_permissions(old, new).widened)


def permits(patterns: Iterable[str], name: str) -> bool:
    """Whether one of the patterns names ``name``; ``*`` stands for any text.

    ``name`` may be a pattern itself, permitted when all that it can stand for is. (That follows
    from matching its text, as ``*`` is the only character in them with a meaning.)
    """
    return any(pattern == name or fnmatchcase(name, pattern) for pattern in patterns)


def _path_covered(paths: Iterable[str], path: str) -> bool:
    return any(path == one or (one.endswith("/") and path.startswith(one)) for one in paths)


def _rises(old: int | str | None, new: int | str | None) -> bool:
    if old is None:
        return False
    return new is None or Decimal(new) > Decimal(old)


def _ceiling(value: int | str | None) -> str:
    return "no ceiling" if value is None else str(value)
