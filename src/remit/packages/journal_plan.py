"""What a journal's folder says is to be done, believed only when an operation could have said it.

Whoever can write below ``HOT/installed/`` can leave a folder there. What it makes the next command
do must stay inside of what operations on packages do.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from remit.packages.errors import PackageError
from remit.packages.paths import path_problem
from remit.packages.placement import check_folders, is_reserved

__all__ = ["check_journal", "read_plan"]

_OPERATION = re.compile("OP-[0-9a-f]{16}")
_SHA256 = re.compile("[0-9a-f]{64}")
_PACKAGE = re.compile("PKG-[A-Z0-9]+(?:-[A-Z0-9]+)*-[0-9]{3}")
_VERSION = "[0-9][0-9A-Za-z.+-]*"
_KEPT = re.compile(rf"{_PACKAGE.pattern}/archives/{_VERSION}\.(?:tar\.gz|intoto\.json)")
_STAGED = re.compile("(?:new|old)/(0|[1-9][0-9]{0,8})")
_PLAN = {"operation_id", "place", "drop", "packages"}
_ITEM = {"path", "sha256", "replaces"}


def check_journal(root: Path, journal: str) -> None:
    """Make sure that the journal's folder, where it is there, and those above are no links.

    Args:
        root: the root's directory.
        journal: the folder, relative to it.

    Raises:
        PackageError: ``journal_damaged``.
    """
    _check_place(root, f"{journal}/folder", root / journal)


def read_plan(root: Path, folder: Path, installed: str) -> dict[str, Any]:
    """The plan of one operation, with all that lies beside it looked at.

    Args:
        root: the root's directory.
        folder: of the operation.
        installed: the folder of receipts and archives, relative to the root.

    Raises:
        PackageError: ``journal_damaged``: no operation left it so; nothing was done.
        FileNotFoundError: there is no plan in it.
    """
    if not _OPERATION.fullmatch(folder.name) or not stat.S_ISDIR(_mode(folder)):
        _damaged(folder, "is not the folder of an operation")
    if not stat.S_ISREG(_mode(folder / "plan.json")):
        _damaged(folder, "has a plan.json that is not a file of its own")
    try:
        plan = json.loads((folder / "plan.json").read_bytes())
    except (ValueError, RecursionError):
        _damaged(folder, "has a plan.json that is not JSON")
    except OSError as error:
        _damaged(folder, f"has a plan.json that cannot be read: {error.strerror}")
    if not isinstance(plan, dict) or set(plan) != _PLAN or plan["operation_id"] != folder.name:
        _damaged(folder, "has a plan.json of another operation or form")
    if not all(isinstance(plan[name], list) for name in ("place", "drop", "packages")):
        _damaged(folder, "has a plan.json of another form")
    for item in plan["place"]:
        if not _is_item(item):
            _damaged(folder, "plans to place something that is not written as a file is")
        _check_path(root, item["path"], folder)
    for path in plan["drop"]:
        _check_path(root, path, folder)
    for name in plan["packages"]:
        if not _is(name, _PACKAGE):
            _damaged(folder, f"is about {name!a}, which is no package's id")
        _check_place(root, f"{installed}/{name}/archives/file", folder)
    _check_staged(root, folder, installed, len(plan["place"]))
    return plan


def _check_path(root: Path, path: object, folder: Path) -> None:
    if not isinstance(path, str):
        _damaged(folder, "plans a path that is not a text")
    if problem := path_problem(path)[1]:
        _damaged(folder, f"plans to change {path!a}, which {problem}")
    if is_reserved(path):
        _damaged(folder, f"plans to change {path!a}, a place of Remit itself")
    _check_place(root, path, folder)


def _check_place(root: Path, path: str, folder: Path) -> None:
    try:
        check_folders(root, path)
    except PackageError as error:
        _damaged(folder, f"leads elsewhere: {error.message[:-1]}")


def _check_staged(root: Path, folder: Path, installed: str, count: int) -> None:
    """Look at everything beside the plan; no link is followed."""
    for above, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(above, name)
            inner, mode = path.relative_to(folder).as_posix(), _mode(path)
            if stat.S_ISDIR(mode):
                continue  # where there is nothing in it, it tells nothing
            number = _STAGED.fullmatch(inner)
            kept = _KEPT.fullmatch(inner.removeprefix("archives/"))
            if number and int(number[1]) < count:
                # What is replaced may have been a link; it goes back as one.
                fits = stat.S_ISREG(mode) or (inner[0] == "o" and stat.S_ISLNK(mode))
            elif kept and inner.startswith("archives/"):
                fits = stat.S_ISREG(mode)
                _check_place(root, f"{installed}/{kept[0]}", folder)
            else:
                fits = inner == "plan.json"
            if not fits:
                _damaged(folder, f"holds {inner!a}, which no operation leaves there")


def _is_item(item: object) -> bool:
    return (
        isinstance(item, Mapping)
        and set(item) == _ITEM
        and _is(item["sha256"], _SHA256)
        and isinstance(item["replaces"], bool)
    )


def _is(value: object, pattern: re.Pattern[str]) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _mode(path: Path) -> int:
    return os.lstat(path).st_mode


def _damaged(folder: Path, what: str) -> NoReturn:
    raise PackageError(
        "journal_damaged",
        f"{folder} {what}. Nothing was done.",
        next_step="Look at that folder, find out who left it, and move it out of the root.",
    )
