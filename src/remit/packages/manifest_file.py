"""``manifest.json`` as a file: strict JSON, its schema, what no schema can say, and where."""

from __future__ import annotations

import functools
import json
import re
from typing import Any, NoReturn, cast

from jsonschema import Draft202012Validator, ValidationError

from remit.kernel.errors import excerpt
from remit.kernel.schemas import shipped_schema
from remit.packages.errors import ManifestError
from remit.packages.paths import folded, path_problem, shown, unseen

__all__ = ["PLACES", "ManifestFile"]

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
"""Which classification belongs in which folder, and nowhere else: a file is read by its place and
checked by its classification, so one must not say what the other does not."""

Place = tuple[str | int, ...]

_ANYWHERE = ("document", "tool")  # in all other places
_FOLDED = {folded(place): place for place in PLACES}
_MAX_DEPTH = 4  # lists and objects inside one another that a manifest can need
_MAX_MESSAGE = 300  # characters
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_LITERAL = re.compile(r"-?[0-9]{1,16}|true|false|null")


class ManifestFile:
    """A manifest's text, its value, and where in the text each part of the value is.

    Attributes:
        value: the JSON value; all its numbers are whole.
        places: offset in the text of each part, such as ``("assets", 0, "path")``; of a value
            with a key that of the key.

    Args:
        data: the file's bytes.
        source: its name, for errors.

    Raises:
        ManifestError: it is not JSON that every reader understands alike.
    """

    def __init__(self, data: bytes, source: str) -> None:
        self.source = source
        self.text = ""
        plain = "Save it as plain UTF-8."
        if data.startswith(b"\xef\xbb\xbf"):
            self._fail("manifest_encoding", 0, "begins with a byte order mark", plain)
        try:
            self.text = data.decode()
        except UnicodeDecodeError as error:
            self.text = data[: error.start].decode()
            self._fail("manifest_encoding", error.start, "is not UTF-8", plain)
        try:
            # Only whole numbers are allowed; the walk below says where another is.
            self.value: Any = json.loads(
                self.text,
                parse_float=lambda _: 0,
                parse_constant=lambda _: 0,
                parse_int=lambda text: int(text) if _LITERAL.fullmatch(text) else 0,
            )
        except json.JSONDecodeError as error:
            self._fail("manifest_json", error.pos, f"is not JSON: {error.msg}")
        except RecursionError:
            self._fail("manifest_json", 0, "is nested too deeply")
        self.places: dict[Place, int] = {}
        self._walk()

    def check(self) -> None:
        """Refuse what is not a manifest.

        Raises:
            ManifestError: names the first problem's line and column, and what is expected there.
        """
        if problem := next(_validator().iter_errors(self.value), None):
            self._fail_schema(problem)
        self._check_references()
        assets = self.value["assets"]
        for index, asset in enumerate(assets):
            self._check_path(asset["path"], ("assets", index, "path"))
        self._check_collisions([asset["path"] for asset in assets])
        for index, path in enumerate(self.value["permissions"].get("paths", ())):
            # A folder is as good as any file in it.
            example = f"{path}x" if path.endswith("/") else path
            self._check_path(example, ("permissions", "paths", index))
        for index, asset in enumerate(assets):
            self._check_classification(index, asset["path"], asset["classification"])

    def _fail(self, code: str, where: int | Place, problem: str, expected: str = "") -> NoReturn:
        offset = where if isinstance(where, int) else self.places.get(where, 0)
        before = self.text[:offset]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        problem = excerpt(problem, _MAX_MESSAGE)
        raise ManifestError(
            code,
            f"{self.source}, line {line}, column {column}: {problem}.",
            line=line,
            column=column,
            next_step=expected,
        )

    def _walk(self) -> None:
        """Note where everything is, and refuse what ``json`` accepts."""
        frames: list[list[Any]] = []  # of each open object its key, of each open list its index
        is_key = False
        for found in _TOKEN.finditer(self.text):
            part, offset = found[0], found.start()
            if part in "}]":
                frames.pop()
                is_key = False
            elif part == ",":
                if isinstance(frames[-1][0], int):
                    frames[-1][0] += 1
                else:
                    is_key = True
            elif part == ":":
                is_key = False
            elif is_key:
                frames[-1][0] = self._string(part, offset)
                place = tuple(frame[0] for frame in frames)
                if place in self.places:
                    twice = f"the key {shown(str(place[-1]))} is twice in one object"
                    self._fail("manifest_duplicate_key", offset, twice, "Keep one of them.")
                self.places[place] = offset
            else:
                self.places.setdefault(tuple(frame[0] for frame in frames), offset)
                if part in "{[":
                    if len(frames) == _MAX_DEPTH:
                        self._fail("manifest_json", offset, "is nested too deeply")
                    # A key that no object has, until the first is read.
                    frames.append([0 if part == "[" else ""])
                    is_key = part == "{"
                elif part[0] == '"':
                    self._string(part, offset)
                elif not _LITERAL.fullmatch(part):
                    self._fail(
                        "manifest_number",
                        offset,
                        f"{part[:40]} is not a whole number that every reader keeps exact",
                        "Write a whole number of at most 16 digits, or a string.",
                    )

    def _string(self, literal: str, offset: int) -> str:
        text: str = json.loads(literal)
        if found := unseen(text):
            hidden = f"the text holds the invisible character U+{ord(found):04X}"
            self._fail("manifest_text", offset, hidden, "Write the text without it.")
        return text

    def _fail_schema(self, problem: ValidationError) -> NoReturn:
        place: Place = tuple(problem.absolute_path)
        value = cast("Any", problem.instance)
        expected = f"Expected here: {_description(problem)}."
        if problem.validator == "additionalProperties":
            name = next(
                key for key in value if key not in cast("Any", problem.schema)["properties"]
            )
            no_key = f"a manifest has no key {shown(name)} here"
            self._fail("manifest_schema", (*place, name), no_key, expected)
        if place[-1:] == ("sha256",) and re.fullmatch("[0-9A-Fa-f]{64}", str(value)):
            hint = f"Write 'sha256:{value.lower()}'."
            self._fail("bare_hex", place, "the hash does not say which it is", hint)
        named = "/".join(map(str, place)) or "the manifest"
        self._fail("manifest_schema", place, f"{named}: {problem.message}", expected)

    def _check_references(self) -> None:
        """No package is named twice among itself, what it needs and what it supersedes."""
        taken = {self.value["package_id"]: "the package itself"}
        pattern = shipped_schema("manifest")["properties"]["version"]["pattern"]
        for index, dependency in enumerate(self.value["dependencies"]):
            name = dependency["package_id"]
            place: Place = ("dependencies", index, "package_id")
            if name in taken:
                problem = f"cannot depend on {name}: it is {taken[name]}"
                self._fail(
                    "manifest_dependency", place, problem, "Name every other package needed once."
                )
            taken[name] = "among the dependencies"
            for comparator in dependency["version"].split(","):
                if not re.fullmatch(pattern, bound := comparator.lstrip("<>=")):
                    self._fail(
                        "manifest_dependency",
                        ("dependencies", index, "version"),
                        f"{bound!r} is not a version",
                        "Write three numbers, like 1.0.0, after each comparator.",
                    )
        for index, name in enumerate(self.value.get("supersedes", ())):
            if name in taken:
                problem = f"cannot supersede {name}: it is {taken[name]}"
                self._fail(
                    "manifest_supersedes", ("supersedes", index), problem, "Name other packages."
                )

    def _check_path(self, path: str, place: Place) -> None:
        code, problem = path_problem(path)
        if code:
            self._fail(
                code,
                place,
                f"the path {shown(path)} {problem}",
                "Expected here: a path inside HOT/, HO2/ or HO1/, like "
                "HO1/contracts/PRC-NAME-001.json.",
            )

    def _check_collisions(self, paths: list[str]) -> None:
        """No two paths, nor their folders, are one where case and Unicode's form do not count."""
        known: dict[str, tuple[str, bool]] = {}
        for index, path in enumerate(paths):
            parts = path.split("/")
            for count in range(1, len(parts) + 1):
                entry = ("/".join(parts[:count]), count == len(parts))
                other = known.setdefault(folded(entry[0]), entry)
                if other is not entry and (other != entry or entry[1]):
                    self._fail(
                        "twin_paths",
                        ("assets", index, "path"),
                        f"the path {shown(path)} collides with {shown(other[0])}, at least where "
                        "case does not count",
                        "Give every file a name of its own.",
                    )

    def _check_classification(self, index: int, path: str, kind: str) -> None:
        key = folded(path)
        place = next((place for start, place in _FOLDED.items() if key.startswith(start)), "")
        if place and not path.startswith(place):
            self._fail(
                "misplaced",
                ("assets", index, "path"),
                f"the path {shown(path)} is in {place} where case does not count",
                f"Write {place}, or choose another folder.",
            )
        allowed = (PLACES[place],) if place else _ANYWHERE
        if kind not in allowed:
            home = next((folder for folder, its in PLACES.items() if its == kind), "another folder")
            self._fail(
                "misplaced",
                ("assets", index, "classification"),
                f"{shown(path)} is a {kind}, which belongs in {home}",
                f"Expected here: {' or '.join(allowed)}. Or move the file.",
            )


@functools.cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(shipped_schema("manifest"))


def _description(problem: ValidationError) -> str:
    """The schema's description nearest to what failed."""
    schema: Any = shipped_schema("manifest")
    node, found = schema, schema["description"]
    for part in problem.absolute_schema_path:  # which leaves out "$ref"
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rpartition("/")[2]]
        node = node[part]
        if isinstance(node, dict):
            found = node.get("description", found)
    return str(found)
