"""What another version of a package changes for its agents (SPEC 10)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from remit.packages.archive import Archive
from remit.packages.manifest import Asset, Manifest
from remit.packages.permissions import PermissionsDiff, compare_permissions
from remit.packages.text_diff import DiffLimits, json_of, text_diff

__all__ = ["AssetChange", "Change", "DiffLimits", "PackageDiff", "compare"]

_FIELDS = (
    "package_id", "title", "package_type", "spec_id", "framework_id", "plane_id", "layer",
    "modules", "supersedes",
)  # fmt: skip
_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


@dataclass(frozen=True, slots=True)
class Change:
    """A value that is another now.

    Attributes:
        name: a manifest's key, a dependency's id, or an agent's field.
        old: the JSON value; ``None`` when it was not there.
        new: likewise.
    """

    name: str
    old: Any
    new: Any

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return {"name": self.name, "old": self.old, "new": self.new}


@dataclass(frozen=True, slots=True)
class AssetChange:
    """A file that was added, removed or changed.

    Attributes:
        change: ``added``, ``removed`` or ``changed``.
        old_sha256: ``sha256:`` and 64 hex digits; empty when it was not there.
        new_sha256: likewise.
        old_classification: empty when it was not there.
        new_classification: likewise.
        fields: of an agent, those that changed.
        diff: lines of a unified diff; of a removed file none.
        note: why there are none, or what is left out; empty otherwise.
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

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "path": self.path,
            "change": self.change,
            "old_sha256": self.old_sha256,
            "new_sha256": self.new_sha256,
            "old_classification": self.old_classification,
            "new_classification": self.new_classification,
            "fields": [one.to_dict() for one in self.fields],
            "diff": list(self.diff),
            "note": self.note,
        }

    def lines(self) -> Iterator[str]:
        """The same for people."""
        kinds = [one for one in (self.old_classification, self.new_classification) if one]
        yield f"{_SIGNS[self.change]} {self.path} ({' → '.join(dict.fromkeys(kinds))})"
        yield from (f"    {line}" for one in self.fields for line in _changed(one))
        if not self.fields:
            yield from (f"    {line}" for line in self.diff)
        if self.note:
            hashes = [one for one in (self.old_sha256, self.new_sha256) if one]
            yield f"    ({self.note}; {' → '.join(dict.fromkeys(hashes))})"


@dataclass(frozen=True, slots=True)
class PackageDiff:
    """What changes from one version of a package to another.

    Attributes:
        old_version: empty when there was none.
        manifest: keys of the manifest whose value changed, but those told below.
        dependencies: ranges by package id.
    """

    package_id: str
    old_version: str
    new_version: str
    permissions: PermissionsDiff
    manifest: tuple[Change, ...]
    dependencies: tuple[Change, ...]
    assets: tuple[AssetChange, ...]

    @property
    def widened(self) -> bool:
        """Whether anything is permitted that was not before."""
        return bool(self.permissions.widened)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return {
            "package_id": self.package_id,
            "old_version": self.old_version,
            "new_version": self.new_version,
            "widened": self.widened,
            "permissions": self.permissions.to_dict(),
            "manifest": [one.to_dict() for one in self.manifest],
            "dependencies": [one.to_dict() for one in self.dependencies],
            "assets": [one.to_dict() for one in self.assets],
        }

    def lines(self) -> list[str]:
        """The same for people, without colour; texts of the files are as they are in them."""
        if not self.old_version:
            told = [f"{self.package_id} {self.new_version}, new"]
        elif self.old_version == self.new_version:
            told = [f"{self.package_id} {self.new_version}"]
        else:
            told = [f"{self.package_id} {self.old_version} → {self.new_version}"]
        for change in self.manifest:
            told += [f"  {line}" for line in _changed(change)]
        sections = {
            "may do more than before" if self.widened else "may do": self.permissions.lines(),
            "needs": [line for one in self.dependencies for line in _changed(one)],
            "files": [line for one in self.assets for line in one.lines()],
        }
        for title, lines in sections.items():
            if lines:
                told += [f"{title}:", *(f"  {line}" for line in lines)]
        if len(told) == 1 and self.old_version:
            told.append("  nothing changed")
        return told


def compare(old: Archive | None, new: Archive, limits: DiffLimits) -> PackageDiff:
    """What changes from ``old`` to ``new``.

    Args:
        old: the package as it is; ``None`` when there is none, so that all is new.
        new: the package as it is to be.
        limits: how much of each file's comparison is told.
    """
    before = None if old is None else old.manifest
    after = new.manifest
    return PackageDiff(
        package_id=after.package_id,
        old_version="" if before is None else before.version,
        new_version=after.version,
        permissions=compare_permissions(
            None if before is None else before.permissions, after.permissions
        ),
        manifest=() if before is None else tuple(_manifest(before, after)),
        dependencies=tuple(
            _differing(
                {}
                if before is None
                else {one.package_id: one.version for one in before.dependencies},
                {one.package_id: one.version for one in after.dependencies},
            )
        ),
        assets=tuple(_assets(old, new, limits)),
    )


def _manifest(before: Manifest, after: Manifest) -> Iterator[Change]:
    for name in _FIELDS:
        old, new = (
            list(value) if isinstance(value, tuple) else value
            for value in (getattr(before, name), getattr(after, name))
        )
        if old != new:
            yield Change(name, old, new)


def _assets(old: Archive | None, new: Archive, limits: DiffLimits) -> Iterator[AssetChange]:
    before = {} if old is None else {asset.path: asset for asset in old.manifest.assets}
    after = {asset.path: asset for asset in new.manifest.assets}
    for path in sorted({*before, *after}):
        was, now = before.get(path), after.get(path)
        if was == now:
            continue
        yield _asset(
            was,
            now,
            None if old is None else old.files.get(path),
            new.files.get(path),
            limits,
        )


def _asset(
    was: Asset | None,
    now: Asset | None,
    old: bytes | None,
    new: bytes | None,
    limits: DiffLimits,
) -> AssetChange:
    diff: list[str] = []
    note = ""
    fields: list[Change] = []
    same = was is not None and now is not None and was.sha256 == now.sha256
    if now is not None and not same:
        diff, note = text_diff(old, new, limits)
        if was is not None and now.classification == "agent" and not note:
            fields = _agent_fields(old, new)
    asset = now or was
    assert asset is not None
    return AssetChange(
        path=asset.path,
        change="added" if was is None else "removed" if now is None else "changed",
        old_sha256="" if was is None else was.sha256,
        new_sha256="" if now is None else now.sha256,
        old_classification="" if was is None else was.classification,
        new_classification="" if now is None else now.classification,
        fields=tuple(fields),
        diff=tuple(diff),
        note=note,
    )


def _agent_fields(old: bytes | None, new: bytes | None) -> list[Change]:
    was, now = json_of(old or b""), json_of(new or b"")
    if not isinstance(was, dict) or not isinstance(now, dict):
        return []
    return list(_differing(was, now))


def _differing(old: dict[str, Any], new: dict[str, Any]) -> Iterator[Change]:
    for name in sorted({*old, *new}):
        if (name in old) != (name in new) or old.get(name) != new.get(name):
            yield Change(name, old.get(name), new.get(name))


def _changed(one: Change) -> list[str]:
    if one.old is None:
        return [f"+ {one.name} {_value(one.new)}"]
    if one.new is None:
        return [f"- {one.name} {_value(one.old)}"]
    if isinstance(one.old, int) and isinstance(one.new, int):
        return [f"~ {one.name} {one.old} → {one.new}"]
    return [f"- {one.name} {_value(one.old)}", f"+ {one.name} {_value(one.new)}"]


def _value(value: Any) -> str:
    if isinstance(value, str) and value.isprintable():
        return value
    return json.dumps(value, ensure_ascii=False)
