"""What a bootstrap brings is found in the order of its dependencies, on any machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.packages import IncomingArchive, PackageError, read_bundle
from remit.packages.bootstrap import in_install_order
from tests.packages.bootstrap.making import ORDER, package, packages, unpacked
from tests.packages.making import LIMITS

_WORDS = ["APPLE", "BANANA", "CHERRY", "DATE", "ELDER", "FIG"]


def test_packages_are_found_in_order(bundle: tuple[bytes, dict[str, Any]], tmp_path: Path) -> None:
    top = unpacked(bundle[0], tmp_path / "unpacked") / "packages"
    files = [f"PKG-{word}-001-1.0.0.tar.gz" for word in ORDER]
    assert list(in_install_order(packages(), LIMITS)) == files
    (top / "PKG-DATE-001-1.0.0.intoto.json").write_bytes(b"signed")
    found = read_bundle(top, LIMITS)
    assert found == [
        IncomingArchive((top / name).read_bytes(), b"signed" if "DATE" in name else b"")
        for name in files
    ]
    with pytest.raises(PackageError) as caught:
        read_bundle(top, LIMITS.model_copy(update={"compressed_bytes": 100}))
    assert caught.value.code == "archive_too_large"
    (top / files[1]).write_bytes(b"damaged")
    with pytest.raises(PackageError):
        read_bundle(top, LIMITS)
    with pytest.raises(PackageError, match="No such file") as missing:
        read_bundle(tmp_path / "no", LIMITS)
    assert "packages/" in missing.value.next_step


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_graph_comes_in_one_order(data: st.DataObject) -> None:
    needs: dict[str, list[str]] = {}
    for word in data.draw(st.permutations(_WORDS)):
        needs[word] = data.draw(st.lists(st.sampled_from(sorted(needs) or [""]), unique=True))
        needs[word] = [one for one in needs[word] if one]
    archives = packages(needs)
    ordered = in_install_order(archives, LIMITS)
    shuffled = dict(data.draw(st.permutations(sorted(archives.items()))))
    assert list(in_install_order(shuffled, LIMITS)) == list(ordered)
    seen: set[str] = set()
    for manifest in ordered.values():
        assert {need.package_id for need in manifest.dependencies} <= seen
        seen.add(manifest.package_id)
    assert len(seen) == len(_WORDS)


@pytest.mark.parametrize(
    ("archives", "said"),
    [
        (packages({"APPLE": ["FIG"], "FIG": ["APPLE"]}), "circle"),
        (packages({"APPLE": ["FIG"]}), "PKG-FIG-001"),
        (
            {"one.tar.gz": package("APPLE", []), "two.tar.gz": package("APPLE", [])},
            r"one\.tar\.gz and two\.tar\.gz",
        ),
        ({}, "No packages"),
    ],
)
def test_what_cannot_be_ordered_is_refused(archives: dict[str, bytes], said: str) -> None:
    with pytest.raises(PackageError, match=said) as caught:
        in_install_order(archives, LIMITS)
    assert caught.value.next_step
