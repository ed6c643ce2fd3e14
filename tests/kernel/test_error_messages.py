"""Errors of the library speak to programs too: options of commands stand in commands alone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import remit

_SOURCE = Path(remit.__file__).parent
_COMMAND = re.compile(r"`[^`]*`")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def test_no_error_outside_the_command_line_names_an_option_without_its_command() -> None:
    found = []
    for file in sorted(_SOURCE.rglob("*.py")):
        place = file.relative_to(_SOURCE)
        if place.parts[0] == "cli":
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "next_step":
                text = "".join(
                    part.value
                    for part in ast.walk(node.value)
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                )
                if _OPTION.search(_COMMAND.sub("", text)):
                    found.append(f"{place}:{node.value.lineno}: {text}")
    assert found == []
