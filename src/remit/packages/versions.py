"""Versions of packages, as Semantic Versioning 2.0.0 orders them."""

from __future__ import annotations

import operator
import re

Precedence = tuple[int, int, int, bool, tuple[tuple[int, int, str], ...]]

_COMPARATOR = re.compile(r"(==|>=|<=|>|<)(.*)")
_OPERATORS = {
    "==": operator.eq, ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
}  # fmt: skip


def in_range(version: str, allowed: str) -> bool:
    """Whether a dependency's range allows ``version``.

    Args:
        version: as Semantic Versioning 2.0.0 writes it.
        allowed: comparators separated by commas, all of which have to hold. Versions are ordered
            by §11; build metadata does not count. A pre-release is in only where a comparator
            names a pre-release of the same three numbers, so that ``<2.0.0`` leaves out
            ``2.0.0-rc.1``.
    """
    mine = precedence(version)
    named = not _prerelease(version)
    for comparator in allowed.split(","):
        found = _COMPARATOR.fullmatch(comparator)
        assert found is not None, "the schema has seen it"
        sign, bound = found.groups()
        theirs = precedence(bound)
        if not _OPERATORS[sign](mine, theirs):
            return False
        named = named or (_prerelease(bound) and mine[:3] == theirs[:3])
    return named


def precedence(version: str) -> Precedence:
    """What versions are sorted by: §11 of Semantic Versioning; build metadata does not count.

    Args:
        version: as Semantic Versioning 2.0.0 writes it.
    """
    core, _, pre = version.partition("+")[0].partition("-")
    major, minor, patch = (int(part) for part in core.split("."))
    identifiers = tuple(
        (0, int(part), "") if re.fullmatch("[0-9]+", part) else (1, 0, part)
        for part in pre.split(".")
        if pre
    )
    return major, minor, patch, not pre, identifiers


def _prerelease(version: str) -> bool:
    return "-" in version.partition("+")[0]
