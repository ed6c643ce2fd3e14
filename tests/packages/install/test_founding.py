"""The root's own key, a ledger that is lost, links in the place of a root's folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.packages import PackageError, PackageKey, found_packages
from remit.packages.shipped import root_key_path, shipped_ids
from remit.packages.trust import TrustPolicy, change_trust, read_trust
from remit.runtime import Runtime, make_root
from tests.packages.hostile import Stage
from tests.packages.install.world import managing, opened, tree


@pytest.fixture
def root(stage: Stage) -> Path:
    return stage.root


def found(root: Path, *, new_ledger: bool = False) -> TrustPolicy:
    with opened(root) as ledger:
        found_packages(Root(root), ledger, by="tester", wait_s=5, new_ledger=new_ledger)
        return read_trust(root / TrustPolicy.FILE, ledger)


def swapped(root: Path) -> PackageKey:
    """Another key in the place of the root's own."""
    place = root_key_path(Root(root))
    place.unlink(missing_ok=True)
    return PackageKey.create(place, "somebody")


def lose_ledger(root: Path) -> None:
    for file in root.glob("ledger.db*"):
        file.unlink()


def trust(root: Path, change: Callable[[TrustPolicy], TrustPolicy]) -> None:
    with opened(root) as ledger:
        change_trust(root / TrustPolicy.FILE, ledger, change, "tester")


def test_the_own_key_is_trusted_for_what_ships_and_nothing_else(root: Path) -> None:
    (key,) = TrustPolicy.load(root / TrustPolicy.FILE).keys
    assert set(key.packages) == set(shipped_ids())
    assert not key.may_sign("PKG-EVIL-001")
    fewer = [*key.packages[1:], "PKG-MINE-001"]
    trust(root, lambda policy: policy.with_key(key.public, key.name, packages=fewer))
    (after,) = found(root).keys
    assert set(after.packages) == {*shipped_ids(), "PKG-MINE-001"}, "what newly ships is added"
    assert after.key_id == key.key_id
    assert found(root).keys == (after,)


def test_a_key_that_was_put_there_before_is_not_trusted(tmp_path: Path) -> None:
    root = Root(tmp_path / "root")
    root.keys.mkdir(parents=True, mode=0o700)
    key = swapped(root.path)
    with pytest.raises(PackageError, match="not a trusted key") as refused:
        make_root(root)
    assert refused.value.code == "foreign_key"
    assert "--new-ledger" in refused.value.next_step
    root_key_path(root).unlink()
    make_root(root)
    assert TrustPolicy.load(root.path / TrustPolicy.FILE).get(key.key_id) is None
    assert PackageKey.load(root_key_path(root)).key_id != key.key_id


def test_a_key_that_was_swapped_is_not_trusted(root: Path) -> None:
    key = swapped(root)
    before = tree(root)
    for new_ledger in (False, True):
        with pytest.raises((PackageError, RemitError)):
            make_root(Root(root), new_ledger=new_ledger)
    with pytest.raises(PackageError, match="not recorded"):
        found(root, new_ledger=True)
    assert tree(root) == before
    assert TrustPolicy.load(root / TrustPolicy.FILE).get(key.key_id) is None


@pytest.mark.parametrize("recorded", [False, True])
def test_killed_between_the_key_and_its_name(root: Path, recorded: bool) -> None:
    place = root_key_path(Root(root))
    beside = place.with_name("packages.pem.new")
    own = PackageKey.load(place).key_id
    if recorded:
        place.rename(beside)
    else:
        place.unlink()
        PackageKey.create(beside, "root")
    stray = PackageKey.load(beside).key_id
    policy = found(root)
    now = PackageKey.load(place).key_id
    assert not beside.exists()
    assert policy.find(now).status == "active"
    if recorded:
        assert now == own
    else:
        assert now != stray
        assert policy.get(stray) is None


def test_a_lost_ledger_is_not_replaced_unasked(root: Path) -> None:
    lose_ledger(root)
    before = tree(root)
    with pytest.raises(RemitError, match="the record of earlier operations is missing") as refused:
        make_root(Root(root))
    assert "--new-ledger" in refused.value.next_step
    root.joinpath("remit.toml").unlink()
    with pytest.raises(RemitError, match="there is no ledger"):
        Runtime.open(root, create=True)
    assert not list(root.glob("ledger.db*"))
    root.joinpath("remit.toml").write_bytes(before["remit.toml"])
    assert tree(root) == before
    make_root(Root(root), bare=True)
    with pytest.raises(RemitError, match="is empty"):
        make_root(Root(root))
    with opened(root) as ledger:
        assert ledger.count() == 0


def test_a_new_ledger_begins_where_that_is_asked_for(root: Path) -> None:
    own = PackageKey.load(root_key_path(Root(root))).key_id
    lose_ledger(root)
    make_root(Root(root), new_ledger=True)
    with opened(root) as ledger:  # what its key signed is left behind, on record
        assert ledger.read("LED-00000000").decision == "FORKED"
        assert ledger.verifier_key is not None
        assert ledger.verifier_key.name.endswith("/fork-1")
    with managing(root) as manager:
        assert set(manager.registry().packages) == set(shipped_ids())
    assert TrustPolicy.load(root / TrustPolicy.FILE).find(own).status == "active"
    make_root(Root(root))
    with pytest.raises(RemitError, match="nothing is lost"):
        make_root(Root(root), new_ledger=True)
    other = PackageKey.create(root.parent / "other.pem", "other")
    trust(root, lambda policy: policy.with_key(other.public, "other"))
    lose_ledger(root)
    with pytest.raises(PackageError) as refused:
        make_root(Root(root), new_ledger=True)
    assert refused.value.code == "trust_changed", "who else was trusted is not believed"
    root.joinpath(TrustPolicy.FILE).unlink()
    make_root(Root(root), new_ledger=True)
    assert TrustPolicy.load(root / TrustPolicy.FILE).get(other.key_id) is None


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    for folder in ("HOT", "HO2", "HO1", "HOT/installed", "HOT/keys", "HOT/registries"):
        root = tmp_path / folder.replace("/", "-")
        (root / folder).parent.mkdir(parents=True)
        (root / folder).symlink_to(outside)
        before = tree(root)
        for bare in (False, True):
            with pytest.raises(RemitError, match="is a link"):
                make_root(Root(root), bare=bare)
        assert list(outside.iterdir()) == []
        assert tree(root) == before
