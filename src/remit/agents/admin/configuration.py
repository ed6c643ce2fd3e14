"""The settings in force, and where each came from."""

from __future__ import annotations

from typing import Any

from remit.agents.admin.fitting import fit
from remit.agents.admin.hiding import Hiding
from remit.agents.tools import Tool, ToolError
from remit.kernel.settings import LoadedSettings, ToolSettings

__all__ = ["configuration_tools"]


def configuration_tools(
    loaded: LoadedSettings, settings: ToolSettings, hiding: Hiding
) -> list[Tool]:
    """``show_runtime_config``.

    Args:
        loaded: the settings of the root.
        settings: where outputs are cut.
        hiding: takes keys out of addresses and arguments of commands.
    """

    def show_runtime_config(section: str = "") -> dict[str, Any]:
        rows = [
            {"key": key, "value": hiding.value({_last(key): value})[_last(key)], "source": source}
            for key, value, source in loaded.rows()
            if not section or key == section or key.startswith(f"{section}.")
        ]
        if not rows:
            raise ToolError(f"There is no setting {section}; leave section out to see all.")
        fitted = fit(rows, settings.max_output_bytes // 2)
        output = {"status": "ok", "count": len(rows), "settings": fitted.value}
        if fitted.cut:
            output["note"] = "Cut to fit. Ask for one section."
        return output

    return [
        Tool(
            "show_runtime_config",
            "Show the configuration in force: each setting, its value and where that came from "
            "(default, file, environment, flag). Keys and passwords stay hidden.",
            {
                "type": "object",
                "properties": {
                    "section": {
                        "type": "string",
                        "pattern": "^[a-z_]+(\\.[A-Za-z0-9_-]+)*$",
                        "description": "only settings below this name, such as gateway or "
                        "providers.openai",
                        "default": "",
                    }
                },
                "additionalProperties": False,
            },
            show_runtime_config,
            (
                ("show the configuration", {}),
                ("which settings are in force?", {}),
                ("what is configured?", {}),
                ("how is the runtime configured?", {}),
            ),
            _describe,
            "config",
            on_unknown="retry",
        )
    ]


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _describe(output: dict[str, Any]) -> str:
    rows = [row for row in output["settings"] if isinstance(row, dict)]
    own = [row for row in rows if row["source"] != "default"]
    shown = ", ".join(f"{row['key']} is {row['value']}" for row in (own or rows)[:3])
    return (
        f"There are {output['count']} settings, {len(own)} of them not the default: {shown}."
        if own
        else f"There are {output['count']} settings, all of them the default: {shown}."
    )
