"""The text files of the root."""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import Any

from remit.agents.admin.output import Toolset
from remit.agents.admin.redaction import redact_assignments
from remit.agents.tools import ToolError, tool
from remit.kernel.tenant import TENANTS

_MAX_FILES = 200


def _describe_file(output: dict[str, Any]) -> str:
    return f"The file {output['path']} says:\n{output['text'].strip()}"


def _describe_files(output: dict[str, Any]) -> str:
    rows = output["files"]
    among = "" if len(rows) == output["count"] else ", among them"
    return f"There are {output['count']} files{among}: {', '.join(row['path'] for row in rows)}."


class RootTools(Toolset):
    """The tools ``read_file`` and ``list_files``.

    Files that the settings hide, files of tenants, and files outside of the root are refused.
    """

    @tool(
        label="read",
        examples=(
            ("open notes.txt", {"path": "notes.txt"}),
            ("show the file config.json", {"path": "config.json"}),
            ("what is in README.md?", {"path": "README.md"}),
            ("read src/main.py", {"path": "src/main.py"}),
            ("cat notes.txt", {"path": "notes.txt"}),
        ),
        describe=_describe_file,
        on_unknown="retry",
    )
    def read_file(self, path: str) -> dict[str, Any]:
        """Read one text file by its path.

        The result has ``path`` and ``text``, in which secrets are hidden.

        Args:
            path: path relative to the root

        Raises:
            ToolError: the path is outside of the root or hidden; the file does not exist, is longer
                than :attr:`max_bytes`, is no UTF-8, or cannot be read.
        """
        file = self._inside(path)
        if not file.is_file():
            raise ToolError(f"There is no file {path!r} in the root.")
        if file.stat().st_size > self.max_bytes:
            raise ToolError(f"{path!r} is longer than {self.max_bytes:,} bytes.")
        try:
            text = file.read_bytes().decode("utf-8")
        except UnicodeDecodeError as error:
            raise ToolError(f"{path!r} is not a text file.") from error
        except OSError as error:
            raise ToolError(f"{path!r} cannot be read: {error.strerror}.") from error
        return {
            "path": file.relative_to(self.root).as_posix(),
            "text": self.redactor.text(redact_assignments(text)),
        }

    @tool(
        label="files",
        examples=(
            ("list the files", {}),
            ("what is in this folder?", {}),
            ("show the directory", {}),
            ("how many files are there?", {}),
            ("ls src/assets", {"path": "src/assets"}),
        ),
        describe=_describe_files,
        on_unknown="retry",
    )
    def list_files(self, path: str = ".") -> dict[str, Any]:
        """List the files in a directory of the root and below it.

        Files that may not be read are left out. The result has their ``count``, and the first 200,
        sorted by path, as ``files`` with ``path`` and ``bytes``.

        Args:
            path: a directory relative to the root

        Raises:
            ToolError: the path is outside of the root or hidden, or is no directory.
        """
        directory = self._inside(path)
        if not directory.is_dir():
            raise ToolError(f"There is no directory {path!r} in the root.")
        found = []
        for file in sorted(directory.rglob("*")):
            if file.is_file() and self._visible(file.resolve()):
                relative = file.relative_to(self.root).as_posix()
                found.append({"path": relative, "bytes": file.stat().st_size})
        return {"count": len(found), "files": found[:_MAX_FILES]}

    def _inside(self, path: str) -> Path:
        try:
            resolved = (self.root / path).resolve()
            if self._visible(resolved):
                resolved.exists()  # Raises OSError if a name is too long or a directory is closed.
                return resolved
        except (OSError, ValueError, RuntimeError) as error:
            raise ToolError(f"{path!r} is not a usable path.") from error
        raise ToolError(f"{path!r} is outside what may be read.")

    def _visible(self, resolved: Path) -> bool:
        if not resolved.is_relative_to(self.root):
            return False
        relative = resolved.relative_to(self.root)
        if relative.parts[:1] == (TENANTS,):  # A host's agents must not read its tenants.
            return False
        return not any(
            fnmatch.fnmatch(part, pattern)
            for part in relative.parts
            for pattern in self.settings.hidden_files
        )
