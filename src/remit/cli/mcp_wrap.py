"""``remit mcp wrap``: puts the gateway before the MCP servers of a client's configuration."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from remit.cli.options import common
from remit.cli.output import note, say
from remit.kernel.errors import ConfigError
from remit.kernel.json_text import sound_text
from remit.kernel.toml_text import toml_value

_TABLES = ("mcpServers", "servers")  # Claude and most others; VS Code
_HTTP = ("http", "streamable-http", "streamableHttp")
_REPLACED = ("type", "command", "args", "env", "cwd", "url", "headers")
_PLACEHOLDER = re.compile(r"\$\{|\$\w")
_BACKUP = ".before-remit"


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--undo", is_flag=True, help="Restore the original configuration.")
@common
def wrap(root: Path | None, file: Path, undo: bool) -> None:
    """Route every MCP server of a client's configuration through the gateway.

    FILE is a .mcp.json, .vscode/mcp.json, .cursor/mcp.json or claude_desktop_config.json. Each
    server's command or URL moves to [mcp.NAME] of remit.toml. Secrets stay in FILE, as environment
    variables of the gateway. Servers that cannot be wrapped stay unchanged, with a note. A backup
    of FILE is written next to it.
    """
    file = file.resolve()
    backup = file.with_name(file.name + _BACKUP)
    config, table = _read(file)
    if undo:
        _undo(file, backup, config, table)
        return
    from remit.kernel.root import find_root
    from remit.kernel.settings import load_settings

    place = find_root(root).require()
    known = load_settings(place.config).settings.mcp
    servers, added, done = config[table], [], []
    for name, entry in servers.items():
        if _is_wrapped(entry):
            continue
        if why := _unfit(name, entry, known):
            note(f"unchanged: {name}: {why}")
            continue
        settings, environment = _moved(name, entry)
        added.append(_toml(name, settings))
        servers[name] = {
            # Whatever else the client keeps there, such as `disabled` or `alwaysAllow`, stays.
            **{key: value for key, value in entry.items() if key not in _REPLACED},
            **({"type": "stdio"} if "type" in entry else {}),
            "command": shutil.which("remit") or sys.executable,
            "args": [
                *([] if shutil.which("remit") else ["-m", "remit"]),
                "mcp", "gateway", name, "--root", str(place.path.resolve()),
            ],
            **({"env": environment} if environment else {}),
        }  # fmt: skip
        done.append(name)
    if not done:
        say("Nothing to do: every server of this file already uses the gateway, or cannot use it.")
        return
    if not backup.exists():
        shutil.copy2(file, backup)
    text = place.config.read_text("utf-8") if place.config.exists() else ""
    _write(place.config, text.rstrip("\n") + "\n" + "".join(added))
    _write(file, _json(config))
    for name in done:
        say(f"now uses the gateway: {name}")
    note(f"Add rules to {place.config} as [[mcp.NAME.rules]]. --undo restores the original file.")


def _undo(file: Path, backup: Path, config: dict[str, Any], table: str) -> None:
    if not backup.exists():
        raise ConfigError(
            f"The backup {backup.name} is not next to {file.name}.",
            next_step="This file was never wrapped, or the backup was moved.",
        )
    before, before_table = _read(backup)
    for name, entry in config[table].items():
        if _is_wrapped(entry) and name in before[before_table]:
            config[table][name] = before[before_table][name]
            say(f"restored: {name}")
    if config == before:
        shutil.copy2(backup, file)
    else:  # The file was edited since.
        _write(file, _json(config))
    backup.unlink()
    note("remit.toml still contains the tables [mcp.NAME].")


def _read(file: Path) -> tuple[dict[str, Any], str]:
    """Return a client's configuration and the name of its table of servers.

    Raises:
        ConfigError: the file is not valid JSON, or has no table of servers.
    """
    try:
        config = json.loads(file.read_text("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{file} is not valid JSON: {error}.",
            next_step="Leave out comments and trailing commas.",
        ) from error
    for table in _TABLES:
        found = config.get(table) if isinstance(config, dict) else None
        if isinstance(found, dict) and all(isinstance(one, dict) for one in found.values()):
            return config, table
    raise ConfigError(
        f"{file} names no MCP servers.",
        next_step=f"The file must contain a table {' or '.join(map(repr, _TABLES))}.",
    )


def _json(config: Mapping[str, Any]) -> str:
    """Return the text of a configuration; a lone surrogate, which UTF-8 lacks, stays an escape."""
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    return text if sound_text(text) == text else json.dumps(config, indent=2) + "\n"


def _is_wrapped(entry: Mapping[str, Any]) -> bool:
    arguments = entry.get("args")
    return isinstance(arguments, list) and arguments[-5:-3] == ["mcp", "gateway"]


def _unfit(name: str, entry: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """Return the reason why a server cannot be wrapped; empty if none."""
    from remit.kernel.settings import McpServerSettings

    if name in known:
        return f"remit.toml already contains a different [mcp.{name}]."
    if "url" in entry:
        if entry.get("type", "http") not in _HTTP:
            return f"the transport is {entry['type']!r}, not streamable HTTP."
        texts = [entry["url"]]
    else:
        texts = [entry.get("command"), *(entry.get("args") or []), entry.get("cwd") or ""]
    if not all(isinstance(text, str) for text in texts) or not texts[0]:
        return "the entry has neither a command nor a url."
    if any(_PLACEHOLDER.search(text) for text in texts):
        return "the command or url contains a ${…} that only the client can fill in."
    try:
        settings, _ = _moved(name, entry)
        McpServerSettings.model_validate(settings)
        _toml(name, settings).encode()
    except (ValueError, TypeError, AttributeError):
        return "the entry has a value that remit.toml cannot contain."
    return ""


def _moved(name: str, entry: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the settings of a server for ``remit.toml``, and the environment with its secrets."""
    if "url" in entry:
        names = {
            header: re.sub(r"\W", "_", f"MCP_{name}_{header}").upper()
            for header in entry.get("headers") or {}
        }
        filled = {header: f"${{{variable}}}" for header, variable in names.items()}
        environment = {names[one]: value for one, value in (entry.get("headers") or {}).items()}
        return {"url": entry["url"], **({"headers": filled} if filled else {})}, environment
    environment = dict(entry.get("env") or {})
    settings: dict[str, Any] = {"command": entry["command"], "args": entry.get("args") or []}
    if environment:
        settings["env"] = {variable: f"${{{variable}}}" for variable in environment}
    if entry.get("cwd"):
        settings["cwd"] = entry["cwd"]
    return settings, environment


def _toml(name: str, settings: Mapping[str, Any]) -> str:
    values = (f"{key} = {toml_value(value)}" for key, value in settings.items())
    return "\n".join(["", f"[mcp.{toml_value(name)}]", *values, ""])


def _write(path: Path, text: str) -> None:
    """Replace a file atomically; the new file keeps the old mode."""
    beside = path.with_name(path.name + ".new")
    beside.write_text(text, "utf-8")
    if path.exists():
        shutil.copymode(path, beside)
    os.replace(beside, path)
