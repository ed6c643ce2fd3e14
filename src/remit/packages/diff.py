"""Comparison of two versions of a package."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

from remit.kernel.json_text import load_unique
from remit.packages.archive import Archive
from remit.packages.manifest import Manifest
from remit.packages.permissions import PermissionsDiff, compare_permissions

_FIELDS = (
    "package_id", "title", "package_type", "spec_id", "framework_id", "plane_id", "layer",
    "modules", "supersedes",
)  # fmt: skip
_MAX_LINES = 1_000  # A file with more lines is not compared.
_MAX_LINE_CHARS = 4_000
_MAX_FILE_BYTES = 1_048_576  # Of a larger file only the hashes are shown.
_CONTEXT_LINES = 3  # diff -u shows as many lines around a change.
_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


@dataclass(frozen=True, slots=True)
class Change:
    """A changed value of a manifest or of an agent; immutable.

    Attributes:
        name: a key of the manifest, the id of a dependency, or a field of an agent.
        old: the old JSON value; ``None`` if there was none.
        new: the new JSON value; ``None`` if there is none.
    """

    name: str
    old: Any
    new: Any

    def lines(self) -> list[str]:
        """Return the change as one or two lines for people.

        A new value has ``+``, an old one ``-``, a changed whole number or truth value ``~`` with
        both values. Another changed value gives two lines, the old one first.
        """
        if self.old is None:
            return [f"+ {self.name} {_text(self.new)}"]
        if self.new is None:
            return [f"- {self.name} {_text(self.old)}"]
        if isinstance(self.old, int) and isinstance(self.new, int):
            return [f"~ {self.name} {self.old} → {self.new}"]
        return [f"- {self.name} {_text(self.old)}", f"+ {self.name} {_text(self.new)}"]


@dataclass(frozen=True, slots=True)
class AssetChange:
    """A file that was added, removed or changed between two versions; immutable.

    Attributes:
        path: the file's path in the root.
        change: ``added``, ``removed`` or ``changed``.
        old_sha256: ``sha256:`` and 64 hex digits; empty for an added file.
        new_sha256: the same of the new version; empty for a removed file.
        old_classification: empty for an added file.
        new_classification: empty for a removed file.
        fields: changed fields of an agent; empty for other files.
        diff: lines of a unified diff; empty for a removed file, and if only the classification
            changed.
        note: the reason for missing lines of ``diff``; empty if it is complete.
    """

    path: str
    change: str
    old_sha256: str
    new_sha256: str
    old_classification: str
    new_classification: str
    fields: tuple[Change, ...]
    diff: tuple[str, ...]
    note: str

    def lines(self) -> Iterator[str]:
        """Yield the change as lines for people.

        The first line names the file and its classification; changed fields of JSON or the lines of
        a diff are indented below. A note about missing lines, with both hashes, comes last.
        """
        kinds = filter(None, (self.old_classification, self.new_classification))
        yield f"{_SIGNS[self.change]} {self.path} ({' → '.join(dict.fromkeys(kinds))})"
        yield from (f"    {line}" for change in self.fields for line in change.lines())
        if not self.fields:
            yield from (f"    {line}" for line in self.diff)
        if self.note:
            hashes = filter(None, (self.old_sha256, self.new_sha256))
            yield f"    ({self.note}; {' → '.join(dict.fromkeys(hashes))})"


@dataclass(frozen=True, slots=True)
class PackageDiff:
    """The changes from one version of a package to another, as data; immutable.

    Attributes:
        package_id: the id of the new version.
        old_version: the version before.
        new_version: the version after.
        widened: True if the new version has any permission that the old one lacks.
        permissions: changed permissions.
        manifest: other changed keys of the manifest.
        dependencies: changed version ranges, by package id.
        assets: changed files, sorted by path.
    """

    package_id: str
    old_version: str
    new_version: str
    widened: bool
    permissions: PermissionsDiff
    manifest: tuple[Change, ...]
    dependencies: tuple[Change, ...]
    assets: tuple[AssetChange, ...]

    def lines(self) -> list[str]:
        """Return the changes as lines for people, without colour, under a line with id and
        versions.

        Texts of files are not escaped. Without changes, a line says that nothing changed.
        """
        versions = dict.fromkeys((self.old_version, self.new_version))
        found = [f"{self.package_id} {' → '.join(versions)}"]
        found += [f"  {line}" for change in self.manifest for line in change.lines()]
        sections = {
            "may do more than before" if self.widened else "may do": self.permissions.lines(),
            "needs": [line for change in self.dependencies for line in change.lines()],
            "files": [line for change in self.assets for line in change.lines()],
        }
        for title, lines in sections.items():
            if lines:
                found += [f"{title}:", *(f"  {line}" for line in lines)]
        return found if len(found) > 1 else [*found, "  nothing changed"]


def compare_packages(old: Archive, new: Archive) -> PackageDiff:
    """Return the changes from one version of a package to another.

    Files are compared by the hashes in the manifests; nothing is verified, and the ids need not be
    equal.

    Args:
        old: the old version.
        new: the new version.
    """
    before, after = old.manifest, new.manifest
    permissions = compare_permissions(before.permissions, after.permissions)
    return PackageDiff(
        package_id=after.package_id,
        old_version=before.version,
        new_version=after.version,
        widened=bool(permissions.widened),
        permissions=permissions,
        manifest=_differing(_fields(before), _fields(after), _FIELDS),
        dependencies=_differing(_needs(before), _needs(after)),
        assets=tuple(_assets(old, new)),
    )


def _fields(manifest: Manifest) -> dict[str, Any]:
    values = {name: getattr(manifest, name) for name in _FIELDS}
    return {key: list(item) if isinstance(item, tuple) else item for key, item in values.items()}


def _needs(manifest: Manifest) -> dict[str, str]:
    return {need.package_id: need.version for need in manifest.dependencies}


def _assets(old: Archive, new: Archive) -> Iterator[AssetChange]:
    before, after = ({asset.path: asset for asset in one.manifest.assets} for one in (old, new))
    for path in sorted({*before, *after}):
        was, now = before.get(path), after.get(path)
        if was == now:
            continue
        diff: list[str] = []
        note = ""
        fields: tuple[Change, ...] = ()
        if now is not None and (was is None or was.sha256 != now.sha256):
            data = old.files.get(path)
            diff, note = text_diff(data, new.files[path])
            if data is not None and now.classification == "agent" and not note:
                values = json_of(data), json_of(new.files[path])
                if isinstance(values[0], dict) and isinstance(values[1], dict):
                    fields = _differing(*values)
        yield AssetChange(
            path=path,
            change="added" if was is None else "removed" if now is None else "changed",
            old_sha256=was.sha256 if was else "",
            new_sha256=now.sha256 if now else "",
            old_classification=was.classification if was else "",
            new_classification=now.classification if now else "",
            fields=fields,
            diff=tuple(diff),
            note=note,
        )


def _differing(
    old: Mapping[str, Any], new: Mapping[str, Any], names: tuple[str, ...] = ()
) -> tuple[Change, ...]:
    return tuple(
        Change(name, old.get(name), new.get(name))
        for name in names or sorted({*old, *new})
        if (name in old) != (name in new) or _pretty(old.get(name)) != _pretty(new.get(name))
    )


def _text(value: Any) -> str:
    if isinstance(value, str) and value.isprintable():
        return value
    return json.dumps(value, ensure_ascii=False)


def text_diff(old: bytes | None, new: bytes) -> tuple[list[str], str]:
    """Return the lines of a unified diff without file names.

    Two JSON files are compared as values: indented, with sorted keys; if only their layout differs,
    there are no lines. Files above 1 MiB, and files that are not UTF-8 or have a NUL, have no
    lines; nor have files of over 1,000 lines. Lines of over 4,000 characters are cut, and the note
    says so.

    Args:
        old: the file's old bytes; ``None`` for an added file.
        new: the file's new bytes.

    Returns:
        The lines, and a note with the reason for missing lines; the note is empty if the lines are
        complete.
    """
    sides = [new] if old is None else [old, new]
    if any(len(side) > _MAX_FILE_BYTES for side in sides):
        return [], "too large to show"
    try:
        texts = [side.decode() for side in sides]
    except UnicodeDecodeError:
        return [], "not text"
    if any("\0" in text for text in texts):
        return [], "not text"
    values = [json_of(side) for side in sides]
    if all(isinstance(value, dict | list) for value in values):
        texts = [f"{_pretty(value)}\n" for value in values]
    *before, after = map(_lines, texts)
    was = before[0] if before else []
    if max(len(was), len(after)) > _MAX_LINES:  # The comparison is quadratic.
        return [], f"more than {_MAX_LINES} lines"
    shown = [*unified_diff(was, after, n=_CONTEXT_LINES, lineterm="")][2:]  # without file names
    if not shown and old is not None and old != new:
        return [], "only the layout changed"
    if all(len(line) <= _MAX_LINE_CHARS for line in shown):
        return shown, ""
    note = f"lines are cut after {_MAX_LINE_CHARS} characters"
    return [f"{one[:_MAX_LINE_CHARS]}{'…' * (len(one) > _MAX_LINE_CHARS)}" for one in shown], note


def json_of(data: bytes) -> Any:
    """Return the value of strict JSON; ``None`` for any other bytes.

    Strict JSON is UTF-8, repeats no key, and has no lone surrogate, no number that cannot be kept,
    and not too deep nesting. The value ``null`` gives ``None`` too.

    Args:
        data: any bytes.
    """
    try:
        value = load_unique(data)
        _pretty(value)  # A deeply nested value cannot be written.
    except (ValueError, RecursionError):
        return None
    return value


def _lines(text: str) -> list[str]:
    *lines, last = text.split("\n")
    return [*lines, last, "\\ no newline at the end"] if last else lines


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
