"""Holds every room to its door: ``make lint`` runs this file in the checkout.

A room is a package directly below ``remit``. Its door is its ``__init__`` and the submodules that
``[tool.remit.doors]`` in ``pyproject.toml`` lists, at most five. Of a listed package only the names
in its ``__init__`` are public. All modules of ``kernel`` are public. A room's own modules import
each other directly, never through the room's door.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

MOST_DOORS = 5
MOST_DOC_LINES = 25


class Checkout:
    """The rooms of one checkout, and the names at their doors.

    Args:
        root: the directory of ``pyproject.toml``.
    """

    def __init__(self, root: Path) -> None:
        self.source = root / "src"
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        self.listed: dict[str, list[str]] = project["tool"]["remit"]["doors"]
        rooms = (file.parent.name for file in self.source.glob("remit/*/__init__.py"))
        self.rooms = sorted(set(rooms) - {"kernel"})

    def problems(self) -> Iterator[str]:
        """Yield each breach of the rules, with its file and line."""
        for room in sorted({*self.rooms, *self.listed}):
            yield from self._of_room(room)
        for file in sorted(self.source.rglob("*.py")):
            yield from self._of_file(file)

    def is_module(self, name: str) -> bool:
        """Whether ``name`` is a module or package of the checkout."""
        place = self.source.joinpath(*name.split("."))
        return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()

    def doors_of(self, room: str) -> list[str]:
        """Return the modules that are a room's door."""
        return [f"remit.{room}", *(f"remit.{room}.{one}" for one in self.listed.get(room, ()))]

    def door_with(self, name: str, room: str) -> str:
        """Return the door of ``room`` that exports ``name``; empty if none does."""
        found = (door for door in self.doors_of(room) if name in self._names_at(door))
        return next(found, "")

    def _names_at(self, door: str) -> set[str]:
        """Return the names in the ``__all__`` of a module; without one, those that it defines."""
        place = self.source.joinpath(*door.split("."))
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                return set(ast.literal_eval(node.value))
        return {
            node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))
        }

    def _of_room(self, room: str) -> Iterator[str]:
        if room not in self.rooms:
            yield f"pyproject.toml: [tool.remit.doors] lists {room}, which is no room."
            return
        listed = self.listed.get(room, [])
        if len(listed) > MOST_DOORS:
            yield f"pyproject.toml: {room} lists {len(listed)} doors; {MOST_DOORS} are allowed."
        for door in self.doors_of(room):
            if not self.is_module(door):
                yield f"pyproject.toml: {room} lists {door}, which is no module."
        file = self.source / "remit" / room / "__init__.py"
        lines = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").splitlines()
        if not 0 < len(lines) <= MOST_DOC_LINES:
            yield (
                f"{self._shown(file)}:1: the room's docstring has {len(lines)} lines; "
                f"it needs 1 to {MOST_DOC_LINES}."
            )

    def _of_file(self, file: Path) -> Iterator[str]:
        parts = file.relative_to(self.source).parts
        own = parts[1] if len(parts) > 2 else ""
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            for module, name in self._imports(node):
                _, room, *inner = module.split(".")
                place = f"{self._shown(file)}:{getattr(node, 'lineno', 1)}"
                if room == own and not inner and name:
                    yield (
                        f"{place}: {name} comes through the door of its own room; "
                        "import it from the module that defines it."
                    )
                elif room in self.rooms and room != own and module not in self.doors_of(room):
                    door = self.door_with(name, room)
                    yield f"{place}: {module} is private to {room}; " + (
                        f"import {name} from {door}."
                        if door
                        else f"export {name or 'its names'} from one of "
                        f"{', '.join(self.doors_of(room))}."
                    )

    def _imports(self, node: ast.AST) -> Iterator[tuple[str, str]]:
        """Yield the modules below ``remit`` that a statement imports, each with the name taken."""
        if isinstance(node, ast.Import):
            yield from ((one.name, "") for one in node.names if one.name.startswith("remit."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "remit":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if self.is_module(inner):
                    yield inner, ""
                elif node.module != "remit":
                    yield str(node.module), alias.name

    def _shown(self, file: Path) -> str:
        return file.relative_to(self.source.parent).as_posix()


def main() -> int:
    """Print every breach; return 1 if there is one."""
    found = list(Checkout(Path(sys.argv[1] if sys.argv[1:] else ".")).problems())
    sys.stdout.write("\n".join(found or ["Every room is used through its door."]) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
