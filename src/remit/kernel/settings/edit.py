"""Changes of ``remit.toml``: a value is set in its text, all else stays as a person wrote it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remit.kernel.errors import ConfigError
from remit.kernel.files import replacing

__all__ = ["BYTE_ORDER_MARK", "parse_toml", "set_values"]

BYTE_ORDER_MARK = "\ufeff"


def set_values(path: Path, values: Mapping[str, str]) -> None:
    """Set texts in ``remit.toml``, all or none; the rest of the file stays as it is.

    The file is replaced durably, or made; its mode becomes 0600. Missing tables are added at the
    end.

    Args:
        path: the file, which may be missing.
        values: by dotted key of a table and a name in it: ``providers.openai.base_url``.

    Raises:
        ConfigError: the file is no TOML, is written in a way that is not understood here, or cannot
            be written; nothing was changed.
    """
    try:
        text = path.read_text("utf-8-sig") if path.exists() else ""
        wanted = parse_toml(text, path)
        for dotted, value in values.items():
            text = _with(text, dotted, value)
            *tables, name = dotted.split(".")
            place = wanted
            for table in tables:
                place = place.setdefault(table, {})
            place[name] = value
        if parse_toml(text, path) != wanted:
            raise ConfigError(
                f"{path} has a form that Remit cannot edit.",
                next_step="Set the value by hand: "
                + "; ".join(f"{key} = {json.dumps(value)}" for key, value in values.items()),
            )
        with replacing(path, 0o600) as file:
            file.write(text.encode())
    except OSError as error:
        raise ConfigError(f"{path} cannot be changed: {error.strerror}.") from error


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """Return the TOML document in a file's text, which may begin with a byte order mark.

    Args:
        text: the file's text; the file is not read.
        path: path of the file, for the message.

    Raises:
        ConfigError: the text is not TOML. The message names a byte order mark in the text by its
            line, because an editor does not show one.
    """
    text = text.removeprefix(BYTE_ORDER_MARK)
    try:
        return tomllib.loads(text)
    except ValueError as error:
        lines = [n for n, line in enumerate(text.splitlines(), 1) if BYTE_ORDER_MARK in line]
        if lines:
            raise ConfigError(
                f"{path} contains a byte order mark (U+FEFF) in line {lines[0]}, which TOML "
                "forbids.",
                next_step="Correct the line in an editor that shows invisible characters.",
            ) from error
        raise ConfigError(f"{path} is not valid TOML: {error}.") from error


def _with(text: str, dotted: str, value: str) -> str:
    """The text with a value in it: in its line, else below its table's head, else at the end."""
    table, _, name = dotted.rpartition(".")
    line = f"{name} = {json.dumps(value, ensure_ascii=False)}"
    head = re.search(rf"(?m)^[ \t]*\[[ \t]*{re.escape(table)}[ \t]*\][ \t]*(#.*)?$", text)
    if head is None:
        return f"{text.rstrip()}\n\n[{table}]\n{line}\n".lstrip("\n")
    rest = text[head.end() :]
    after = re.search(r"(?m)^[ \t]*\[", rest)
    body, behind = (rest[: after.start()], rest[after.start() :]) if after else (rest, "")
    changed, found = re.subn(
        rf"(?m)^[ \t]*{re.escape(name)}[ \t]*=.*$", lambda _: line, body, count=1
    )
    return text[: head.end()] + (changed if found else f"\n{line}{body}") + behind
