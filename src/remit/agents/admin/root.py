"""Views of the root: its files, the settings in force, packages and gates."""

from __future__ import annotations

import copy
import dataclasses
import fnmatch
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema
from typing_extensions import override

from remit.agents.admin.output import Toolset, cut_to_fit
from remit.agents.admin.redaction import redact_assignments
from remit.agents.tools import Tool, ToolError, tool
from remit.kernel.tenant import TENANTS

_MAX_FILES = 200


def _describe_file(output: dict[str, Any]) -> str:
    return f"The file {output['path']} says:\n{output['text'].strip()}"


def _describe_files(output: dict[str, Any]) -> str:
    rows = output["files"]
    among = "" if len(rows) == output["count"] else ", among them"
    return f"There are {output['count']} files{among}: {', '.join(row['path'] for row in rows)}."


def _describe_settings(output: dict[str, Any]) -> str:
    rows = _uncut(output["settings"])
    own = [row for row in rows if row["source"] != "default"]
    said = f"{len(own)} of them not the default" if own else "all of them the default"
    lines = [f"{row['key']} is {row['value']} ({row['source']})" for row in (own or rows)]
    return "\n".join([f"There are {output['count']} settings, {said}:", *lines])


def _describe_gates(output: dict[str, Any]) -> str:
    count, failed = output["count"], output["failed"]
    if output["passed"]:
        return f"All {count} gates pass." if count > 1 else "The gate passes."
    first_errors = {row["gate"]: next(iter(row["errors"]), "") for row in _uncut(output["gates"])}
    reasons = "; ".join(f"{name}: {first_errors.get(name, 'not shown')}" for name in failed[:2])
    return f"{len(failed)} of {count} gates fail: {reasons}"


def _describe_packages(output: dict[str, Any]) -> str:
    rows = _uncut(output["packages"])
    names = ", ".join(f"{row['package_id']} {row['version']}" for row in rows)
    among = "" if len(rows) == output["count"] else ", among them"
    return f"There are {output['count']} packages installed{among}: {names}."


def _uncut(rows: list[Any]) -> list[dict[str, Any]]:
    """Rows that were not cut away to make the output fit."""
    return [row for row in rows if isinstance(row, dict)]


class RootTools(Toolset):
    """Tools that read files and settings, list packages and run the gates."""

    @override
    def tools(self) -> list[Tool]:
        """Return the tools; without gates, only those of files and settings.

        The schema of ``gate_check`` lists the known gates.
        """
        *others, gate_check, list_packages = super().tools()
        if self.gates is None:
            return others
        schema = copy.deepcopy(dict(gate_check.input_schema))
        schema["properties"]["gate"]["enum"] = list(self.gates.names)
        return [*others, dataclasses.replace(gate_check, input_schema=schema), list_packages]

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

        Args:
            path: path relative to the root
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
        """List all files and directories of the root.

        Args:
            path: a directory relative to the root
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

    @tool(
        label="config",
        examples=(
            ("show the configuration", {}),
            ("which settings are in force?", {}),
            ("what is configured?", {}),
            ("how is the runtime configured or set up?", {}),
            ("which settings are not at their default?", {}),
            ("where does the value of a setting come from?", {}),
            ("what is the setting gateway.timeout_ms?", {"section": "gateway.timeout_ms"}),
        ),
        describe=_describe_settings,
        on_unknown="retry",
    )
    def show_runtime_config(
        self, section: Annotated[str, Field(pattern="^[a-z_]+(\\.[A-Za-z0-9_-]+)*$")] = ""
    ) -> dict[str, Any]:
        """Show the configuration in force: each setting, its value and where that came from
        (default, file, environment, flag). Keys and passwords stay hidden.

        Args:
            section: only settings below this name, such as gateway or providers.openai
        """
        rows = []
        for key, value, source in self.loaded.rows():
            if not section or key == section or key.startswith(f"{section}."):
                last = key.rpartition(".")[2]  # The name decides whether a value is secret.
                shown = self.redactor.value({last: value})[last]
                rows.append({"key": key, "value": shown, "source": source})
        if not rows:
            raise ToolError(f"There is no setting {section}; leave section out to see all.")
        output = {"status": "ok", "count": len(rows), "settings": rows}
        return self.shown(output, "settings", "Cut to fit. Ask for one section.")

    @tool(
        label="gates",
        examples=(
            ("check the gates", {}),
            ("run all gates", {}),
            ("do all gates pass?", {}),
            ("are the gates green, or why do they fail?", {}),
            ("status of the governance gates", {}),
            ("check gate G1", {"gate": "G1"}),
            ("is the installation healthy?", {}),
        ),
        describe=_describe_gates,
        on_unknown="retry",
    )
    def gate_check(self, gate: str | SkipJsonSchema[None] = None) -> dict[str, Any]:
        """Check the gates: whether packages, files, work orders, constraints, signatures and
        the record are as they have to be. All of them, or one.

        Args:
            gate: only this gate
        """
        assert self.gates is not None
        report = self.gates.check(gate)
        failed = [row["gate"] for row in report["gates"] if not row["passed"]]
        summary = {"count": len(report["gates"]), "failed": failed}
        fitted = cut_to_fit(self.redactor.value({**report, **summary}), self.max_bytes)
        output: dict[str, Any] = fitted.value
        if fitted.cut:
            output["note"] = "Cut to fit. `remit gate check` prints all of it."
        return output

    @tool(
        label="packages",
        examples=(
            ("list all installed packages", {}),
            ("which packages are installed?", {}),
            ("show the packages", {}),
            ("what is installed here?", {}),
            ("how many packages are there?", {}),
            ("which version of the software is running?", {}),
        ),
        describe=_describe_packages,
        on_unknown="retry",
    )
    def list_packages(self) -> dict[str, Any]:
        """List all installed packages: their ids, versions, titles and what they belong to."""
        assert self.gates is not None
        rows = self.gates.packages()
        return {"count": len(rows), "packages": cut_to_fit(rows, self.max_bytes).value}

    def _inside(self, path: str) -> Path:
        try:
            resolved = (self.root / path).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise ToolError(f"{path!r} is not a usable path.") from error
        if not self._visible(resolved):
            raise ToolError(f"{path!r} is outside what may be read.")
        return resolved

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
