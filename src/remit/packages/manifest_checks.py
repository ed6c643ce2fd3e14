"""What a manifest must be beyond JSON: its schema, and what no schema can say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from remit.kernel.schemas import first_problem, shipped_schema
from remit.packages.manifest_text import ManifestText, Place, shown
from remit.packages.paths import folded, path_problem

__all__ = ["PLACES", "check_manifest"]

PLACES = {
    "HO1/contracts/": "contract",
    "HO1/prompt_packs/": "prompt_pack",
    "HO2/agents/": "agent",
    "HOT/schemas/": "schema",
    "HOT/specs/": "spec",
    "HOT/frameworks/": "framework",
    "HOT/policy/": "policy",
    "HOT/prices/": "prices",
    "HOT/routing/": "weights",
    "HOT/acceptance/": "acceptance",
    "HOT/config/": "config",
}
"""What lies in which folder, and nowhere else: a file is read by its place and checked by its
classification, so one must not say what the other does not."""

_ANYWHERE = ("document", "tool")  # in all other places
_FOLDED = {folded(place): place for place in PLACES}

_AT_ONCE = 100  # items checked together; no result depends on it


def check_manifest(file: ManifestText) -> None:
    """Refuses what is not a manifest.

    Raises:
        ManifestError: names the first problem's line and column, and what is expected there.
    """
    # Before the schema, whose message about a bare hash would be about a pattern.
    _check_hashes(file)
    _check_names(file)
    _check_schema(file)
    _check_dependencies(file)
    _check_supersedes(file)
    _check_paths(file)
    _check_kinds(file)


def _check_hashes(file: ManifestText) -> None:
    """A bare hash is the commonest slip, so it has words of its own."""
    assets = file.value.get("assets") if isinstance(file.value, dict) else None
    for index, asset in enumerate(assets if isinstance(assets, list) else ()):
        stated = asset.get("sha256") if isinstance(asset, dict) else None
        if isinstance(stated, str) and re.fullmatch("[0-9A-Fa-f]{64}", stated):
            file.fail(
                "bare_hex",
                file.places["assets", index, "sha256"],
                "the hash does not say which it is",
                f"Write 'sha256:{stated.lower()}'.",
            )


def _check_names(file: ManifestText) -> None:
    """Lists that hold nothing twice: comparing all with all is quick for texts alone."""
    granted = file.value.get("permissions") if isinstance(file.value, dict) else None
    inner = granted if isinstance(granted, dict) else {}
    most = shipped_schema("manifest")["$defs"]["names"]["maxItems"]
    lists: list[tuple[Place, Any]] = [
        (("permissions", name), inner.get(name)) for name in ("tools", "models", "paths")
    ]
    if isinstance(file.value, dict):
        lists += [((name,), file.value.get(name)) for name in ("modules", "supersedes")]
    for place, names in lists:
        if not isinstance(names, list):
            continue
        if len(names) > most:
            file.fail(
                "manifest_schema",
                file.places[place],
                f"{'/'.join(map(str, place))} has more than {most} items",
                f"Expected here: {_described(place)}.",
            )
        for index, name in enumerate(names):
            if not isinstance(name, str):
                file.fail(
                    "manifest_schema",
                    file.places[*place, index],
                    f"{'/'.join(map(str, place))}/{index} is not a text",
                    f"Expected here: {_described((*place, index))}.",
                )


def _check_schema(file: ManifestText) -> None:
    """Some at a time, so that the first problem is found soon, however many there are."""
    schema = shipped_schema("manifest")
    long: dict[str, list[Any]] = {}
    if isinstance(file.value, dict):
        both = {name: file.value.get(name) for name in ("dependencies", "assets")}
        long = {name: items for name, items in both.items() if isinstance(items, list)}
        _check(file, (), schema, {**file.value, **{name: [] for name in long}})
    else:
        _check(file, (), schema, file.value)
    for name, items in long.items():
        one = {**schema["properties"][name]["items"], "$defs": schema["$defs"]}
        several = {"type": "array", "items": one, "$defs": schema["$defs"]}
        for start in range(0, len(items), _AT_ONCE):
            some = items[start : start + _AT_ONCE]
            if first_problem(several, some):
                for index, item in enumerate(some, start):
                    _check(file, (name, index), one, item)


def _check(file: ManifestText, base: Place, schema: Mapping[str, Any], value: Any) -> None:
    problem = first_problem(schema, value)
    if not problem:
        return
    where, _, what = problem.partition(": ")
    place = _place(file, base, where)
    expected = f"Expected here: {_described(place)}."
    if "unexpected)" in what:
        for name in re.findall("'([^']*)'", what):
            if (*place, name) in file.places:
                file.fail(
                    "manifest_schema",
                    file.places[*place, name],
                    f"a manifest has no key {shown(name)} here",
                    expected,
                )
    named = "/".join(map(str, place)) or "the manifest"
    file.fail("manifest_schema", file.places.get(place, 0), f"{named}: {what}", expected)


def _place(file: ManifestText, base: Place, where: str) -> Place:
    """The place that a problem's text names; keys that no manifest has are never meant."""
    depth = len(base)
    for place in file.places:
        rest = "/".join(map(str, place[depth:]))
        if rest == where and place[:depth] == base and _described(place):
            return place
    return base


def _check_dependencies(file: ManifestText) -> None:
    pattern = shipped_schema("manifest")["properties"]["version"]["pattern"]
    seen = {file.value["package_id"]: "it is the package itself"}
    for index, one in enumerate(file.value["dependencies"]):
        name = one["package_id"]
        if name in seen:
            place = file.places["dependencies", index, "package_id"]
            file.fail(
                "manifest_dependency",
                place,
                f"cannot depend on {name}: {seen[name]}",
                "Name every other package that is needed once.",
            )
        seen[name] = "it is named above"
        for comparator in one["version"].split(","):
            bound = comparator.lstrip("<>=")
            if not re.fullmatch(pattern, bound):
                file.fail(
                    "manifest_dependency",
                    file.places["dependencies", index, "version"],
                    f"{bound!r} is not a version",
                    "Write three numbers, like 1.0.0, after each comparator.",
                )


def _check_supersedes(file: ManifestText) -> None:
    needed = {one["package_id"] for one in file.value["dependencies"]}
    for index, name in enumerate(file.value.get("supersedes", ())):
        problem = ""
        if name == file.value["package_id"]:
            problem = "it is the package itself"
        elif name in needed:
            problem = "it is among the dependencies"
        if problem:
            file.fail(
                "manifest_supersedes",
                file.places["supersedes", index],
                f"cannot supersede {name}: {problem}",
                "Name packages that this one takes the place of.",
            )


def _check_paths(file: ManifestText) -> None:
    declared: list[tuple[str, Place]] = [
        (asset["path"], ("assets", index, "path"))
        for index, asset in enumerate(file.value["assets"])
    ]
    _check_each(file, declared)
    _check_twins(file, declared)
    for index, path in enumerate(file.value["permissions"].get("paths", ())):
        # A folder is as good as any file in it.
        example = f"{path}x" if path.endswith("/") else path
        _check_each(file, [(example, ("permissions", "paths", index))])


def _check_kinds(file: ManifestText) -> None:
    for index, asset in enumerate(file.value["assets"]):
        path, kind = asset["path"], asset["classification"]
        key = folded(path)
        place = next((place for start, place in _FOLDED.items() if key.startswith(start)), "")
        if place and not path.startswith(place):
            file.fail(
                "misplaced",
                file.places["assets", index, "path"],
                f"the path {shown(path)} is in {place} where case does not count",
                f"Write {place}, or choose another folder.",
            )
        where = file.places["assets", index, "classification"]
        if place and kind != PLACES[place]:
            file.fail(
                "misplaced",
                where,
                f"{shown(path)} is a {kind}, but what lies in {place} is a {PLACES[place]}",
                f"Expected here: {PLACES[place]}. Or move the file.",
            )
        if not place and kind not in _ANYWHERE:
            home = next(folder for folder, its in PLACES.items() if its == kind)
            file.fail(
                "misplaced",
                where,
                f"{shown(path)} is a {kind}, which lies in {home} and nowhere else",
                f"Move the file there. Expected here: {' or '.join(_ANYWHERE)}.",
            )


def _check_each(file: ManifestText, paths: Iterable[tuple[str, Place]]) -> None:
    for path, place in paths:
        code, problem = path_problem(path)
        if code:
            file.fail(
                code,
                file.places[place],
                f"the path {shown(path)} {problem}",
                "Expected here: a path inside HOT/, HO2/ or HO1/, like "
                "HO1/contracts/PRC-NAME-001.json.",
            )


def _check_twins(file: ManifestText, paths: list[tuple[str, Place]]) -> None:
    files: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path, place in paths:
        problem = ""
        if folded(path) in files:
            twin = files[folded(path)]
            problem = "stands twice" if twin == path else f"is one file with {shown(twin)}"
        elif folded(path) in folders:
            problem = "is a folder of another path"
        files[folded(path)] = path
        parts = path.split("/")
        for count in range(1, len(parts)):
            folder = "/".join(parts[:count])
            if folded(folder) in files:
                problem = f"has the file {shown(folder)} for a folder"
            elif folders.setdefault(folded(folder), folder) != folder:
                problem = f"is in one folder with {shown(folders[folded(folder)])}"
        if problem:
            file.fail(
                "twin_paths",
                file.places[place],
                f"the path {shown(path)} {problem}, at least where case does not count",
                "Give every file a name of its own.",
            )


def _described(place: Place) -> str:
    """What the schema's own words say about that place; empty when it knows none such."""
    schema: Mapping[str, Any] = shipped_schema("manifest")
    said = schema["description"]
    for part in place:
        if isinstance(part, int):
            schema = schema.get("items", {})
        else:
            schema = schema.get("properties", {}).get(part, {})
        said = schema.get("description", "")
        if "$ref" in schema:
            schema = shipped_schema("manifest")["$defs"][schema["$ref"].rpartition("/")[2]]
    return str(said)
