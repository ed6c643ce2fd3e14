"""The settings of adopted proposals: a layer over ``remit.toml``.

A learned package states them in ``HOT/learned/NAME/settings.json``, as nested tables. Only the
settings in :data:`LEARNABLE` can be learned, so an address, a key or a path never comes this way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from remit.kernel.errors import ConfigError
from remit.kernel.installed_files import InstalledFiles

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
"""Keys of the settings that can be learned, in parts; ``*`` is any name."""


def learned_layers(
    files: InstalledFiles, models: Mapping[str, Any], proposed: Mapping[str, bytes] | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the settings layers of installed learned packages, each after its source.

    Layers come in the order of their file paths; later ones take precedence. The source names the
    package, or ``proposed``, and the path. Types of values are not checked. Errors are raised when
    a layer is reached.

    Args:
        files: the root's installed files.
        models: ``routing.models`` so far; values learned for a removed model are dropped.
        proposed: files by path of a package that is not installed; they replace installed files of
            the same path.

    Raises:
        ConfigError: a layer is not a JSON object, or states a setting that may not be learned.
        ChangedFileError: a file differs from the installed one, or the table of owners cannot be
            read.
    """
    coming = proposed or {}
    for path in sorted({*files.paths(LEARNED_FOLDER), *coming}):
        if not (path.startswith(LEARNED_FOLDER) and path.endswith(f"/{LEARNED_FILE}")):
            continue
        data = coming[path] if path in coming else files.read(path)
        source = f"{files.owner(path) or 'proposed'} ({path})"
        try:
            layer = json.loads(data)
            wrong = not_learnable(layer)
            problem = f"sets {wrong}, which cannot be learned" if wrong else ""
        except (ValueError, AttributeError, RecursionError) as error:
            problem = f"is not a JSON object: {error}"
        if problem:
            raise ConfigError(
                f"{source} {problem}.", next_step="Undo the change with `remit learn rollback`."
            )
        known = layer.get("routing", {}).get("models", {})
        for name in known.keys() - models.keys():
            del known[name]
        yield source, layer


def not_learnable(layer: Mapping[str, Any], *above: str) -> str:
    """Return the first dotted key that cannot be learned (see :data:`LEARNABLE`); empty if all can.

    Values are not checked.

    Args:
        layer: nested tables of settings.
        above: parts of the key of ``layer`` itself; none at the top.
    """
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
