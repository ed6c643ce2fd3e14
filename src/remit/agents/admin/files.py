"""Reading files of the root, and nothing outside it."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from remit.agents.admin.hiding import Hiding, hide_assigned
from remit.agents.tools import Tool, ToolError

__all__ = ["RootFiles", "file_tools"]

_MAX_FILES = 200


class RootFiles:
    """The files that ADMIN may see.

    Args:
        root: the root's directory.
        hidden: name patterns that are never listed nor read.
        max_bytes: longest file that is read.
        hiding: takes out keys that stand in a file without their name.
    """

    def __init__(
        self, root: Path, hidden: Sequence[str], max_bytes: int, hiding: Hiding | None = None
    ) -> None:
        self._hiding = hiding or Hiding()
        self._root = root.resolve()
        self._hidden = tuple(hidden)
        self._max_bytes = max_bytes

    def read_file(self, path: str) -> dict[str, Any]:
        """The text of one file; values of keys in it are blotted out."""
        file = self._inside(path)
        if not file.is_file():
            raise ToolError(f"There is no file {path!r} in the root.")
        if file.stat().st_size > self._max_bytes:
            raise ToolError(f"{path!r} is longer than {self._max_bytes:,} bytes.")
        try:
            text = file.read_bytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise ToolError(f"{path!r} is not a text file.") from error
        except OSError as error:
            raise ToolError(f"{path!r} cannot be read: {error.strerror}.") from error
        return {
            "path": file.relative_to(self._root).as_posix(),
            "text": self._hiding.text(hide_assigned(text)),
        }

    def list_files(self, path: str = ".") -> dict[str, Any]:
        """The files below a directory, by relative path, at most 200."""
        directory = self._inside(path)
        if not directory.is_dir():
            raise ToolError(f"There is no directory {path!r} in the root.")
        found = []
        for file in sorted(directory.rglob("*")):
            if file.is_file() and self._visible(file.resolve()):
                relative = file.relative_to(self._root).as_posix()
                found.append({"path": relative, "bytes": file.stat().st_size})
        return {"count": len(found), "files": found[:_MAX_FILES]}

    def _inside(self, path: str) -> Path:
        try:
            resolved = (self._root / path).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise ToolError(f"{path!r} is not a usable path.") from error
        if not self._visible(resolved):
            raise ToolError(f"{path!r} is outside what may be read.")
        return resolved

    def _visible(self, resolved: Path) -> bool:
        if not resolved.is_relative_to(self._root):
            return False
        relative = resolved.relative_to(self._root)
        return not any(
            fnmatch.fnmatch(part, pattern) for part in relative.parts for pattern in self._hidden
        )


def file_tools(files: RootFiles) -> list[Tool]:
    """``read_file`` and ``list_files``."""
    return [
        Tool(
            "read_file",
            "Read one text file by its path.",
            {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "path relative to the root"}
                },
                "required": ["path"],
                "additionalProperties": False,
            },
            files.read_file,
            (
                ("open notes.txt", {"path": "notes.txt"}),
                ("show the file config.json", {"path": "config.json"}),
                ("what is in README.md?", {"path": "README.md"}),
                ("read src/main.py", {"path": "src/main.py"}),
            ),
            lambda output: f"The file {output['path']} says: {_first_line(output['text'])}",
            "read",
            on_unknown="retry",
        ),
        Tool(
            "list_files",
            "List all files and directories of the root.",
            {
                "type": "object",
                "properties": {
                    "path": {
                        "type": "string",
                        "description": "a directory relative to the root",
                        "default": ".",
                    }
                },
                "additionalProperties": False,
            },
            files.list_files,
            (
                ("list the files", {}),
                ("what is in this folder?", {}),
                ("show the directory", {}),
                ("which files do you have?", {}),
            ),
            _describe_files,
            "files",
            on_unknown="retry",
        ),
    ]


def _describe_files(output: dict[str, Any]) -> str:
    shown = ", ".join(row["path"] for row in output["files"][:3])
    return f"There are {output['count']} files, among them: {shown}."


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "nothing")[:200]
