"""The order in which packages are installed is found, not listed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.packages import PackageError
from remit.packages.bootstrap import BootstrapError, in_install_order
from tests.packages.bootstrap.making import ORDER, package, packages
from tests.packages.making import LIMITS

_WORDS = ["APPLE", "BANANA", "CHERRY", "DATE", "ELDER", "FIG"]


def test_each_comes_after_what_it_needs() -> None:
    ordered = in_install_order(packages(), LIMITS)
    assert [one.manifest.package_id for one in ordered] == [f"PKG-{one}-001" for one in ORDER]
    assert [one.data for one in ordered] == [packages()[one.archive] for one in ordered]


@given(st.data())
def test_any_graph_comes_in_one_order(data: st.DataObject) -> None:
    needs: dict[str, list[str]] = {}
    for word in data.draw(st.permutations(_WORDS)):
        needs[word] = data.draw(st.lists(st.sampled_from(sorted(needs) or [""]), unique=True))
        needs[word] = [one for one in needs[word] if one]
    archives = packages(needs)
    ordered = in_install_order(archives, LIMITS)
    shuffled = dict(data.draw(st.permutations(sorted(archives.items()))))
    assert in_install_order(shuffled, LIMITS) == ordered
    seen: set[str] = set()
    for one in ordered:
        assert {need.package_id for need in one.manifest.dependencies} <= seen
        seen.add(one.manifest.package_id)
    assert len(seen) == len(_WORDS)


def test_a_circle_is_refused() -> None:
    with pytest.raises(PackageError, match="circle") as caught:
        in_install_order(packages({"APPLE": ["FIG"], "FIG": ["APPLE"]}), LIMITS)
    assert caught.value.code == "dependency_cycle"


def test_a_need_that_nothing_meets_is_named() -> None:
    with pytest.raises(PackageError, match="PKG-FIG-001") as caught:
        in_install_order(packages({"APPLE": ["FIG"]}), LIMITS)
    assert caught.value.code == "missing_dependency"


def test_the_same_package_twice_is_refused() -> None:
    archives = {"one.tar.gz": package("APPLE", []), "two.tar.gz": package("APPLE", [])}
    with pytest.raises(BootstrapError, match=r"one\.tar\.gz and two\.tar\.gz"):
        in_install_order(archives, LIMITS)


def test_nothing_is_no_bootstrap() -> None:
    with pytest.raises(BootstrapError, match="no packages"):
        in_install_order({}, LIMITS)
