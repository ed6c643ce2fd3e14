"""``manifest.json``: identity, dependencies, permissions and files of a package.

A manifest is strict JSON that fits its schema and the rules that no schema can express.
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import orjson
from jsonschema import Draft202012Validator, ValidationError
from pydantic import TypeAdapter

from remit.kernel.canonical import canonical_json, sha256_hex
from remit.kernel.errors import excerpt
from remit.kernel.schemas import shipped_schema
from remit.packages.errors import PackageError
from remit.packages.paths import MANIFEST_NAME, folded, path_problem, shown, unseen
from remit.packages.permissions import Permissions

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
"""By folder, the only classification of its files, which occurs in no other folder.

A file is read by its folder and checked by its classification, so the two must agree."""

Place = tuple[str | int, ...]

_OTHER_CLASSIFICATIONS = ("document", "tool")  # Files outside of PLACES have one of these.
_FOLDED_PLACES = {folded(place): place for place in PLACES}
_MAX_DEPTH = 4  # No manifest needs lists and objects nested more deeply.
_MAX_MESSAGE = 300  # A message may quote a long value, of which it shows these characters.
_INTEGER = re.compile("-?[0-9]{1,16}")


@dataclass(frozen=True, slots=True)
class Dependency:
    """Another package that a manifest requires; immutable.

    Attributes:
        package_id: the other package.
        version: comparators separated by commas, all of which must hold: ``>=1.0.0,<2.0.0``.
    """

    package_id: str
    version: str


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of a package, as the manifest states it; immutable.

    Attributes:
        path: relative to the root; see :func:`remit.packages.path_problem`.
        sha256: ``sha256:`` and 64 lower-case hex digits.
        classification: the kind of file: ``contract``, ``prompt_pack``, …
    """

    path: str
    sha256: str
    classification: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a version of a package; immutable. :meth:`parse` checks, the class does not.

    Attributes:
        package_id: ``PKG-NAME-001``.
        version: a version of Semantic Versioning 2.0.0.
        schema_version: the version of the manifest's form.
        title: the name of the package for people.
        package_type: one lower-case word such as ``agent`` or ``learned``.
        spec_id: the specification that the package belongs to.
        framework_id: the framework of that specification.
        plane_id: the tier: ``hot``, ``ho2`` or ``ho1``.
        layer: a whole number from 0.
        dependencies: packages that must be installed.
        permissions: permissions of the package's agents.
        assets: all files of the package except the manifest.
        modules: dotted names of the runtime's modules that the package governs: ``remit.ledger``.
        supersedes: ids of packages that this one replaces.
        digest: ``sha256:`` and the SHA-256 of the manifest's canonical JSON (RFC 8785) in hex,
            which does not depend on the file's layout.
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
    supersedes: tuple[str, ...] = ()
    digest: str = ""

    @property
    def learned(self) -> bool:
        """True if a learner proposed the package, which changes content of other packages."""
        return self.package_type == "learned"

    @classmethod
    def parse(cls, data: bytes, source: str = MANIFEST_NAME) -> Manifest:
        """Return the manifest in a JSON file.

        Files of the package are not looked at.

        Args:
            data: the file's bytes: UTF-8 without a byte order mark.
            source: the file's name, for errors.

        Raises:
            PackageError: the file is not a valid manifest, with a code of :func:`read_manifest`.
                The message names the field, and the next step the expected value.
        """
        return _manifest(read_manifest(data, source))

    @classmethod
    def recorded(cls, data: bytes) -> Manifest:
        """Return the manifest in recorded bytes, which were checked before the recording.

        The schema is not checked again, so that reading is quick.

        Args:
            data: JSON in UTF-8.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: the bytes are not a manifest.
                NotCanonicalError is a ValueError.
        """
        return _manifest(orjson.loads(data))


_MANIFEST = TypeAdapter(Manifest)


def _manifest(value: Any) -> Manifest:
    digest = f"sha256:{sha256_hex(canonical_json(value))}"
    return _MANIFEST.validate_python({**value, "digest": digest})


def read_manifest(data: bytes, source: str, *, check: bool = True) -> Any:
    """Return the JSON value of a manifest; no :class:`Manifest` is made.

    Args:
        data: the file's bytes.
        source: the file's name, for errors.
        check: True to require a valid manifest; False requires only JSON that every reader
            understands alike.

    Raises:
        PackageError: ``manifest_encoding``: not UTF-8, or a byte order mark; ``manifest_json``: not
            JSON, or nested more than four deep; ``manifest_duplicate_key``; ``manifest_number``: a
            number is no integer, such as 1.0 or 1e3, or has more than 16 digits;
            ``manifest_text``: a text has an invisible character. With ``check`` also
            ``manifest_schema`` or ``bare_hex``: the value does not fit the schema;
            ``manifest_dependency`` or ``manifest_supersedes``: a package is named twice, or a
            version is malformed; a code of :func:`~remit.packages.path_problem`; ``twin_paths``:
            two paths differ only in case; ``misplaced``: a file's classification does not belong
            in its folder. The message begins with ``source`` and the field of the first problem;
            the next step gives the expected value.
    """
    try:
        value = _load(data)
        if check:
            _check(value)
    except PackageError as error:
        message = f"{source}, {error.message}"
        raise PackageError(error.code, message, next_step=error.next_step) from error
    return value


def _load(data: bytes) -> Any:
    plain = "Save it as plain UTF-8."
    if data.startswith(b"\xef\xbb\xbf"):
        _fail("manifest_encoding", (), "it begins with a byte order mark", plain)
    try:
        value = json.loads(
            data.decode(),
            object_pairs_hook=_unique,
            # Numbers that not every reader keeps exact stay as bytes, for _check_value to refuse.
            parse_float=str.encode,
            parse_constant=str.encode,
            parse_int=lambda text: int(text) if _INTEGER.fullmatch(text) else text.encode(),
        )
    except UnicodeDecodeError as error:
        _fail("manifest_encoding", (), f"it is not UTF-8 at byte {error.start}", plain)
    except json.JSONDecodeError as error:
        _fail("manifest_json", (), f"it is not JSON: {error}")
    except RecursionError:
        _fail("manifest_json", (), "it is nested too deeply")
    _check_value(value, ())
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            twice = f"the key {shown(name)} occurs twice in one object"
            _fail("manifest_duplicate_key", (), twice, "Keep one of them.")
        found[name] = value
    return found


def _check_value(value: Any, place: Place) -> None:
    """Raise PackageError for values and keys, of any depth, that ``json`` accepts."""
    if isinstance(value, bytes):
        problem = f"{value[:40].decode()} is not a whole number that every reader keeps exact"
        expected = "Write a whole number of at most 16 digits, or a string."
        _fail("manifest_number", place, problem, expected)
    if isinstance(value, str):
        if found := unseen(value):
            hidden = f"the text contains the invisible character U+{ord(found):04X}"
            _fail("manifest_text", place, hidden, "Write the text without it.")
    elif isinstance(value, dict | list):
        if len(place) == _MAX_DEPTH:
            _fail("manifest_json", place, "it is nested too deeply")
        for part, item in value.items() if isinstance(value, dict) else enumerate(value):
            _check_value(part, place)
            _check_value(item, (*place, part))


def _check(value: Any) -> None:
    if problem := next(_validator().iter_errors(value), None):
        _fail_schema(problem)
    _check_references(value)
    assets = value["assets"]
    for index, asset in enumerate(assets):
        _check_path(asset["path"], ("assets", index, "path"))
    _check_collisions([asset["path"] for asset in assets])
    for index, path in enumerate(value["permissions"].get("paths", ())):
        # A folder is checked by an example of a file in it.
        example = f"{path}x" if path.endswith("/") else path
        _check_path(example, ("permissions", "paths", index))
    for index, asset in enumerate(assets):
        _check_classification(index, asset["path"], asset["classification"])


def _fail(code: str, place: Place, problem: str, expected: str = "") -> NoReturn:
    where = "".join(f"{part!s:.100}/" for part in place)[:-1]
    where = where if where.isprintable() else ascii(where)
    raise PackageError(
        code, f"{where or 'the file'}: {excerpt(problem, _MAX_MESSAGE)}.", next_step=expected
    )


def _fail_schema(problem: ValidationError) -> NoReturn:
    place: Place = tuple(problem.absolute_path)
    value = cast("Any", problem.instance)
    expected = f"Expected here: {_description(problem)}."
    if problem.validator == "additionalProperties":
        name = next(key for key in value if key not in cast("Any", problem.schema)["properties"])
        no_key = f"the key {shown(name)} is unknown here"
        _fail("manifest_schema", (*place, name), no_key, expected)
    if place[-1:] == ("sha256",) and re.fullmatch("[0-9A-Fa-f]{64}", str(value)):
        hint = f"Write 'sha256:{value.lower()}'."
        _fail("bare_hex", place, "the hash lacks its algorithm", hint)
    _fail("manifest_schema", place, problem.message, expected)


def _check_references(manifest: Any) -> None:
    """Raise PackageError if a package is named twice as itself, dependency or superseded."""
    taken = {manifest["package_id"]: "the package itself"}
    pattern = shipped_schema("manifest")["properties"]["version"]["pattern"]
    for index, dependency in enumerate(manifest["dependencies"]):
        name = dependency["package_id"]
        place: Place = ("dependencies", index, "package_id")
        if name in taken:
            problem = f"cannot depend on {name}: it is {taken[name]}"
            _fail("manifest_dependency", place, problem, "Name every other package needed once.")
        taken[name] = "among the dependencies"
        for comparator in dependency["version"].split(","):
            if not re.fullmatch(pattern, bound := comparator.lstrip("<>=")):
                _fail(
                    "manifest_dependency",
                    ("dependencies", index, "version"),
                    f"{bound!r} is not a version",
                    "Write three numbers, like 1.0.0, after each comparator.",
                )
    for index, name in enumerate(manifest.get("supersedes", ())):
        if name in taken:
            problem = f"cannot supersede {name}: it is {taken[name]}"
            _fail("manifest_supersedes", ("supersedes", index), problem, "Name other packages.")


def _check_path(path: str, place: Place) -> None:
    code, problem = path_problem(path)
    if code:
        _fail(
            code,
            place,
            f"the path {shown(path)} {problem}",
            "Expected here: a path inside HOT/, HO2/ or HO1/, like "
            "HO1/contracts/PRC-NAME-001.json.",
        )


def _check_collisions(paths: list[str]) -> None:
    """Raise PackageError if paths or folders differ only in case or in Unicode's form."""
    known: dict[str, tuple[str, bool]] = {}
    for index, path in enumerate(paths):
        parts = path.split("/")
        for count in range(1, len(parts) + 1):
            entry = ("/".join(parts[:count]), count == len(parts))
            other = known.setdefault(folded(entry[0]), entry)
            if other is not entry and (other != entry or entry[1]):
                _fail(
                    "twin_paths",
                    ("assets", index, "path"),
                    f"the path {shown(path)} collides with {shown(other[0])}, at least where "
                    "case does not count",
                    "Give every file a unique name.",
                )


def _check_classification(index: int, path: str, kind: str) -> None:
    key = folded(path)
    place = next((place for start, place in _FOLDED_PLACES.items() if key.startswith(start)), "")
    if place and not path.startswith(place):
        _fail(
            "misplaced",
            ("assets", index, "path"),
            f"the path {shown(path)} is in {place} where case does not count",
            f"Write {place}, or choose another folder.",
        )
    allowed = (PLACES[place],) if place else _OTHER_CLASSIFICATIONS
    if kind not in allowed:
        home = next((folder for folder, its in PLACES.items() if its == kind), "another folder")
        _fail(
            "misplaced",
            ("assets", index, "classification"),
            f"{shown(path)} is a {kind}, which belongs in {home}",
            f"Expected here: {' or '.join(allowed)}. Or move the file.",
        )


@functools.cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(shipped_schema("manifest"))


def _description(problem: ValidationError) -> str:
    """Return the description in the schema that is nearest to a problem."""
    schema: Any = shipped_schema("manifest")
    node, found = schema, schema["description"]
    for part in problem.absolute_schema_path:  # The path leaves out "$ref".
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rpartition("/")[2]]
        node = node[part]
        if isinstance(node, dict):
            found = node.get("description", found)
    return str(found)
