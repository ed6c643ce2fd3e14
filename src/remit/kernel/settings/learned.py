"""The settings that adopted proposals brought: a layer over ``remit.toml``.

A learned package states them in ``HOT/learned/NAME/settings.json``, tables as TOML has them. Only
what :data:`LEARNABLE` names may be learned: an address, a key or a path never comes this way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from remit.kernel.errors import ConfigError
from remit.kernel.installed import InstalledFiles

__all__ = ["LEARNABLE", "LEARNED_FOLDER", "learned_layers", "not_learnable"]

LEARNED_FOLDER = "HOT/learned/"
LEARNED_FILE = "settings.json"

LEARNABLE: tuple[tuple[str, ...], ...] = (
    ("budget", "session_tokens"),
    ("budget", "session_turns"),
    ("budget", "work_order_tokens"),
    ("chat", "tools_allowed"),
    ("routing", "operator_preference"),
    ("routing", "rules"),
    ("routing", "set_aside"),
    ("routing", "models", "*", "abilities"),
)
"""By parts of their key the settings that may be learned; ``*`` is any name."""


def learned_layers(
    files: InstalledFiles, models: Mapping[str, Any], proposed: Mapping[str, bytes] | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The layers that learned packages installed, each with where it is from.

    Args:
        files: of the root.
        models: ``routing.models`` so far: what was learned of one that is gone is left out.
        proposed: files, by path, as a package that is not installed would bring them.

    Raises:
        ConfigError: one states what may not be learned.
        ChangedFileError: one is not as it was installed.
    """
    coming = proposed or {}
    for path in sorted({*files.paths(LEARNED_FOLDER), *coming}):
        if not (path.startswith(LEARNED_FOLDER) and path.endswith(f"/{LEARNED_FILE}")):
            continue
        layer = json.loads(coming[path] if path in coming else files.read(path))
        source = f"{files.owner(path) or 'proposed'} ({path})"
        if wrong := not_learnable(layer):
            raise ConfigError(
                f"{source} states {wrong}, which cannot be learned.",
                next_step="Go back to what was before: `remit learn rollback`.",
            )
        known = layer.get("routing", {}).get("models", {})
        for name in known.keys() - models.keys():
            del known[name]
        yield source, layer


def not_learnable(layer: Mapping[str, Any], *above: str) -> str:
    """The first dotted key of nested tables that may not be learned; empty when all may."""
    for key, value in layer.items():
        parts = (*above, key)
        fitting = [
            pattern
            for pattern in LEARNABLE
            if all(want in ("*", part) for want, part in zip(pattern, parts, strict=False))
        ]
        if any(len(pattern) <= len(parts) for pattern in fitting):
            continue
        if not fitting or not isinstance(value, Mapping):
            return ".".join(parts)
        if wrong := not_learnable(value, *parts):
            return wrong
    return ""
