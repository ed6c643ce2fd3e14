"""What a new version changes, told to whoever has to approve it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import strategies as st

from remit.packages import (
    Archive,
    Manifest,
    Permissions,
    compare_packages,
    compare_permissions,
)
from remit.packages.diff import PackageDiff, json_of, text_diff
from tests.packages.making import encoded, manifest_of, sha256

AGENT = {"agent_id": "a", "title": "A", "contract_id": "PRC-A-001", "tools": ["x"]}


def view(files: dict[str, bytes], kinds: dict[str, str] | None = None, **more: Any) -> Archive:
    manifest = manifest_of(files, **more)
    for asset in manifest["assets"]:
        asset["classification"] = (kinds or {}).get(asset["path"], asset["classification"])
    return Archive(Manifest.parse(encoded(manifest)), encoded(manifest), files)


def compared(old: Archive, new: Archive) -> tuple[PackageDiff, str]:
    diff = compare_packages(old, new)
    json.dumps(asdict(diff), ensure_ascii=False).encode()  # plain, and with bytes of its own
    return diff, "\n".join(diff.lines())


# -- permissions -----------------------------------------------------------------------------


WIDER = [
    ({"tools": ("a",)}, {"tools": ("a",)}, []),
    ({"tools": ("a",)}, {"tools": ()}, []),
    ({"tools": ("a", "b")}, {"tools": ("b", "c")}, ["the tool c"]),
    ({"tools": ("read_*",)}, {"tools": ("read_file", "read_b*")}, []),
    ({"tools": ("read_b*",)}, {"tools": ("read_*",)}, ["the tool read_*"]),
    ({"tools": ("s__*",)}, {"tools": ("s__a@sha256:1", "s__b")}, []),
    ({"tools": ("s__a@sha256:1",)}, {"tools": ("s__a@sha256:2",)}, ["the tool s__a@sha256:2"]),
    ({"tools": ("s__a@sha256:1",)}, {"tools": ("s__a",)}, ["the tool s__a"]),
    ({"models": ("openai/*",)}, {"models": ("openai/gpt-*", "openai/*")}, []),
    ({"models": ("openai/gpt-4",)}, {"models": ("openai/gpt-4o",)}, ["the model openai/gpt-4o"]),
    ({"paths": ("HO1/",)}, {"paths": ("HO1/a/", "HO1/b.txt")}, []),
    ({"paths": ("HO1/a",)}, {"paths": ("HO1/a/",)}, ["the path HO1/a/"]),
    ({"paths": ("HO1/a/",)}, {"paths": ("HO1/ab",)}, ["the path HO1/ab"]),
    ({"paths": ("HO1/*/",)}, {"paths": ("HO1/b/",)}, ["the path HO1/b/"]),
    (
        {"budgets": {"token_budget": 9}},
        {"budgets": {"token_budget": 10}},
        ["a token_budget of 10 instead of 9"],
    ),
    ({"budgets": {"token_budget": 10}}, {"budgets": {"token_budget": 9}}, []),
    ({"budgets": {"usd_budget": "0.5"}}, {"budgets": {"usd_budget": "0.50"}}, []),
    ({"budgets": {"token_budget": 9}}, {}, ["no token_budget instead of 9"]),
    ({}, {"budgets": {"token_budget": 9}}, []),
    (None, {}, []),
    (None, {"tools": ("a",), "budgets": {"usd_budget": "9"}}, ["the tool a", "a usd_budget of 9"]),
]


@pytest.mark.parametrize(("old", "new", "wider"), WIDER)
def test_wider_is_what_was_not_permitted_before(
    old: dict[str, Any] | None, new: dict[str, Any], wider: list[str]
) -> None:
    before = None if old is None else Permissions(**old)
    assert list(compare_permissions(before, Permissions(**new)).widened) == wider
    same = compare_permissions(Permissions(**new), Permissions(**new))
    assert not same.widened
    assert not same.lines()


def test_what_changes_for_agents_is_compared() -> None:
    kinds = {
        "HO2/agents/a.json": "agent",
        "HO1/prompt_packs/p.txt": "prompt_pack",
        "HO1/contracts/c.json": "contract",
    }
    old = view(
        {
            "HO2/agents/a.json": encoded(AGENT),
            "HO1/prompt_packs/p.txt": b"Be kind.\nBe brief.\n",
            "HO1/contracts/c.json": b'{"b": 1, "a": {"max_tokens": 5}}',
            "HO1/gone.txt": b"secret words",
        },
        kinds,
        permissions={"tools": ["a"], "budgets": {"token_budget": 5}},
    )
    new = view(
        {
            "HO2/agents/a.json": encoded({**AGENT, "tools": ["x", "y"], "model": "openai/x"}),
            "HO1/prompt_packs/p.txt": b"Be kind.\nBe rude.\n",
            "HO1/contracts/c.json": b'{\n"a": {"max_tokens": 6},\n"b": 1}',
            "HO1/new.txt": b"hello\n",
        },
        kinds,
        version="1.3.0",
        plane_id="hot",
        permissions={"tools": ["a", "read_*"], "budgets": {"token_budget": 6}},
        dependencies=[
            {"package_id": "PKG-KERNEL-001", "version": ">=1.1.0"},
            {"package_id": "PKG-NEW-001", "version": ">=1.0.0"},
        ],
    )
    diff, text = compared(old, new)
    assert diff.widened
    assert text.splitlines() == [
        "PKG-EXAMPLE-001 1.2.0 → 1.3.0",
        "  - plane_id ho1",
        "  + plane_id hot",
        "may do more than before:",
        "  + tool read_*",
        "  ~ token_budget 5 → 6",
        "needs:",
        "  - PKG-KERNEL-001 >=1.0.0,<2.0.0",
        "  + PKG-KERNEL-001 >=1.1.0",
        "  + PKG-NEW-001 >=1.0.0",
        "files:",
        "  ~ HO1/contracts/c.json (contract)",
        "      @@ -1,6 +1,6 @@",
        "       {",
        '         "a": {',
        '      -    "max_tokens": 5',
        '      +    "max_tokens": 6',
        "         },",
        '         "b": 1',
        "       }",
        "  - HO1/gone.txt (document)",
        "  + HO1/new.txt (document)",
        "      @@ -0,0 +1 @@",
        "      +hello",
        "  ~ HO1/prompt_packs/p.txt (prompt_pack)",
        "      @@ -1,2 +1,2 @@",
        "       Be kind.",
        "      -Be brief.",
        "      +Be rude.",
        "  ~ HO2/agents/a.json (agent)",
        "      + model openai/x",
        '      - tools ["x"]',
        '      + tools ["x", "y"]',
    ]
    plain = asdict(diff)
    assert list(plain["permissions"]["widened"]) == [
        "the tool read_*", "a token_budget of 6 instead of 5",
    ]  # fmt: skip
    changes = {one["path"]: one["change"] for one in plain["assets"]}
    assert changes["HO1/gone.txt"] == "removed"
    assert changes["HO1/new.txt"] == "added"
    assert not compare_packages(new, old).widened


# -- hostile content -------------------------------------------------------------------------

HOSTILE = {
    "binary": (b"\xff\xfe\x00", "not text"),
    "NUL": (b"a\0b", "not text"),
    "too large": (b"x" * 1_048_577, "too large to show"),
    "a long line": (b"x" * 5000 + b"\n", "lines are cut after 4000 characters"),
    "many lines": (b"".join(b"%d\n" % n for n in range(100_000)), "more than 1000 lines"),
    "the same line": (b"a\n" * 400_000, "more than 1000 lines"),
    "deep JSON": (b"[" * 50_000, ""),
    "nested JSON": (b"[" * 900 + b"1" + b"]" * 900, ""),
    "a key twice": (b'{"a": 1, "a": 2}', ""),
    "half a character": (b'{"a": "\\ud800"}', ""),
    "an endless number": (b'{"a": 1e999}', ""),
    "no number": (b'{"a": NaN}', ""),
    "a long number": (b"1" * 5000, "lines are cut"),
    "a long list": (b"[" + b"1," * 30_000 + b"1]", "more than 1000 lines"),
    "a byte order mark": (b"\xef\xbb\xbf{}", ""),
    "control characters": ("a\u2028b\x1b[2J\u202ec\r\n".encode(), ""),
    "nothing": (b"", ""),
    "no end": (b"no end", ""),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_shown_within_bounds_or_named_with_both_hashes(name: str) -> None:
    data, note = HOSTILE[name]
    for old in ({"HO1/f": b"a\n" * 300}, {}):
        diff, text = compared(view(old), view({"HO1/f": data}))
        (asset,) = diff.assets
        assert asset.diff or asset.note or not data
        assert len(asset.diff) <= 1000
        assert max(map(len, asset.diff), default=0) <= 4001
        assert len(text) < 4_100_000
        if note and old:
            assert note in asset.note
            assert sha256(old["HO1/f"]) in text
            assert sha256(data) in text


def test_json_is_compared_as_values_where_all_read_it_alike() -> None:
    assert json_of(b'{"a": [1.5, null]}') == {"a": [1.5, None]}
    for data in (b'{"a": 1, "a": 1}', b'"\\ud800"', b"[1e999]", b"[-Infinity]", b"\xff", b"["):
        assert json_of(data) is None
    assert json_of(b"[" * 5000 + b"]" * 5000) is None
    lines, note = text_diff(b'{"tools": [], "tools": []}', b'{"tools": ["pay"], "tools": []}')
    assert '+{"tools": ["pay"], "tools": []}' in lines, "a key twice hides nothing"
    assert not note
    only_layout = text_diff(b'{"a":1,"b":2}', b'{"b": 2, "a": 1}\n')
    assert only_layout == ([], "only the layout changed")
    assert "-\\ no newline at the end" in text_diff(b"a", b"a\n")[0]


LINES = st.lists(st.sampled_from(["a", "b", "c", "", "d e"]), max_size=30)
