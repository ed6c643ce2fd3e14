"""The operation that shows the settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from remit.kernel.errors import NotFoundError
from remit.operations.agent_tools import AgentTool, ToolCall, argument
from remit.operations.operation import Answer, field, verb
from remit.operations.ports import Caller, RootPort


def _show_settings_lines(found: dict[str, Any], meaning: bool) -> Iterator[str]:
    """Yield each setting, with ``meaning`` also its description."""
    for row in found["settings"]:
        yield f"{row['key']} = {row['value']!r}  ({row['source']})"
        if meaning and row["meaning"]:
            yield f"    {row['meaning']}"


def _shape(call: ToolCall, found: dict[str, Any]) -> dict[str, Any]:
    """Return the settings below ``section``; the last part of a name decides whether it is secret.

    Raises:
        NotFoundError: there is no such setting.
    """
    section, rows = call.given["section"], []
    for row in found["settings"]:
        key = row["key"]
        if not section or key == section or key.startswith(f"{section}."):
            last = key.rpartition(".")[2]
            value = call.redactor.value({last: row["value"]})[last]
            rows.append({"key": key, "value": value, "source": row["source"]})
    if not rows:
        raise NotFoundError(f"There is no setting {section}; leave section out to see all.")
    return {"count": len(rows), "settings": rows}


def _say(output: dict[str, Any]) -> str:
    """Return the settings that are not the default; all settings if all are."""
    rows = output["settings"]
    own = [row for row in rows if row["source"] != "default"]
    said = f"{len(own)} of them not the default" if own else "all of them the default"
    lines = [f"{row['key']} is {row['value']} ({row['source']})" for row in (own or rows)]
    return "\n".join([f"There are {output['count']} settings, {said}:", *lines])


_TOOL = AgentTool(
    name="show_runtime_config", label="config", request=lambda call: {}, shape=_shape,
    about="Show the configuration in force: each setting, its value and where that came from "
    "(default, file, environment, flag). Keys and passwords stay hidden.",
    arguments={"section": argument(
        "only settings below this name, such as gateway or providers.openai", "",
        pattern="^[a-z_]+(\\.[A-Za-z0-9_-]+)*$",
    )},
    examples=(
        "show the configuration", "which settings are in force?", "what is configured?",
        "how is the runtime configured or set up?", "which settings are not at their default?",
        "where does the value of a setting come from?",
        ("what is the setting gateway.timeout_ms?", {"section": "gateway.timeout_ms"}),
    ),
    describe=_say,
    note="Cut to fit. Ask for one section.",
)  # fmt: skip


@verb("config show", agent_tools=(_TOOL,))
def show_settings(
    root: RootPort, caller: Caller, *, meaning: bool = field("Explain each setting.", False)
) -> Answer:
    """List every setting with its value and source.

    Returns:
        ``settings``: key, value (a secret is masked), source and meaning of each. The lines for
        people have the meaning only with ``meaning``.
    """
    from remit.kernel.settings import describe

    meanings = describe()
    found = {"settings": [
        {"key": key, "value": value, "source": source, "meaning": _meaning(meanings, key)}
        for key, value, source in root.loaded.rows()
    ]}  # fmt: skip
    return Answer(found, _show_settings_lines(found, meaning))


def _meaning(meanings: Mapping[str, str], key: str) -> str:
    """Return the description of a setting, or an empty text.

    A setting under a name that the user chose has the description of its table.
    """
    while key:
        if key in meanings:
            return meanings[key]
        for pattern, text in meanings.items():
            table, star, option = pattern.partition(".*.")
            if star and key.startswith(f"{table}.") and key.endswith(f".{option}"):
                return text
        key = key.rpartition(".")[0]
    return ""
