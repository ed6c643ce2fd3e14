"""``manifest.json``: what a package is, needs, may do, and holds (SPEC 10)."""

from __future__ import annotations

import functools
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, NoReturn

from remit.canonical import canonical_json, sha256_hex
from remit.packages.errors import ManifestError
from remit.schemas import first_problem

__all__ = [
    "MANIFEST_NAME",
    "Asset",
    "Dependency",
    "Manifest",
    "Permissions",
    "folded",
    "in_range",
    "path_problem",
]

MANIFEST_NAME = "manifest.json"

# Constants of the format. A path of 192 bytes whose parts have at most 64 always has a slash
# where a ustar header can cut it into 155 and 100.
_PATH_BYTES = 192
_PART_BYTES = 64
_DEEPEST = 4  # lists and objects inside one another that a manifest can need
_MOST_SAID = 300  # characters of a problem; the rest of a quoted value helps nobody
_MOST_QUOTED = 100
_AT_ONCE = 100  # items checked together; no result depends on it
_TIERS = ("HOT", "HO2", "HO1")

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_WHOLE = re.compile(r"-?[0-9]{1,16}|true|false|null")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_NOT_IN_PATHS = re.compile('[<>:"|?*]')
_RESERVED = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³]) *(\..*)?", re.I)
_COMPARATOR = re.compile(r"(==|>=|<=|>|<)(.*)")

_Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Dependency:
    """Another package that has to be there, in a version that ``version`` allows.

    Attributes:
        version: comparators separated by commas, all of which hold: ``>=1.0.0,<2.0.0``.
    """

    package_id: str
    version: str


@dataclass(frozen=True, slots=True)
class Permissions:
    """What the package's agents may use; nothing that is not named.

    Attributes:
        budgets: ``token_budget`` (tokens) and ``usd_budget`` (decimal text, US dollars), each
            the most of one work order; either may be absent.
        paths: as an asset's; one that ends with ``/`` is a folder and all below it.
    """

    tools: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    budgets: Mapping[str, int | str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asset:
    """One file of the package.

    Attributes:
        path: relative to the root, see :func:`path_problem`.
        sha256: ``sha256:`` and 64 lower-case hex digits.
        classification: what the file is: ``contract``, ``prompt_pack``, …
    """

    path: str
    sha256: str
    classification: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of one package (SPEC 10).

    Attributes:
        digest: ``sha256:`` and the SHA-256 of the manifest's canonical JSON (RFC 8785) in hex;
            the way the file is laid out does not matter to it.
    """

    package_id: str
    version: str
    schema_version: str
    title: str
    package_type: str
    spec_id: str
    framework_id: str
    plane_id: str
    layer: int
    dependencies: tuple[Dependency, ...]
    permissions: Permissions
    assets: tuple[Asset, ...]
    modules: tuple[str, ...] = ()
    digest: str = ""

    @classmethod
    def parse(cls, data: bytes, source: str = MANIFEST_NAME) -> Manifest:
        """The manifest in a JSON file.

        Args:
            data: the file's bytes: UTF-8 without a byte order mark.
            source: its name, for the errors.

        Raises:
            ManifestError: it is not a manifest; the message names line and column and says what
                is expected there.
        """
        file = _File(data, source)
        value = file.value
        # Before the schema, whose message about a bare hash would be about a pattern.
        file.check_hashes()
        file.check_names()
        file.check_schema()
        file.check_dependencies()
        file.check_paths()
        granted = value["permissions"]
        lists = {name: tuple(granted.get(name, ())) for name in ("tools", "models", "paths")}
        return cls(
            **{
                **value,
                "dependencies": tuple(Dependency(**one) for one in value["dependencies"]),
                "permissions": Permissions(**lists, budgets=dict(granted.get("budgets", {}))),
                "assets": tuple(Asset(**one) for one in value["assets"]),
                "modules": tuple(value.get("modules", ())),
                "digest": f"sha256:{sha256_hex(canonical_json(value))}",
            }
        )


def path_problem(path: str) -> tuple[str, str]:
    """Why ``path`` cannot be an asset's, as ``(code, sentence)``; two empty texts when it can.

    A path is relative, inside ``HOT/``, ``HO2/`` or ``HO1/``, in Unicode's form NFC, its parts
    separated by single slashes, at most 192 bytes of UTF-8, a part at most 64, and names the same
    file on every file system: no part is ``.`` or ``..``, is one of Windows' reserved names, ends
    with a dot or a space, or holds a control character or one of ``\\ < > : " | ? *``.

    The code is ``absolute_path``, ``parent_path``, ``path_too_long`` or ``bad_path``.
    """
    parts = path.split("/")
    if path.startswith(("/", "\\")) or re.match("[A-Za-z]:", path):
        return "absolute_path", "is absolute"
    if ".." in re.split(r"[/\\]", path):
        return "parent_path", "leads out of the package with '..'"
    if _CONTROL.search(path):
        return "bad_path", "holds a control character"
    if len(path.encode()) > _PATH_BYTES or max(len(p.encode()) for p in parts) > _PART_BYTES:
        return "path_too_long", f"is longer than {_PATH_BYTES} bytes, or a part than {_PART_BYTES}"
    if "\\" in path:
        return "bad_path", "holds a backslash; parts are separated by '/'"
    if found := _NOT_IN_PATHS.search(path):
        return "bad_path", f"holds {found[0]!r}, which not every file system can store"
    if "" in parts or "." in parts:
        return "bad_path", "has an empty part or a part '.'"
    if parts[0] not in _TIERS or len(parts) == 1:
        return "bad_path", "is not inside HOT/, HO2/ or HO1/"
    if unicodedata.normalize("NFC", path) != path:
        return "bad_path", "is not in Unicode's form NFC"
    for part in parts:
        if _RESERVED.fullmatch(part):
            return "bad_path", f"has the part {part!r}, a reserved name on Windows"
        if part.endswith((".", " ")):
            return "bad_path", f"has the part {part!r}, whose end Windows drops"
    return "", ""


def folded(path: str) -> str:
    """What two paths share that a file system may take for one: upper and lower case, forms."""
    decomposed = unicodedata.normalize("NFD", path)
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", decomposed.casefold()))


def in_range(version: str, allowed: str) -> bool:
    """Whether a dependency's range allows ``version``.

    Args:
        version: as Semantic Versioning 2.0.0 writes it.
        allowed: comparators separated by commas, all of which have to hold. Versions are ordered
            by §11; build metadata does not count. A pre-release is in only where a comparator
            names a pre-release of the same three numbers, so that ``<2.0.0`` leaves out
            ``2.0.0-rc.1``.
    """
    mine = _precedence(version)
    named = not _prerelease(version)
    for comparator in allowed.split(","):
        found = _COMPARATOR.fullmatch(comparator)
        assert found is not None, "the schema has seen it"
        sign, bound = found.groups()
        theirs = _precedence(bound)
        held = (
            (mine == theirs and "=" in sign)
            or (mine < theirs and sign[0] == "<")
            or (mine > theirs and sign[0] == ">")
        )
        if not held:
            return False
        named = named or (_prerelease(bound) and mine[:3] == theirs[:3])
    return named


def _prerelease(version: str) -> bool:
    return "-" in version.partition("+")[0]


def _precedence(version: str) -> tuple[Any, ...]:
    core, _, pre = version.partition("+")[0].partition("-")
    numbers = tuple(int(part) for part in core.split("."))
    identifiers = tuple(
        (0, int(part), "") if re.fullmatch("[0-9]+", part) else (1, 0, part)
        for part in pre.split(".")
        if pre
    )
    return (*numbers, not pre, identifiers)


class _File:
    """A manifest's text, its value, and where in the text each part of the value stands."""

    def __init__(self, data: bytes, source: str) -> None:
        self.source = source
        self.text = ""
        if data.startswith(b"\xef\xbb\xbf"):
            self.fail(
                "manifest_encoding", 0, "begins with a byte order mark", "Save it as plain UTF-8."
            )
        try:
            self.text = data.decode()
        except UnicodeDecodeError as error:
            self.text = data[: error.start].decode()
            self.fail("manifest_encoding", error.start, "is not UTF-8", "Save it as plain UTF-8.")
        try:
            # Only whole numbers have a place in it; the walk below says where another stands.
            self.value: Any = json.loads(
                self.text,
                parse_float=lambda _: 0,
                parse_constant=lambda _: 0,
                parse_int=lambda text: int(text) if _WHOLE.fullmatch(text) else 0,
            )
        except json.JSONDecodeError as error:
            self.fail("manifest_json", error.pos, f"is not JSON: {error.msg}")
        except RecursionError:
            self.fail("manifest_json", 0, "is nested too deeply")
        self.places: dict[_Place, int] = {}
        self._walk()

    def fail(self, code: str, offset: int, problem: str, expected: str = "") -> NoReturn:
        """Raises what is wrong at that character of the text."""
        before = self.text[:offset]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise ManifestError(
            code,
            f"{self.source}, line {line}, column {column}: {_brief(problem)}.",
            line=line,
            column=column,
            next_step=expected,
        )

    def check_hashes(self) -> None:
        """A bare hash is the commonest slip, so it has words of its own."""
        assets = self.value.get("assets") if isinstance(self.value, dict) else None
        for index, asset in enumerate(assets if isinstance(assets, list) else ()):
            stated = asset.get("sha256") if isinstance(asset, dict) else None
            if isinstance(stated, str) and re.fullmatch("[0-9A-Fa-f]{64}", stated):
                self.fail(
                    "bare_hex",
                    self.places["assets", index, "sha256"],
                    "the hash does not say which it is",
                    f"Write 'sha256:{stated.lower()}'.",
                )

    def check_names(self) -> None:
        """Lists that hold nothing twice: comparing all with all is quick for texts alone."""
        granted = self.value.get("permissions") if isinstance(self.value, dict) else None
        inner = granted if isinstance(granted, dict) else {}
        most = _schema()["$defs"]["names"]["maxItems"]
        lists: list[tuple[_Place, Any]] = [
            (("permissions", name), inner.get(name)) for name in ("tools", "models", "paths")
        ]
        if isinstance(self.value, dict):
            lists.append((("modules",), self.value.get("modules")))
        for place, names in lists:
            if not isinstance(names, list):
                continue
            if len(names) > most:
                self.fail(
                    "manifest_schema",
                    self.places[place],
                    f"{'/'.join(map(str, place))} has more than {most} items",
                    f"Expected here: {_described(place)}.",
                )
            for index, name in enumerate(names):
                if not isinstance(name, str):
                    self.fail(
                        "manifest_schema",
                        self.places[*place, index],
                        f"{'/'.join(map(str, place))}/{index} is not a text",
                        f"Expected here: {_described((*place, index))}.",
                    )

    def check_schema(self) -> None:
        """Some at a time, so that the first problem is found soon, however many there are."""
        schema = _schema()
        long: dict[str, list[Any]] = {}
        if isinstance(self.value, dict):
            both = {name: self.value.get(name) for name in ("dependencies", "assets")}
            long = {name: items for name, items in both.items() if isinstance(items, list)}
            self._check((), schema, {**self.value, **{name: [] for name in long}})
        else:
            self._check((), schema, self.value)
        for name, items in long.items():
            one = {**schema["properties"][name]["items"], "$defs": schema["$defs"]}
            several = {"type": "array", "items": one, "$defs": schema["$defs"]}
            for start in range(0, len(items), _AT_ONCE):
                some = items[start : start + _AT_ONCE]
                if first_problem(several, some):
                    for index, item in enumerate(some, start):
                        self._check((name, index), one, item)

    def _check(self, base: _Place, schema: Mapping[str, Any], value: Any) -> None:
        problem = first_problem(schema, value)
        if not problem:
            return
        where, _, what = problem.partition(": ")
        place = self._place(base, where)
        expected = f"Expected here: {_described(place)}."
        if "unexpected)" in what:
            for name in re.findall("'([^']*)'", what):
                if (*place, name) in self.places:
                    self.fail(
                        "manifest_schema",
                        self.places[*place, name],
                        f"a manifest has no key {_shown(name)} here",
                        expected,
                    )
        shown = "/".join(map(str, place)) or "the manifest"
        self.fail("manifest_schema", self.places.get(place, 0), f"{shown}: {what}", expected)

    def _place(self, base: _Place, where: str) -> _Place:
        """The place that a problem's text names; keys that no manifest has are never meant."""
        depth = len(base)
        for place in self.places:
            rest = "/".join(map(str, place[depth:]))
            if rest == where and place[:depth] == base and _described(place):
                return place
        return base

    def check_dependencies(self) -> None:
        pattern = _schema()["properties"]["version"]["pattern"]
        seen = {self.value["package_id"]: "it is the package itself"}
        for index, one in enumerate(self.value["dependencies"]):
            name = one["package_id"]
            if name in seen:
                place = self.places["dependencies", index, "package_id"]
                self.fail(
                    "manifest_dependency",
                    place,
                    f"cannot depend on {name}: {seen[name]}",
                    "Name every other package that is needed once.",
                )
            seen[name] = "it is named above"
            for comparator in one["version"].split(","):
                bound = comparator.lstrip("<>=")
                if not re.fullmatch(pattern, bound):
                    self.fail(
                        "manifest_dependency",
                        self.places["dependencies", index, "version"],
                        f"{bound!r} is not a version",
                        "Write three numbers, like 1.0.0, after each comparator.",
                    )

    def check_paths(self) -> None:
        declared: list[tuple[str, _Place]] = [
            (asset["path"], ("assets", index, "path"))
            for index, asset in enumerate(self.value["assets"])
        ]
        self._check_paths(declared)
        self._check_twins(declared)
        for index, path in enumerate(self.value["permissions"].get("paths", ())):
            # A folder is as good as any file in it.
            example = f"{path}x" if path.endswith("/") else path
            self._check_paths([(example, ("permissions", "paths", index))])

    def _check_paths(self, paths: Iterable[tuple[str, _Place]]) -> None:
        for path, place in paths:
            code, problem = path_problem(path)
            if code:
                self.fail(
                    code,
                    self.places[place],
                    f"the path {_shown(path)} {problem}",
                    "Expected here: a path inside HOT/, HO2/ or HO1/, like "
                    "HO1/contracts/PRC-NAME-001.json.",
                )

    def _check_twins(self, paths: list[tuple[str, _Place]]) -> None:
        files: dict[str, str] = {}
        folders: dict[str, str] = {}
        for path, place in paths:
            problem = ""
            if folded(path) in files:
                twin = files[folded(path)]
                problem = "stands twice" if twin == path else f"is one file with {_shown(twin)}"
            elif folded(path) in folders:
                problem = "is a folder of another path"
            files[folded(path)] = path
            parts = path.split("/")
            for count in range(1, len(parts)):
                folder = "/".join(parts[:count])
                if folded(folder) in files:
                    problem = f"has the file {_shown(folder)} for a folder"
                elif folders.setdefault(folded(folder), folder) != folder:
                    problem = f"is in one folder with {_shown(folders[folded(folder)])}"
            if problem:
                self.fail(
                    "twin_paths",
                    self.places[place],
                    f"the path {_shown(path)} {problem}, at least where case does not count",
                    "Give every file a name of its own.",
                )

    def _walk(self) -> None:
        """Notes where everything stands, and refuses what ``json`` lets pass."""
        frames: list[list[Any]] = []  # of each open object its key, of each open list its index
        place: _Place = ()
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
                    self.fail(
                        "manifest_duplicate_key",
                        offset,
                        f"the key {_shown(str(place[-1]))} stands twice in one object",
                        "Keep one of them.",
                    )
                self.places[place] = offset
            else:
                place = tuple(frame[0] for frame in frames)
                self.places.setdefault(place, offset)
                if part in "{[":
                    if len(frames) == _DEEPEST:
                        self.fail("manifest_json", offset, "is nested too deeply")
                    # A key that no object has, until the first is read.
                    frames.append([0 if part == "[" else ""])
                    is_key = part == "{"
                elif part[0] == '"':
                    self._string(part, offset)
                elif not _WHOLE.fullmatch(part):
                    self.fail(
                        "manifest_number",
                        offset,
                        f"{part[:40]} is not a whole number that every reader keeps exact",
                        "Write a whole number of at most 16 digits, or a string.",
                    )

    def _string(self, literal: str, offset: int) -> str:
        text: str = json.loads(literal)
        if found := _CONTROL.search(text):
            self.fail(
                "manifest_text",
                offset,
                f"the text holds the character U+{ord(found[0]):04X}, which nobody sees",
                "Take it out.",
            )
        return text


def _described(place: _Place) -> str:
    """What the schema's own words say about that place; empty when it knows none such."""
    schema: Mapping[str, Any] = _schema()
    said = schema["description"]
    for part in place:
        if isinstance(part, int):
            schema = schema.get("items", {})
        else:
            schema = schema.get("properties", {}).get(part, {})
        said = schema.get("description", "")
        if "$ref" in schema:
            schema = _schema()["$defs"][schema["$ref"].rpartition("/")[2]]
    return str(said)


def _shown(text: str) -> str:
    """Quoted, with what cannot be seen escaped, and not too much of it."""
    text = text if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]}…"
    return ascii(text) if not text.isprintable() else repr(text)


def _brief(problem: str) -> str:
    return problem if len(problem) <= _MOST_SAID else f"{problem[:_MOST_SAID]}…"


@functools.cache
def _schema() -> dict[str, Any]:
    path = "assets/schemas/manifest.schema.json"
    schema: dict[str, Any] = json.loads(resources.files("remit").joinpath(path).read_bytes())
    return schema
