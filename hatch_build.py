"""Adds the files for operators and the examples to the wheel.

An editable installation reads both folders in the source tree, so its wheel omits them.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelFiles(BuildHookInterface):  # type: ignore[type-arg]
    """The build hook of the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the folders to the files of a standard build.

        Args:
            version: the kind of build, ``standard`` or ``editable``.
            build_data: the data of the build, which the hook changes.
        """
        if version == "standard":
            for folder in ("deploy", "examples"):
                build_data["force_include"][folder] = f"remit/assets/{folder}"
