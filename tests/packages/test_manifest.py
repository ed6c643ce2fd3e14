"""What a manifest may say, and how a wrong one is answered."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from remit.kernel.schemas import shipped_schema
from remit.packages import (
    PLACES,
    Asset,
    Dependency,
    Manifest,
    ManifestError,
    canonical_targz,
    in_range,
    path_problem,
    precedence,
)
from tests.packages.making import FILES, changing, encoded, manifest_of, sha256

RIGHT = manifest_of(FILES)


def changed(*place: str | int, to: Any) -> bytes:
    manifest = json.loads(encoded(RIGHT))
    changing(*place, to=to)(manifest)
    return encoded(manifest)


def with_paths(*paths: str) -> bytes:
    return encoded(manifest_of(dict.fromkeys(paths, b"")))


def test_a_right_manifest_is_read() -> None:
    manifest = Manifest.parse(encoded(RIGHT))
    assert manifest.package_id == "PKG-EXAMPLE-001"
    assert manifest.layer == 3
    assert manifest.dependencies == (Dependency("PKG-KERNEL-001", ">=1.0.0,<2.0.0"),)
    assert manifest.permissions.tools == ("list_sessions",)
    assert manifest.permissions.budgets == {"token_budget": 1000, "usd_budget": "0.50"}
    assert manifest.permissions.paths == ("HO1/contracts/",)
    assert manifest.modules == ("remit.agents.worker",)
    assert manifest.assets == tuple(
        Asset(path, sha256(data), kind)
        for (path, data), kind in zip(
            FILES.items(), ("contract", "prompt_pack", "policy"), strict=True
        )
    )


def test_the_example_in_the_page_is_one() -> None:
    page = (Path(__file__).parents[2] / "docs/package-format.md").read_text()
    manifest = Manifest.parse(page.split("```json\n")[1].split("```")[0].encode())
    assert manifest.package_id == "PKG-EXAMPLE-001"
    for name in shipped_schema("manifest")["properties"]:
        assert f"`{name}`" in page


def as_key(part: str) -> str | int:
    return int(part) if part.isdigit() else part


TWICE = encoded(RIGHT).replace(b'"layer": 3', b'"layer": 3,\n  "l\\u0061yer": 4')

# fmt: off
# name: (the field, its value, code, a word of the message)
WRONG_VALUES: dict[str, tuple[str, Any, str, str]] = {
    "id without number": ("package_id", "PKG-EXAMPLE", "manifest_schema", "PKG-NAME-001"),
    "version of two numbers": ("version", "1.2", "manifest_schema", "Semantic Versioning"),
    "another format": ("schema_version", "2.0", "manifest_schema", '"1.0"'),
    "unknown tier": ("plane_id", "ho3", "manifest_schema", "hot, ho2, ho1"),
    "layer below zero": ("layer", -1, "manifest_schema", "from 0"),
    "layer with a fraction": ("layer", 3.0, "manifest_number", "whole number"),
    "NaN": ("layer", float("nan"), "manifest_number", "whole number"),
    "spec id": ("spec_id", "FMWK-X", "manifest_schema", "SPEC-NAME"),
    "unknown key": ("scripts", {"install": "x"}, "manifest_schema", "the key 'scripts' is unknown"),
    "text that runs backwards": ("title", "a\u202egnp.exe", "manifest_text", "U+202E"),
    "unknown classification": ("assets/2/classification", "code", "manifest_schema", "prompt_pack"),
    "depends on itself": ("dependencies/0/package_id", "PKG-EXAMPLE-001", "manifest_dependency",
        "the package itself"),
    "range without a comparator": ("dependencies/0/version", "1.0.0", "manifest_schema", ">=1.0.0"),
    "module of others": ("modules/0", "os.path", "manifest_schema", "remit."),
    "too many models": ("permissions/models", [f"m{n}" for n in range(1001)], "manifest_schema",
        "at most 1000"),
    "dollars as a number": ("permissions/budgets/usd_budget", 1, "manifest_schema", '"0.50"'),
    "permission outside": ("permissions/paths/0", "HO1/../HOT/", "parent_path", "'..'"),
    "supersedes one twice": ("supersedes", ["PKG-OTHER-001"] * 2, "manifest_schema", "none twice"),
}
# name: (the path of an asset, code, a word)
WRONG_PATHS = {
    "parent": ("HO1/../../x", "parent_path", "'..'"),
    "absolute": ("/etc/passwd", "absolute_path", "is absolute"),
    "drive": ("C:/x", "absolute_path", "is absolute"),
    "parent by backslash": ("HO1\\..\\x", "parent_path", "'..'"),
    "empty part": ("HO1//x", "bad_path", "empty part"),
    "tier alone": ("HO1", "bad_path", "inside HOT/"),
    "outside the tiers": ("bin/x", "bad_path", "inside HOT/"),
    "backslash": ("HO1/a\\b", "bad_path", "backslash"),
    "escape": ("HO1/\x1b[2J", "manifest_text", "U+001B"),
    "not NFC": ("HO1/u\u0308", "bad_path", "NFC"),
    "stream of a file": ("HO1/a:b", "bad_path", "':'"),
    "reserved": ("HO1/aux.json", "bad_path", "reserved"),
    "end that is dropped": ("HO1/a.", "bad_path", "drops"),
    "long path": ("HO1/" + "/".join("abcd" * 38), "path_too_long", "192"),
}
# name: (file, code, the field that is named, a word of the message)
WRONG: dict[str, tuple[bytes, str, str, str]] = {
    name: (changed(*map(as_key, field.split("/")), to=to), code, field, word)
    for name, (field, to, code, word) in WRONG_VALUES.items()
} | {
    name: (with_paths(path), code, "assets/0/path", word)
    for name, (path, code, word) in WRONG_PATHS.items()
} | {
    "key twice": (TWICE, "manifest_duplicate_key", "", "'layer' occurs twice"),
    "not an object": (b"[]", "manifest_schema", "", "a JSON object"),
    "layer beyond all readers": (encoded(RIGHT).replace(b'"layer": 3',
        b'"layer": 1' + b"0" * 5000), "manifest_number", "layer", "16 digits"),
    "twin folders": (with_paths("HO1/a/x", "HO1/A/y"), "twin_paths", "assets/1/path",
        "collides with"),
    "a comma too many": (b'{\n  "a": 1,\n}', "manifest_json", "", "not JSON"),
    "nested": (b"[" * 100_000 + b"]" * 100_000, "manifest_json", "", "deep"),
    "another encoding": (encoded(RIGHT).replace(b"An example", b"An ex\xe4mple"),
        "manifest_encoding", "", "UTF-8"),
    "lone surrogate": (encoded(RIGHT).replace(b"An example", b"An \\ud800"), "manifest_text",
        "title", "U+D800"),
    "depends twice": (changed("dependencies", to=RIGHT["dependencies"] * 2), "manifest_dependency",
        "dependencies/1/package_id", "among the dependencies"),
    "model without a name": (changed("permissions", "models", to=["a", None]), "manifest_schema",
        "permissions/models/1", "without spaces"),
    "supersedes itself": (changed("supersedes", to=["PKG-OTHER-001", "PKG-EXAMPLE-001"]),
        "manifest_supersedes", "supersedes/1", "the package itself"),
    "supersedes what it needs": (changed("supersedes", to=["PKG-KERNEL-001"]),
        "manifest_supersedes", "supersedes/0", "among the dependencies"),
    "twins": (encoded({**RIGHT, "assets": RIGHT["assets"] + RIGHT["assets"][:1]}), "twin_paths",
        "assets/3/path", "collides with"),
    "file and folder": (with_paths("HO1/a", "HO1/A/y"), "twin_paths", "assets/1/path",
        "collides with"),
}
# fmt: on


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_manifest_is_refused_with_its_field(name: str) -> None:
    data, code, field, word = WRONG[name]
    with pytest.raises(ManifestError) as caught:
        Manifest.parse(data, "x/manifest.json")
    error = caught.value
    assert error.code == code
    assert error.message.startswith(f"x/manifest.json, {field or 'the file'}: ")
    assert word in str(error)
    assert len(str(error)) < 1000


@pytest.mark.parametrize("key", [key for key in RIGHT if key != "modules"])
def test_what_is_missing_is_named(key: str) -> None:
    with pytest.raises(ManifestError, match=f"{key!r} is a required property"):
        Manifest.parse(encoded({name: value for name, value in RIGHT.items() if name != key}))


@pytest.mark.parametrize("wrong", [{}, 1, {"path": 1, "sha256": "", "classification": ""}])
def test_the_first_of_many_wrong_assets_is_named(wrong: object) -> None:
    data = changed("assets", to=[*RIGHT["assets"] * 50, wrong, *[wrong] * 5_000])
    with pytest.raises(ManifestError, match="assets/150") as caught:
        Manifest.parse(data)
    assert caught.value.code == "manifest_schema"


def with_kind(path: str, kind: str) -> bytes:
    asset = {"path": path, "sha256": sha256(b""), "classification": kind}
    return encoded(manifest_of({}, assets=[asset]))


KINDS = [*PLACES.values(), "document", "tool"]
ELSEWHERE = ["HOT/documents/a", "HOT/policies/a", "HO1/agents/a", "HO2/contracts/a", "HO1/x"]


@pytest.mark.parametrize("path", [*(f"{place}a" for place in PLACES), *ELSEWHERE])
def test_place_and_classification_say_the_same(path: str) -> None:
    right = [PLACES[f"{path[:-1]}"]] if path[:-1] in PLACES else ["document", "tool"]
    for kind in KINDS:
        data = with_kind(path, kind)
        if kind in right:
            assert Manifest.parse(data).assets[0].classification == kind
            continue
        with pytest.raises(ManifestError) as caught:
            Manifest.parse(data)
        assert caught.value.code == "misplaced"
        assert ", assets/0/classification: " in caught.value.message
        assert any(one in caught.value.next_step for one in right)


def test_a_place_is_that_place_whatever_the_case() -> None:
    for path, kind in (("HO1/CONTRACTS/a", "document"), ("HOT/Policy/a.md", "policy")):
        with pytest.raises(ManifestError, match="case does not count") as caught:
            Manifest.parse(with_kind(path, kind))
        assert caught.value.code == "misplaced"


@given(st.text(max_size=80) | st.from_regex(r"(HOT|HO1)/[a-zA-Z./\\é]{1,30}", fullmatch=True))
def test_a_path_that_passes_is_one_file_inside_a_tier(path: str) -> None:
    code, problem = path_problem(path)
    assert bool(code) == bool(problem)
    if not code:
        parts = path.split("/")
        assert parts[0] in {"HOT", "HO2", "HO1"}
        assert len(parts) > 1
        assert not {"", ".", ".."} & set(parts)
        assert "\\" not in path


@given(st.lists(st.integers(1, 64), min_size=1, max_size=12))
def test_every_path_fits_a_header(lengths: list[int]) -> None:
    path = "HO1/" + "/".join("x" * length for length in lengths)
    if not path_problem(path)[0]:
        block = gzip.decompress(canonical_targz([(path, b"", 0o644)]))[:512]
        name, prefix = (field.rstrip(b"\0") for field in (block[:100], block[345:500]))
        assert (prefix + b"/" + name if prefix else name) == path.encode()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=12,
)


@given(st.sampled_from(sorted(RIGHT)), JSON)
def test_any_value_anywhere_is_taken_or_refused_with_its_field(key: str, value: Any) -> None:
    data = encoded({**RIGHT, key: value}).decode(errors="surrogatepass")
    try:
        Manifest.parse(data.encode(errors="replace"))
    except ManifestError as error:
        assert error.message.startswith("manifest.json, ")


@pytest.mark.parametrize(
    ("version", "allowed", "answer"),
    [
        ("1.0.0", ">=1.0.0,<2.0.0", True),
        ("1.10.0", ">=1.9.0", True),
        ("2.0.0", ">=1.0.0,<2.0.0", False),
        ("2.0.0-rc.1", ">=1.0.0,<2.0.0", False),
        ("2.0.0-rc.2", ">=2.0.0-rc.1", True),
        ("2.0.0-rc.10", ">2.0.0-rc.9", True),
        ("2.0.0-rc.1", ">=2.0.0-rc.1,<2.0.0", True),
        ("2.0.1-rc.1", ">=2.0.0-rc.1", False),
        ("1.0.0+build", "==1.0.0", True),
        ("1.0.1", "==1.0.0", False),
        ("1.0.0", ">1.0.0", False),
        ("1.0.0", "<1.0.0", False),
        ("1.0.0", "<=1.0.0", True),
    ],
)
def test_ranges(version: str, allowed: str, answer: bool) -> None:
    assert in_range(version, allowed) is answer


def test_versions_are_sorted_as_semantic_versioning_says() -> None:
    ordered = [
        "0.9.10", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2",
        "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "1.0.1", "1.10.0", "2.0.0-0", "2.0.0",
    ]  # fmt: skip
    assert sorted(sorted(ordered), key=precedence) == ordered
    assert precedence("1.0.0+a") == precedence("1.0.0+b")
