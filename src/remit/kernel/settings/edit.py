"""Changes of ``remit.toml``: a value is set in its text, and all other text stays."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remit.kernel.durable_files import replacing
from remit.kernel.errors import ConfigError
from remit.kernel.toml_text import load_toml, toml_value

BYTE_ORDER_MARK = "\ufeff"


def set_values(path: Path, values: Mapping[str, str]) -> None:
    """Set texts in ``remit.toml``, all or none; the rest of the file stays unchanged.

    The file is replaced durably (a link itself), or made; its mode becomes 0600. Missing tables are
    added at the end. Line ends and a byte order mark stay; new lines end as the file's first does.
    Without values the file is still written. Whether Remit knows a setting is not checked.

    Args:
        path: the file, which may be missing.
        values: by dotted key of a table and a name in it: ``providers.openai.base_url``.

    Raises:
        ConfigError: the file is not UTF-8 or not TOML, has a form that Remit cannot edit, or cannot
            be written, or a value is not Unicode text; nothing was changed.
    """
    try:
        data = path.read_bytes() if path.exists() else b""
        text = data.decode()
        mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
        text = text.removeprefix(mark)
        wanted = parse_toml(text, path)
        for dotted, value in values.items():
            text = _with(text, dotted, value)
            *tables, name = dotted.split(".")
            place = wanted
            for table in tables:
                place = place.setdefault(table, {})
                if not isinstance(place, dict):
                    raise _uneditable(path, values)
            place[name] = value
        if parse_toml(text, path) != wanted:
            raise _uneditable(path, values)
        data = (mark + text).encode()
        with replacing(path, 0o600) as file:
            file.write(data)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8, at byte {error.start}.") from error
    except UnicodeEncodeError as error:
        raise ConfigError(f"A value for {path} is not Unicode text.") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be changed: {error.strerror}.") from error


def _uneditable(path: Path, values: Mapping[str, str]) -> ConfigError:
    return ConfigError(
        f"{path} has a form that Remit cannot edit.",
        next_step="Set the value by hand: "
        + "; ".join(f"{key} = {json.dumps(value)}" for key, value in values.items()),
    )


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
        return load_toml(text)
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
    """Return the text with a value: in its line, else below its table's head, else at the end."""
    table, _, name = dotted.rpartition(".")
    first = re.search(r"\r?\n", text)
    end = first[0] if first else "\n"
    line = f"{name} = {toml_value(value)}"
    head = re.search(
        rf"(?m)^[ \t]*\[[ \t]*{re.escape(table)}[ \t]*\][ \t]*(#[^\r\n]*)?(?=\r?$)", text
    )
    if head is None:
        if text:
            text += end if text.endswith("\n") else end * 2
        return f"{text}[{table}]{end}{line}{end}"
    rest = text[head.end() :]
    after = re.search(r"(?m)^[ \t]*\[", rest)
    body, behind = (rest[: after.start()], rest[after.start() :]) if after else (rest, "")
    changed, found = re.subn(
        rf"(?m)^[ \t]*{re.escape(name)}[ \t]*=[^\r\n]*", lambda _: line, body, count=1
    )
    return text[: head.end()] + (changed if found else f"{end}{line}{body}") + behind
